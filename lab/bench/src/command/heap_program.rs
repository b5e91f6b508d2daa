//! The program that counts allocations: built by cargo when needed, started, and read.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::heap::Figure;

const NAME: &str = "bench-heap";

/// Counts for the given rows.
///
/// # Errors
/// What could not be built, started or read, and what to do about it.
pub fn count<'r>(rows: impl Iterator<Item = &'r str>) -> Result<Vec<Figure>, String> {
    let program = program()?;
    let output = Command::new(&program)
        .args(rows)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{} does not start: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", program.display(), output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{} printed something else: {error}", program.display()))
}

/// The program beside this one, brought up to date if cargo started us.
fn program() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = here.with_file_name(NAME);
    if let Some(cargo) = std::env::var_os("CARGO") {
        let profile = if cfg!(debug_assertions) {
            "dev"
        } else {
            "bench"
        };
        let status = Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--profile",
                profile,
                "--package",
                "bench",
                "--bin",
                NAME,
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .map_err(|error| format!("cargo does not start: {error}"))?;
        if !status.success() {
            return Err(format!("cargo cannot build {NAME}"));
        }
    }
    if program.exists() {
        return Ok(program);
    }
    Err(format!(
        "allocations are counted by {}, which is not there: start with `cargo run --profile bench -p bench`, or build it \
         with `cargo build --profile bench -p bench --bin {NAME}`",
        program.display()
    ))
}
