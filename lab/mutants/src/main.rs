//! Judges every mutant that cargo-mutants makes of the core.
//!
//! cargo-mutants builds each mutant on its own, which takes most of a day. Here all of them are put into one copy of the
//! tree, each behind a switch (switches.rs), and those that do not compile are left out (build.rs). Every test of the core, the
//! model's and chaos's slices and shuttle's scenarios run once without a mutant, which tells how long each takes and which
//! mutants it comes to (cases.rs). Then a mutant is judged by the tests that come to it, one after another, until one notices
//! (judge.rs). Verdicts are kept (journal.rs): a run that was interrupted goes on.
//!
//! `mutants [--jobs N] [--only TEXT] [--number N,..]`: those whose names hold TEXT, or those with these numbers, and then
//! without what was kept.
//!
//! A survivor that no test could notice stands in `equivalent.tsv` with the reason; any other makes the run fail. So does a
//! mutant that stands in a constant, where no switch can be, unless it is argued for there; and a line of that file that
//! names no mutant.

#![forbid(unsafe_code)]

mod build;
mod cases;
mod journal;
mod judge;
mod list;
mod process;
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cases::Case;
use indicatif::{ProgressBar, ProgressStyle};
use journal::Journal;
use judge::Verdict;
use list::Mutant;

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

struct Asked {
    jobs: usize,
    only: String,
    numbers: Vec<u32>,
}

impl Asked {
    fn all(&self) -> bool {
        self.only.is_empty() && self.numbers.is_empty()
    }
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked {
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        only: String::new(),
        numbers: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--jobs" => asked.jobs = value.parse().map_err(|_| "--jobs takes a number")?,
            "--only" => asked.only = value,
            "--number" => {
                asked.numbers = value.split(',').filter_map(|of| of.parse().ok()).collect()
            }
            _ => {
                return Err("usage: mutants [--jobs N] [--only TEXT] [--number N,..]".to_owned());
            }
        }
    }
    Ok(asked)
}

fn run() -> Result<bool, String> {
    let asked = asked()?;
    let began = Instant::now();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mutants = list::list(&repository)?;
    let work = std::env::var_os("MUTANTS_DIR").map_or_else(
        || std::env::temp_dir().join("bursar-mutants"),
        PathBuf::from,
    );
    let tree = work.join("tree");
    let files = copy(&repository, &work, &mutants)?;
    let fingerprint = |of: &[&str]| journal::fingerprint(&repository, of, files.lines(), &mutants);
    let names = names(&mutants);
    let equivalent = equivalent(&repository, &names)?;
    eprintln!("{} mutants in {}", mutants.len(), tree.display());
    let sources = fingerprint(journal::SOURCES)?;
    let built = build::build(&repository, &work, &mutants, &sources)?;
    let wanted = |number: &u32| {
        let name = &names[*number as usize - 1];
        name.contains(&asked.only) && (asked.numbers.is_empty() || asked.numbers.contains(number))
    };
    let out = |number: &u32| built.unviable.contains(number) || built.without.contains(number);
    let viable: Vec<u32> = (1..=mutants.len() as u32)
        .filter(|number| !out(number) && wanted(number))
        .collect();
    eprintln!(
        "built in {} s: {} do not compile, {} have no switch, {} to be judged",
        began.elapsed().as_secs(),
        built.unviable.len(),
        built.without.len(),
        viable.len()
    );
    let cases = cases(&built.programs, &tree, &work)?;
    let journal = asked
        .all()
        .then(|| Journal::open(&work.join("journal.tsv"), &fingerprint(journal::JUDGES)?))
        .transpose()?;
    let known = journal
        .as_ref()
        .map(|of| of.known.clone())
        .unwrap_or_default();
    let mut left: Vec<u32> = viable
        .iter()
        .filter(|number| !known.contains_key(number))
        .copied()
        .collect();
    // Those that are thought to survive come last: each asks everybody.
    left.sort_by_key(|number| equivalent.contains_key(&names[*number as usize - 1]));
    eprintln!("{} of them are left", left.len());
    let verdicts = Mutex::new(known);
    let bar = bar(left.len());
    judge::all(&cases, &left, asked.jobs, |number, verdict| {
        bar.suspend(|| println!("{number}\t{verdict}\t{}", mutants[number as usize - 1].name));
        bar.inc(1);
        if let Some(journal) = &journal {
            journal.note(number, &verdict)?;
        }
        let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.insert(number, verdict);
        Ok(())
    })?;
    bar.finish_and_clear();
    let verdicts = verdicts
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let count = |which: fn(&Verdict) -> bool| verdicts.values().filter(|of| which(of)).count();
    let by_name = |which: fn(&Verdict) -> bool| -> BTreeSet<&str> {
        let of = verdicts.iter().filter(|of| which(of.1));
        of.map(|of| &*names[*of.0 as usize - 1]).collect()
    };
    let survivors = by_name(|of| matches!(of, Verdict::Survived(_)));
    let unreached = by_name(|of| matches!(of, Verdict::Unreached));
    let explained = |name: &&&str| equivalent.contains_key(**name);
    let judged: BTreeSet<&str> = viable.iter().map(|of| &*names[*of as usize - 1]).collect();
    for name in equivalent.keys().filter(|name| judged.contains(&***name)) {
        if !survivors.contains(&**name) && !unreached.contains(&**name) {
            println!("listed as equivalent, and not a survivor: {name}");
        }
    }
    let without = built.without.iter().filter(|number| wanted(number));
    let without: BTreeSet<&str> = without.map(|of| &*names[*of as usize - 1]).collect();
    let mut open = 0;
    for (names, what) in [
        (&survivors, "SURVIVED"),
        (&unreached, "UNREACHED"),
        (&without, "NOT JUDGED, since no switch can stand there"),
    ] {
        for name in names.iter().filter(|name| !explained(name)) {
            println!("{what}: {name}");
            open += 1;
        }
    }
    let equivalents = survivors.union(&unreached).filter(explained).count();
    println!(
        "{} mutants tested: {} caught, {} hung, {equivalents} equivalent, {open} open; {} more do not compile, {} have no switch; {} s",
        verdicts.len(),
        count(|of| matches!(of, Verdict::Caught(_))),
        count(|of| matches!(of, Verdict::Hung(_))),
        built.unviable.len(),
        built.without.len(),
        began.elapsed().as_secs()
    );
    Ok(open == 0)
}

/// Every test and scenario, seen to pass without a mutant, in the order in which they are asked.
fn cases(programs: &[build::Program], tree: &Path, work: &Path) -> Result<Vec<Case>, String> {
    let mut all = Vec::new();
    for program in programs {
        all.extend(cases::tests(program, work)?);
    }
    all.extend(cases::scenarios(&build::schedules(tree)?, work)?);
    let began = Instant::now();
    let bar = bar(all.len());
    let mut passing = Vec::new();
    for mut case in all {
        if cases::record(&mut case, work)? {
            passing.push(case);
        } else {
            // It says nothing of any mutant.
            println!("fails without a mutant: {}", case.name);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let all = passing;
    eprintln!("{} tests ran in {} s", all.len(), began.elapsed().as_secs());
    Ok(cases::in_order(all))
}

fn bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}

/// Lasting names, a number behind those that are not the first of their kind.
fn names(mutants: &[Mutant]) -> Vec<String> {
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    let mut name = |mutant: &Mutant| {
        let name = mutant.lasting();
        let times = met.entry(name.clone()).or_default();
        *times += 1;
        match *times {
            1 => name,
            times => format!("{name} ({times})"),
        }
    };
    mutants.iter().map(&mut name).collect()
}

/// Survivors by name, with the reason why no test could notice them.
///
/// # Errors
/// The file cannot be read, a name has no reason, or no mutant has the name: then the code it argued about has changed.
fn equivalent(repository: &Path, names: &[String]) -> Result<BTreeMap<String, String>, String> {
    let file = "lab/mutants/equivalent.tsv";
    let text =
        std::fs::read_to_string(repository.join(file)).map_err(|why| format!("{file}: {why}"))?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (name, reason) = line.split_once('\t')?;
        Some((name.to_owned(), reason.to_owned()))
    };
    let argued: BTreeMap<_, _> = lines
        .map(|line| split(line).ok_or_else(|| format!("no reason stands beside: {line}")))
        .collect::<Result<_, _>>()?;
    let stale: Vec<&String> = argued.keys().filter(|name| !names.contains(name)).collect();
    match stale.is_empty() {
        true => Ok(argued),
        false => Err(format!("{file}: these name no mutant: {stale:#?}")),
    }
}

/// Brings the tracked files to where they may be changed, beside a target directory that is kept. What has not changed since
/// the last run is left alone, so that it is not built again; files with mutants are written later. Names them.
fn copy(repository: &Path, work: &Path, mutants: &[Mutant]) -> Result<String, String> {
    let tree = work.join("tree");
    let said = |file: &str, why: std::io::Error| format!("{file}: {why}");
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files"])
        .current_dir(repository)
        .output()
        .map_err(|why| said("git", why))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let before = std::fs::read_to_string(work.join("files")).unwrap_or_default();
    let kept: BTreeSet<&str> = listed.lines().collect();
    for file in before.lines().filter(|file| !kept.contains(file)) {
        // It may be gone already.
        let _gone = std::fs::remove_file(tree.join(file));
    }
    let mutated = mutants.iter().map(|of| &*of.file);
    let mutated: BTreeSet<&str> = mutated.chain([build::LIBRARY]).collect();
    for file in kept.iter().filter(|file| !mutated.contains(**file)) {
        let Ok(text) = std::fs::read(repository.join(file)) else {
            // Deleted, and not yet committed so.
            continue;
        };
        build::write_if_new(&tree.join(file), &text).map_err(|why| said(file, why))?;
    }
    std::fs::write(work.join("files"), &listed).map_err(|why| said("files", why))?;
    Ok(listed
        .lines()
        .filter(|file| repository.join(file).is_file())
        .map(|file| format!("{file}\n"))
        .collect())
}
