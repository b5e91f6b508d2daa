//! Every test on its own, how long it takes, and which mutants it comes to: a mutant is judged by those that come to it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::build::Program;
use crate::process::{self, End, Given};

/// Executions by which a scenario is judged under shuttle's schedules, and by which it is seen what it comes to.
const SCHEDULES: u32 = 20_000;
const GLANCE: u32 = 4_000;

/// What a test may take at first, and at least what a mutant may make of it.
const PATIENCE: Duration = Duration::from_secs(120);
const LEAST: Duration = Duration::from_secs(5);
/// How many times its time a test may take with a mutant.
const LONGER: u32 = 10;

/// A test of a program, or one of its scenarios.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub program: Program,
    pub arguments: Vec<String>,
    pub took: Duration,
    pub reaches: HashSet<u32>,
}

impl Case {
    /// After which it is taken to hang.
    pub fn limit(&self) -> Duration {
        (self.took * LONGER).max(LEAST)
    }

    /// Who is asked first: who is quick, and who comes to little, for that is what it looks at.
    fn rank(&self) -> f64 {
        (self.took.as_secs_f64() + 0.01) * self.reaches.len() as f64
    }
}

/// The tests of a program of tests.
///
/// # Errors
/// It does not list them.
pub fn tests(program: &Program, work: &Path) -> Result<Vec<Case>, String> {
    let listed = output(program, &["--list", "--format", "terse"], work)?;
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let case = |name: &str| Case {
        name: format!("{}::{name}", program.name),
        program: program.clone(),
        arguments: ["-q", "--exact", name].map(str::to_owned).to_vec(),
        took: Duration::ZERO,
        reaches: HashSet::new(),
    };
    Ok(names.map(case).collect())
}

/// The scenarios of shuttle's program.
///
/// # Errors
/// It does not run.
pub fn scenarios(program: &Program, work: &Path) -> Result<Vec<Case>, String> {
    let listed = output(program, &["--executions", "12"], work)?;
    let random = listed.lines().filter(|line| line.contains(" random "));
    let names = random.filter_map(|line| line.split_whitespace().next());
    let case = |name: &str| Case {
        name: format!("{}::{name}", program.name),
        program: program.clone(),
        arguments: scenario(name, SCHEDULES),
        took: Duration::ZERO,
        reaches: HashSet::new(),
    };
    let cases: Vec<_> = names.map(case).collect();
    (!cases.is_empty())
        .then_some(cases)
        .ok_or_else(|| "shuttle's program names no scenario".to_owned())
}

fn scenario(name: &str, executions: u32) -> Vec<String> {
    let executions = executions.to_string();
    ["--scenario", name, "--executions", &executions]
        .map(str::to_owned)
        .to_vec()
}

fn output(program: &Program, arguments: &[&str], work: &Path) -> Result<String, String> {
    let file = work.join("output");
    let arguments: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
    let given = Given {
        output: Some(&file),
        ..Given::default()
    };
    match process::run(program, &arguments, PATIENCE, given)? {
        End::Passed => fs::read_to_string(&file).map_err(|why| why.to_string()),
        end => Err(format!("{}: {end:?}", program.name)),
    }
}

/// Runs a case without a mutant and notes what it comes to and how long it takes. False if it fails twice.
///
/// # Errors
/// It could not be run.
pub fn record(case: &mut Case, work: &Path) -> Result<bool, String> {
    let file = work.join("reached");
    for _ in 0..2 {
        fs::write(&file, []).map_err(|why| why.to_string())?;
        let given = Given {
            reached: Some(&file),
            ..Given::default()
        };
        let began = Instant::now();
        // The note is taken of a glance where a glance comes everywhere: what is noted is written to a file.
        let glance = match case.arguments.as_slice() {
            [scenarios, name, ..] if scenarios == "--scenario" => scenario(name, GLANCE),
            all => all.to_vec(),
        };
        if process::run(&case.program, &glance, PATIENCE, given)? != End::Passed {
            continue;
        }
        case.took = began.elapsed();
        if glance != case.arguments {
            case.took *= SCHEDULES / GLANCE;
        }
        let bytes = fs::read(&file).map_err(|why| why.to_string())?;
        let numbers = bytes.chunks_exact(4);
        let numbers = numbers.map(|of| u32::from_le_bytes([of[0], of[1], of[2], of[3]]));
        case.reaches = numbers.collect();
        return Ok(true);
    }
    Ok(false)
}

/// In the order in which they are asked.
pub fn in_order(mut cases: Vec<Case>) -> Vec<Case> {
    cases.sort_by(|one, other| one.rank().total_cmp(&other.rank()));
    cases
}
