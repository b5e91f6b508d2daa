//! Open, draining, drained: the part of a drain that belongs to no budget and no key.
//!
//! The stop bit lives in the words that calls touch anyway (budgets, key shards), so shutdown costs a call nothing.
//! What has no such word is kept here: the lobby, a home for calls that hold neither budget nor key, and a count of
//! admissions that came past the stop.
//!
//! Invariants:
//! 1. A call admitted past the stop (nested work) takes a place in the lobby, is noted in `late` and then finds the
//!    work it is nested in still live; whoever has a place keeps it to its end, and gives it back last. So a scan that
//!    found every word drained, and `late` unmoved from before to after, has missed nobody: the lobby is read before the
//!    others, and who came to it later has moved the note. That goes as well for one that was admitted before the stop and
//!    comes to the lobby past it, to pause: it is noted before it gives back what it held.
//! 2. A drain registers its waker before it scans; whoever gives back does so before it wakes the registered. One of
//!    the two sees the other.
//! 3. The lock is a leaf and wakers are woken after it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::counters::Counters;
use crate::fifo::{Arrival, List, Slot, Slots, poll_record};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use crate::wake::{Poke, WakeList};

const STOP: u64 = 1;
const ONE: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    lobby: AtomicU64,
    late: AtomicU64,
    drains: Mutex<Slab<Option<Waker>>>,
    /// Calls that pause between attempts. They hold a key or a place in the lobby.
    parked: Mutex<Parked>,
}

#[derive(Debug)]
struct Parked {
    slots: Slots,
    list: List,
    stopping: bool,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self {
            lobby: AtomicU64::new(0),
            late: AtomicU64::new(0),
            drains: Mutex::new(Slab::new()),
            parked: Mutex::new(Parked {
                slots: Slots::new(),
                list: List::new(),
                stopping: false,
            }),
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.lobby.load(Ordering::Relaxed) & STOP != 0
    }

    /// Takes a place in the lobby; false when stopping, unless `past_stop`.
    pub(crate) fn enter(&self, past_stop: bool) -> bool {
        let mut word = self.lobby.load(Ordering::Relaxed);
        loop {
            if word & STOP != 0 && !past_stop {
                return false;
            }
            match self.lobby.compare_exchange_weak(
                word,
                word + ONE,
                // SeqCst: see `note_late`.
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
    }

    /// Gives the place back.
    pub(crate) fn leave(&self) -> Poke {
        // Release, with the Acquire in `drained`: what the call did is seen by whoever saw the drain end.
        let before = self.lobby.fetch_sub(ONE, Ordering::Release);
        Poke(before == ONE | STOP)
    }

    /// Closes the lobby, where calls go on, and ends the pauses of calls that are not nested.
    pub(crate) fn stop(&self, counters: &[Arc<Counters>]) {
        self.lobby.fetch_or(STOP, Ordering::Relaxed);
        let mut wakes = WakeList::new();
        let mut parked = lock(&self.parked);
        parked.stopping = true;
        let Parked { slots, list, .. } = &mut *parked;
        slots.stop(list, counters, &mut wakes);
        drop(parked);
        drop(wakes);
    }

    /// A call begins to pause; `None` if shutdown forbids it.
    pub(crate) fn park(&self, arrival: Arrival<'_>) -> Option<Slot> {
        let mut parked = lock(&self.parked);
        let Parked {
            slots,
            list,
            stopping,
        } = &mut *parked;
        if *stopping && !arrival.nested {
            drop(parked);
            return None;
        }
        Some(slots.push(list, arrival))
    }

    /// Ready when shutdown has ended the pause, the record freed; while pending, the current waker is kept.
    pub(crate) fn poll_parked(
        &self,
        slot: Slot,
        cx: &mut Context<'_>,
        counters: &Counters,
    ) -> Poll<()> {
        poll_record(cx, |current, fresh| {
            lock(&self.parked)
                .slots
                .poll(slot, current, fresh, counters)
        })
        .map(|_stopped| ())
    }

    /// The pause is over, or its caller went away.
    pub(crate) fn unpark(&self, slot: Slot, counters: &Counters) {
        let mut parked = lock(&self.parked);
        let Parked { slots, list, .. } = &mut *parked;
        let removed = slots.remove(Some(list), slot, false, counters);
        drop(parked);
        drop(removed);
    }

    /// Closed and empty.
    pub(crate) fn drained(&self) -> bool {
        self.lobby.load(Ordering::Acquire) == STOP
    }

    /// Notes an admission past the stop (invariant 1).
    pub(crate) fn note_late(&self) {
        // SeqCst, as the chain's records: a call that found its chain live after it was noted here is seen by any scan
        // that saw what the chain held come back.
        self.late.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::SeqCst)
    }

    /// Registers a drain, or renews its waker.
    pub(crate) fn register(&self, drain: &mut Option<usize>, waker: &Waker) {
        let waker = Some(waker.clone());
        let mut drains = lock(&self.drains);
        let old = match *drain {
            Some(at) => std::mem::replace(&mut drains[at], waker),
            None => {
                *drain = Some(drains.insert(waker));
                None
            }
        };
        drop(drains);
        drop(old);
    }

    /// Forgets a drain that ended or was dropped.
    pub(crate) fn unregister(&self, drain: usize) {
        let waker = lock(&self.drains).remove(drain);
        drop(waker);
    }

    /// Wakes the drains, when what was given back says one may be waiting for it.
    #[inline]
    pub(crate) fn tell(&self, poke: Poke) {
        if poke.0 {
            self.wake_drains();
        }
    }

    #[cold]
    fn wake_drains(&self) {
        let mut wakes = WakeList::new();
        // Taken rather than cloned: cloning runs user code. A drain registers anew each time it is polled.
        let mut drains = lock(&self.drains);
        for (_, waker) in drains.iter_mut() {
            if let Some(waker) = waker.take() {
                wakes.push(waker);
            }
        }
        drop(drains);
        drop(wakes);
    }
}
