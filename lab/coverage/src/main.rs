//! Names the core's lines that no test of the core executes.
//!
//! cargo-tarpaulin runs the core's own tests twice, with the features that are on by default and with all of them; a line that
//! one of the two executes is executed. Any other must be explained in `lab/coverage/unexecuted.txt`; one that is not fails the
//! run, and so does an explanation of a line that is executed, changed or gone.

#![forbid(unsafe_code)]

mod explained;
mod lcov;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use explained::{Executed, Place};
use lcov::Lines;

const SOURCES: &str = "crates/bursar/src";
const LIST: &str = "lab/coverage/unexecuted.txt";
/// What is compiled only where loom is.
const LOOM: &str = "crates/bursar/src/loom_tests.rs";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    if std::env::args().len() > 1 {
        return Err("usage: coverage (it takes no arguments)".to_owned());
    }
    let began = Instant::now();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = repository
        .canonicalize()
        .map_err(|why| format!("{}: {why}", repository.display()))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository.join("target"), PathBuf::from)
        .join("coverage");
    let mut lines = Lines::new();
    for features in [&[][..], &["--all-features"]] {
        let text = measure(&repository, &target, features)?;
        lcov::add(&mut lines, &text, &repository)?;
    }
    let explained =
        explained::parse(&read(&repository.join(LIST))?).map_err(|why| format!("{LIST}: {why}"))?;
    report(&repository, &lines, &explained, began)
}

/// Runs the core's tests with these features and returns what was executed.
fn measure(repository: &Path, target: &Path, features: &[&str]) -> Result<String, String> {
    let mut command = Command::new("cargo");
    command
        .current_dir(repository)
        .args(["tarpaulin", "-p", "bursar", "--lib", "--tests", "--locked"])
        .args(["--engine", "llvm", "--skip-clean", "--timeout", "600"])
        .args(["--out", "Lcov", "--output-dir"])
        .arg(target)
        .arg("--target-dir")
        .arg(target)
        .args(["--include-files", &format!("{SOURCES}/*")])
        .args(["--exclude-files", LOOM])
        .args(features)
        // What must not compile is not executed either.
        .args(["--", "--skip", "compile"]);
    eprintln!("{command:?}");
    let status = command
        .status()
        .map_err(|why| format!("cargo does not run: {why}"))?;
    if !status.success() {
        return Err(format!(
            "cargo tarpaulin ended with {status}: a test fails, or it is missing: cargo install cargo-tarpaulin --locked"
        ));
    }
    read(&target.join("lcov.info"))
}

/// Prints how much of each file is executed, and what is not and should be. Whether nothing is left open.
fn report(
    repository: &Path,
    lines: &Lines,
    explained: &BTreeMap<Place, Executed>,
    began: Instant,
) -> Result<bool, String> {
    if lines.is_empty() {
        return Err("no line was measured".to_owned());
    }
    let mut missed = BTreeMap::new();
    let (mut all, mut executed) = (0, 0);
    println!(
        "\n{:<24} {:>8} {:>9} {:>9}",
        "file", "lines", "executed", "explained"
    );
    for (file, lines) in lines {
        let source = read(&repository.join(file))?;
        let short = file.strip_prefix(SOURCES).unwrap_or(file);
        let short = short.trim_start_matches('/');
        let mut told = 0;
        let unexecuted = lines.iter().filter(|(_, times)| **times == 0);
        for number in unexecuted.clone().map(|(number, _)| *number) {
            let place = explained::place(short, &source, number);
            told += usize::from(explained.contains_key(&place));
            missed.entry(place).or_insert(format!("{file}:{number}"));
        }
        let done = lines.len() - unexecuted.count();
        println!("{short:<24} {:>8} {done:>9} {told:>9}", lines.len());
        all += lines.len();
        executed += done;
    }
    let open: Vec<_> = missed
        .iter()
        .filter(|(place, _)| !explained.contains_key(place))
        .collect();
    let stale: Vec<_> = explained
        .iter()
        .filter(|(place, executed)| **executed == Executed::Never && !missed.contains_key(place))
        .map(|(place, _)| place)
        .collect();
    println!();
    for (place, at) in &open {
        println!("not executed, not explained: {at}\n\t{place}");
    }
    for place in &stale {
        println!("explained in {LIST}, but executed, changed or gone:\n\t{place}");
    }
    println!(
        "{executed} of {all} lines covered ({:.1} %), {} explained, {} open, {} explanations stale; {} s",
        100.0 * executed as f64 / all as f64,
        all - executed - open.len(),
        open.len(),
        stale.len(),
        began.elapsed().as_secs()
    );
    Ok(open.is_empty() && stale.is_empty())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}
