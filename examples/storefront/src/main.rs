//! A shop back end whose seven subsystems share the budgets of one Bursar runtime.
//!
//! `contracts.rs` says what each operation may do, `service.rs` is the shop, `run.rs` sets it going, and `checks.rs` holds
//! what was promised against what was observed.

#![forbid(unsafe_code)]

mod account;
mod catalogue;
mod checks;
mod cli;
mod contracts;
mod control;
mod csv;
mod debug;
mod gauge;
mod http;
mod input;
mod live;
mod meter;
mod model;
mod open;
mod plan;
mod progress;
mod receiver;
mod render;
mod report;
mod rng;
mod run;
mod service;
mod stock;
mod store;
mod table;
mod unrest;
mod webhook;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    match open::day(&args) {
        Ok(report) => {
            let text = if args.json {
                // Numbers, texts and lists of them: nothing in it can fail to be JSON.
                serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
            } else {
                table::draw(&report, table::Paper::detect())
            };
            // Whoever closed the pipe has read enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            if report.is_broken() {
                ExitCode::from(1)
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(error) => {
            eprintln!("storefront: {error}");
            ExitCode::from(2)
        }
    }
}
