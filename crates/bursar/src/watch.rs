//! The exact mode: every call with its age, and how long calls waited and ran. Chosen when a runtime is built.
//!
//! A runtime that was not built so has no registry, and its calls no entry; without the feature `exact` these types are
//! those of `off.rs` beside this file, which are empty and do nothing.
//!
//! Invariants:
//! 1. A call of a watched operation has an entry from the moment it first waits, or starts, until it ends. It goes no
//!    short way, so the hooks are in the long one alone (`call.rs`).
//! 2. The clock is read once at each change, under no lock. Locks are leaves; no user code runs under them.
//! 3. The time of a call is split: waiting for a key or units, executing, or neither (pauses between attempts).

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use slab::Slab;

use crate::clock::ClockHandle;
use crate::snapshot::{Quantiles, Times};
use crate::sync::lock_plain;
use crate::threads;

const SHARDS: usize = 16;

/// The longest time a histogram tells, in nanoseconds: a day. Longer ones count as that.
const LONGEST: u64 = 86_400_000_000_000;
/// Significant decimal digits of what a histogram tells.
const DIGITS: u8 = 2;

/// The registry of one runtime, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Calls(Option<Shards>);

type Shards = Arc<[CachePadded<Mutex<Slab<Live>>>]>;

/// What is kept of one operation, if its runtime watches.
#[derive(Clone, Debug)]
pub(crate) struct Watched(Option<Arc<Operation>>);

#[derive(Debug)]
struct Operation {
    number: u32,
    #[cfg(feature = "metrics")]
    name: Arc<str>,
    shards: Shards,
    times: Mutex<Spent>,
}

#[derive(Debug)]
struct Spent {
    waiting: Histogram<u32>,
    running: Histogram<u32>,
}

/// One call's entry, if it has one.
#[derive(Debug)]
pub(crate) struct Watch(Option<NonZeroUsize>);

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    AtKey,
    /// Waits for this one of its claims.
    AtBudget(u32),
    Executing,
    Pausing,
}

/// One call that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    /// The operation's number.
    pub(crate) operation: u32,
    pub(crate) doing: Doing,
    /// The key held or waited for, by the id of its entry; 0 for none.
    pub(crate) key: u64,
    pub(crate) arrived: Instant,
    pub(crate) since: Instant,
    waited: Duration,
    ran: Duration,
    started: bool,
}

impl Live {
    fn becomes(&mut self, doing: Option<Doing>, now: Instant) {
        let spent = now.saturating_duration_since(self.since);
        match self.doing {
            Doing::AtKey | Doing::AtBudget(_) => self.waited += spent,
            Doing::Executing => self.ran += spent,
            Doing::Pausing => {}
        }
        self.since = now;
        if let Some(doing) = doing {
            self.doing = doing;
            self.started |= doing == Doing::Executing;
        }
    }
}

impl Calls {
    pub(crate) fn new(exact: bool) -> Self {
        Self(exact.then(|| {
            (0..SHARDS)
                .map(|_| CachePadded::new(Mutex::new(Slab::new())))
                .collect()
        }))
    }

    /// Whether anybody watches.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// An operation of this runtime.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "it labels metrics")
    )]
    pub(crate) fn operation(&self, number: u32, name: &Arc<str>) -> Watched {
        Watched(self.0.as_ref().map(|shards| {
            Arc::new(Operation {
                number,
                #[cfg(feature = "metrics")]
                name: Arc::clone(name),
                shards: Arc::clone(shards),
                times: Mutex::new(Spent {
                    waiting: histogram(),
                    running: histogram(),
                }),
            })
        }))
    }

    /// Every call, the oldest first. `None` if nobody watches.
    pub(crate) fn all(&self) -> Option<Vec<Live>> {
        let mut calls = Vec::new();
        for shard in &**self.0.as_ref()? {
            calls.extend(lock_plain(shard).iter().map(|(_, live)| *live));
        }
        calls.sort_by_key(|live| live.arrived);
        Some(calls)
    }
}

fn histogram() -> Histogram<u32> {
    // One to a day, in two digits: bounds that are right whatever happens.
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are constants")
}

impl Watched {
    /// Whether calls of this operation are watched.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// How long calls waited and ran, over all that have ended.
    pub(crate) fn times(&self) -> Option<Times> {
        let operation = self.0.as_ref()?;
        let spent = lock_plain(&operation.times);
        Some(Times {
            waiting: quantiles(&spent.waiting),
            running: quantiles(&spent.running),
        })
    }
}

fn quantiles(of: &Histogram<u32>) -> Quantiles {
    let at = |quantile| Duration::from_nanos(of.value_at_quantile(quantile));
    Quantiles {
        count: of.len(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: Duration::from_nanos(of.max()),
    }
}

impl Watch {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// The call does something else from now on; its first change makes its entry.
    #[cold]
    pub(crate) fn becomes(&mut self, of: &Watched, doing: Doing, key: u64, clock: &ClockHandle) {
        let Some(of) = &of.0 else {
            return;
        };
        let now = clock.now();
        if let Some(entry) = self.0 {
            let (shard, index) = place(entry);
            if let Some(live) = lock_plain(&of.shards[shard]).get_mut(index) {
                live.becomes(Some(doing), now);
                live.key = key;
            }
            return;
        }
        let shard = threads::number() % SHARDS;
        let index = lock_plain(&of.shards[shard]).insert(Live {
            operation: of.number,
            doing,
            key,
            arrived: now,
            since: now,
            waited: Duration::ZERO,
            ran: Duration::ZERO,
            started: doing == Doing::Executing,
        });
        self.0 = NonZeroUsize::new(index * SHARDS + shard + 1);
    }

    /// The call is over.
    #[cold]
    pub(crate) fn ends(&mut self, of: &Watched, clock: &ClockHandle) {
        let (Some(of), Some(entry)) = (&of.0, self.0.take()) else {
            return;
        };
        // Removed first: a clock that panics leaves no entry behind.
        let (shard, index) = place(entry);
        let mut live = lock_plain(&of.shards[shard]).remove(index);
        live.becomes(None, clock.now());
        let mut times = lock_plain(&of.times);
        record(&mut times.waiting, live.waited);
        if live.started {
            record(&mut times.running, live.ran);
        }
        drop(times);
        #[cfg(feature = "metrics")]
        crate::publish::times(&of.name, live.waited, live.started.then_some(live.ran));
    }
}

/// The shard and the index that an entry's number stands for.
fn place(entry: NonZeroUsize) -> (usize, usize) {
    let number = entry.get() - 1;
    (number % SHARDS, number / SHARDS)
}

fn record(histogram: &mut Histogram<u32>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn e2_calls_are_watched_in_a_runtime_that_was_built_so_and_in_no_other() {
        for exact in [false, true] {
            let calls = Calls::new(exact);
            let watched = calls.operation(0, &"render".into());
            assert_eq!((calls.is_on(), watched.is_on()), (exact, exact));
        }
    }
}
