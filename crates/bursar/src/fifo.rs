//! The one list of waiters that budgets and keys share. It knows no lock and no key. A record says how many units it
//! waits for, which mean nothing here; what is counted of a call that joins or leaves is counted here.
//!
//! A [`Slots`] holds the records of waiters; a [`List`] links some of them in the order of their arrival. A budget
//! has one list over one set of slots; a shard of the key table has one list a key over one set.
//!
//! Invariants:
//! 1. A record in state `Waiting` is linked in exactly one list; one in state `Granted` or `Stopped` in none.
//! 2. A slot is freed only by the call that owns it ([`Slots::remove`]), so an index never names another's record.
//! 3. Only the head leaves by being granted; every other departure is a withdrawal.
//! 4. A waker leaves its record when the record leaves the list, so that it is woken or dropped by whoever took it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::counters::Counters;
use crate::wake::{Kept, WakeList};

/// Names a waiter's record for the call that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(NonZeroU32);

impl Slot {
    /// One more than the index, so that a slot that may be none is no larger.
    fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// What a waiting call finds in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Granted,
    /// Withdrawn by shutdown.
    Stopped,
}

/// What a call says of itself when it starts to wait.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    /// Counts the call.
    pub(crate) counters: &'a Counters,
    /// Whose call it is, by its number in the runtime: who withdraws it finds its counters by that.
    pub(crate) operation: u64,
    /// Units it waits for; 0 for a key.
    pub(crate) units: u32,
    /// Made from inside live work of the same runtime: shutdown does not withdraw it.
    pub(crate) nested: bool,
    /// Holds nothing while it waits, and never did, so whoever ends its wait without granting counts it finished, under the lock: a
    /// withdrawn future that nobody polls then blocks no drain.
    pub(crate) bare: bool,
    /// Already counted as admitted, having waited elsewhere before.
    pub(crate) counted: bool,
    pub(crate) waker: Kept,
}

/// How an attempt to join a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// What was asked for had come free meanwhile and is held now.
    Taken,
    Queued(Slot),
    Stopping,
}

#[derive(Debug)]
struct Waiter {
    waker: Kept,
    operation: u32,
    units: u32,
    before: u32,
    after: u32,
    state: State,
    nested: bool,
    bare: bool,
}

impl Waiter {
    fn seen(&self) -> Seen {
        Seen {
            operation: self.operation,
            units: self.units,
            state: self.state,
        }
    }
}

/// What a snapshot sees of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The operation's number.
    pub(crate) operation: u32,
    pub(crate) units: u32,
    pub(crate) state: State,
}

/// How many records of one queue a snapshot looks at, which holds the queue's lock meanwhile.
pub(crate) const LOOK: usize = 65_536;

/// Who comes first in a queue: runs of calls of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(pub(crate) Vec<Run>);

/// So many calls in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) operation: u32,
    pub(crate) units: u32,
    pub(crate) calls: u32,
}

impl Line {
    /// Runs kept.
    const MOST: usize = 16;

    /// Takes in the next waiter; false once it is full.
    pub(crate) fn push(&mut self, seen: Seen) -> bool {
        let Seen {
            operation, units, ..
        } = seen;
        let full = self.0.len() == Self::MOST;
        match self.0.last_mut() {
            Some(run) if run.operation == operation && run.units == units => run.calls += 1,
            _ if full => return false,
            _ => self.0.push(Run {
                operation,
                units,
                calls: 1,
            }),
        }
        true
    }

    /// The beginning of a queue.
    pub(crate) fn of(waiters: impl Iterator<Item = Seen>) -> Self {
        let mut line = Self::default();
        for waiter in waiters.take(LOOK) {
            if !line.push(waiter) {
                break;
            }
        }
        line
    }
}

const NONE: u32 = u32::MAX;

/// Waiters linked in order of arrival.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }
}

/// The records of waiters.
#[derive(Debug)]
pub(crate) struct Slots(Slab<Waiter>);

/// Above this many slots an emptied slab gives its memory back.
const KEEP: usize = 64;

impl Slots {
    pub(crate) const fn new() -> Self {
        Self(Slab::new())
    }

    /// Puts the call at the tail and counts it as admitted, if no earlier wait did.
    ///
    /// Counted here, under the caller's lock and before the record can be seen, since a shutdown that withdraws the
    /// record counts it finished: finished never runs ahead of admitted.
    pub(crate) fn push(&mut self, list: &mut List, arrival: Arrival<'_>) -> Slot {
        if !arrival.counted {
            arrival.counters.queued();
        }
        let index = self.0.insert(Waiter {
            waker: arrival.waker,
            operation: arrival.operation as u32,
            units: arrival.units,
            before: list.tail,
            after: NONE,
            state: State::Waiting,
            nested: arrival.nested,
            bare: arrival.bare,
        }) as u32;
        match list.tail {
            NONE => list.head = index,
            tail => self.at(tail).after = index,
        }
        list.tail = index;
        list.len += 1;
        Slot::new(index)
    }

    /// The number of the head's operation.
    pub(crate) fn head_operation(&self, list: &List) -> Option<u32> {
        self.0.get(list.head as usize).map(|head| head.operation)
    }

    /// Units the head waits for.
    pub(crate) fn head_units(&self, list: &List) -> Option<u32> {
        self.0.get(list.head as usize).map(|head| head.units)
    }

    /// Grants the head and hands out its waker. `None` when the list is empty.
    #[inline]
    pub(crate) fn grant_head(&mut self, list: &mut List) -> Option<Waker> {
        match list.head {
            NONE => None,
            head => self.unlink(list, head, State::Granted),
        }
    }

    /// Withdraws every waiter that is not nested, counting finished those that hold nothing. `counters` are those of all
    /// operations, by number.
    pub(crate) fn stop(
        &mut self,
        list: &mut List,
        counters: &[Arc<Counters>],
        wakes: &mut WakeList,
    ) {
        let mut index = list.head;
        while index != NONE {
            let waiter = self.at(index);
            let after = waiter.after;
            if !waiter.nested {
                if waiter.bare {
                    let counters = &counters[waiter.operation as usize];
                    counters.withdrawn();
                    counters.never_ran();
                    counters.finished();
                }
                if let Some(waker) = self.unlink(list, index, State::Stopped) {
                    wakes.push(waker);
                }
            }
            index = after;
        }
    }

    /// What a call finds when it is polled. The waker is cloned by the caller, without its lock, and only if it must be
    /// kept: a call that is woken finds its end nearly always.
    pub(crate) fn poll(
        &mut self,
        slot: Slot,
        current: &Waker,
        fresh: &mut Kept,
        counters: &Counters,
    ) -> Polled {
        let waiter = self.at(slot.index());
        if waiter.state != State::Waiting {
            return Polled::Ended(self.remove(None, slot, false, counters));
        }
        if fresh.is_some() {
            std::mem::swap(&mut waiter.waker, fresh);
        } else if !waiter.waker.will_wake(current) {
            return Polled::Stale;
        }
        Polled::Waiting
    }

    /// Frees the record of a call that has seen its end or goes away. A record that still waited is unlinked. A bare
    /// one that was not withdrawn by shutdown is counted finished if the call is `leaving`, by its own `counters`.
    pub(crate) fn remove(
        &mut self,
        list: Option<&mut List>,
        slot: Slot,
        leaving: bool,
        counters: &Counters,
    ) -> Removed {
        if let (State::Waiting, Some(list)) = (self.at(slot.index()).state, list) {
            self.detach(list, slot.index());
        }
        let mut waiter = self.0.remove(slot.index() as usize);
        match waiter.state {
            // One that holds something ends now, not when it was withdrawn.
            State::Stopped if !waiter.bare => counters.withdrawn(),
            State::Stopped => {}
            _ if leaving && waiter.bare => {
                counters.never_ran();
                counters.finished();
            }
            _ => {}
        }
        if self.0.is_empty() && self.0.capacity() > KEEP {
            self.0 = Slab::new();
        }
        Removed {
            state: waiter.state,
            waker: std::mem::take(&mut waiter.waker),
        }
    }

    /// The waiters of a list, in order.
    pub(crate) fn line(&self, list: &List) -> impl Iterator<Item = Seen> {
        std::iter::successors(self.0.get(list.head as usize), |waiter| {
            self.0.get(waiter.after as usize)
        })
        .map(Waiter::seen)
    }

    /// The records in no list, `linked` being in one: their calls have yet to notice what became of them. A slab is
    /// searched only where there are any, and no further than [`LOOK`] slots.
    pub(crate) fn apart(&self, linked: u32) -> impl Iterator<Item = Seen> {
        let apart = self.0.len() - linked as usize;
        let end = if apart == 0 {
            0
        } else {
            self.0.capacity().min(LOOK)
        };
        (0..end)
            .filter_map(|index| self.0.get(index))
            .filter(|waiter| waiter.state != State::Waiting)
            .take(apart)
            .map(Waiter::seen)
    }

    /// A record that waits has a waker.
    fn unlink(&mut self, list: &mut List, index: u32, state: State) -> Option<Waker> {
        self.detach(list, index);
        let waiter = self.at(index);
        waiter.state = state;
        waiter.waker.take()
    }

    fn detach(&mut self, list: &mut List, index: u32) {
        let waiter = self.at(index);
        let (before, after) = (waiter.before, waiter.after);
        match before {
            NONE => list.head = after,
            before => self.at(before).after = after,
        }
        match after {
            NONE => list.tail = before,
            after => self.at(after).before = before,
        }
        list.len -= 1;
    }

    /// An index is only ever held by a list or by the call that owns the slot (invariant 2), so it is occupied.
    fn at(&mut self, index: u32) -> &mut Waiter {
        &mut self.0[index as usize]
    }
}

/// What a call finds in its queue.
#[derive(Debug)]
#[must_use = "drop it after the lock: it may hold a waker"]
pub(crate) enum Polled {
    /// Granted or stopped; the record is freed.
    Ended(Removed),
    Waiting,
    /// The waker kept is another task's: poll again with a fresh one.
    Stale,
}

/// Ready with the state of a record that has ended, which is freed; while it waits, the current waker is kept. `look` is
/// [`Slots::poll`] under the lock of whoever has the record; wakers are cloned and dropped outside of it.
pub(crate) fn poll_record(
    cx: &mut Context<'_>,
    mut look: impl FnMut(&Waker, &mut Kept) -> Polled,
) -> Poll<State> {
    let mut fresh = Kept::default();
    loop {
        match look(cx.waker(), &mut fresh) {
            Polled::Ended(removed) => return Poll::Ready(removed.state),
            Polled::Waiting => return Poll::Pending,
            Polled::Stale => fresh = Kept::of(cx),
        }
    }
}

/// What is left of a record: dropped by the caller after its lock, as it may hold a waker.
#[derive(Debug)]
#[must_use = "drop it after the lock: it may hold a waker"]
pub(crate) struct Removed {
    pub(crate) state: State,
    #[expect(
        dead_code,
        reason = "kept for its drop, which must come after the lock"
    )]
    waker: Kept,
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;

    fn arrival(counters: &Counters) -> Arrival<'_> {
        Arrival {
            counters,
            operation: 0,
            units: 1,
            nested: false,
            bare: true,
            counted: false,
            waker: Waker::noop().clone().into(),
        }
    }

    /// The room that is kept when so many have waited at once and left.
    fn kept_after(waiters: usize) -> usize {
        let counters = Counters::new(0);
        let (mut slots, mut list) = (Slots::new(), List::new());
        let joined: Vec<Slot> = (0..waiters)
            .map(|_| slots.push(&mut list, arrival(&counters)))
            .collect();
        assert!(slots.0.capacity() >= waiters);
        for slot in joined {
            drop(slots.remove(Some(&mut list), slot, true, &counters));
        }
        slots.0.capacity()
    }

    #[test]
    fn waiters_that_left_keep_the_memory_of_few() {
        assert!(kept_after(10_000) <= KEEP);
        assert_eq!(kept_after(KEEP), KEEP);
    }

    #[test]
    fn a_call_that_is_polled_again_by_its_task_keeps_the_waker_it_has() {
        struct Task;
        impl std::task::Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let [own, other] = [Task, Task].map(|task| Waker::from(Arc::new(task)));
        let counters = Counters::new(0);
        let (mut slots, mut list) = (Slots::new(), List::new());
        let mut arrival = arrival(&counters);
        arrival.waker = own.clone().into();
        let slot = slots.push(&mut list, arrival);
        let mut poll = |waker: &Waker| slots.poll(slot, waker, &mut Kept::default(), &counters);
        assert!(matches!(poll(&own), Polled::Waiting));
        assert!(matches!(poll(&other), Polled::Stale));
    }
}
