//! Runs the test programs with one mutant active, until one of them notices.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::build::Program;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By this program's failing.
    Caught(String),
    /// By this program's not coming to an end.
    Hung(String),
    Survived,
}

/// What a program may use of the processor, in seconds; one that only waits is given [`PATIENCE`].
const PROCESSOR: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(60);

enum End {
    Passed,
    Failed,
    Hung,
}

fn run(program: &Program, mutant: u32) -> Result<End, String> {
    // Through a shell, which sets the limits; memory too, since some mutants never stop asking for it.
    let script = format!("ulimit -t {PROCESSOR}; ulimit -v 8000000; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(&program.path)
        .args(program.arguments)
        .current_dir(&program.directory)
        .env("BURSAR_MUTANT", mutant.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|why| why.to_string())?;
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
        if began.elapsed() > PATIENCE {
            child.kill().map_err(|why| why.to_string())?;
            child.wait().map_err(|why| why.to_string())?;
            return Ok(End::Hung);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The programs by how long they take, the quickest first, all passing without a mutant.
///
/// # Errors
/// One does not pass.
pub fn in_order(programs: Vec<Program>) -> Result<Vec<Program>, String> {
    let mut timed = Vec::new();
    for program in programs {
        let began = Instant::now();
        match run(&program, 0)? {
            End::Passed => timed.push((began.elapsed(), program)),
            End::Failed => return Err(format!("{} fails without a mutant", program.name)),
            End::Hung => return Err(format!("{} hangs without a mutant", program.name)),
        }
    }
    timed.sort_by_key(|of| of.0);
    for (took, program) in &timed {
        eprintln!("{:6.2} s  {}", took.as_secs_f64(), program.name);
    }
    Ok(timed.into_iter().map(|of| of.1).collect())
}

fn judge(programs: &[Program], mutant: u32) -> Result<Verdict, String> {
    for program in programs {
        match run(program, mutant)? {
            End::Passed => {}
            End::Failed => return Ok(Verdict::Caught(program.name.clone())),
            End::Hung => return Ok(Verdict::Hung(program.name.clone())),
        }
    }
    Ok(Verdict::Survived)
}

/// Judges all, telling of each at once.
///
/// # Errors
/// A program could not be run.
pub fn all(
    programs: &[Program],
    mutants: &[u32],
    jobs: usize,
    tell: impl Fn(u32, &Verdict) + Sync,
) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let note = |why| *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match judge(programs, *mutant) {
                        Ok(verdict) => tell(*mutant, &verdict),
                        Err(why) => return note(why),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}
