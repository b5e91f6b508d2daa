//! What the command line asks for: measure, print, write down.

use std::path::Path;

use bench::command::{callgrind, heap_program, row_process};
use bench::docs;
use bench::growth::{CURVES, Curve};
use bench::instructions::{self, CASES, Count};
use bench::machine::Machine;
use bench::report::{Row, print_curve, print_row, print_summary};
use bench::rows::{Pace, ROWS, Spec};
use bench::svg;
use serde::Serialize;

use crate::Args;

/// All of it, for machines.
#[derive(Serialize)]
struct Report<'r> {
    machine: &'r Machine,
    rows: &'r [Row],
    curves: &'r [Curve],
}

impl Report<'_> {
    fn print(&self) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        println!("{json}");
        Ok(())
    }
}

fn pace(args: &Args) -> Pace {
    if args.quick { Pace::Quick } else { Pace::Full }
}

/// How this program was started, as it stands in documents.
fn command(args: &Args, machine: &Machine) -> String {
    let mut command = String::from(if machine.first { "chrt -r 1 " } else { "" });
    command.push_str("cargo run --profile bench -p bench --");
    for (given, flag) in [
        (args.growth, " --growth"),
        (args.quick, " --quick"),
        (args.write_docs, " --write-docs"),
    ] {
        if given {
            command.push_str(flag);
        }
    }
    for name in &args.names {
        command.push(' ');
        command.push_str(name);
    }
    command
}

/// When and how something was measured, as it stands in documents.
fn seen(args: &Args, machine: &Machine) -> String {
    format!(
        "Seen with `{}` on commit {}, load before {:.1}.",
        command(args, machine),
        machine.commit,
        machine.load.unwrap_or(f64::NAN)
    )
}

pub(super) fn list(args: &Args) {
    println!("Rows:");
    for spec in ROWS.iter().filter(|spec| args.wants(spec.id)) {
        println!("  {:18} {}", spec.id, spec.title);
    }
    println!("Curves (--growth):");
    for spec in CURVES.iter().filter(|spec| args.wants(spec.id)) {
        println!("  {:18} {}", spec.id, spec.title);
    }
}

pub(super) fn one(args: &Args, row: &str) -> Result<(), String> {
    let spec = ROWS.iter().find(|spec| spec.id == row);
    let row = spec.ok_or("no row is called so")?.measure(pace(args));
    let json = serde_json::to_string(&row).map_err(|error| error.to_string())?;
    println!("{json}");
    Ok(())
}

pub(super) fn rows(args: &Args) -> Result<(), String> {
    let specs: Vec<&Spec> = ROWS.iter().filter(|spec| args.wants(spec.id)).collect();
    if specs.is_empty() {
        return Err("no row is called so; see --list".into());
    }
    let machine = Machine::here();
    if !args.json {
        print!("{machine}");
    }
    let counted = heap_program::count(specs.iter().map(|spec| spec.id))?;
    let mut rows = Vec::new();
    for spec in specs {
        let mut row = row_process::measure(spec, pace(args))?;
        spec.count(&mut row, &counted);
        if !args.json {
            print!("{}", print_row(&row));
        }
        rows.push(row);
    }
    if args.write_docs && args.names.is_empty() {
        let about = docs::of_machine(&machine, &command(args, &machine));
        write_page(&[("machine", about), ("rows", docs::of_rows(&rows))])?;
    } else if args.write_docs {
        let order: Vec<&str> = ROWS.iter().map(|spec| spec.id).collect();
        let seen = seen(args, &machine);
        let path = docs::page();
        let page = docs::change(&read(&path)?, "rows", |old| {
            docs::with_rows(old, &order, &rows, &seen)
        })?;
        write(&path, &page)?;
    }
    if !args.json {
        print!("{}", print_summary(&rows));
        return Ok(());
    }
    let report = Report {
        machine: &machine,
        rows: &rows,
        curves: &[],
    };
    report.print()
}

/// What is written down whole, or not at all.
fn whole(args: &Args) -> Result<(), String> {
    if args.write_docs && !args.names.is_empty() {
        return Err(
            "curves and instructions are written down all together: leave the names out".into(),
        );
    }
    Ok(())
}

pub(super) fn growth(args: &Args) -> Result<(), String> {
    whole(args)?;
    let machine = Machine::here();
    if !args.json {
        print!("{machine}");
    }
    let mut curves = Vec::new();
    for spec in CURVES.iter().filter(|spec| args.wants(spec.id)) {
        let curve = spec.measure(pace(args));
        if !args.json {
            print!("{}", print_curve(&curve));
        }
        curves.push(curve);
    }
    if curves.is_empty() {
        return Err("no curve is called so; see --list".into());
    }
    if args.write_docs {
        let seen = seen(args, &machine);
        let text = format!("{seen}\n\n{}", docs::of_curves(&curves));
        write_page(&[("growth", text)])?;
        for curve in &curves {
            let path = docs::directory().join(format!("growth-{}.svg", curve.id));
            write(&path, &svg::plot(curve))?;
        }
    }
    if !args.json {
        return Ok(());
    }
    let report = Report {
        machine: &machine,
        rows: &[],
        curves: &curves,
    };
    report.print()
}

pub(super) fn instructions(args: &Args) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("instructions are those of an optimised build: \
             cargo run --profile bench -p bench -- --instructions"
            .into());
    }
    whole(args)?;
    let mut counts = Vec::new();
    for (row, name) in CASES.iter().filter(|(row, _)| args.wants(row)) {
        counts.push(Count {
            row: (*row).to_owned(),
            name: (*name).to_owned(),
            instructions: callgrind::a_call(row, name)?,
        });
    }
    let path = instructions::path();
    let baseline = instructions::read(&read(&path)?)?;
    let (table, problems) = instructions::compare(&counts, &baseline);
    print!("{table}");
    if args.write_docs {
        write_page(&[("instructions", docs::of_instructions(&counts))])?;
    }
    if args.update {
        if counts.len() < CASES.len() {
            return Err("a baseline has all rows: leave the names of rows out".into());
        }
        return write(&path, &instructions::write(&counts, &Machine::here().rustc));
    }
    if problems.is_empty() {
        let tolerance = instructions::TOLERANCE * 100.0;
        println!("No call costs over {tolerance:.0} % more instructions than its baseline.");
        return Ok(());
    }
    Err(problems.join("\n       "))
}

fn write_page(regions: &[(&str, String)]) -> Result<(), String> {
    let path = docs::page();
    let mut page = read(&path)?;
    for (region, text) in regions {
        page = docs::replace(&page, region, text)?;
    }
    write(&path, &page)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
