//! One test program run as a process of its own, within limits.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::build::Program;
use crate::switches::{ACTIVE, REACHED};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed,
    /// It used up its time.
    Hung,
}

/// What a run is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'g> {
    /// Which mutant is active; 0 is none.
    pub mutant: u32,
    /// Where the mutants go that it comes to.
    pub reached: Option<&'g Path>,
    /// Where its output goes, if anywhere.
    pub output: Option<&'g Path>,
}

/// Runs a program until it ends or has taken `limit`, of the processor or of the clock on the wall.
///
/// # Errors
/// It could not be run.
pub fn run(
    program: &Program,
    arguments: &[String],
    limit: Duration,
    given: Given<'_>,
) -> Result<End, String> {
    // Through a shell, which sets the limits; of memory too, since some mutants never stop asking for it.
    let seconds = limit.as_secs().max(1);
    let script = format!("ulimit -t {seconds}; ulimit -v 8000000; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(script)
        .arg(&program.path)
        .args(arguments)
        .current_dir(&program.directory)
        .env(ACTIVE, given.mutant.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if let Some(path) = given.reached {
        command.env(REACHED, path);
    }
    if let Some(path) = given.output {
        let file = File::create(path).map_err(|why| why.to_string())?;
        command.stdout(file);
    }
    let mut child = command.spawn().map_err(|why| why.to_string())?;
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|why| why.to_string())? {
            const SIGKILL: i32 = 9;
            const SIGXCPU: i32 = 24;
            return Ok(match status.signal() {
                Some(SIGKILL | SIGXCPU) => End::Hung,
                _ if status.success() => End::Passed,
                _ => End::Failed,
            });
        }
        if began.elapsed() > limit {
            child.kill().map_err(|why| why.to_string())?;
            child.wait().map_err(|why| why.to_string())?;
            return Ok(End::Hung);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
