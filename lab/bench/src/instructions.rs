//! Instructions a call, held against a committed baseline.
//!
//! Seconds drown in noise where instructions do not: the same build makes the same calls in the same instructions, to a
//! fraction of a percent. The peers stand in the baseline as well: where they moved too, it was the compiler or the
//! machine.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::report::figure;

/// How far a figure may lie from its baseline, as a share of it.
pub const TOLERANCE: f64 = 0.03;

/// What is counted: a row and a contender of it.
pub const CASES: &[(&str, &str)] = &[
    ("one-budget", "bursar run"),
    ("one-budget", "bursar with().run"),
    ("one-budget", "bursar Operation::call"),
    ("one-budget", "tokio Semaphore"),
    ("one-budget", "composed"),
    ("two-budgets", "bursar run"),
    ("two-budgets", "composed"),
    ("timeout", "bursar run"),
    ("timeout", "composed"),
    ("suspends", "bursar run"),
    ("suspends", "composed"),
    ("suspends-timeout", "bursar run"),
    ("suspends-timeout", "composed"),
    ("keyed", "bursar key().run"),
    ("keyed", "composed"),
    ("keyed-timeout", "bursar key().run"),
    ("keyed-timeout", "composed"),
    ("reject", "bursar run"),
    ("reject", "composed, then one turn"),
    ("queued", "bursar run"),
    ("queued", "composed"),
    ("queued", "tokio Semaphore"),
];

/// One case, counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// The row.
    pub row: String,
    /// The contender.
    pub name: String,
    /// Instructions a call.
    pub instructions: f64,
}

impl Count {
    fn ours(&self) -> bool {
        self.name.starts_with("bursar")
    }
}

/// Where the baseline lies.
#[must_use]
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv")
}

/// The baseline as text.
#[must_use]
pub fn write(counts: &[Count], rustc: &str) -> String {
    let mut text = format!(
        "# Instructions a call, by callgrind, with {rustc}.\n\
         # Written by: cargo run --profile bench -p bench -- --instructions --update\n"
    );
    for Count {
        row,
        name,
        instructions,
    } in counts
    {
        let _ = writeln!(text, "{row}\t{name}\t{instructions:.1}");
    }
    text
}

/// The baseline from its text.
///
/// # Errors
/// The line that is not three fields, or whose third is no number.
pub fn read(text: &str) -> Result<Vec<Count>, String> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let wrong = || format!("the baseline has a line that is no figure: {line:?}");
            let mut fields = line.split('\t');
            let (Some(row), Some(name), Some(figure), None) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                return Err(wrong());
            };
            Ok(Count {
                row: row.to_owned(),
                name: name.to_owned(),
                instructions: figure.parse().map_err(|_| wrong())?,
            })
        })
        .collect()
}

/// What was counted beside the baseline, as a table; and what is wrong, one sentence each.
#[must_use]
pub fn compare(counts: &[Count], baseline: &[Count]) -> (String, Vec<String>) {
    let mut table = format!(
        "{:18} {:26} {:>10} {:>10} {:>8}\n",
        "", "", "baseline", "now", "change"
    );
    let mut problems = Vec::new();
    for count in counts {
        let Count {
            row,
            name,
            instructions,
        } = count;
        let now = figure(*instructions);
        let known = baseline
            .iter()
            .find(|of| of.row == *row && of.name == *name);
        let Some(known) = known else {
            let _ = writeln!(table, "{row:18} {name:26} {:>10} {now:>10}", "-");
            problems.push(format!(
                "{row}, {name}: not in the baseline; write it with --update"
            ));
            continue;
        };
        let change = instructions / known.instructions - 1.0;
        let before = figure(known.instructions);
        let _ = writeln!(
            table,
            "{row:18} {name:26} {before:>10} {now:>10} {:>+7.1}%",
            change * 100.0
        );
        if change > TOLERANCE && count.ours() {
            problems.push(format!(
                "{row}, {name}: {now} instructions a call, {:.1} % above the baseline of {before}; make it cheaper, or accept \
                 it with --update",
                change * 100.0
            ));
        }
    }
    (table, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, instructions: f64) -> Count {
        Count {
            row: "one-budget".into(),
            name: name.into(),
            instructions,
        }
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let counts = vec![count("bursar run", 120.5), count("composed", 300.0)];
        assert_eq!(read(&write(&counts, "rustc 1.95.0")), Ok(counts));
        assert!(read("one-budget\tbursar run\tmany\n").is_err());
        assert!(read("one-budget\t1.0\n").is_err());
    }

    #[test]
    fn more_than_the_tolerance_is_a_problem_for_us_alone() {
        let baseline = [count("bursar run", 100.0), count("composed", 100.0)];
        let (_, none) = compare(&[count("bursar run", 102.9)], &baseline);
        assert!(none.is_empty(), "{none:?}");
        let (_, ours) = compare(&[count("bursar run", 103.5)], &baseline);
        assert_eq!(ours.len(), 1);
        let (table, theirs) = compare(&[count("composed", 200.0)], &baseline);
        assert!(theirs.is_empty(), "{theirs:?}");
        assert!(table.contains("+100.0%"), "{table}");
    }

    #[test]
    fn what_the_baseline_lacks_is_a_problem() {
        assert_eq!(compare(&[count("bursar run", 1.0)], &[]).1.len(), 1);
    }

    #[test]
    fn the_committed_baseline_knows_every_case() {
        let baseline = read(include_str!("../instructions.tsv")).unwrap();
        let known: Vec<(&str, &str)> = baseline
            .iter()
            .map(|of| (of.row.as_str(), of.name.as_str()))
            .collect();
        assert_eq!(known, CASES);
    }
}
