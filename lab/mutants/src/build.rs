//! Builds the tree with every mutant in it, leaving out those that the compiler refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::list::Mutant;
use crate::switches::{self, Switched, switch};

/// What came of building.
#[derive(Debug, Default)]
pub struct Built {
    /// Does not compile: not a mutant that a test could meet.
    pub unviable: BTreeSet<u32>,
    /// Stands where no switch can, in a constant say.
    pub without: BTreeSet<u32>,
    pub programs: Vec<Program>,
}

/// A program of tests.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    /// Where its tests expect to run.
    pub directory: PathBuf,
}

pub const LIBRARY: &str = "crates/bursar/src/lib.rs";

/// Test programs that tell no mutant from another: what they check is done by the compiler.
const NOT_ASKED: [&str; 2] = ["ui", "auto_traits"];

/// Builds the copy that `work` holds. What the compiler refuses is noted there, for the next run on the same sources.
///
/// # Errors
/// The tree does not build for a reason that is no mutant's.
pub fn build(
    repository: &Path,
    work: &Path,
    mutants: &[Mutant],
    sources: &str,
) -> Result<Built, String> {
    let tree = &work.join("tree");
    let mut files: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
    // It answers what the switches ask, though it has no mutant itself.
    files.insert(LIBRARY, Vec::new());
    for (number, mutant) in (1..).zip(mutants) {
        files
            .entry(&mutant.file)
            .or_default()
            .push((number, mutant));
    }
    let mut originals = BTreeMap::new();
    for file in files.keys() {
        let text = fs::read_to_string(repository.join(file));
        originals.insert(*file, text.map_err(|why| format!("{file}: {why}"))?);
    }
    let notes = work.join("left-out.tsv");
    let mut built = noted(&notes, sources);
    // First the library alone: the compiler stops at the first kind of fault it finds, and this is quick.
    for step in [LIBRARY_ALONE, UNDER_SHUTTLE, CHECKED, TESTS] {
        loop {
            let switched = write(tree, &files, &originals, mutants.len(), &mut built)?;
            let (refused, programs) = compile(tree, step)?;
            if refused.is_empty() {
                built.programs = programs;
                break;
            }
            let before = built.unviable.len() + built.without.len();
            for error in &refused {
                blame(error, &switched, &mut built)?;
            }
            let now = built.unviable.len() + built.without.len();
            eprintln!(
                "{} errors, {} mutants more left out",
                refused.len(),
                now - before
            );
            if now == before {
                return Err("the compiler refuses, and no mutant is left to blame".to_owned());
            }
        }
    }
    let mut left_out = format!("{sources}\n");
    for (what, numbers) in [("unviable", &built.unviable), ("without", &built.without)] {
        left_out.extend(numbers.iter().map(|number| format!("{number}\t{what}\n")));
    }
    fs::write(&notes, left_out).map_err(|why| format!("{}: {why}", notes.display()))?;
    Ok(built)
}

fn noted(notes: &Path, sources: &str) -> Built {
    let mut built = Built::default();
    let text = fs::read_to_string(notes).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some(sources) {
        return built;
    }
    for (number, what) in lines.filter_map(|line| line.split_once('\t')) {
        let of = match what {
            "unviable" => &mut built.unviable,
            _ => &mut built.without,
        };
        of.extend(number.parse::<u32>());
    }
    built
}

/// The narrow places between threads, under shuttle's schedules.
///
/// # Errors
/// It does not build, though the test programs did.
pub fn schedules(tree: &Path) -> Result<Program, String> {
    let target = tree.join("../shuttle");
    let built = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--package",
            "chaos",
            "--no-default-features",
            "--locked",
        ])
        .current_dir(tree)
        .env("RUSTFLAGS", SHUTTLE)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .map_err(|why| why.to_string())?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    Ok(Program {
        name: "schedules".to_owned(),
        path: target.join("release/chaos"),
        directory: tree.to_owned(),
    })
}

type Written<'f> = BTreeMap<&'f str, Switched>;

fn write<'f>(
    tree: &Path,
    files: &BTreeMap<&'f str, Vec<(u32, &Mutant)>>,
    originals: &BTreeMap<&str, String>,
    mutants: usize,
    built: &mut Built,
) -> Result<Written<'f>, String> {
    let mut written = BTreeMap::new();
    for (file, of) in files {
        let out = |number: &u32| built.unviable.contains(number) || built.without.contains(number);
        let left: Vec<_> = of.iter().filter(|of| !out(&of.0)).copied().collect();
        let switched = switch(&originals[file], &left).map_err(|why| format!("{file}: {why}"))?;
        built.without.extend(&switched.without);
        let mut text = switched.text.clone();
        if *file == LIBRARY {
            text += &switches::support(mutants);
        }
        write_if_new(&tree.join(file), text.as_bytes()).map_err(|why| format!("{file}: {why}"))?;
        written.insert(*file, switched);
    }
    Ok(written)
}

/// Leaves a file alone that says the same already: what has not changed is not built again.
///
/// # Errors
/// It cannot be written.
pub fn write_if_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if fs::read(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}

const SHUTTLE: &str = "-Awarnings --cfg bursar_shuttle";

/// What is compiled for schedules alone is found here.
const UNDER_SHUTTLE: &[&str] = &["check", "--lib", "-p", "bursar", "--no-default-features"];
/// With everything that features add: what a feature that is off puts in its place is empty.
const LIBRARY_ALONE: &[&str] = &["check", "--lib", "-p", "bursar", "--all-features"];
/// Turns stand on the core's chains, so their tests are asked too.
#[rustfmt::skip]
const TESTS: &[&str] = &[
    "test", "--no-run", "--lib", "--tests", "--all-features",
    "-p", "bursar", "-p", "bursar-spot", "-p", "model", "-p", "chaos",
];
/// What uses the library may find faults that it does not; found here, they cost no building.
#[rustfmt::skip]
const CHECKED: &[&str] = &[
    "check", "--lib", "--tests", "--all-features",
    "-p", "bursar", "-p", "bursar-spot", "-p", "model", "-p", "chaos",
];

/// Errors, or the test programs.
fn compile(tree: &Path, arguments: &[&str]) -> Result<(Vec<Value>, Vec<Program>), String> {
    let mut command = Command::new("cargo");
    let mut target = "../target";
    if arguments == UNDER_SHUTTLE {
        command.env("RUSTFLAGS", SHUTTLE);
        target = "../shuttle";
    }
    let output = command
        .args(arguments)
        .args(["--locked", "--message-format", "json"])
        .current_dir(tree)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_DIR", tree.join(target))
        .output()
        .map_err(|why| why.to_string())?;
    let (mut errors, mut programs) = (Vec::new(), Vec::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).map_err(|why| why.to_string())?;
        if message["message"]["level"] == "error" {
            errors.push(message["message"].clone());
        }
        let Some(path) = message["executable"].as_str() else {
            continue;
        };
        let manifest = message["manifest_path"].as_str().map(Path::new);
        let name = message["target"]["name"].as_str().unwrap_or_default();
        if message["profile"]["test"] == true && !NOT_ASKED.contains(&name) {
            let directory = manifest.and_then(Path::parent).unwrap_or(tree);
            programs.push(Program {
                name: name.to_owned(),
                path: path.into(),
                directory: directory.to_owned(),
            });
        }
    }
    if !output.status.success() && errors.is_empty() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok((errors, programs))
}

/// Leaves out the mutants in whose text the error lies: in that of an alternative it does not compile, in that which asks
/// for the alternatives no switch can stand here.
fn blame(error: &Value, switched: &Written<'_>, built: &mut Built) -> Result<(), String> {
    let empty = Vec::new();
    let spans = error["spans"].as_array().unwrap_or(&empty);
    let (primary, others): (Vec<_>, Vec<_>) =
        spans.iter().partition(|span| span["is_primary"] == true);
    for spans in [primary, others] {
        let mut found = false;
        for span in spans {
            let file = span["file_name"].as_str().unwrap_or_default();
            let Some(of) = switched.get(file) else {
                continue;
            };
            let at = |name: &str| span[name].as_u64().unwrap_or(0) as usize;
            let (start, end) = (at("byte_start"), at("byte_end"));
            let hit: Vec<_> = of
                .places
                .iter()
                .filter(|(place, _)| place.start < end && start < place.end)
                .collect();
            // An alternative's own text names one mutant; what asks names all that stand behind it.
            for (place, number) in &hit {
                let several = of.places.iter().filter(|other| other.0 == *place).count() > 1;
                let asks = several || of.text[place.clone()].contains(switches::ASKS);
                if asks {
                    built.without.insert(*number);
                } else {
                    built.unviable.insert(*number);
                }
                found = true;
            }
        }
        if found {
            return Ok(());
        }
    }
    // "aborting due to .." and the like say nothing of their own.
    let Some(span) = spans.iter().find(|span| span["is_primary"] == true) else {
        return Ok(());
    };
    // The first value that a function returns decides its type: what comes next is found wanting, and the alternative before
    // it is to blame.
    if let Some(of) = switched.get(span["file_name"].as_str().unwrap_or_default()) {
        let start = span["byte_start"].as_u64().unwrap_or(0) as usize;
        let before = of.places.iter().filter(|(place, _)| place.end <= start);
        if let Some((_, number)) = before.max_by_key(|(place, _)| place.end) {
            built.unviable.insert(*number);
            return Ok(());
        }
    }
    Err(format!(
        "no mutant's fault:\n{}",
        error["rendered"].as_str().unwrap_or_default()
    ))
}
