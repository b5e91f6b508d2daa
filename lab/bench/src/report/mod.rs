//! What a measured row says.

mod table;

use serde::Serialize;

pub use table::{print_row, print_summary};

use crate::measure::{Batch, Measured, Ratio};

/// One row: what every contender took, and what the targets say of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Names the row on the command line.
    pub id: &'static str,
    /// What is measured.
    pub title: &'static str,
    /// What the figures of [`Seen`] count.
    pub unit: &'static str,
    /// The contenders.
    pub seen: Vec<Seen>,
    /// What is asked of them.
    pub verdicts: Vec<Verdict>,
}

/// One contender's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Seen {
    /// The contender.
    pub name: String,
    /// The median of its batches.
    pub p50: Option<f64>,
    /// Its best batch.
    pub min: Option<f64>,
    /// 99 of 100 batches took no longer; where single calls are watched, 99 of 100 calls.
    pub p99: Option<f64>,
    /// Allocations a call.
    pub allocations: Option<f64>,
    /// Bytes allocated a call.
    pub bytes: Option<f64>,
}

/// One target, held against what was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What is asked, in words: "run / semaphore".
    pub what: String,
    /// The figure seen.
    pub seen: f64,
    /// The quarter of the rotations below, and the quarter above, where there were rotations.
    pub spread: Option<(f64, f64)>,
    /// The bound.
    pub bound: Bound,
    /// Whether it holds.
    pub met: bool,
}

/// A bound on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

impl Row {
    /// A row of times: nanoseconds a call of every contender.
    #[must_use]
    pub fn of_times(id: &'static str, title: &'static str, measured: &Measured) -> Self {
        let seen = measured
            .names()
            .iter()
            .map(|name| {
                let means = measured.sorted(name, mean);
                Seen {
                    name: (*name).to_owned(),
                    p50: Some(crate::figures::quantile(&means, 0.5)),
                    min: means.first().copied(),
                    p99: Some(crate::figures::quantile(&means, 0.99)),
                    ..Seen::default()
                }
            })
            .collect();
        Self {
            id,
            title,
            unit: "ns a call",
            seen,
            verdicts: Vec::new(),
        }
    }

    /// Holds the time of one contender to that of another.
    #[must_use]
    pub fn at_most(
        mut self,
        measured: &Measured,
        subject: &'static str,
        peer: &'static str,
        bound: f64,
    ) -> Self {
        let ratio = measured.ratio(subject, peer, mean);
        self.verdicts.push(Verdict::of_ratio(
            format!("{subject} / {peer}"),
            ratio,
            Bound::AtMost(bound),
        ));
        self
    }
}

impl Verdict {
    /// Of a ratio over all rotations.
    #[must_use]
    pub fn of_ratio(what: String, ratio: Ratio, bound: Bound) -> Self {
        Self {
            what,
            seen: ratio.median,
            spread: Some((ratio.low, ratio.high)),
            bound,
            met: bound.keeps(ratio.median),
        }
    }
}

/// A batch's time a call.
#[must_use]
pub fn mean(batch: &Batch) -> f64 {
    batch.mean
}
