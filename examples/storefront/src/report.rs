//! The report of a run: what it holds, as JSON for machines; `table.rs` draws it for people.

use std::path::PathBuf;
use std::time::Duration;

use bursar::Snapshot;
use serde::Serialize;

use crate::checks::{Check, State};
use crate::contracts::{CATALOGUE, DB_WRITE, MODEL_CALL, RENDERER, WEBHOOK};
use crate::meter::{Meter, Quantiles};
use crate::unrest::Killed;

#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub scale: f64,
    pub seconds: f64,
    /// Seconds from the interrupt until everything had ended; null if nobody interrupted.
    pub interrupted: Option<f64>,
    pub operations: Vec<Operation>,
    pub budgets: Vec<Budget>,
    pub checks: Vec<Check>,
    pub rival_calls: usize,
    /// Connections to the database that were killed meanwhile; null where it is embedded.
    pub killed: Option<Killed>,
    /// What the runtime looked like when most calls waited.
    pub busiest: Option<Snapshot>,
    /// Where sample cards are.
    pub cards: PathBuf,
    /// Where the databases are, if they were kept.
    pub databases: Option<PathBuf>,
}

/// One operation. `calls` is the sum of `ok`, `refused`, `stopped`, `throttled`, `uncertain` and `failed`.
#[derive(Debug, Serialize)]
pub struct Operation {
    pub name: String,
    pub calls: u64,
    pub ok: u64,
    pub retried: u64,
    pub refused: u64,
    pub stopped: u64,
    pub throttled: u64,
    pub uncertain: u64,
    pub failed: u64,
    pub waited: u64,
    pub wait_ms: Percentiles,
    pub run_ms: Percentiles,
    /// The first failures, in words.
    pub samples: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

impl From<Quantiles> for Percentiles {
    fn from(quantiles: Quantiles) -> Self {
        Self {
            p50: quantiles.map(|q| q.0),
            p99: quantiles.map(|q| q.1),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Budget {
    pub name: String,
    pub capacity: u32,
    /// Counted where the work is done.
    pub peak: usize,
    /// Calls of its operations that waited longer than a millisecond.
    pub waits: u64,
    /// The longest queue seen.
    pub queue: u32,
}

impl Operation {
    pub fn of(meter: &Meter) -> Self {
        let tally = meter.tally();
        Self {
            name: meter.name.clone(),
            calls: tally.calls,
            ok: tally.ok,
            retried: meter.retried(),
            refused: tally.refused,
            stopped: tally.stopped,
            throttled: tally.throttled,
            uncertain: tally.uncertain,
            failed: tally.failed,
            waited: tally.waited,
            wait_ms: meter.wait().into(),
            run_ms: meter.run().into(),
            samples: meter.samples(),
        }
    }

    /// Whether this operation claims units of a budget, as `contracts.rs` declares it.
    pub fn claims(&self, budget: &str) -> bool {
        let claims: &[&str] = match self.name.as_str() {
            "render-card" | "preview-card" => &[RENDERER],
            "record-event" | "move-stock" => &[DB_WRITE],
            "replace-catalogue" => &[CATALOGUE, DB_WRITE],
            "webhook-notify" | "webhook-sync" => &[WEBHOOK],
            "score-review" => &[MODEL_CALL],
            _ => &[],
        };
        claims.contains(&budget)
    }
}

impl Report {
    pub fn is_broken(&self) -> bool {
        self.checks.iter().any(|check| check.state == State::Broken)
    }
}

/// Seconds to a hundredth: enough for a person, and short for a machine.
pub fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 100.0).round() / 100.0
}
