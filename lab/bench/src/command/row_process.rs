//! A row, measured by this program in processes of its own.

use std::process::{Command, Stdio};

use crate::report::{Row, combine};
use crate::rows::{Pace, Spec};

/// What this program is started with to measure one row and print it as JSON.
pub const ONE: &str = "--one";

/// Measures a row in as many processes as the pace asks for, and takes the medians.
///
/// # Errors
/// What could not be started or read.
pub fn measure(spec: &Spec, pace: Pace) -> Result<Row, String> {
    let processes = 0..spec.processes(pace);
    let rows: Result<Vec<Row>, String> = processes.map(|_| once(spec, pace)).collect();
    combine(&rows?).ok_or_else(|| "no process measured anything".to_owned())
}

fn once(spec: &Spec, pace: Pace) -> Result<Row, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(here)
        .args([ONE, spec.id])
        .args((pace == Pace::Quick).then_some("--quick"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("this program does not start again: {error}"))?;
    if !output.status.success() {
        return Err(format!("row {} failed: {}", spec.id, output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("row {} printed something else: {error}", spec.id))
}
