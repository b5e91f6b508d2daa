//! Judges every mutant that cargo-mutants makes of the core.
//!
//! cargo-mutants builds each mutant on its own, which takes most of a day. Here all of them are put into one copy of the
//! tree, each behind a switch (switches.rs), those that do not compile are left out (build.rs), and the core's test programs,
//! the model's and shuttle's schedules are run once for each (judge.rs), until one notices.
//!
//! `mutants [--jobs N] [--quick] [--only TEXT] [--number N,..]`: those whose names hold TEXT, or those with these numbers; with
//! `--quick` only the core's unit tests and the model are asked.
//!
//! A survivor that no test could notice stands in `equivalent.tsv` with the reason; any other makes the run fail.

#![forbid(unsafe_code)]

mod build;
mod judge;
mod list;
mod switches;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Instant;

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
    quick: bool,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked {
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        only: String::new(),
        numbers: Vec::new(),
        quick: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--quick" {
            asked.quick = true;
            continue;
        }
        let value = arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--jobs" => asked.jobs = value.parse().map_err(|_| "--jobs takes a number")?,
            "--only" => asked.only = value,
            "--number" => {
                asked.numbers = value.split(',').filter_map(|of| of.parse().ok()).collect()
            }
            _ => {
                return Err(
                    "usage: mutants [--jobs N] [--quick] [--only TEXT] [--number N,..]".to_owned(),
                );
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
    let tree = copy(&repository, &mutants)?;
    let names = names(&mutants);
    eprintln!("{} mutants in {}", mutants.len(), tree.display());
    let built = build::build(&repository, &tree, &mutants, asked.quick)?;
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
    let mut programs = judge::in_order(built.programs)?;
    if !asked.quick {
        // Last, since it takes longest; what it tells apart no test on one thread does.
        programs.extend(judge::in_order(vec![build::schedules(&tree)?])?);
    }
    let verdicts: Mutex<BTreeMap<u32, Verdict>> = Mutex::default();
    judge::all(&programs, &viable, asked.jobs, |number, verdict| {
        println!("{number}\t{verdict:?}\t{}", names[number as usize - 1]);
        let mut verdicts = verdicts.lock().unwrap_or_else(|broken| broken.into_inner());
        verdicts.insert(number, verdict.clone());
    })?;
    let verdicts = verdicts
        .into_inner()
        .unwrap_or_else(|broken| broken.into_inner());
    let count = |which: fn(&Verdict) -> bool| verdicts.values().filter(|of| which(of)).count();
    let equivalent = equivalent(&repository)?;
    let survivors = verdicts.iter().filter(|of| *of.1 == Verdict::Survived);
    let survivors: BTreeSet<&str> = survivors.map(|of| &*names[*of.0 as usize - 1]).collect();
    let (mut explained, mut open) = (0, Vec::new());
    for name in &survivors {
        match equivalent.contains_key(*name) {
            true => explained += 1,
            false => open.push(*name),
        }
    }
    for number in &built.without {
        println!("no switch: {}", names[*number as usize - 1]);
    }
    let judged: BTreeSet<&str> = viable.iter().map(|of| &*names[*of as usize - 1]).collect();
    for name in equivalent.keys().filter(|name| name.contains(&asked.only)) {
        if !survivors.contains(&**name) && (asked.numbers.is_empty() || judged.contains(&**name)) {
            println!("listed as equivalent, and not a survivor: {name}");
        }
    }
    for name in &open {
        println!("SURVIVED: {name}");
    }
    println!(
        "{} mutants tested: {} caught, {} hung, {} equivalent, {} survived; {} more do not compile, {} have no switch; {} s",
        viable.len(),
        count(|of| matches!(of, Verdict::Caught(_))),
        count(|of| matches!(of, Verdict::Hung(_))),
        explained,
        open.len(),
        built.unviable.len(),
        built.without.len(),
        began.elapsed().as_secs()
    );
    Ok(open.is_empty())
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
fn equivalent(repository: &Path) -> Result<BTreeMap<String, String>, String> {
    let file = repository.join("lab/mutants/equivalent.tsv");
    let text =
        std::fs::read_to_string(&file).map_err(|why| format!("{}: {why}", file.display()))?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (name, reason) = line.split_once('\t')?;
        Some((name.to_owned(), reason.to_owned()))
    };
    lines
        .map(|line| split(line).ok_or_else(|| format!("no reason stands beside: {line}")))
        .collect()
}

/// Brings the tracked files to where they may be changed, beside a target directory that is kept. What has not changed since
/// the last run is left alone, so that it is not built again; files with mutants are written later.
fn copy(repository: &Path, mutants: &[Mutant]) -> Result<PathBuf, String> {
    let work = std::env::var_os("MUTANTS_DIR").map_or_else(
        || std::env::temp_dir().join("bursar-mutants"),
        PathBuf::from,
    );
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
    Ok(tree)
}
