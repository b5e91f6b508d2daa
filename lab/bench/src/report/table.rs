//! Rows as text: columns of figures, aligned.

use std::fmt::Write;

use super::{Row, Verdict};
use crate::growth::Curve;

/// A figure in as many digits as it deserves.
#[must_use]
pub fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let whole = format!("{:.0}", size);
        let mut out = String::from(if value < 0.0 { "-" } else { "" });
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at) % 3 == 0 {
                out.push(',');
            }
            out.push(digit);
        }
        return out;
    }
    if value.fract() == 0.0 || size >= 100.0 {
        return format!("{value:.0}");
    }
    if size >= 10.0 {
        return format!("{value:.1}");
    }
    format!("{value:.2}")
}

/// One row's contenders and verdicts.
#[must_use]
pub fn print_row(row: &Row) -> String {
    let names = row.seen.iter().map(|seen| seen.name.chars().count());
    let width = names.max().unwrap_or(0).max(30);
    let columns = row.columns();
    let mut out = format!("\n{}: {}\n  {:width$}", row.id, row.title, "");
    for column in &columns {
        let _ = write!(out, " {:>12}", column.heading());
    }
    out.push('\n');
    for seen in &row.seen {
        let _ = write!(out, "  {:width$}", seen.name);
        for column in &columns {
            let cell = seen.get(*column).map_or_else(|| "-".to_owned(), figure);
            let _ = write!(out, " {cell:>12}");
        }
        out.push('\n');
    }
    for verdict in &row.verdicts {
        let _ = writeln!(out, "  {}", print_verdict(verdict));
    }
    out
}

fn print_verdict(verdict: &Verdict) -> String {
    let spread = verdict
        .spread
        .map(|(low, high)| format!(" ({} to {})", figure(low), figure(high)))
        .unwrap_or_default();
    let met = if verdict.met { "met   " } else { "MISSED" };
    let disturbed = match verdict.disturbed {
        true => "; the machine was too busy to tell",
        false => "",
    };
    format!(
        "{met} {}: {}{spread}, target {}{disturbed}",
        verdict.what,
        figure(verdict.seen),
        verdict.bound
    )
}

/// One curve: a line a contender, a column a size.
#[must_use]
pub fn print_curve(curve: &Curve) -> String {
    let names = curve.series.iter().map(|series| series.name.len());
    let width = names.max().unwrap_or(0).max(20);
    let mut out = format!(
        "\n{}: {} [{}]\n  {:width$}",
        curve.id, curve.title, curve.unit, ""
    );
    for size in &curve.sizes {
        let _ = write!(out, " {:>10}", figure(f64::from(*size)));
    }
    let _ = writeln!(out, " {:>10}", "max/min");
    for series in &curve.series {
        let _ = write!(out, "  {:width$}", series.name);
        for of in series.figures.iter().copied().chain([series.spread()]) {
            let _ = write!(out, " {:>10}", figure(of));
        }
        out.push('\n');
    }
    out
}

/// How many targets were met, and which were not.
#[must_use]
pub fn print_summary(rows: &[Row]) -> String {
    let verdicts = || {
        rows.iter()
            .flat_map(|row| row.verdicts.iter().map(move |verdict| (row, verdict)))
    };
    let met = verdicts().filter(|(_, verdict)| verdict.met).count();
    let mut out = format!("\n{met} of {} targets met\n", verdicts().count());
    for (row, verdict) in verdicts().filter(|(_, verdict)| !verdict.met) {
        let _ = writeln!(out, "  {}: {}", row.id, print_verdict(verdict));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Bound, Column, Seen};

    #[test]
    fn figures_have_the_digits_they_deserve() {
        let shown = [0.0, 0.854, 20.61, 361.4, 1_234_567.0, -2000.0].map(figure);
        assert_eq!(shown, ["0", "0.85", "20.6", "361", "1,234,567", "-2,000"]);
    }

    #[test]
    fn columns_stand_under_their_headings() {
        let row = Row {
            id: "row".into(),
            title: "what it is".into(),
            seen: vec![
                Seen::new("subject").with(Column::Batch50, 12.5),
                Seen::new("peer")
                    .with(Column::Allocations, 2.0)
                    .with(Column::Batch50, 125.0),
            ],
            verdicts: vec![Verdict {
                what: "subject / peer".into(),
                seen: 0.1,
                spread: None,
                bound: Bound::AtMost(0.5),
                met: true,
                disturbed: false,
            }],
        };
        let text = print_row(&row);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines[0], "row: what it is");
        assert!(lines[1].ends_with("p50 ns       allocs"), "{text}");
        assert!(lines[2].ends_with("12.5            -"), "{text}");
        assert!(lines[3].ends_with("125            2"), "{text}");
        assert_eq!(lines[4], "  met    subject / peer: 0.10, target <= 0.50");
    }
}
