//! `chaos [--rounds N] [--from SEED] [--seed SEED]`: rounds on threads and tokio.
//!
//! Under `--cfg bursar_shuttle`: `chaos [--executions N] [--seed SEED] [--scenario NAME] [--schedule SCHEDULE]`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(bursar_shuttle)]
use chaos::schedules::command;

#[cfg(all(feature = "tokio", not(bursar_shuttle)))]
use chaos::rounds::command;

#[cfg(not(any(feature = "tokio", bursar_shuttle)))]
fn command(_: impl Iterator<Item = String>) -> bool {
    eprintln!(
        "built without the `tokio` feature and without `--cfg bursar_shuttle`: there is nothing to run"
    );
    false
}

fn main() -> ExitCode {
    if command(std::env::args().skip(1)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
