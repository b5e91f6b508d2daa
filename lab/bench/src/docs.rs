//! The page of figures: `docs/performance.md`.
//!
//! The program writes the regions between its markers and nothing else; what stands around them is written by hand and
//! kept. A region that the page lacks is an error, so that no figures go missing silently.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::growth::Curve;
use crate::instructions::Count;
use crate::machine::Machine;
use crate::report::{Column, Row, figure};

/// Where the page and its plots lie.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The page.
#[must_use]
pub fn page() -> PathBuf {
    directory().join("performance.md")
}

/// Replaces what stands between a region's markers.
///
/// # Errors
/// The page has no such region.
pub fn replace(page: &str, region: &str, text: &str) -> Result<String, String> {
    change(page, region, |_| text.to_owned())
}

/// Makes something else of what stands between a region's markers.
///
/// # Errors
/// The page has no such region.
pub fn change(
    page: &str,
    region: &str,
    text: impl FnOnce(&str) -> String,
) -> Result<String, String> {
    let (begin, end) = (
        format!("<!-- {region}: begin -->"),
        format!("<!-- {region}: end -->"),
    );
    let lacks = |marker: &str| format!("docs/performance.md lacks the marker `{marker}`");
    let (before, rest) = page.split_once(&begin).ok_or_else(|| lacks(&begin))?;
    let (old, after) = rest.split_once(&end).ok_or_else(|| lacks(&end))?;
    let text = text(old.trim());
    Ok(format!(
        "{before}{begin}\n{}\n{end}{after}",
        text.trim_end()
    ))
}

/// What the figures were seen on.
#[must_use]
pub fn of_machine(machine: &Machine, command: &str) -> String {
    let peers: Vec<String> = machine
        .peers
        .iter()
        .map(|(peer, at)| format!("{peer} {at}"))
        .collect();
    let mut text = format!(
        "| | |\n|---|---|\n| command | `{command}` |\n| machine | {}, {} cores, {} |\n| compiler | {} |\n| commit | {} |\n\
         | peers | {} |\n",
        machine.processor,
        machine.cores,
        machine.system,
        machine.rustc,
        machine.commit,
        peers.join(", ")
    );
    if let Some(load) = machine.load {
        let _ = writeln!(text, "| load before | {load:.1} |");
    }
    text
}

const TARGETS: &str = "| target | seen | asked | | command |\n|---|---|---|---|---|\n";

/// Every target, then every row.
#[must_use]
pub fn of_rows(rows: &[Row]) -> String {
    let mut text = String::from(TARGETS);
    text.extend(rows.iter().map(targets));
    text.extend(rows.iter().map(|row| table(row, None)));
    text
}

/// What the region of rows says, with these rows instead of what it said of them, or in their place among the others.
///
/// `order` names all rows there are, as they are printed; `seen` says of these when they were measured, since it was by
/// themselves.
#[must_use]
pub fn with_rows(region: &str, order: &[&str], rows: &[Row], seen: &str) -> String {
    let (old_targets, old_tables) = region.split_once("\n\n**").unwrap_or((region, ""));
    let old_tables: Vec<&str> = old_tables.split("\n\n**").collect();
    let mut text = String::from(TARGETS);
    for id in order {
        match rows.iter().find(|row| row.id == *id) {
            Some(row) => text.push_str(&targets(row)),
            None => {
                let of = format!("| {id}: ");
                let lines = old_targets.lines().filter(|line| line.starts_with(&of));
                text.extend(lines.flat_map(|line| [line, "\n"]));
            }
        }
    }
    for id in order {
        let of = format!("{id}**: ");
        match rows.iter().find(|row| row.id == *id) {
            Some(row) => text.push_str(&table(row, Some(seen))),
            None => {
                let kept = old_tables.iter().filter(|table| table.starts_with(&of));
                text.extend(kept.flat_map(|table| ["\n**", table.trim_end(), "\n"]));
            }
        }
    }
    text
}

fn targets(row: &Row) -> String {
    let mut text = String::new();
    for verdict in &row.verdicts {
        let met = match (verdict.met, verdict.disturbed) {
            (true, false) => "met",
            (false, false) => "**missed**",
            (true, true) => "met, on a busy machine",
            (false, true) => "**missed**, on a busy machine",
        };
        let spread = verdict
            .spread
            .map(|(low, high)| format!(" ({} to {})", figure(low), figure(high)))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "| {}: {} | {}{spread} | {} | {met} | `-- {}` |",
            row.id,
            verdict.what,
            figure(verdict.seen),
            verdict
                .bound
                .to_string()
                .replace("<=", "≤")
                .replace(">=", "≥"),
            row.id
        );
    }
    text
}

fn table(row: &Row, seen: Option<&str>) -> String {
    let mut text = format!("\n**{}**: {}\n\n", row.id, row.title);
    if let Some(seen) = seen {
        let _ = writeln!(text, "{seen}\n");
    }
    let columns = row.columns();
    let headings: Vec<&str> = columns.iter().map(|column| column.heading()).collect();
    let _ = writeln!(text, "| | {} |", headings.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len()));
    for seen in &row.seen {
        let cell = |column: &Column| seen.get(*column).map_or_else(String::new, figure);
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", seen.name, cells.join(" | "));
    }
    text
}

/// Every curve: its plot and its figures.
#[must_use]
pub fn of_curves(curves: &[Curve]) -> String {
    let mut text = String::new();
    for curve in curves {
        let Curve {
            id,
            title,
            unit,
            sizes,
            series,
        } = curve;
        let _ = writeln!(text, "### {title}\n\n![{title}, {unit}](growth-{id}.svg)\n");
        let sizes: Vec<String> = sizes.iter().map(|size| figure(f64::from(*size))).collect();
        let _ = writeln!(
            text,
            "| {unit} | {} | dearest / cheapest |",
            sizes.join(" | ")
        );
        let _ = writeln!(text, "|---|{}", "---:|".repeat(sizes.len() + 1));
        for series in series {
            let figures: Vec<String> = series.figures.iter().copied().map(figure).collect();
            let spread = figure(series.spread());
            let _ = writeln!(
                text,
                "| {} | {} | {spread} |",
                series.name,
                figures.join(" | ")
            );
        }
        text.push('\n');
    }
    text
}

/// Every count of instructions, peers beside us.
#[must_use]
pub fn of_instructions(counts: &[Count]) -> String {
    let mut text = String::from("| row | contender | instructions a call |\n|---|---|---:|\n");
    for Count {
        row,
        name,
        instructions,
    } in counts
    {
        let _ = writeln!(text, "| {row} | {name} | {} |", figure(*instructions));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_region_is_replaced() {
        let page = "by hand\n<!-- rows: begin -->\nold\n<!-- rows: end -->\nby hand too\n";
        let new = replace(page, "rows", "new\n").unwrap();
        assert_eq!(
            new,
            "by hand\n<!-- rows: begin -->\nnew\n<!-- rows: end -->\nby hand too\n"
        );
        assert_eq!(replace(&new, "rows", "new\n").unwrap(), new, "and again");
        assert!(replace(page, "growth", "").is_err());
    }

    #[test]
    fn a_row_by_itself_is_put_among_the_others_and_says_so() {
        let row = |id: &str| Row {
            id: id.to_owned(),
            title: format!("about {id}"),
            seen: vec![crate::report::Seen::new("bursar").with(Column::Allocations, 1.0)],
            verdicts: Vec::new(),
        };
        let order = ["first", "second", "third"];
        let all = of_rows(&[row("first"), row("third")]);
        let with = with_rows(all.trim(), &order, &[row("second")], "Seen on Monday.");
        let blocks: Vec<_> = with.split("\n\n**").skip(1).collect();
        assert!(blocks[0].starts_with("first**: about first"), "{with}");
        assert!(
            blocks[1].starts_with("second**: about second\n\nSeen on Monday.\n\n| |"),
            "{with}"
        );
        assert!(
            blocks[2].starts_with("third**: about third\n\n| |"),
            "{with}"
        );
        assert_eq!(
            with_rows(with.trim(), &order, &[row("second")], "Seen on Monday."),
            with
        );
        let page = include_str!("../../../docs/performance.md");
        let ids: Vec<&str> = crate::rows::ROWS.iter().map(|spec| spec.id).collect();
        let kept = change(page, "rows", |old| with_rows(old, &ids, &[], ""));
        assert_eq!(kept.as_deref(), Ok(page), "what is not measured is kept");
    }

    #[test]
    fn the_committed_page_has_every_region() {
        let text = include_str!("../../../docs/performance.md");
        for region in ["machine", "rows", "growth", "instructions"] {
            assert!(replace(text, region, "").is_ok(), "{region}");
        }
    }
}
