//! A snapshot for people: first in words what is stuck, the longest queue first, then tables.
//!
//! Columns and tables that would be empty are left out. Names and keys are quoted and escaped where they are not plain,
//! so that none of them can pretend to be another line.

use std::cmp::Reverse;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::{BudgetSnapshot, Doing, HolderSnapshot, KeySnapshot, Phase, QueuedSnapshot, Snapshot};
use crate::stats::{WIDEST, total};

/// Keys and calls shown, and sentences on keys.
pub(super) const SHOWN: usize = 20;
/// Characters of a key shown.
const LONG: usize = 48;
/// Runs of a queue shown, and holders.
const FEW: usize = 4;

impl Display for Snapshot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&super::OperationSnapshot) -> u64| total(self.operations.iter().map(of));
        let [executing, paused, waiting] = [
            sum(|of| of.executing),
            sum(|of| of.paused),
            sum(|of| of.waiting),
        ];
        write!(
            f,
            "{}: {executing} executing, {paused} paused, {waiting} waiting",
            self.phase
        )?;
        for finding in self.findings() {
            write!(f, "\n  {finding}")?;
        }
        self.budgets().draw(f)?;
        self.operations().draw(f)?;
        self.keys().draw(f)?;
        more(f, self.keys.len(), "keys")?;
        self.times().draw(f)?;
        self.calls().draw(f)?;
        more(f, self.calls.as_ref().map_or(0, Vec::len), "calls")?;
        let hosts = self.hosts.iter().filter(|host| host.spots > 0);
        hosts
            .into_iter()
            .try_for_each(|host| write!(f, "\n\n{host}"))
    }
}

impl Display for Phase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Draining => "draining",
            Self::Drained => "drained",
        })
    }
}

impl Snapshot {
    /// What somebody waits for, the longest queue first; then what was given and not taken, or not given back.
    fn findings(&self) -> Vec<String> {
        let mut queues: Vec<(u32, String)> = Vec::new();
        for budget in self.budgets.iter().filter(|budget| budget.waiting > 0) {
            queues.push((budget.waiting, waited_for(budget)));
        }
        for key in self.keys.iter().filter(|key| key.waiting > 0).take(SHOWN) {
            let waiting = calls(key.waiting, "waits", "wait");
            let holder = name(&key.holder);
            let mut text = format!("{waiting} for {}, held by {holder}", Named(key));
            if let Some(age) = key.holder_age {
                text += &format!(", which came {} ago", time(age));
            }
            queues.push((key.waiting, text));
        }
        let spots = self.hosts.iter().flat_map(|host| &host.busy);
        for spot in spots.filter(|spot| spot.waiting > 0).take(SHOWN) {
            queues.push((spot.waiting, spot.finding()));
        }
        queues.sort_by_key(|(waiting, _)| Reverse(*waiting));
        let mut findings: Vec<String> = queues.into_iter().map(|(_, finding)| finding).collect();
        for budget in &self.budgets {
            let of = name(&budget.name);
            if budget.unnoticed > 0 {
                let units = number(budget.unnoticed, "unit was", "units were");
                findings.push(format!(
                    "of budget {of}, {units} granted to calls that nobody has polled since"
                ));
            }
            if budget.owed > 0 {
                let units = number(budget.owed, "unit", "units");
                findings.push(format!(
                    "budget {of} owes {units}: it was shrunk below what is held"
                ));
            }
        }
        if self.keys_unnoticed > 0 {
            let keys = number(self.keys_unnoticed, "key", "keys");
            findings.push(format!(
                "{keys} passed to calls that nobody has polled since"
            ));
        }
        for of in self.operations.iter().filter(|of| of.adrift > 0) {
            let on = calls(
                u32::try_from(of.adrift).unwrap_or(u32::MAX),
                "runs on after its caller was answered",
                "run on after their callers were answered",
            );
            findings.push(format!("{on}: {} blocks", name(&of.stats.name)));
        }
        findings
    }

    fn budgets(&self) -> Table {
        let mut table = Table::new([
            ("budget", Align::Left),
            ("capacity", Align::Right),
            ("in use", Align::Right),
            ("waiting", Align::Right),
            ("held by", Align::Left),
            ("first in line", Align::Left),
        ]);
        for budget in &self.budgets {
            table.row([
                name(&budget.name),
                budget.capacity.to_string(),
                budget.in_use.to_string(),
                count(budget.waiting.into()),
                held_by(budget),
                line(&budget.queue),
            ]);
        }
        table
    }

    fn operations(&self) -> Table {
        let columns = self
            .operations
            .first()
            .map_or([("", 0); 8], |of| of.stats.outcomes.columns());
        let fixed = [
            "executing",
            "paused",
            "waiting",
            "admitted",
            "rejected",
            "retried",
            "denied",
        ];
        let heads = fixed
            .into_iter()
            .chain(columns.into_iter().map(|(column, _)| column));
        let mut table = Table::new(
            std::iter::once(("operation", Align::Left))
                .chain(heads.map(|column| (column, Align::Right))),
        );
        for of in &self.operations {
            let stats = &of.stats;
            let fixed = [
                of.executing,
                of.paused,
                of.waiting,
                stats.admitted,
                stats.rejected,
                stats.retried,
                stats.denied,
            ];
            let outcomes = stats.outcomes.columns().into_iter().map(|(_, count)| count);
            table.row(
                std::iter::once(name(&stats.name))
                    .chain(fixed.into_iter().chain(outcomes).map(count)),
            );
        }
        table
    }

    fn keys(&self) -> Table {
        let mut table = Table::new([
            ("key", Align::Left),
            ("held by", Align::Left),
            ("waiting", Align::Right),
            ("first in line", Align::Left),
        ]);
        for key in self.keys.iter().take(SHOWN) {
            table.row([
                Named(key).short(),
                name(&key.holder),
                count(key.waiting.into()),
                line(&key.queue),
            ]);
        }
        table
    }

    fn times(&self) -> Table {
        let waits = ["waited p50", "p90", "p99", "max"];
        let runs = ["ran p50", "p90", "p99", "max"];
        let heads = waits.into_iter().chain(runs);
        let mut table = Table::new(
            std::iter::once(("operation", Align::Left))
                .chain(heads.map(|head| (head, Align::Right))),
        );
        for of in &self.operations {
            let Some(times) = of.times.filter(|times| times.waiting.count > 0) else {
                continue;
            };
            let cells = [times.waiting, times.running]
                .into_iter()
                .flat_map(|of| [of.p50, of.p90, of.p99, of.max].map(|at| (of.count, at)))
                .map(|(count, at)| if count == 0 { String::new() } else { time(at) });
            table.row(std::iter::once(name(&of.stats.name)).chain(cells));
        }
        table
    }

    fn calls(&self) -> Table {
        let mut table = Table::new([
            ("oldest calls", Align::Left),
            ("age", Align::Right),
            ("doing", Align::Left),
            ("for", Align::Right),
            ("key", Align::Left),
        ]);
        for call in self.calls.iter().flatten().take(SHOWN) {
            let doing = match (call.doing, &call.budget) {
                (Doing::WaitingForKey, _) => "waits for its key".to_owned(),
                (Doing::WaitingForUnits, Some(budget)) => format!("waits for {}", name(budget)),
                (Doing::WaitingForUnits, None) => "waits".to_owned(),
                (Doing::Executing, _) => "executes".to_owned(),
                (Doing::Pausing, _) => "pauses".to_owned(),
            };
            table.row([
                name(&call.operation),
                time(call.age),
                doing,
                time(call.doing_for),
                call.key.as_deref().map(short).unwrap_or_default(),
            ]);
        }
        table
    }
}

pub(super) fn more(f: &mut Formatter<'_>, rows: usize, of: &str) -> fmt::Result {
    match rows.checked_sub(SHOWN + 1) {
        Some(more) => write!(f, "\nand {} more {of}", more + 1),
        None => Ok(()),
    }
}

fn waited_for(budget: &BudgetSnapshot) -> String {
    let BudgetSnapshot {
        capacity, in_use, ..
    } = budget;
    let waiting = calls(budget.waiting, "waits", "wait");
    let mut text = format!(
        "{waiting} for budget {}: {in_use} of {capacity} in use",
        name(&budget.name)
    );
    let holders = held_by(budget);
    if !holders.is_empty() {
        text += ", held by ";
        text += &holders;
    }
    if let Some(first) = budget.queue.first().filter(|first| first.units > 1) {
        text += &format!("; the first in line needs {}", first.units);
    }
    if let Some(longest) = budget.longest_wait {
        text += &format!("; the longest has waited {}", time(longest));
    }
    text
}

/// The largest holders, each with its units and, where they differ, its calls.
fn held_by(budget: &BudgetSnapshot) -> String {
    let mut held: Vec<String> = Vec::new();
    for HolderSnapshot {
        operation,
        units,
        calls,
        oldest,
    } in budget.holders.iter().take(FEW)
    {
        let operation = name(operation);
        let mut more: Vec<String> = Vec::new();
        if units != calls {
            more.push(number(*calls, "call", "calls"));
        }
        more.extend(oldest.map(|oldest| format!("for {}", time(oldest))));
        held.push(if more.is_empty() {
            format!("{operation} {units}")
        } else {
            format!("{operation} {units} ({})", more.join(", "))
        });
    }
    if let Some(more) = budget.holders.len().checked_sub(FEW + 1) {
        held.push(format!("{} more", more + 1));
    }
    if budget.unattributed > 0 {
        held.push(format!("{} moving", budget.unattributed));
    }
    held.join(", ")
}

fn line(queue: &[QueuedSnapshot]) -> String {
    let mut runs: Vec<String> = queue
        .iter()
        .take(FEW)
        .map(|run| {
            let operation = name(&run.operation);
            match run.calls {
                1 => operation,
                calls => format!("{operation} x{calls}"),
            }
        })
        .collect();
    if queue.len() > FEW {
        runs.push("...".to_owned());
    }
    runs.join(", ")
}

/// A key with its space.
struct Named<'k>(&'k KeySnapshot);

impl Named<'_> {
    fn short(&self) -> String {
        let KeySnapshot { space, key, .. } = self.0;
        match space {
            Some(space) => format!("{} of {}", short(key), name(space)),
            None => short(key),
        }
    }
}

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "key {}", self.short())
    }
}

/// A key's beginning, quoted.
fn short(key: &str) -> String {
    let mut text: String = key.chars().take(LONG).collect();
    if text.len() < key.len() {
        text.push('\u{2026}');
    }
    format!("{text:?}")
}

/// A span of time in the unit that a person would choose.
pub(super) fn time(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span < Duration::from_millis(1) => format!("{} us", span.as_micros()),
        0 => format!("{} ms", span.as_millis()),
        1..100 => format!("{:.1} s", span.as_secs_f64()),
        100..6_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// A name, quoted where it is not plain.
pub(super) fn name(name: &str) -> String {
    let plain = |char: char| char.is_alphanumeric() || "-_./:".contains(char);
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

fn calls(calls: u32, one: &str, many: &str) -> String {
    match calls {
        1 => format!("1 call {one}"),
        calls => format!("{calls} calls {many}"),
    }
}

pub(super) fn number(number: u32, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Nothing is shown for nothing, so that what is there stands out.
pub(super) fn count(count: u64) -> String {
    match count {
        0 => String::new(),
        count => count.to_string(),
    }
}

#[derive(Clone, Copy)]
pub(super) enum Align {
    Left,
    Right,
}

/// Cells in columns; a column without content is left out, a table without rows too.
pub(super) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(super) fn draw(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .filter(|widest| *widest > 0)
                .map(|widest| {
                    widest
                        .max(self.columns[column].0.chars().count())
                        .min(WIDEST)
                })
        };
        let widths: Vec<Option<usize>> = (0..self.columns.len()).map(width).collect();
        let heads: Vec<&str> = self.columns.iter().map(|(head, _)| *head).collect();
        writeln!(f)?;
        self.line(f, &widths, &heads)?;
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(f, &widths, &cells)?;
        }
        Ok(())
    }

    fn line(&self, f: &mut Formatter<'_>, widths: &[Option<usize>], cells: &[&str]) -> fmt::Result {
        let mut text = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let Some(width) = width else {
                continue;
            };
            if !text.is_empty() {
                text += "  ";
            }
            text += &match align {
                Align::Left => format!("{cell:width$}"),
                Align::Right => format!("{cell:>width$}"),
            };
        }
        write!(f, "\n{}", text.trim_end())
    }
}

#[cfg(all(test, not(bursar_loom)))]
mod tests;
