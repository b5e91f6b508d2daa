//! Rows as text: columns of figures, aligned.

use std::fmt::Write;

use super::{Bound, Row, Verdict};

/// A figure in three digits or so.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.fract() == 0.0 && value < 1e6 => format!("{value:.0}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 1000.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// One row's contenders and verdicts.
#[must_use]
pub fn print_row(row: &Row) -> String {
    let width = row.seen.iter().map(|seen| seen.name.chars().count()).max();
    let width = width.unwrap_or(0).max(34);
    let mut out = String::new();
    let _ = writeln!(out, "\n{}: {} [{}]", row.id, row.title, row.unit);
    let _ = writeln!(
        out,
        "  {:width$} {:>9} {:>9} {:>9} {:>7} {:>8}",
        "", "p50", "min", "p99", "allocs", "bytes"
    );
    for seen in &row.seen {
        let _ = writeln!(
            out,
            "  {:width$} {:>9} {:>9} {:>9} {:>7} {:>8}",
            seen.name,
            figure(seen.p50),
            figure(seen.min),
            figure(seen.p99),
            figure(seen.allocations),
            figure(seen.bytes),
        );
    }
    for verdict in &row.verdicts {
        let _ = writeln!(out, "  {}", print_verdict(verdict));
    }
    out
}

fn print_verdict(verdict: &Verdict) -> String {
    let (sign, bound) = match verdict.bound {
        Bound::AtMost(bound) => ("<=", bound),
        Bound::AtLeast(bound) => (">=", bound),
    };
    let spread = verdict
        .spread
        .map(|(low, high)| format!(" ({low:.2} to {high:.2})"))
        .unwrap_or_default();
    let seen = figure(Some(verdict.seen));
    let bound = figure(Some(bound));
    let met = if verdict.met { "met" } else { "MISSED" };
    format!(
        "{met:6} {}: {seen}{spread}, target {sign} {bound}",
        verdict.what
    )
}

/// How many targets were met, and which were not.
#[must_use]
pub fn print_summary(rows: &[Row]) -> String {
    let verdicts = || {
        rows.iter()
            .flat_map(|row| row.verdicts.iter().map(move |verdict| (row, verdict)))
    };
    let met = verdicts().filter(|(_, verdict)| verdict.met).count();
    let mut out = format!("\n{met} of {} targets met.\n", verdicts().count());
    for (row, verdict) in verdicts().filter(|(_, verdict)| !verdict.met) {
        let _ = writeln!(out, "  {}: {}", row.id, print_verdict(verdict));
    }
    out
}
