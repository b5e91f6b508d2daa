//! What a drain did: how many calls ended, were withdrawn, still run.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::stats::{WIDEST, total};

/// What became of one operation's calls since shutdown began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Drained {
    /// The operation's name.
    pub operation: Arc<str>,
    /// Calls that ended in their own way.
    pub ended: u64,
    /// Calls that waited, or paused between attempts, and were withdrawn.
    pub withdrawn: u64,
    /// Calls that have not ended.
    pub running: u64,
}

impl Drained {
    /// A row of a report, for hosts whose work a drain includes.
    #[must_use]
    pub fn new(operation: impl Into<Arc<str>>, ended: u64, withdrawn: u64, running: u64) -> Self {
        Self {
            operation: operation.into(),
            ended,
            withdrawn,
            running,
        }
    }
}

/// What became of every operation's calls since shutdown began. Displayed, it is a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DrainReport {
    /// Each operation, in the order of construction.
    pub operations: Vec<Drained>,
}

impl DrainReport {
    /// Calls that have not ended, over all operations.
    #[must_use]
    pub fn running(&self) -> u64 {
        total(self.operations.iter().map(|of| of.running))
    }
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .operations
            .iter()
            .map(|of| of.operation.chars().count())
            .max()
            .unwrap_or(0)
            .max("operation".len())
            .min(WIDEST);
        write!(
            f,
            "{:width$}  {:>10}  {:>10}  {:>10}",
            "operation", "ended", "withdrawn", "running"
        )?;
        for of in &self.operations {
            write!(
                f,
                "\n{:width$}  {:>10}  {:>10}  {:>10}",
                of.operation, of.ended, of.withdrawn, of.running
            )?;
        }
        Ok(())
    }
}

/// Why a drain could not be awaited, or did not end in time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShutdownError {
    /// Asked for from inside a call of the same runtime, it could never end. Nothing was closed.
    InsideOwnCall,
    /// The bound passed first. The runtime stays closed, the drain goes on and can be awaited again.
    StillRunning(DrainReport),
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InsideOwnCall => f.write_str(
                "shutdown was awaited from inside a call of the same runtime, which it would have to outlast: spawn it, or await it from outside",
            ),
            Self::StillRunning(report) => {
                f.write_str("the drain did not end in time; still running: ")?;
                let running = report.operations.iter().filter(|of| of.running > 0);
                for (index, of) in running.enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{:?} ({})", of.operation, of.running)?;
                }
                Ok(())
            }
        }
    }
}

impl Error for ShutdownError {}
