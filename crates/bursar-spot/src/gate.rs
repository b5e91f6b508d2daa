//! One Spot's gate, its lanes and its line: what may run now, and what is next. It knows no lock and runs no user code.
//!
//! Work waits for the gate, for the claim of its lane, or for both: where the gate is shared, everything needs it and an
//! actor's work needs its lane's claim as well; where it is not, the Spot's own work needs the gate and a lane's work
//! its claim alone. A turn that yields returns the gate and keeps the claim.
//!
//! Invariants:
//! 1. `held` from when a turn is granted the gate until that turn ends or yields; the state lies here exactly while the
//!    gate is free or granted to somebody who has not come for it yet.
//! 2. Nothing stands in the line while the gate is free.
//! 3. Work whose lane is claimed when its turn comes is set aside in the lane, and returns to its place in the line,
//!    which is ahead of all that was accepted later, when the claim is free.
//! 4. Only records in state `Line` or `Aside` are linked in the line or a lane; `Space` among those outside.
//! 5. `waiting` counts the counted records in `Line` and `Aside`; it never exceeds the limit.
//!    Nothing waits for space whose gate and claim are free: it is granted them as if it had just arrived.
//! 6. Once closing, no work starts but the last turn, and that when nothing runs and no yielded body is left.
//! 7. `Closed` is said once the state is dropped and the name is free, so that whoever waits for it finds neither.

use std::task::Waker;

use crate::error::CloseReason;
use crate::line::{Line, Ticket};

mod inner;
#[cfg(all(test, not(bursar_shuttle)))]
mod model;
mod words;

pub(crate) use words::{
    Arrival, Closing, Come, Dismissed, Effects, LaneIndex, Next, Phase, Place, Received, Taken,
};
use words::{Busy, Lane, Waiter};

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate<S, J> {
    state: Option<Box<S>>,
    busy: Option<Box<Busy<J>>>,
    seq: u64,
    /// Turns under way, granted ones included.
    running: u32,
    held: bool,
    shared: bool,
    phase: Phase,
    /// Whether a turn began since somebody last asked.
    used: bool,
}

impl<S, J> Gate<S, J> {
    /// A free gate; without a state, one that a first turn already holds and will bring it.
    pub(crate) fn new(state: Option<Box<S>>, shared: bool) -> Self {
        let held = state.is_none();
        Self {
            state,
            busy: None,
            seq: 0,
            running: u32::from(held),
            held,
            shared,
            phase: Phase::Open,
            used: true,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins a turn at once if nothing is before it.
    #[inline]
    pub(crate) fn take(&mut self, lane: LaneIndex) -> Option<Taken<S>> {
        if self.phase != Phase::Open || !self.free(lane) {
            return None;
        }
        Some(self.begin(lane))
    }

    /// Takes work in: started by the caller if it may begin at once, else kept in order of arrival. Beyond `limit`
    /// counted records it waits for space if it may.
    pub(crate) fn receive(
        &mut self,
        arrival: Arrival<J>,
        limit: u32,
        space: &mut Option<Waker>,
    ) -> Received<S, J> {
        if self.phase != Phase::Open {
            return Received::Closed(arrival.job);
        }
        if self.free(arrival.lane) {
            let taken = self.begin(arrival.lane);
            return Received::Start(arrival.job, taken);
        }
        let busy = &mut **self.busy.get_or_insert_with(|| Box::new(Busy::new()));
        let full = arrival.counted && (busy.waiting >= limit || !busy.space.is_empty());
        if full && space.is_none() {
            return Received::Refused(arrival.job);
        }
        self.seq += 1;
        let ticket = busy.records.add(
            Waiter {
                job: Some(arrival.job),
                waker: if full { space.take() } else { None },
                lane: arrival.lane,
                place: Place::Space,
                counted: arrival.counted,
                resumes: false,
            },
            self.seq,
        );
        if full {
            busy.keep_out(ticket, arrival.lane);
            return Received::Full(ticket);
        }
        self.line_up(ticket);
        Received::Queued(ticket)
    }

    /// Waits for the gate itself, to be woken when it is granted.
    pub(crate) fn wait(&mut self, waker: &mut Option<Waker>) -> Ticket {
        let busy = &mut **self.busy.get_or_insert_with(|| Box::new(Busy::new()));
        self.seq += 1;
        let ticket = busy.records.add(
            Waiter {
                job: None,
                waker: waker.take(),
                lane: None,
                place: Place::Line,
                counted: false,
                resumes: false,
            },
            self.seq,
        );
        busy.records.push(&mut busy.line, ticket);
        ticket
    }

    /// A turn ends: its claim is free, and so is the gate.
    #[inline]
    pub(crate) fn leave(&mut self, state: Option<Box<S>>, lane: LaneIndex) -> Effects<S, J> {
        self.running -= 1;
        if self.busy.is_none() && self.phase == Phase::Open {
            // Nobody waits and there is no lane.
            self.state = state;
            self.held = false;
            return Effects::NONE;
        }
        self.leave_busy(state, lane)
    }

    /// A turn yields: the gate is free, the claim is kept. The record stays until [`quit`](Self::quit) or a grant.
    pub(crate) fn yields(
        &mut self,
        state: Option<Box<S>>,
        lane: LaneIndex,
        waker: Waker,
    ) -> (Ticket, Effects<S, J>) {
        let busy = &mut **self.busy.get_or_insert_with(|| Box::new(Busy::new()));
        self.seq += 1;
        let place = match self.phase {
            Phase::Open => Place::Away,
            _ => Place::Closed,
        };
        let ticket = busy.records.add(
            Waiter {
                job: None,
                waker: Some(waker),
                lane,
                place,
                counted: false,
                resumes: true,
            },
            self.seq,
        );
        busy.yielded += 1;
        self.running -= 1;
        self.state = state;
        self.held = false;
        (ticket, self.next())
    }

    /// A completion is to come. `None` if nothing is taken in any more.
    pub(crate) fn owe(&mut self) -> Option<Ticket> {
        if self.phase != Phase::Open {
            return None;
        }
        let busy = &mut **self.busy.get_or_insert_with(|| Box::new(Busy::new()));
        self.seq += 1;
        let waiter = Waiter {
            job: None,
            waker: None,
            lane: None,
            place: Place::Away,
            counted: false,
            resumes: false,
        };
        Some(busy.records.add(waiter, self.seq))
    }

    /// Whether anything waits that would go before a turn which yields now.
    pub(crate) fn contended(&self) -> bool {
        self.phase != Phase::Open || self.busy.as_ref().is_some_and(|busy| busy.line.len() > 0)
    }

    /// Whether work of the lane that came now would be the first to wait.
    pub(crate) fn first(&self, lane: LaneIndex) -> bool {
        let Some(busy) = &self.busy else {
            return self.phase == Phase::Open;
        };
        let own = lane.and_then(|lane| busy.lanes.get(lane as usize));
        let of_gate = if self.uses_gate(lane) {
            busy.line.len()
        } else {
            0
        };
        let of_lane = own.map_or(0, |lane| lane.aside.len() + lane.outside.len());
        self.phase == Phase::Open && of_gate + of_lane == 0
    }

    /// What a yielded body waited for has come: it takes the gate if that is free, else it lines up.
    pub(crate) fn comes_back(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> Come<S> {
        let held = self.held;
        let Some(busy) = &mut self.busy else {
            return Come::Closed;
        };
        let Some(waiter) = busy.records.get(ticket) else {
            return Come::Closed;
        };
        match waiter.place {
            Place::Away if !held => {
                let lane = waiter.lane;
                busy.yielded -= 1;
                let old = busy.records.remove(ticket).waker;
                Come::Taken(self.begin_held(lane), old)
            }
            Place::Away => {
                waiter.place = Place::Line;
                std::mem::swap(&mut waiter.waker, waker);
                self.seq += 1;
                busy.records.renumber(ticket, self.seq);
                busy.records.push(&mut busy.line, ticket);
                Come::Wait
            }
            _ => self.come(ticket, waker),
        }
    }

    /// Whether the grant is there; while it is not, the new waker is kept and the old one handed back.
    pub(crate) fn come(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> Come<S> {
        let Some(busy) = &mut self.busy else {
            return Come::Closed;
        };
        let Some(waiter) = busy.records.get(ticket) else {
            return Come::Closed;
        };
        match waiter.place {
            Place::Granted => {
                if waiter.resumes {
                    busy.yielded -= 1;
                }
                let old = busy.records.remove(ticket).waker;
                let state = self.state.take();
                Come::Taken(Taken { state }, old)
            }
            Place::Closed => Come::Closed,
            _ => {
                std::mem::swap(&mut waiter.waker, waker);
                Come::Wait
            }
        }
    }

    /// The place of a record, if there still is one.
    pub(crate) fn place(&mut self, ticket: Ticket) -> Option<Place> {
        let busy = self.busy.as_mut()?;
        busy.records.get(ticket).map(|waiter| waiter.place)
    }

    /// As [`place`](Self::place). For what waits for space the new waker is kept, and the old one handed back.
    pub(crate) fn outside(&mut self, ticket: Ticket, waker: &mut Option<Waker>) -> Option<Place> {
        let busy = self.busy.as_mut()?;
        let waiter = busy.records.get(ticket)?;
        if waiter.place == Place::Space {
            std::mem::swap(&mut waiter.waker, waker);
        }
        Some(waiter.place)
    }

    /// Whoever waited for a grant goes away: a grant passes on, a claim is freed.
    pub(crate) fn quit(&mut self, ticket: Ticket) -> (Option<Waker>, Effects<S, J>) {
        match self.withdraw(ticket) {
            None => (None, Effects::NONE),
            Some((waiter, woken)) => {
                if waiter.place == Place::Granted {
                    self.running -= 1;
                    self.held = false;
                }
                if waiter.resumes {
                    if let Some(busy) = &mut self.busy {
                        busy.yielded -= 1;
                    }
                    self.unclaim(waiter.lane);
                }
                let mut effects = self.next();
                effects.also = woken;
                (waiter.waker, effects)
            }
        }
    }

    /// Takes back work that has not started, with the waker of whoever waited for space. `None` if it has, or is gone.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Option<(J, Option<Waker>, Effects<S, J>)> {
        let busy = self.busy.as_mut()?;
        busy.records.get(ticket)?.job.as_ref()?;
        let (waiter, woken) = self.withdraw(ticket)?;
        // It may have been the one that its lane had put forward; and what moves up into its place may be due.
        if waiter.place == Place::Line && !self.is_claimed(waiter.lane) {
            self.unclaim(waiter.lane);
        }
        let mut effects = self.next();
        effects.also = woken;
        waiter.job.map(|job| (job, waiter.waker, effects))
    }

    /// Opens a lane.
    pub(crate) fn open_lane(&mut self) -> u32 {
        let busy = self.busy.get_or_insert_with(|| Box::new(Busy::new()));
        busy.lanes.insert(Lane {
            claimed: false,
            aside: Line::new(),
            outside: Line::new(),
        }) as u32
    }

    /// A lane whose work has all ended goes.
    pub(crate) fn close_lane(&mut self, lane: u32) {
        if let Some(busy) = &mut self.busy {
            busy.lanes.remove(lane as usize);
        }
        self.tidy();
    }

    /// Takes in nothing more, and dismisses what has not started and what has yielded. `None` when that is done.
    pub(crate) fn close(&mut self, reason: CloseReason) -> Closing<S, J> {
        if self.phase != Phase::Open {
            return None;
        }
        self.phase = Phase::Closing(reason);
        let mut gone = Dismissed {
            jobs: Vec::new(),
            wakers: Vec::new(),
        };
        if let Some(busy) = &mut self.busy {
            for ticket in busy.records.tickets() {
                busy.dismiss(ticket, &mut gone);
            }
            busy.waiting = 0;
        }
        Some((gone, self.next()))
    }

    /// As `close`, if nothing runs, waits, has yielded or is claimed.
    pub(crate) fn evict(&mut self) -> Closing<S, J> {
        self.idle().then(|| self.close(CloseReason::IdleEvicted))?
    }

    /// Wakes `waker` when all has ended; false when it has.
    pub(crate) fn closed(&mut self, waker: &mut Option<Waker>) -> bool {
        if self.phase == Phase::Closed {
            return true;
        }
        let busy = self.busy.get_or_insert_with(|| Box::new(Busy::new()));
        let known = waker
            .as_ref()
            .is_some_and(|waker| busy.closers.iter().any(|known| known.will_wake(waker)));
        if !known {
            busy.closers.extend(waker.take());
        }
        false
    }

    /// All is over, and the name free: whoever waited for that is woken.
    pub(crate) fn ended(&mut self) -> Vec<Waker> {
        self.phase = Phase::Closed;
        let closers = self
            .busy
            .as_mut()
            .map(|busy| std::mem::take(&mut busy.closers));
        self.tidy();
        closers.unwrap_or_default()
    }

    /// Nothing runs, waits, has yielded or is claimed.
    pub(crate) fn idle(&self) -> bool {
        self.running == 0
            && self
                .busy
                .as_ref()
                .is_none_or(|busy| busy.records.is_empty())
    }

    /// Whether a turn began since this was last asked.
    pub(crate) fn was_used(&mut self) -> bool {
        std::mem::replace(&mut self.used, false)
    }

    /// Running turns, records that wait for one, and yielded ones.
    pub(crate) fn figures(&self) -> (u32, u32, u32) {
        match &self.busy {
            None => (self.running, 0, 0),
            Some(busy) => {
                let aside: u32 = busy.lanes.iter().map(|(_, lane)| lane.aside.len()).sum();
                (self.running, busy.line.len() + aside, busy.yielded)
            }
        }
    }
}
