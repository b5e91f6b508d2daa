//! What a runtime looks like now: who holds, who waits, and for what.
//!
//! It is derived when it is asked for, from counters and from the records of those who wait; a call that nobody observes
//! pays nothing for it. Hence what it can tell: who waits is read from the queues, who holds follows from the counters
//! of the operations. While calls come and go the parts are not of one instant; what stands still is told exactly.
//!
//! `table.rs` beside it prints it for people; `hosts.rs` is what hosts of turns add to it.

mod hosts;
#[cfg(feature = "serde")]
mod seconds;
mod table;

use std::sync::Arc;
use std::time::Duration;

pub use hosts::{HostSnapshot, SpotSnapshot};

use crate::stats::OperationStats;

/// What a runtime looks like now, taken by [`Runtime::snapshot`](crate::Runtime::snapshot). Displayed, it says in words
/// what is stuck, and then shows tables.
///
/// Each budget's figures are of one instant, and `in_use` is at most `capacity + owed`. Between budgets and operations a
/// little time passes: what moved meanwhile may be told twice or not at all, what stands still is told exactly.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Snapshot {
    /// Whether it serves, drains, or has drained.
    pub phase: Phase,
    /// Each budget, in the order of names.
    pub budgets: Vec<BudgetSnapshot>,
    /// Each operation, in the order of construction.
    pub operations: Vec<OperationSnapshot>,
    /// Each key held, those with the longest queues first.
    pub keys: Vec<KeySnapshot>,
    /// Keys that have passed to callers that have not noticed it yet.
    pub keys_unnoticed: u32,
    /// Every call that has not ended, the oldest first. `None` unless the runtime is exact: built with
    /// `RuntimeBuilder::exact`, which the feature `exact` adds.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub calls: Option<Vec<CallSnapshot>>,
    /// Each host of turns that is registered, in the order of registration.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub hosts: Vec<HostSnapshot>,
}

/// Where a runtime is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Phase {
    /// It admits calls.
    Open,
    /// Shutdown has begun, and calls still run.
    Draining,
    /// Shutdown has begun, and everything is back.
    Drained,
}

/// One budget: what it has, who holds it, who waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BudgetSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// Its capacity, in units.
    pub capacity: u32,
    /// Units held by calls, those granted but not yet noticed included.
    pub in_use: u32,
    /// Units held above the capacity, since it was shrunk.
    pub owed: u32,
    /// Units granted to waiters whose callers have not polled them since.
    pub unnoticed: u32,
    /// Calls that wait for units.
    pub waiting: u32,
    /// The operations that hold units, the largest share first.
    pub holders: Vec<HolderSnapshot>,
    /// Units in use that no operation could be found for, since calls moved while this was read.
    pub unattributed: u32,
    /// Who comes first in the queue, at most 16 runs of calls of one operation.
    pub queue: Vec<QueuedSnapshot>,
    /// How long the call that waits longest has waited here. Exact runtimes only.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "longest_wait_seconds",
            with = "seconds::optional",
            default,
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub longest_wait: Option<Duration>,
}

/// What one operation holds of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct HolderSnapshot {
    /// The operation's name.
    pub operation: Arc<str>,
    /// Its units, of all its calls together.
    pub units: u32,
    /// Its calls that hold them.
    pub calls: u32,
    /// How long the oldest of those that execute has done so. Exact runtimes only.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "oldest_seconds",
            with = "seconds::optional",
            default,
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub oldest: Option<Duration>,
}

/// Calls of one operation that stand in a row in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct QueuedSnapshot {
    /// The operation's name.
    pub operation: Arc<str>,
    /// How many calls stand in a row.
    pub calls: u32,
    /// Units that each waits for; 0 for a key.
    pub units: u32,
}

/// One operation: what its calls do now, and what became of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct OperationSnapshot {
    /// Its counters.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub stats: OperationStats,
    /// Calls that wait and have never held everything.
    pub waiting: u64,
    /// Calls that hold everything: their handlers run, or permits are out.
    pub executing: u64,
    /// Calls between two attempts that have given their units back: they pause, or wait for units again.
    pub paused: u64,
    /// Of those that execute, the ones whose callers were answered or left while a blocking handler runs on.
    pub adrift: u64,
    /// How long its calls waited and ran. Exact runtimes only.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub times: Option<Times>,
}

/// How long calls waited and ran, over all that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Times {
    /// Waiting for a key or for units, between attempts too. A call that waited for nothing counts as zero.
    pub waiting: Quantiles,
    /// Holding everything, pauses between attempts left out. Calls that never ran are not counted.
    pub running: Quantiles,
}

/// Times in order of length: half of them are at most [`p50`](Self::p50), and so on. Told to two digits; what is longer
/// than a day counts as a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Quantiles {
    /// How many times there are.
    pub count: u64,
    /// The median.
    #[cfg_attr(feature = "serde", serde(rename = "p50_seconds", with = "seconds"))]
    pub p50: Duration,
    /// Nine in ten.
    #[cfg_attr(feature = "serde", serde(rename = "p90_seconds", with = "seconds"))]
    pub p90: Duration,
    /// Ninety-nine in a hundred.
    #[cfg_attr(feature = "serde", serde(rename = "p99_seconds", with = "seconds"))]
    pub p99: Duration,
    /// The longest.
    #[cfg_attr(feature = "serde", serde(rename = "max_seconds", with = "seconds"))]
    pub max: Duration,
}

/// One call that has not ended, as an exact runtime (`RuntimeBuilder::exact`, feature `exact`) sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct CallSnapshot {
    /// The operation's name.
    pub operation: Arc<str>,
    /// What it does.
    pub doing: Doing,
    /// The budget it waits for.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub budget: Option<Arc<str>>,
    /// The key it holds, or waits for, as text.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub key: Option<String>,
    /// Since it came, at its first wait or start.
    #[cfg_attr(feature = "serde", serde(rename = "age_seconds", with = "seconds"))]
    pub age: Duration,
    /// For how long it has done what it does.
    #[cfg_attr(feature = "serde", serde(rename = "doing_seconds", with = "seconds"))]
    pub doing_for: Duration,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Doing {
    /// Waits for its key.
    WaitingForKey,
    /// Waits for units, whether or not they were granted and it has not noticed yet.
    WaitingForUnits,
    /// Holds everything.
    Executing,
    /// Pauses between two attempts.
    Pausing,
}

/// One key that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct KeySnapshot {
    /// The name of its key space. `None` for the common one.
    pub space: Option<Arc<str>>,
    /// The key as text; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// The operation that holds it.
    pub holder: Arc<str>,
    /// Calls that wait for it.
    pub waiting: u32,
    /// Who comes first in the queue, at most 16 runs of calls of one operation.
    pub queue: Vec<QueuedSnapshot>,
    /// Since the call that holds it came. Exact runtimes only.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "holder_age_seconds",
            with = "seconds::optional",
            default,
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub holder_age: Option<Duration>,
}
