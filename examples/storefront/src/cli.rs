//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// A shop back end whose seven subsystems share the budgets of one Bursar runtime.
///
/// It renders product cards, records events and replaces catalogues in an embedded database, sends webhooks to a receiver that
/// misbehaves, calls a model that refuses what is too much, and reserves units on shelves: real work, all at once, all on this machine. Then it holds what
/// the contracts promised against what was observed from outside them.
#[derive(Debug, Parser)]
#[command(name = "storefront", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// How much of the input to work through: 0.1 a tenth, 2 everything twice.
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,

    /// Decides which webhooks meet which fault. The same seed meets the same faults.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,

    /// Make budgets endless and give every catalogue replacement a key of its own, to see the promises break.
    #[arg(long)]
    pub unbounded: bool,

    /// Print the report as JSON, and nothing else, on standard output.
    #[arg(long)]
    pub json: bool,

    /// Keep events, catalogue and stock in this Postgres instead of the embedded SQLite, in the schema "storefront", which is made
    /// anew.
    #[arg(long, value_name = "URL", value_parser = database)]
    pub database: Option<String>,

    /// With --database: kill one of the shop's connections for so many uses of one, whatever it is doing; 0 kills none.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "database")]
    pub kill_every: usize,

    /// Where catalogue.csv and events.jsonl are.
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data"), hide_default_value = true)]
    pub data: PathBuf,

    /// Keep sample cards and the databases here. Without it cards go to target/storefront and the databases are removed.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  storefront                          a whole day, some seconds
  storefront --scale 0.1              a tenth of it
  storefront --seed 42                other faults
  storefront --unbounded              the same work without bounds: promises break
  storefront --json | jq .checks      the promises, for machines
  storefront --database postgres://me@localhost/shop
                                      on Postgres, with connections killed meanwhile
  storefront --out /tmp/shop          keep 40 cards and the databases to look at

Ctrl-C drains: no new call is admitted, what runs ends, and the report tells what was done. A second Ctrl-C leaves at once.

Exit status: 0 every promise was kept, 1 one was broken, 2 the input or the command line is wrong, 130 left in a hurry.";

fn database(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some(("postgres" | "postgresql", _)) => Ok(text.to_owned()),
        _ => Err("the database is a Postgres, such as postgres://me@localhost/shop".into()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 100.0 => Ok(scale),
        _ => Err("the scale is a number above 0 and at most 100, such as 0.1".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Args::command().debug_assert();
    }

    #[test]
    fn a_scale_is_a_positive_number() {
        assert_eq!(super::scale("0.25"), Ok(0.25));
        for wrong in ["0", "-1", "101", "NaN", "much", ""] {
            assert!(super::scale(wrong).is_err(), "{wrong}");
        }
    }
}
