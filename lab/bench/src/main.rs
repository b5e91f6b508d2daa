//! The command line of the benchmarks.

mod actions;

use std::process::ExitCode;

use bench::rows::run_case;
use clap::Parser;

/// What a call under contract costs, beside its peers, in one process and one run.
///
/// Each row runs its contenders in rotation, in many short batches, and takes the median of the ratios within one
/// rotation: on a noisy machine those hold while nanoseconds do not. Batches during which the process had to wait for a
/// processor are left out. A row is measured by several processes, one after another, since where code and data happen to
/// lie favours one contender or the other; what is judged is the median over processes. Allocations are counted by a second
/// program, which this one builds and starts. On a busy machine start it under `chrt -r 1`, so that it goes before others.
#[derive(Debug, Parser)]
#[command(name = "bench", after_help = EXAMPLES, max_term_width = 100)]
struct Args {
    /// Only the rows, or curves, whose names contain one of these; without any, all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Fewer processes and rotations: all rows in under two minutes.
    #[arg(long)]
    quick: bool,

    /// Measure how the cost of an item grows with the number of items, instead of rows.
    #[arg(long)]
    growth: bool,

    /// Count instructions instead of time, under valgrind, and fail if a call costs more than its baseline.
    #[arg(long, conflicts_with_all = ["json", "quick", "list", "growth"])]
    instructions: bool,

    /// With --instructions: make what is counted the new baseline.
    #[arg(long, requires = "instructions")]
    update: bool,

    /// Write what was found into docs/performance.md; with --growth its plots beside it. Rows that are named are put among
    /// the others, and say that they were measured by themselves.
    #[arg(long, conflicts_with = "list")]
    write_docs: bool,

    /// Print the report as JSON, and nothing else, on standard output.
    #[arg(long)]
    json: bool,

    /// Name the rows and curves, and leave.
    #[arg(long)]
    list: bool,

    /// Measure one row in this process and print it as JSON.
    #[arg(long, value_name = "ROW", hide = true)]
    one: Option<String>,

    /// Make some calls of one contender, and nothing else.
    #[arg(long, num_args = 3, value_names = ["ROW", "CONTENDER", "CALLS"], hide = true)]
    case: Option<Vec<String>>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part))
    }
}

const EXAMPLES: &str = "\
Examples (cargo run --profile bench -p bench -- ...):
  --quick                     every row beside its peers, and which targets are met
  --quick keyed               the rows whose names contain \"keyed\"
  --list                      what the rows and curves are called, and what they measure
  --json | jq '.rows[0]'      the report, for machines
  --growth --quick            one item to a million, an item's cost at each size
  --instructions              instructions a call beside the committed baseline, for CI
  --instructions --update     accept what is counted as the new baseline
  --write-docs                measure all rows at length and write them down
  --write-docs keyed          the same of some, and leave the others as they are

Reading a row:
  p50, min, p99 ns            nanoseconds a call: median, best and 99th percentile over batches
  call p50, call p99          nanoseconds of single calls, where a row watches them
  unpolled                    nanoseconds: the longest a ready task stood without being polled
  M/s                         millions of calls a second
  allocs, bytes               on the heap, a call
  met, MISSED                 a target, the ratio seen, and the least and the most that a process saw

Exit status: 0 measured, targets met or not; 1 a call costs more instructions than its baseline, or a program that this
one needs does not run; 2 the command line is wrong.";

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
        let calls = calls.parse();
        let calls = calls.map_err(|_| "the number of calls is no number")?;
        run_case(row, contender, calls)
    } else if let Some(row) = &args.one {
        actions::one(args, row)
    } else if args.list {
        actions::list(args);
        Ok(())
    } else if args.instructions {
        actions::instructions(args)
    } else if args.growth {
        actions::growth(args)
    } else {
        actions::rows(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn names_choose() {
        let args = Args::parse_from(["bench", "keyed", "parked"]);
        assert!(args.wants("keyed-timeout") && args.wants("parked") && !args.wants("mixed"));
        assert!(Args::parse_from(["bench"]).wants("mixed"));
    }
}
