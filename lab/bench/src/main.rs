//! The command line of the benchmarks.

use std::process::ExitCode;

use bench::report::{print_row, print_summary};
use bench::rows::{Pace, ROWS};
use clap::Parser;

/// What a call under contract costs, beside its peers, in one process and one run.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
struct Args {
    /// Only rows whose name contains one of these.
    rows: Vec<String>,

    /// A tenth of the rotations.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let pace = if args.quick { Pace::Quick } else { Pace::Full };
    let mut rows = Vec::new();
    for spec in ROWS {
        if !args.rows.is_empty() && !args.rows.iter().any(|wanted| spec.id.contains(wanted)) {
            continue;
        }
        let row = (spec.run)(spec, pace);
        print!("{}", print_row(&row));
        rows.push(row);
    }
    print!("{}", print_summary(&rows));
    ExitCode::SUCCESS
}
