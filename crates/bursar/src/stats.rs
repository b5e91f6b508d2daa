//! What users read of a runtime's counters (`counters.rs` keeps them).

use std::fmt;
use std::sync::Arc;

/// What one operation has done since its runtime was built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// Calls that had to wait for a key or for units.
    pub waited: u64,
    /// What became of the calls that ended.
    pub outcomes: Outcomes,
}

/// Calls by what became of them.
///
/// At rest they add up to the calls [finished](OperationStats::finished) and those whose blocking handlers run on after
/// their callers were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Outcomes {
    /// Answered with a value. A permit counts once it is dropped.
    pub success: u64,
    /// Answered with an error that is [`Outcome::Transient`](crate::Outcome::Transient).
    pub transient: u64,
    /// Answered with an error that is [`Outcome::Permanent`](crate::Outcome::Permanent).
    pub permanent: u64,
    /// Answered with an error that is [`Outcome::Throttled`](crate::Outcome::Throttled), said by the handler.
    pub throttled: u64,
    /// Answered with an error that is [`Outcome::Uncertain`](crate::Outcome::Uncertain).
    pub uncertain: u64,
    /// Admitted, and ended before they held everything: turned away, out of time, withdrawn, or left by their callers.
    pub never_ran: u64,
    /// Held everything, and their futures were dropped before there was an answer.
    pub dropped: u64,
    /// Their handlers panicked.
    pub panicked: u64,
}

impl Outcomes {
    /// All of them together.
    #[must_use]
    pub fn all(&self) -> u64 {
        total(self.columns().into_iter().map(|(_, count)| count))
    }

    /// Each with its name in tables.
    pub(crate) fn columns(&self) -> [(&'static str, u64); 8] {
        [
            ("success", self.success),
            ("transient", self.transient),
            ("permanent", self.permanent),
            ("throttled", self.throttled),
            ("uncertain", self.uncertain),
            ("never ran", self.never_ran),
            ("dropped", self.dropped),
            ("panicked", self.panicked),
        ]
    }

    fn sum<'o>(all: impl Iterator<Item = &'o Self> + Clone) -> Self {
        let of = |which: fn(&Self) -> u64| total(all.clone().map(which));
        Self {
            success: of(|of| of.success),
            transient: of(|of| of.transient),
            permanent: of(|of| of.permanent),
            throttled: of(|of| of.throttled),
            uncertain: of(|of| of.uncertain),
            never_ran: of(|of| of.never_ran),
            dropped: of(|of| of.dropped),
            panicked: of(|of| of.panicked),
        }
    }
}

/// The sum, or the largest number there is: figures that were read from somewhere may be anything.
pub(crate) fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Tables have no wider columns: more cannot be asked of a format.
pub(crate) const WIDEST: usize = u16::MAX as usize;

/// What one budget looks like now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
        let of = |which: fn(&OperationStats) -> u64| total(self.operations.iter().map(which));
        OperationStats {
            name: "all".into(),
            admitted: of(|of| of.admitted),
            rejected: of(|of| of.rejected),
            started: of(|of| of.started),
            finished: of(|of| of.finished),
            retried: of(|of| of.retried),
            denied: of(|of| of.denied),
            waited: of(|of| of.waited),
            outcomes: Outcomes::sum(self.operations.iter().map(|of| &of.outcomes)),
        }
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
            .max("operation".len())
            .min(WIDEST);
        let columns = |of: &OperationStats| {
            [
                ("admitted", of.admitted),
                ("rejected", of.rejected),
                ("waited", of.waited),
                ("started", of.started),
                ("finished", of.finished),
                ("retried", of.retried),
                ("denied", of.denied),
            ]
        };
        table(
            f,
            width,
            operations.clone().map(|of| (&of.name, columns(of))),
        )?;
        writeln!(f)?;
        let outcomes = operations.map(|of| (&of.name, of.outcomes.columns()));
        table(f, width, outcomes)?;
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

/// One row an operation, under the names of the columns.
fn table<'o, const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    width: usize,
    rows: impl Iterator<Item = (&'o Arc<str>, [(&'static str, u64); COLUMNS])> + Clone,
) -> fmt::Result {
    write!(f, "{:width$}", "operation")?;
    if let Some((_, columns)) = rows.clone().next() {
        for (column, _) in columns {
            write!(f, "  {column:>10}")?;
        }
    }
    writeln!(f)?;
    for (name, columns) in rows {
        write!(f, "{name:width$}")?;
        for (_, count) in columns {
            write!(f, "  {count:>10}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}
