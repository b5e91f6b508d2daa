//! Counting: each call into its thread's own cache line.
//!
//! A call that is admitted, run and finished without waiting counts twice; whatever else is counted lies off that way.
//! What users read ([`OperationStats`]) is derived:
//!
//! | shown | is |
//! |---|---|
//! | admitted | direct + queued + overloads |
//! | started | direct + late |
//! | finished | finished + overloads |
//! | rejected | refused + overloads |
//! | never ran | never_ran + overloads |
//! | success | finished + adrift, less every other outcome |
//! | waited | queued - unwaited |
//! | waiting | queued - late - never_ran |
//! | executing | started - (finished - never_ran) - paused |
//!
//! `direct` counts a call that was admitted and held everything at once; `queued` one that was admitted and had to
//! wait or was withdrawn; `late` one that was queued and holds everything now; `refused` one that met the gate
//! closed; `never_ran` one that was queued and ended before it held everything. A call is `adrift` while its handler,
//! which cannot be stopped, runs on after its caller was answered.
//!
//! A call that is turned away for want of capacity holds nothing by which a drain could see it. So all that it counts is
//! one step on a word of the operation, `overloads`, which carries the gate's bit as well: such a call is counted before
//! the gate closes, or it meets the gate closed.
//!
//! A thread with a number (`threads.rs`) has a shard to itself; the others share one.
//!
//! A call counts `direct` or `queued` before `late` and `finished`. Increments are Release and the snapshot reads
//! with Acquire in the order finished, late, direct, queued: whoever sees the later count sees the earlier one, so
//! finished <= admitted and started <= admitted in every snapshot. The rest agrees once nothing moves: a reading taken
//! while calls end may count one as a success for as long as its failure is not counted, and never shows less than
//! nothing.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::outcome::Outcome;
use crate::stats::{OperationStats, Outcomes};
use crate::sync::{AtomicI64, AtomicU64, Ordering};
use crate::threads;

/// The counters of one operation.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Each written by one thread alone, so that counting is a plain load and store.
    own: Box<[CachePadded<Shard>]>,
    /// For threads without a number.
    shared: CachePadded<Shard>,
    /// The operation's number in its runtime.
    number: u32,
    /// Calls turned away for want of capacity, above the gate's bit.
    overloads: CachePadded<AtomicU64>,
    paused: AtomicI64,
    adrift: AtomicI64,
}

const CLOSED: u64 = 0b01;
const OVERLOAD: u64 = 0b10;

/// Calls of one operation that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Admitted, and never yet held everything.
    pub(crate) waiting: u64,
    /// They hold everything.
    pub(crate) executing: u64,
    /// Between two attempts, with their units given back: they pause, or wait for units again.
    pub(crate) paused: u64,
    /// Of those that execute, the ones whose handlers run on after the answer.
    pub(crate) adrift: u64,
}

macro_rules! shard {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Sixteen words: two cache lines, the first of which holds all that the shortest way counts.
        #[derive(Debug)]
        struct Shard {
            $($name: AtomicU64,)*
        }

        impl Shard {
            fn new() -> CachePadded<Self> {
                CachePadded::new(Self {
                    $($name: AtomicU64::new(0),)*
                })
            }
        }

        impl Counters {$(
            $(#[$doc])*
            #[inline]
            pub(crate) fn $name(&self) {
                match self.own.get(threads::number_if_asked()) {
                    Some(own) => count(&own.$name),
                    None => self.count_elsewhere(|shard| &shard.$name),
                }
            }
        )*}
    };
}

shard! {
    /// Admitted, and holds everything at once.
    direct
    /// Admitted, and has to wait or is withdrawn.
    queued
    /// Queued before, holds everything now.
    late
    /// Ended, in any way.
    finished
    /// Met the gate closed.
    refused
    /// Begins another attempt.
    retried
    /// Would have begun another, and the retry budget was spent.
    denied
    /// Ended by shutdown while it waited.
    withdrawn
    /// Counted as queued, and joined no queue.
    unwaited
    /// Ends without ever having held everything. Counted before `finished`.
    never_ran
    /// Ends with this outcome.
    transient
    /// Ends with this outcome.
    permanent
    /// Ends with this outcome.
    throttled
    /// Ends with this outcome.
    uncertain
    /// Held everything, and its future was dropped.
    dropped
    /// Its handler panicked.
    panicked
}

/// One more, where one thread alone counts.
#[cfg(not(any(bursar_loom, bursar_shuttle)))]
#[inline]
fn count(own: &AtomicU64) {
    let count = own.load(Ordering::Relaxed);
    own.store(count + 1, Ordering::Release);
}

#[cfg(any(bursar_loom, bursar_shuttle))]
fn count(shared: &AtomicU64) {
    shared.fetch_add(1, Ordering::Release);
}

/// Where this thread counts, found before a call touches what others touch: looked for between two locked instructions
/// it costs twice as much. For one poll, which ends on the thread it began on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'c>(&'c Shard);

impl Here<'_> {
    /// As [`Counters::direct`].
    #[inline]
    pub(crate) fn direct(self) {
        count(&self.0.direct);
    }

    /// As [`Counters::finished`].
    #[inline]
    pub(crate) fn finished(self) {
        count(&self.0.finished);
    }
}

impl Counters {
    /// Where this thread counts. `None` if it has no number.
    #[cfg(not(any(bursar_loom, bursar_shuttle)))]
    #[inline]
    pub(crate) fn here(&self) -> Option<Here<'_>> {
        match self.own.get(threads::number_if_asked()) {
            Some(own) => Some(Here(own)),
            None => self.here_first(),
        }
    }

    /// As [`here`](Self::here), for a thread that may not have asked for its number yet.
    #[cfg(not(any(bursar_loom, bursar_shuttle)))]
    #[cold]
    fn here_first(&self) -> Option<Here<'_>> {
        self.own.get(threads::number()).map(|own| Here(own))
    }

    /// Under a checker no thread has a number, and what needs one is to be checked all the same.
    #[cfg(any(bursar_loom, bursar_shuttle))]
    pub(crate) fn here(&self) -> Option<Here<'_>> {
        Some(Here(&self.shared))
    }

    /// Counts for a thread that counts for the first time, or that has no number.
    #[cold]
    fn count_elsewhere(&self, of: fn(&Shard) -> &AtomicU64) {
        match self.own.get(threads::number()) {
            Some(own) => count(of(own)),
            None => {
                of(&self.shared).fetch_add(1, Ordering::Release);
            }
        }
    }

    pub(crate) fn new(number: u32) -> Self {
        Self {
            own: (0..threads::numbers()).map(|_| Shard::new()).collect(),
            shared: Shard::new(),
            number,
            overloads: CachePadded::new(AtomicU64::new(0)),
            paused: AtomicI64::new(0),
            adrift: AtomicI64::new(0),
        }
    }

    /// Counts a call that is turned away for want of capacity as admitted, rejected and finished. False, and nothing is
    /// counted, if the gate is closed; `past_gate` is for calls that it does not concern.
    #[inline]
    pub(crate) fn overload(&self, past_gate: bool) -> bool {
        let mut word = self.overloads.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 && !past_gate {
                return false;
            }
            match self.overloads.compare_exchange_weak(
                word,
                word + OVERLOAD,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => word = seen,
            }
        }
    }

    /// Shutdown has begun.
    pub(crate) fn close(&self) {
        // Acquire and Release: whoever sees the gate closed sees what was counted before.
        self.overloads.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// The operation's number in its runtime.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Ends with an error of this outcome, having held everything.
    #[cold]
    pub(crate) fn failed(&self, outcome: Outcome) {
        match outcome {
            // No error's outcome is success.
            Outcome::Success => {}
            Outcome::Transient => self.transient(),
            Outcome::Permanent => self.permanent(),
            Outcome::Throttled => self.throttled(),
            Outcome::Uncertain => self.uncertain(),
        }
    }

    /// Gives its units back between two attempts; `ended` once it holds everything again, or is over.
    #[cold]
    pub(crate) fn paused(&self, ended: bool) {
        self.paused.fetch_add(sign(ended), Ordering::Relaxed);
    }

    /// The caller is answered, or gone, and the handler runs on; `ended` once it does no more.
    #[cfg(feature = "tokio")]
    #[cold]
    pub(crate) fn adrift(&self, ended: bool) {
        // Either may come first: the thread ends while the caller is being answered.
        self.adrift.fetch_add(sign(ended), Ordering::Relaxed);
    }

    fn sum(&self, of: fn(&Shard) -> &AtomicU64) -> u64 {
        self.own
            .iter()
            .chain([&self.shared])
            .map(|shard| of(shard).load(Ordering::Acquire))
            .sum()
    }

    /// Calls started.
    pub(crate) fn started(&self) -> u64 {
        self.sum(|shard| &shard.late) + self.sum(|shard| &shard.direct)
    }

    /// Calls that shutdown ended while they waited.
    pub(crate) fn withdrawals(&self) -> u64 {
        self.sum(|shard| &shard.withdrawn)
    }

    /// See the module for the order.
    pub(crate) fn read(&self, name: Arc<str>) -> OperationStats {
        let sum = |of| self.sum(of);
        let finished = sum(|shard| &shard.finished);
        let late = sum(|shard| &shard.late);
        let direct = sum(|shard| &shard.direct);
        let queued = sum(|shard| &shard.queued);
        let overloads = self.overloads.load(Ordering::Acquire) / OVERLOAD;
        let unwaited = sum(|shard| &shard.unwaited);
        let mut outcomes = Outcomes {
            success: 0,
            transient: sum(|shard| &shard.transient),
            permanent: sum(|shard| &shard.permanent),
            throttled: sum(|shard| &shard.throttled),
            uncertain: sum(|shard| &shard.uncertain),
            never_ran: sum(|shard| &shard.never_ran) + overloads,
            dropped: sum(|shard| &shard.dropped),
            panicked: sum(|shard| &shard.panicked),
        };
        let finished = finished + overloads;
        outcomes.success = (finished + gauge(&self.adrift)).saturating_sub(outcomes.all());
        OperationStats {
            name,
            admitted: direct + queued + overloads,
            rejected: sum(|shard| &shard.refused) + overloads,
            started: direct + late,
            finished,
            retried: sum(|shard| &shard.retried),
            denied: sum(|shard| &shard.denied),
            waited: queued.saturating_sub(unwaited),
            outcomes,
        }
    }

    /// Read again, a few times, if calls moved meanwhile. Then it errs towards too many, never below nothing.
    pub(crate) fn standing(&self) -> Standing {
        let read = || {
            [
                self.sum(|shard| &shard.finished),
                self.sum(|shard| &shard.never_ran),
                self.sum(|shard| &shard.late),
                self.sum(|shard| &shard.direct),
                self.sum(|shard| &shard.queued),
                gauge(&self.paused),
                gauge(&self.adrift),
            ]
        };
        let [finished, never_ran, late, direct, queued, paused, adrift] = settled(read);
        let ended = finished.saturating_sub(never_ran);
        Standing {
            waiting: queued.saturating_sub(late).saturating_sub(never_ran),
            executing: (direct + late).saturating_sub(ended).saturating_sub(paused),
            paused,
            adrift,
        }
    }
}

/// What two readings in a row agree upon, or the last of a few.
fn settled<T: PartialEq>(mut read: impl FnMut() -> T) -> T {
    const TRIES: usize = 4;
    let mut seen = read();
    for _ in 1..TRIES {
        let again = read();
        if again == seen {
            break;
        }
        seen = again;
    }
    seen
}

const fn sign(ended: bool) -> i64 {
    if ended { -1 } else { 1 }
}

/// Never less than nothing: the two sides of it may be counted in either order.
fn gauge(of: &AtomicI64) -> u64 {
    u64::try_from(of.load(Ordering::Relaxed)).unwrap_or(0)
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn e1_a_reading_is_repeated_until_nothing_has_moved_and_a_few_times_at_most() {
        let read = |readings: &[u32]| {
            let mut left = readings.iter();
            let seen = settled(|| *left.next().expect("no more is read"));
            (seen, left.len())
        };
        assert_eq!(read(&[7, 7]), (7, 0));
        assert_eq!(read(&[7, 7, 8]), (7, 1));
        assert_eq!(read(&[1, 2, 2]), (2, 0));
        assert_eq!(read(&[1, 2, 3, 4]), (4, 0));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads are the subject")]
    fn a_thread_with_a_number_counts_in_a_place_of_its_own_from_the_first() {
        let has_one = || {
            let counters = Counters::new(0);
            // Asked before the thread has asked for its number, and after.
            let found = [counters.here().is_some(), counters.here().is_some()];
            let numbered = threads::number() < threads::numbers();
            assert_eq!(found, [numbered; 2]);
            numbered
        };
        // Other tests' threads may hold all numbers for a while.
        for _ in 0..10_000 {
            if std::thread::spawn(has_one).join().expect("it agrees") {
                return;
            }
        }
        panic!("no thread came to have a number");
    }
}
