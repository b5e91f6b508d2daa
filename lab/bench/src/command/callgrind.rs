//! Instructions, counted by valgrind: the one figure that noise leaves alone.

use std::process::{Command, Stdio};

/// What this program is started with to make some calls of one contender, and nothing else.
pub const CASE: &str = "--case";

const FEW: u32 = 1_000;
const MANY: u32 = 11_000;

/// Instructions of one call: what more calls cost more, so that starting and ending the program falls out.
///
/// # Errors
/// What could not be started or read, and what to do about it.
pub fn a_call(row: &str, contender: &str) -> Result<f64, String> {
    let (few, many) = (of(row, contender, FEW)?, of(row, contender, MANY)?);
    Ok(many.saturating_sub(few) as f64 / f64::from(MANY - FEW))
}

fn of(row: &str, contender: &str, calls: u32) -> Result<u64, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(here)
        .args([CASE, row, contender, &calls.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!(
                "instructions are counted by valgrind, which does not start ({error}): install it, on Debian with \
                 `apt-get install valgrind`"
            )
        })?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("valgrind failed: {}\n{said}", output.status));
    }
    collected(&said).ok_or_else(|| format!("valgrind did not say how many instructions:\n{said}"))
}

/// "==123== Collected : 456"
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let said = "==7== Events    : Ir\n==7== Collected : 1234\n==7== \n";
        assert_eq!(collected(said), Some(1234));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}
