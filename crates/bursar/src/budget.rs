//! One budget: its capacity, who holds units and who waits for them, in strict arrival order.
//!
//! The word carries the free units (signed, so that a shrunk capacity may owe some) above two bits: `WAITERS`, set
//! exactly while the queue is not empty, and `STOP`, set once shutdown has begun. One lock guards the queue; it is a
//! leaf: nothing else is locked under it and no user code runs under it.
//!
//! Invariants:
//! 1. Units are taken without the lock only while `WAITERS` is clear, so nothing overtakes the queue.
//! 2. `WAITERS` is set by a compare-exchange that has just seen that the head does not fit: a unit given back before
//!    it was counted there, and one given back after it sees the bit and examines the queue. No wake-up is lost.
//! 3. `STOP` is set under the lock, so no grant by the queue follows it unseen; a grant before it stands.
//! 4. Whoever gives units back while `WAITERS` is set grants from the head for as long as the head fits.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};

use crossbeam_utils::CachePadded;

use crate::counters::Counters;
use crate::fifo::{Arrival, Joined, LOOK, Line, List, Seen, Slot, Slots, State, poll_record};
use crate::refusal::Usage;
use crate::sync::{AtomicI64, AtomicU64, Mutex, Ordering, lock};
use crate::wake::{Poke, WakeList};

const WAITERS: i64 = 0b01;
const STOP: i64 = 0b10;
/// Either of the two.
const MARKED: i64 = 0b11;
const UNIT: i64 = 0b100;

const fn free(word: i64) -> i64 {
    word >> 2
}

const fn units_of(units: u32) -> i64 {
    units as i64 * UNIT
}

/// How often a call looks again before it becomes the first to wait: about 2 us. A holder on another thread that does
/// not suspend is done within it, and then neither of the two touches the queue.
#[cfg(not(any(bursar_loom, bursar_shuttle)))]
const LOOKS: u32 = 100;
#[cfg(any(bursar_loom, bursar_shuttle))]
const LOOKS: u32 = 0;

/// After so many arrivals in a row that looked for nothing, holders are taken to suspend: only one in `RETRY` looks.
const PATIENCE: u32 = 16;
const RETRY: u32 = 256;

/// How often an arrival looks again after so many that looked for nothing.
fn looks(futile: u32) -> u32 {
    if futile < PATIENCE || futile % RETRY == 0 {
        LOOKS
    } else {
        0
    }
}

/// A named capacity. Units go out through [`Budget::take`] or the queue and come back through [`Budget::give`].
#[derive(Debug)]
pub(crate) struct Budget {
    word: CachePadded<AtomicI64>,
    name: Arc<str>,
    /// Changes under the queue's lock, together with the word.
    capacity: AtomicU64,
    queue: Mutex<Queue>,
    /// How many arrivals in a row looked again for nothing. A hint, counted without care.
    futile: AtomicU32,
}

#[derive(Debug)]
struct Queue {
    slots: Slots,
    list: List,
}

/// A budget as a snapshot sees it.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) capacity: u32,
    pub(crate) in_use: u32,
    /// Units held above the capacity.
    pub(crate) owed: u32,
    /// Units granted to calls that have not noticed it yet.
    pub(crate) unnoticed: u32,
    pub(crate) waiting: u32,
    pub(crate) line: Line,
}

/// A number of units: none rather than fewer.
fn at_least_none(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Why [`Budget::take`] took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    MustWait,
    Stopping,
}

impl Budget {
    /// `capacity` is at most 2^31 - 1, which construction has checked.
    pub(crate) fn new(name: Arc<str>, capacity: u32) -> Self {
        Self {
            word: CachePadded::new(AtomicI64::new(units_of(capacity))),
            name,
            capacity: AtomicU64::new(u64::from(capacity)),
            queue: Mutex::new(Queue {
                slots: Slots::new(),
                list: List::new(),
            }),
            futile: AtomicU32::new(0),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed) as u32
    }

    /// Makes the capacity another one, granting what now fits. Nothing is revoked: the word may come to owe units. Who was
    /// granted is woken by the caller, once it holds no lock.
    pub(crate) fn resize(&self, capacity: u32) -> WakeList {
        let mut wakes = WakeList::new();
        let mut queue = lock(&self.queue);
        let before = self.capacity();
        self.capacity.store(u64::from(capacity), Ordering::Relaxed);
        let change = units_of(capacity) - units_of(before);
        self.word.fetch_add(change, Ordering::Relaxed);
        self.grant(&mut queue, &mut wakes);
        drop(queue);
        wakes
    }

    /// Takes units at once if they are free and nobody waits. `past_stop` lets nested work through a drain.
    #[inline]
    pub(crate) fn take(&self, units: u32, past_stop: bool) -> Result<(), NotTaken> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & STOP != 0 && !past_stop {
                return Err(NotTaken::Stopping);
            }
            if word & WAITERS != 0 || free(word) < i64::from(units) {
                return Err(NotTaken::MustWait);
            }
            // Acquire: what earlier holders did under these units is seen. Paired with the Release in `give`.
            match self.word.compare_exchange_weak(
                word,
                word - units_of(units),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => word = seen,
            }
        }
    }

    /// Gives units back, granting from the head for as long as it fits.
    #[inline]
    pub(crate) fn give(&self, units: u32) -> Poke {
        // Release: see `take`. Acquire is not needed here: a queue is read under its lock.
        let before = self.word.fetch_add(units_of(units), Ordering::Release);
        if before & MARKED == 0 {
            return Poke(false);
        }
        self.given(before)
    }

    #[cold]
    fn given(&self, before: i64) -> Poke {
        if before & WAITERS != 0 {
            let mut wakes = WakeList::new();
            let mut queue = lock(&self.queue);
            self.grant(&mut queue, &mut wakes);
            drop(queue);
            drop(wakes);
        }
        Poke(before & STOP != 0)
    }

    /// Joins the tail of the queue, unless units have come free meanwhile. `past_stop`: as for [`take`](Self::take). Being
    /// nested is not enough: a drain does not know of the call yet.
    #[cold]
    pub(crate) fn join(&self, arrival: Arrival<'_>, past_stop: bool) -> Joined {
        if self.take_soon(arrival.units) {
            return Joined::Taken;
        }
        let mut queue = lock(&self.queue);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & STOP != 0 && !past_stop {
                drop(queue);
                return Joined::Stopping;
            }
            if word & WAITERS != 0 {
                break;
            }
            let fits = free(word) >= i64::from(arrival.units);
            let next = if fits {
                word - units_of(arrival.units)
            } else {
                word | WAITERS
            };
            // Acquire on success: see `take`.
            match self
                .word
                .compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if fits => {
                    drop(queue);
                    return Joined::Taken;
                }
                Ok(_) => break,
                Err(seen) => word = seen,
            }
        }
        let Queue { slots, list } = &mut *queue;
        Joined::Queued(slots.push(list, arrival))
    }

    /// Takes units that come free within a moment, while nobody waits.
    fn take_soon(&self, units: u32) -> bool {
        let futile = self.futile.load(Ordering::Relaxed);
        for _ in 0..looks(futile) {
            if self.word.load(Ordering::Relaxed) & MARKED != 0 {
                return false;
            }
            if self.take(units, false).is_ok() {
                self.futile.store(0, Ordering::Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        self.futile.store(futile.wrapping_add(1), Ordering::Relaxed);
        false
    }

    /// Ready with `Granted` or `Stopped`, the record freed; while pending, the current waker is kept.
    pub(crate) fn poll_wait(
        &self,
        slot: Slot,
        cx: &mut Context<'_>,
        counters: &Counters,
    ) -> Poll<State> {
        poll_record(cx, |current, fresh| {
            lock(&self.queue).slots.poll(slot, current, fresh, counters)
        })
    }

    /// Leaves the queue. Units already granted pass on, and the next waiter is examined then and there.
    pub(crate) fn leave(&self, slot: Slot, units: u32, counters: &Counters) -> Poke {
        let mut wakes = WakeList::new();
        let mut queue = lock(&self.queue);
        let Queue { slots, list } = &mut *queue;
        let removed = slots.remove(Some(list), slot, true, counters);
        if removed.state == State::Granted {
            self.word.fetch_add(units_of(units), Ordering::Release);
        }
        self.grant(&mut queue, &mut wakes);
        let stopping = self.word.load(Ordering::Relaxed) & STOP != 0;
        drop(queue);
        drop((wakes, removed));
        Poke(stopping)
    }

    /// Grants from the head while it fits and keeps `WAITERS` true to the queue. Under the lock.
    fn grant(&self, queue: &mut Queue, wakes: &mut WakeList) {
        let Queue { slots, list } = queue;
        while let Some(units) = slots.head_units(list) {
            // While WAITERS is set only the lock's holder takes units, so what is free can only grow under us.
            // Acquire: the grant carries what earlier holders released; the waiter gets it through the lock.
            if free(self.word.load(Ordering::Acquire)) < i64::from(units) {
                return;
            }
            self.word.fetch_sub(units_of(units), Ordering::Relaxed);
            if let Some(waker) = slots.grant_head(list) {
                wakes.push(waker);
            }
        }
        self.word.fetch_and(!WAITERS, Ordering::Relaxed);
    }

    /// Begins the drain here: no new holder, and every waiter that is not nested is withdrawn and woken.
    pub(crate) fn stop(&self, counters: &[Arc<Counters>]) {
        let mut wakes = WakeList::new();
        let mut queue = lock(&self.queue);
        self.word.fetch_or(STOP, Ordering::Relaxed);
        let Queue { slots, list } = &mut *queue;
        slots.stop(list, counters, &mut wakes);
        self.grant(&mut queue, &mut wakes);
        drop(queue);
        drop(wakes);
    }

    /// Stopped, with every unit back and nobody waiting.
    pub(crate) fn drained(&self) -> bool {
        // Under the lock word and capacity belong together.
        let _queue = lock(&self.queue);
        // Acquire: what the last holder did before it gave its units back is seen by whoever saw the drain end.
        self.word.load(Ordering::Acquire) == units_of(self.capacity()) | STOP
    }

    /// What a snapshot sees: `each` is told of every record (of the first [`LOOK`] waiters at least) under the lock.
    pub(crate) fn look(&self, mut each: impl FnMut(Seen)) -> Look {
        let queue = lock(&self.queue);
        // Under the lock word and capacity belong together.
        let word = self.word.load(Ordering::Relaxed);
        let Usage {
            capacity,
            in_use,
            waiting,
        } = self.used(word, queue.list.len());
        let mut line = Line::default();
        let mut open = true;
        for waiter in queue.slots.line(&queue.list).take(LOOK) {
            open = open && line.push(waiter);
            each(waiter);
        }
        let mut unnoticed = 0;
        for seen in queue.slots.apart(queue.list.len()) {
            if seen.state == State::Granted {
                unnoticed += seen.units;
            }
            each(seen);
        }
        Look {
            capacity,
            in_use,
            owed: at_least_none(-free(word)),
            unnoticed,
            waiting,
            line,
        }
    }

    /// What a refusal says. Takes no lock where nobody waits: beside a resize, units in use and capacity may be of different
    /// moments.
    #[inline(always)]
    pub(crate) fn usage(&self) -> Usage {
        let word = self.word.load(Ordering::Relaxed);
        if word & WAITERS == 0 {
            self.used(word, 0)
        } else {
            self.exact_usage()
        }
    }

    /// What `stats()` says.
    pub(crate) fn exact_usage(&self) -> Usage {
        // Under the lock word and capacity belong together.
        let queue = lock(&self.queue);
        self.used(self.word.load(Ordering::Relaxed), queue.list.len())
    }

    #[inline(always)]
    fn used(&self, word: i64, waiting: u32) -> Usage {
        let capacity = self.capacity();
        Usage {
            capacity,
            in_use: at_least_none(i64::from(capacity) - free(word)),
            waiting,
        }
    }
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests;
