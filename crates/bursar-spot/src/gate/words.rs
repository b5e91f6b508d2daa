//! The words of a gate: what it keeps of whom, and what it tells its caller to do.

use std::collections::BTreeMap;
use std::task::Waker;

use slab::Slab;

use crate::error::CloseReason;
use crate::line::{Line, Records, Ticket};

/// Which claim work needs: that of a lane, or none (the Spot's own work).
pub(crate) type LaneIndex = Option<u32>;

/// How far a Spot's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Waits for what runs to end, for this reason.
    Closing(CloseReason),
    /// The last turn runs.
    Last,
    /// The last turn has ended; the state goes, and then the name.
    Ending,
    Closed,
}

/// What a record's owner finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not accepted yet: the line is full.
    Space,
    /// Waits for the gate or, in a lane with a gate of its own, for that.
    Line,
    /// Set aside until its lane's claim is free.
    Aside,
    /// Yielded: it waits for something else.
    Away,
    /// Granted, and not come for yet.
    Granted,
    /// The Spot closed.
    Closed,
}

#[derive(Debug)]
pub(super) struct Waiter<J> {
    /// What is started when granted; without it somebody is woken to come for the grant.
    pub(super) job: Option<J>,
    pub(super) waker: Option<Waker>,
    pub(super) lane: LaneIndex,
    pub(super) place: Place,
    /// Accepted from outside, so that it counts against the limit.
    pub(super) counted: bool,
    /// Holds its lane's claim already.
    pub(super) resumes: bool,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) claimed: bool,
    pub(super) aside: Line,
    /// Its records that wait for space.
    pub(super) outside: Line,
}

/// What only a Spot with waiters, lanes or a closer needs.
#[derive(Debug)]
pub(super) struct Busy<J> {
    pub(super) records: Records<Waiter<J>>,
    pub(super) line: Line,
    /// The Spot's own records that wait for space.
    pub(super) outside: Line,
    /// Where records wait for space, by the number of the first there.
    pub(super) space: BTreeMap<u64, LaneIndex>,
    pub(super) lanes: Slab<Lane>,
    pub(super) waiting: u32,
    /// Records of yielded bodies, wherever they stand.
    pub(super) yielded: u32,
    pub(super) closers: Vec<Waker>,
}

impl<J> Busy<J> {
    pub(super) const fn new() -> Self {
        Self {
            records: Records::new(),
            line: Line::new(),
            outside: Line::new(),
            space: BTreeMap::new(),
            lanes: Slab::new(),
            waiting: 0,
            yielded: 0,
            closers: Vec::new(),
        }
    }

    /// Those of a lane that wait for space.
    fn outside(&mut self, lane: LaneIndex) -> (&mut Records<Waiter<J>>, &mut Line) {
        let line = match lane {
            None => &mut self.outside,
            Some(lane) => &mut self.lanes[lane as usize].outside,
        };
        (&mut self.records, line)
    }

    /// The first of a lane that waits for space.
    pub(super) fn first_outside(&mut self, lane: LaneIndex) -> Option<Ticket> {
        let (records, line) = self.outside(lane);
        records.head(line)
    }

    /// A new record waits for space.
    pub(super) fn keep_out(&mut self, ticket: Ticket, lane: LaneIndex) {
        let (records, line) = self.outside(lane);
        records.push(line, ticket);
        if line.len() == 1 {
            self.space.insert(ticket.number(), lane);
        }
    }

    /// A record waits for space no more.
    pub(super) fn let_in(&mut self, ticket: Ticket, lane: LaneIndex) {
        let (records, line) = self.outside(lane);
        records.unlink(line, ticket);
        let first = records.head(line);
        if self.space.remove(&ticket.number()).is_some() {
            if let Some(first) = first {
                self.space.insert(first.number(), lane);
            }
        }
    }

    /// Takes a record out of whatever it is linked in.
    pub(super) fn unlink(&mut self, ticket: Ticket) -> Option<()> {
        let waiter = self.records.get(ticket)?;
        let (place, lane) = (waiter.place, waiter.lane);
        match (place, lane) {
            (Place::Space, lane) => self.let_in(ticket, lane),
            (Place::Line, _) => self.records.unlink(&mut self.line, ticket),
            (Place::Aside, Some(lane)) => {
                self.records
                    .unlink(&mut self.lanes[lane as usize].aside, ticket);
            }
            _ => {}
        }
        Some(())
    }

    /// The Spot closes: a record whose owner will come for it is marked, any other is freed with its work. A grant
    /// stands.
    pub(super) fn dismiss(&mut self, ticket: Ticket, gone: &mut Dismissed<J>) {
        let Some(waiter) = self.records.get(ticket) else {
            return;
        };
        if matches!(waiter.place, Place::Granted | Place::Closed) {
            return;
        }
        if self.unlink(ticket).is_none() {
            return;
        }
        let Some(waiter) = self.records.get(ticket) else {
            return;
        };
        let waits = waiter.place == Place::Space || waiter.job.is_none();
        gone.jobs.extend(waiter.job.take());
        gone.wakers.extend(waiter.waker.take());
        if waits {
            waiter.place = Place::Closed;
        } else {
            self.records.remove(ticket);
        }
    }
}

/// What to do once the lock is gone.
#[derive(Debug)]
#[must_use = "a granted turn must be started"]
pub(crate) struct Effects<S, J> {
    pub(crate) next: Next<S, J>,
    /// Somebody whose work found space, or whose wait is over.
    pub(crate) woken: Option<Waker>,
    /// And another, where a withdrawal made room and what follows it did too.
    pub(crate) also: Option<Waker>,
}

/// What comes next on a gate.
#[derive(Debug)]
pub(crate) enum Next<S, J> {
    Nothing,
    Start {
        job: J,
        state: Option<Box<S>>,
    },
    Wake(Option<Waker>),
    /// Everything has ended: the last turn is due.
    Last(Box<S>, CloseReason),
    /// The last turn has ended: what is left is to be dropped and forgotten, and then [`Gate::ended`] called.
    ///
    /// [`Gate::ended`]: super::Gate::ended
    Ended(Option<Box<S>>),
}

impl<S, J> Effects<S, J> {
    pub(super) const NONE: Self = Self {
        next: Next::Nothing,
        woken: None,
        also: None,
    };
}

/// A turn that may begin.
#[derive(Debug)]
pub(crate) struct Taken<S> {
    /// Missing in a lane with a gate of its own.
    pub(crate) state: Option<Box<S>>,
}

/// How work was received.
#[derive(Debug)]
pub(crate) enum Received<S, J> {
    /// Nothing is before it.
    Start(J, Taken<S>),
    Queued(Ticket),
    /// It waits for space.
    Full(Ticket),
    /// It would have to wait for space, and was not to.
    Refused(J),
    Closed(J),
}

/// What who waits for a grant finds.
#[derive(Debug)]
pub(crate) enum Come<S> {
    /// And the waker that waited for it.
    Taken(Taken<S>, Option<Waker>),
    Wait,
    Closed,
}

/// What a close leaves to be dropped and woken.
#[derive(Debug)]
pub(crate) struct Dismissed<J> {
    pub(crate) jobs: Vec<J>,
    pub(crate) wakers: Vec<Waker>,
}

/// What a close leaves to do, if it began one.
pub(crate) type Closing<S, J> = Option<(Dismissed<J>, Effects<S, J>)>;

/// Work on its way in.
#[derive(Debug)]
pub(crate) struct Arrival<J> {
    pub(crate) job: J,
    pub(crate) lane: LaneIndex,
    pub(crate) counted: bool,
}
