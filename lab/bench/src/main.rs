//! The command line of the benchmarks.

use std::process::ExitCode;

use bench::command::{callgrind, heap_program};
use bench::heap::Figure;
use bench::instructions::{self, CASES, Count};
use bench::machine::Machine;
use bench::report::{Row, print_row, print_summary};
use bench::rows::{Pace, ROWS, Spec, run_case};
use clap::Parser;
use serde::Serialize;

/// What a call under contract costs, beside its peers, in one process and one run.
///
/// Each row runs its contenders in rotation, in many short batches, and judges the median of the ratios within one
/// rotation: on a noisy machine those hold while nanoseconds do not. Batches during which the process had to wait for a
/// processor are left out. Allocations are counted by a second program, which this one builds and starts.
#[derive(Debug, Parser)]
#[command(name = "bench", after_help = EXAMPLES, max_term_width = 100)]
struct Args {
    /// Only the rows whose names contain one of these; without any, all rows.
    #[arg(value_name = "ROW")]
    rows: Vec<String>,

    /// A tenth of the rotations: all rows in under two minutes.
    #[arg(long)]
    quick: bool,

    /// Print the report as JSON, and nothing else, on standard output.
    #[arg(long)]
    json: bool,

    /// Name the rows and leave.
    #[arg(long)]
    list: bool,

    /// Count instructions instead of time, under valgrind, and fail if a call costs more than its baseline.
    #[arg(long, conflicts_with_all = ["json", "quick", "list"])]
    instructions: bool,

    /// With --instructions: make what is counted the new baseline.
    #[arg(long, requires = "instructions")]
    update: bool,

    /// Make some calls of one contender, and nothing else.
    #[arg(long, num_args = 3, value_names = ["ROW", "CONTENDER", "CALLS"], hide = true)]
    case: Option<Vec<String>>,
}

impl Args {
    fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|part| row.contains(part))
    }
}

const EXAMPLES: &str = "\
Examples (cargo run --profile bench -p bench -- ...):
  --quick                     every row beside its peers, and which targets are met
  --quick keyed               the rows whose names contain \"keyed\"
  --list                      what the rows are called, and what they measure
  --json | jq '.rows[0]'      the report, for machines
  --instructions              instructions a call beside the committed baseline, for CI
  --instructions --update     accept what is counted as the new baseline

Reading a row:
  p50, min, p99 ns            nanoseconds a call: median, best and 99th percentile over batches
  call p50, call p99          nanoseconds of single calls, where a row watches them
  unpolled                    nanoseconds: the longest a ready task stood without being polled
  M/s                         millions of calls a second
  allocs, bytes               on the heap, a call
  met, MISSED                 a target, the ratio seen, and the middle half of the ratios

Exit status: 0 measured, targets met or not; 1 a call costs more instructions than its baseline, or a program that this
one needs does not run; 2 the command line is wrong.";

/// All of it, for machines.
#[derive(Serialize)]
struct Report<'r> {
    machine: &'r Machine,
    rows: &'r [Row],
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    if let Some([row, contender, calls]) = args.case.as_deref() {
        let calls = calls
            .parse()
            .map_err(|_| format!("{calls:?} is no number of calls"))?;
        return run_case(row, contender, calls);
    }
    if args.instructions {
        return count_instructions(args);
    }
    let wanted =
        |spec: &&Spec| args.rows.is_empty() || args.rows.iter().any(|row| spec.id.contains(row));
    let specs: Vec<&Spec> = ROWS.iter().filter(wanted).collect();
    if specs.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|spec| spec.id).collect();
        return Err(format!(
            "no row is called so; the rows are {}",
            names.join(", ")
        ));
    }
    if args.list {
        for spec in specs {
            println!("{:18} {}", spec.id, spec.title);
        }
        return Ok(());
    }
    let machine = Machine::here();
    if !args.json {
        print!("{machine}");
    }
    let counted = heap_program::count(specs.iter().map(|spec| spec.id))?;
    let pace = if args.quick { Pace::Quick } else { Pace::Full };
    let mut rows = Vec::new();
    for spec in specs {
        let of_row: Vec<&Figure> = counted
            .iter()
            .filter(|figure| figure.row == spec.id)
            .collect();
        let row = spec.measure(pace, &of_row);
        if !args.json {
            print!("{}", print_row(&row));
        }
        rows.push(row);
    }
    if args.json {
        let report = Report {
            machine: &machine,
            rows: &rows,
        };
        let json = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        println!("{json}");
    } else {
        print!("{}", print_summary(&rows));
    }
    Ok(())
}

fn count_instructions(args: &Args) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("instructions are those of an optimised build: cargo run --profile bench -p bench -- --instructions".into());
    }
    let mut counts = Vec::new();
    for (row, name) in CASES.iter().filter(|(row, _)| args.wants(row)) {
        counts.push(Count {
            row: (*row).to_owned(),
            name: (*name).to_owned(),
            instructions: callgrind::a_call(row, name)?,
        });
    }
    let path = instructions::path();
    let of_baseline = |error: std::io::Error| format!("{}: {error}", path.display());
    let baseline = instructions::read(&std::fs::read_to_string(&path).map_err(of_baseline)?)?;
    let (table, problems) = instructions::compare(&counts, &baseline);
    print!("{table}");
    if args.update {
        if counts.len() < CASES.len() {
            return Err("a baseline has all rows: leave the names of rows out".into());
        }
        let text = instructions::write(&counts, &Machine::here().rustc);
        std::fs::write(&path, text).map_err(of_baseline)?;
        println!("wrote {}", path.display());
        return Ok(());
    }
    if problems.is_empty() {
        println!(
            "no call costs more than {:.0} % above its baseline",
            instructions::TOLERANCE * 100.0
        );
        return Ok(());
    }
    Err(problems.join("\n       "))
}
