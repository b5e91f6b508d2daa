//! Counters, and the snapshot that users read.
//!
//! A call counts into its thread's own cache line: two increments when it is admitted, run and finished without
//! waiting. What the snapshot shows is derived:
//!
//! | shown | is |
//! |---|---|
//! | admitted | direct + queued + overloads |
//! | started | direct + late |
//! | finished | finished + overloads |
//! | rejected | refused + overloads |
//!
//! `direct` counts a call that was admitted and held everything at once; `queued` one that was admitted and had to
//! wait or was withdrawn; `late` one that was queued and holds everything now; `refused` one that met the gate closed.
//!
//! A call that is turned away for want of capacity holds nothing by which a drain could see it. So all that it counts is
//! one step on a word of the operation, `overloads`, which carries the gate's bit as well: such a call is counted before
//! the gate closes, or it meets the gate closed.
//!
//! A thread with a number (`threads.rs`) has a shard to itself; the others share one.
//!
//! A call counts `direct` or `queued` before `late` and `finished`. Increments are Release and the snapshot reads
//! with Acquire in the order finished, late, direct, queued: whoever sees the later count sees the earlier one, so
//! finished <= admitted and started <= admitted in every snapshot.

use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};
use crate::threads;

/// The counters of one operation.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Each written by one thread alone, so that counting is a plain load and store.
    own: Box<[CachePadded<Shard>]>,
    /// For threads without a number.
    shared: CachePadded<Shard>,
    /// Calls turned away for want of capacity, above the gate's bit.
    overloads: CachePadded<AtomicU64>,
}

const CLOSED: u64 = 0b01;
const OVERLOAD: u64 = 0b10;

#[derive(Debug)]
struct Shard {
    direct: AtomicU64,
    queued: AtomicU64,
    late: AtomicU64,
    finished: AtomicU64,
    refused: AtomicU64,
    retried: AtomicU64,
    denied: AtomicU64,
    withdrawn: AtomicU64,
}

impl Shard {
    fn new() -> CachePadded<Self> {
        CachePadded::new(Self {
            direct: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            late: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            withdrawn: AtomicU64::new(0),
        })
    }
}

macro_rules! count {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name(&self) {
            match self.own.get(threads::number()) {
                Some(own) => {
                    let count = own.$name.load(Ordering::Relaxed);
                    own.$name.store(count + 1, Ordering::Release);
                }
                None => {
                    self.shared.$name.fetch_add(1, Ordering::Release);
                }
            }
        }
    )*};
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            own: (0..threads::numbers()).map(|_| Shard::new()).collect(),
            shared: Shard::new(),
            overloads: CachePadded::new(AtomicU64::new(0)),
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

    count! {
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
        OperationStats {
            name,
            admitted: direct + queued + overloads,
            rejected: sum(|shard| &shard.refused) + overloads,
            started: direct + late,
            finished: finished + overloads,
            retried: sum(|shard| &shard.retried),
            denied: sum(|shard| &shard.denied),
        }
    }
}

/// What one operation has done since its runtime was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationStats {
    /// The operation's name.
    pub name: Arc<str>,
    /// Calls that passed the lifecycle gate.
    pub admitted: u64,
    /// Calls refused: stopping at the gate, or overload. An overload counts as admitted and finished too; a refusal
    /// at the gate as rejected only.
    pub rejected: u64,
    /// Calls that came to hold everything they needed.
    pub started: u64,
    /// Calls that ended in any way, withdrawals included.
    pub finished: u64,
    /// Attempts made after a call's first.
    pub retried: u64,
    /// Attempts not made because the [retry budget](crate::RetryBudget) was spent.
    pub denied: u64,
}

/// What one budget looks like now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetStats {
    /// The budget's name.
    pub name: Arc<str>,
    /// Its capacity, in units.
    pub capacity: u32,
    /// Units held by calls.
    pub in_use: u32,
    /// Calls that wait for units.
    pub waiting: u32,
}

/// A runtime's counters, read by [`Runtime::stats`](crate::Runtime::stats). Displayed, it is a table.
///
/// In every reading `started <= admitted` and `finished <= admitted`, for each operation and in all; after a drain
/// `admitted == finished`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Each operation, in the order of construction.
    pub operations: Vec<OperationStats>,
    /// Each budget, in the order of names.
    pub budgets: Vec<BudgetStats>,
    /// How many keys are held.
    pub keys: usize,
}

impl Stats {
    /// The sums over all operations, under the name "all".
    #[must_use]
    pub fn total(&self) -> OperationStats {
        let mut total = OperationStats {
            name: "all".into(),
            admitted: 0,
            rejected: 0,
            started: 0,
            finished: 0,
            retried: 0,
            denied: 0,
        };
        for operation in &self.operations {
            total.admitted += operation.admitted;
            total.rejected += operation.rejected;
            total.started += operation.started;
            total.finished += operation.finished;
            total.retried += operation.retried;
            total.denied += operation.denied;
        }
        total
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let operations = self.operations.iter().chain([&total]);
        let width = operations
            .clone()
            .map(|operation| &operation.name)
            .chain(self.budgets.iter().map(|budget| &budget.name))
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0)
            .max("operation".len());
        writeln!(
            f,
            "{:width$}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}",
            "operation", "admitted", "rejected", "started", "finished", "retried", "denied"
        )?;
        for of in operations {
            writeln!(
                f,
                "{:width$}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}",
                of.name, of.admitted, of.rejected, of.started, of.finished, of.retried, of.denied
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "{:width$}  {:>10}  {:>10}  {:>10}",
            "budget", "capacity", "in use", "waiting"
        )?;
        for budget in &self.budgets {
            writeln!(
                f,
                "{:width$}  {:>10}  {:>10}  {:>10}",
                budget.name, budget.capacity, budget.in_use, budget.waiting
            )?;
        }
        write!(f, "{:width$}  {:>10}", "keys held", self.keys)
    }
}
