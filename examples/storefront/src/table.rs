//! The report on a terminal: tables, and the list of promises.

use std::fmt::Write as _;
use std::io::IsTerminal;

use crate::checks::{State, thousands};
use crate::report::{Budget, Operation, Percentiles, Report};

/// What the report is written on: with colours or without, and how wide.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    colours: bool,
    width: usize,
}

impl Paper {
    /// Colours if standard output is a terminal and nobody said otherwise. What is no terminal is wide enough.
    pub fn detect() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let terminal = std::io::stdout().is_terminal();
        let width = terminal_size::terminal_size().filter(|_| terminal);
        Self {
            colours: terminal && !unwanted,
            width: width.map_or(usize::MAX, |(width, _)| width.0.into()),
        }
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colours && !text.is_empty() && !code.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }
}

/// A cell: what it says, and how it is coloured.
struct Cell {
    text: String,
    code: &'static str,
}

fn plain(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        code: "",
    }
}

/// A number, coloured; none of it is a dim dot, so that what happened stands out.
fn coloured(number: u64, code: &'static str) -> Cell {
    match number {
        0 => Cell {
            text: "·".into(),
            code: "2",
        },
        _ => Cell {
            text: thousands(number),
            code,
        },
    }
}

fn count(number: u64) -> Cell {
    coloured(number, "")
}

/// Both percentiles, in milliseconds.
fn percentiles(of: &Percentiles) -> Cell {
    let (Some(p50), Some(p99)) = (of.p50, of.p99) else {
        return count(0);
    };
    let text = |value: f64| match value {
        0.0..0.01 => "<.01".to_owned(),
        0.01..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => thousands(value.round() as u64),
    };
    plain(format!("{} / {:>5}", text(p50), text(p99)))
}

/// Draws rows below their heads: the first column to the left, the others to the right.
fn table(out: &mut String, paper: Paper, heads: &[&str], rows: &[Vec<Cell>]) {
    let len = |text: &str| text.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| len(&row[column].text));
        cells.chain([len(heads[column])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    // Two spaces between columns, or one where two would not fit.
    let spacious = 2 + widths.iter().sum::<usize>() + 2 * (widths.len() - 1) <= paper.width;
    let gap = if spacious { "  " } else { " " };
    let mut line = |cells: &[(&str, &str)]| {
        let mut text = String::from("  ");
        for (column, (cell, code)) in cells.iter().enumerate() {
            let space = " ".repeat(widths[column] - len(cell));
            let cell = paper.wrap(code, cell);
            match column {
                0 => text.extend([cell.as_str(), &space]),
                _ => text.extend([gap, space.as_str(), &cell]),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&heads.iter().map(|head| (*head, "2")).collect::<Vec<_>>());
    for row in rows {
        let cells: Vec<_> = row.iter().map(|c| (c.text.as_str(), c.code)).collect();
        line(&cells);
    }
}

/// The whole report.
pub fn draw(report: &Report, paper: Paper) -> String {
    let mut out = String::from("\n");
    let title = format!(
        "{:.1} s, seed {}, scale {}",
        report.seconds, report.seed, report.scale
    );
    let _ = writeln!(out, "{}  {}", paper.bold("Operations"), paper.dim(&title));
    operations(&mut out, report, paper);
    let _ = writeln!(out, "\n{}", paper.bold("Budgets"));
    budgets(&mut out, report, paper);
    if let Some(snapshot) = &report.busiest {
        let _ = writeln!(
            out,
            "\n{}",
            paper.bold("The runtime when most calls waited")
        );
        let _ = writeln!(out, "{snapshot}");
    }
    let title = paper.bold("Promised, and observed from outside");
    let _ = writeln!(out, "\n{title}");
    promises(&mut out, report, paper);
    out.push('\n');
    closing(&mut out, report, paper);
    out
}

fn operations(out: &mut String, report: &Report, paper: Paper) {
    // Only an interrupted run stops calls.
    let stopped = report.operations.iter().any(|of| of.stopped > 0);
    let mut heads = vec![
        "",
        "calls",
        "ok",
        "retried",
        "refused",
        "throttled",
        "uncertain",
        "failed",
        "wait p50/p99",
        "run p50/p99 ms",
    ];
    if stopped {
        heads.insert(5, "stopped");
    }
    let row = |of: &Operation| {
        let mut cells = vec![
            plain(of.name.as_str()),
            count(of.calls),
            count(of.ok),
            count(of.retried),
            count(of.refused),
            count(of.throttled),
            coloured(of.uncertain, "33"),
            coloured(of.failed, "31"),
            percentiles(&of.wait_ms),
            percentiles(&of.run_ms),
        ];
        if stopped {
            cells.insert(5, count(of.stopped));
        }
        cells
    };
    let rows: Vec<_> = report.operations.iter().map(row).collect();
    table(out, paper, &heads, &rows);
}

fn budgets(out: &mut String, report: &Report, paper: Paper) {
    let heads = ["", "capacity", "peak", "waits over 1 ms", "longest queue"];
    let row = |of: &Budget| {
        vec![
            plain(of.name.as_str()),
            plain(of.capacity.to_string()),
            plain(of.peak.to_string()),
            count(of.waits),
            count(of.queue.into()),
        ]
    };
    let rows: Vec<_> = report.budgets.iter().map(row).collect();
    table(out, paper, &heads, &rows);
}

fn promises(out: &mut String, report: &Report, paper: Paper) {
    let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let checks = || report.checks.iter();
    let promise = longest(&mut checks().map(|check| check.promise.chars().count()));
    let observed = longest(&mut checks().map(|check| check.observed.chars().count()));
    // Side by side where there is room, else what was observed goes below what was promised.
    let beside = 6 + promise + observed <= paper.width;
    for check in checks() {
        let mark = match check.state {
            State::Kept => paper.wrap("32", "✓"),
            State::Broken => paper.wrap("1;31", "✗"),
            State::Open => paper.wrap("33", "–"),
        };
        let observed = paper.dim(&check.observed);
        let _ = if beside {
            writeln!(out, "  {mark} {:promise$}  {observed}", check.promise)
        } else {
            writeln!(out, "  {mark} {}\n      {observed}", check.promise)
        };
    }
}

fn closing(out: &mut String, report: &Report, paper: Paper) {
    let count = |state| {
        let checks = report.checks.iter();
        checks.filter(|check| check.state == state).count()
    };
    let (kept, broken, open) = (count(State::Kept), count(State::Broken), count(State::Open));
    if let Some(drained) = report.interrupted {
        let stopped: u64 = report.operations.iter().map(|of| of.stopped).sum();
        let _ = writeln!(
            out,
            "Interrupted: what ran had ended {drained:.2} s later; {} calls were told that the shop is closing.",
            thousands(stopped)
        );
    }
    let verdict = match broken {
        0 => paper.wrap("32", &format!("{kept} promises kept, none broken.")),
        _ => {
            let all = kept + broken;
            paper.wrap("1;31", &format!("{broken} of {all} promises broken."))
        }
    };
    out.push_str(&verdict);
    if open > 0 {
        let _ = write!(out, " {open} could not be observed.");
    }
    let _ = writeln!(out, " Sample cards: {}", report.cards.display());
    if let Some(databases) = &report.databases {
        let _ = writeln!(out, "Databases: {}", databases.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: usize) -> String {
        let mut out = String::new();
        let paper = Paper {
            colours: false,
            width,
        };
        let rows = [
            vec![plain("one"), count(1_234)],
            vec![plain("three"), count(0)],
        ];
        table(&mut out, paper, &["", "calls"], &rows);
        out
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            drawn(80),
            "         calls\n  one    1,234\n  three      ·\n"
        );
    }

    #[test]
    fn narrow_paper_takes_the_space_between() {
        assert_eq!(drawn(13), "        calls\n  one   1,234\n  three     ·\n");
    }

    #[test]
    fn percentiles_keep_three_digits_or_so() {
        let cell = |p50, p99| {
            percentiles(&Percentiles {
                p50: Some(p50),
                p99: Some(p99),
            })
            .text
        };
        assert_eq!(cell(0.001, 0.25), "<.01 /  0.25");
        assert_eq!(cell(12.34, 1_234.5), "12.3 / 1,235");
    }
}
