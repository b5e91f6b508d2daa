//! What a measured row says.

mod combine;
mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use combine::combine;
pub use table::{figure, print_curve, print_row, print_summary};

/// One row: what every contender did, and what the targets say of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Names the row on the command line.
    pub id: String,
    /// What is measured.
    pub title: String,
    /// The contenders.
    pub seen: Vec<Seen>,
    /// What is asked of them.
    pub verdicts: Vec<Verdict>,
}

/// One contender's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// The contender.
    pub name: String,
    /// What was seen, in the order of columns.
    pub figures: Vec<(Column, f64)>,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Nanoseconds a call: half of the batches took less.
    Batch50,
    /// Nanoseconds a call in the best batch.
    BatchMin,
    /// Nanoseconds a call: 99 of 100 batches took less.
    Batch99,
    /// Nanoseconds: half of the single calls took less.
    Call50,
    /// Nanoseconds: 99 of 100 single calls took less.
    Call99,
    /// Nanoseconds: the longest that a task stood ready without being polled, in half of the batches.
    Unpolled,
    /// Of 100 calls, how many had to queue.
    Queued,
    /// Millions of calls a second.
    Rate,
    /// How often an executor polled what had been woken, a call.
    WakeUps,
    /// Allocations a call.
    Allocations,
    /// Bytes allocated a call.
    Bytes,
    /// The most bytes held at one time.
    Peak,
    /// Bytes of one future.
    Future,
    /// Bytes on the heap for each call that waits.
    Record,
    /// Bytes on the heap for each tokio task that waits in a call.
    Task,
    /// Bytes of a handle.
    Handle,
    /// Bytes on the heap for each that is idle.
    Idle,
    /// How many bytes more each of them keeps after a burst of work.
    AfterBurst,
    /// Nanoseconds a call that leaves, of 10,000.
    LeaveFew,
    /// Nanoseconds a call that leaves, of 1,000,000.
    LeaveMany,
    /// The one over the other.
    Growth,
}

impl Column {
    /// Its heading.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Self::Batch50 => "p50 ns",
            Self::BatchMin => "min ns",
            Self::Batch99 => "p99 ns",
            Self::Call50 => "call p50",
            Self::Call99 => "call p99",
            Self::Unpolled => "unpolled",
            Self::Queued => "queued %",
            Self::Rate => "M/s",
            Self::WakeUps => "wake-ups",
            Self::Allocations => "allocs",
            Self::Bytes => "bytes",
            Self::Peak => "peak heap",
            Self::Future => "future B",
            Self::Record => "record B",
            Self::Task => "task B",
            Self::Handle => "handle B",
            Self::Idle => "idle B",
            Self::AfterBurst => "after burst",
            Self::LeaveFew => "of 10,000",
            Self::LeaveMany => "of 1,000,000",
            Self::Growth => "growth",
        }
    }
}

/// One target, held against what was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// What is asked, in words.
    pub what: String,
    /// The figure seen.
    pub seen: f64,
    /// A quarter of the rotations saw less, a quarter saw more; of several processes, the least and the most.
    pub spread: Option<(f64, f64)>,
    /// The bound.
    pub bound: Bound,
    /// Whether it holds.
    pub met: bool,
    /// Whether the machine was too busy for the figure to mean much.
    pub disturbed: bool,
}

/// A bound on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

impl Bound {
    /// Whether a figure keeps it.
    #[must_use]
    pub fn keeps(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bound) => figure <= bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "<= {}", figure(*bound)),
            Self::AtLeast(bound) => write!(f, ">= {}", figure(*bound)),
        }
    }
}

impl Seen {
    /// Nothing yet.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            figures: Vec::new(),
        }
    }

    /// Adds a figure.
    #[must_use]
    pub fn with(mut self, column: Column, figure: f64) -> Self {
        self.set(column, figure);
        self
    }

    /// Adds or replaces a figure.
    pub fn set(&mut self, column: Column, figure: f64) {
        self.figures.retain(|(known, _)| *known != column);
        self.figures.push((column, figure));
        self.figures.sort_by_key(|(column, _)| *column);
    }

    /// A figure, if it was seen.
    #[must_use]
    pub fn get(&self, column: Column) -> Option<f64> {
        let mut known = self.figures.iter();
        known.find(|(of, _)| *of == column).map(|(_, seen)| *seen)
    }
}

impl Row {
    /// A contender's figures.
    pub fn contender(&mut self, name: &str) -> Option<&mut Seen> {
        self.seen.iter_mut().find(|seen| seen.name == name)
    }

    /// The columns that any contender fills, in order.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let figures = self.seen.iter().flat_map(|seen| &seen.figures);
        let mut columns: Vec<Column> = figures.map(|(column, _)| *column).collect();
        columns.sort();
        columns.dedup();
        columns
    }
}
