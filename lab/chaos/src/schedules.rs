//! Scenarios under shuttle, which chooses every interleaving of the core's atomics and locks.
//!
//! Each scenario runs half its executions under random schedules and half under PCT (priorities with a few change points,
//! which finds what needs few preemptions but rare ones). What a scenario chooses it asks of shuttle, so that the schedule
//! replays it whole. A lost wake-up shows as a deadlock; everything else is asserted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

mod chains;
mod mixed;
mod narrow;
mod retries;
mod world;

/// A scenario by its name, and its share of the executions.
type Scenario = (&'static str, u32, fn());

const SCENARIOS: &[Scenario] = &[
    ("mixed", 6, mixed::mixed),
    ("mixed_with_drains", 6, mixed::mixed_with_drains),
    ("tickets", 2, narrow::tickets),
    ("late_permit", 3, narrow::late_permit),
    ("leaving_head", 2, narrow::leaving_head),
    (
        "finished_before_drained",
        1,
        narrow::finished_before_drained,
    ),
    ("refused_at_the_gate", 2, narrow::refused_at_the_gate),
    (
        "joining_a_closing_queue",
        1,
        narrow::joining_a_closing_queue,
    ),
    ("pausing_into_a_drain", 3, retries::pausing_into_a_drain),
    ("spending", 1, retries::spending),
    ("resizing", 3, retries::resizing),
    ("crossing", 2, chains::crossing),
    ("outliving_its_parent", 2, chains::outliving_its_parent),
    (
        "pausing_past_its_parent",
        3,
        chains::pausing_past_its_parent,
    ),
    ("late_past_its_parent", 2, chains::late_past_its_parent),
    (
        "queueing_past_its_parent",
        2,
        chains::queueing_past_its_parent,
    ),
];

/// How many priority changes PCT makes: bugs that need one preemption fewer are found with a known chance.
const DEPTH: usize = 3;

const USAGE: &str =
    "usage: chaos [--executions N] [--seed SEED] [--scenario NAME] [--schedule SCHEDULE]";

/// Runs what the arguments ask for. True if nothing was found.
pub fn command(mut arguments: impl Iterator<Item = String>) -> bool {
    let (mut executions, mut seed, mut only, mut schedule) = (100_000_u64, 1_u64, None, None);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match (argument.as_str(), value.parse()) {
            ("--executions", Ok(number)) => executions = number,
            ("--seed", Ok(number)) => seed = number,
            ("--scenario", _) => only = Some(value),
            ("--schedule", _) => schedule = Some(value),
            _ => {
                eprintln!("{USAGE}");
                return false;
            }
        }
    }
    let chosen: Vec<Scenario> = SCENARIOS
        .iter()
        .filter(|(name, ..)| only.as_ref().is_none_or(|only| only == name))
        .copied()
        .collect();
    match (schedule, chosen.as_slice()) {
        (_, []) => {
            eprintln!("{USAGE}");
            false
        }
        (Some(schedule), [(_, _, scenario), ..]) => {
            shuttle::replay(*scenario, &schedule);
            println!("the schedule passes");
            true
        }
        (None, chosen) => explore(chosen, executions, seed),
    }
}

fn explore(chosen: &[Scenario], executions: u64, seed: u64) -> bool {
    let began = Instant::now();
    // Of the two kinds each runs on a thread of its own: an execution uses one.
    let kinds: [(&str, fn(u64, usize) -> Box<dyn Scheduler + Send>); 2] = [
        ("random", |seed, executions| {
            Box::new(RandomScheduler::new_from_seed(seed, executions))
        }),
        ("pct", |seed, executions| {
            Box::new(PctScheduler::new_from_seed(seed, DEPTH, executions))
        }),
    ];
    let whole: u32 = chosen.iter().map(|(_, share, _)| share).sum();
    let (ran, passed) = std::thread::scope(|scope| {
        let threads = kinds.map(|(kind, scheduler)| {
            scope.spawn(move || {
                let (mut ran, mut passed) = (0, true);
                for (name, share, scenario) in chosen {
                    let mine = (executions * u64::from(*share)).div_ceil(2 * u64::from(whole));
                    let began = Instant::now();
                    let scheduler = scheduler(seed, mine as usize);
                    match run(scheduler, *scenario) {
                        Ok(done) => {
                            ran += done;
                            let took = began.elapsed().as_secs_f64();
                            println!("{name:<24} {kind:<6} {done:>7} executions  {took:>6.1} s");
                        }
                        Err(()) => {
                            passed = false;
                            println!(
                                "scenario {name} fails under {kind} schedules: seed {seed}; replay with --scenario {name} --schedule and \
                                 the schedule printed above"
                            );
                        }
                    }
                }
                (ran, passed)
            })
        });
        threads
            .into_iter()
            .map(|thread| thread.join().expect("scenarios are caught"))
            .fold((0, true), |(ran, passed), (r, p)| (ran + r, passed && p))
    });
    let verdict = if passed { "none fails" } else { "FAILED" };
    println!(
        "{ran} executions, {:.1} s, {verdict}",
        began.elapsed().as_secs_f64()
    );
    passed
}

fn run(scheduler: Box<dyn Scheduler + Send>, scenario: fn()) -> Result<usize, ()> {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::Print;
    config.stack_size = 256 * 1024;
    // It warns that it knows one memory order alone: weaker ones are loom's part.
    config.silence_warnings = true;
    let runner = Runner::new(scheduler, config);
    catch_unwind(AssertUnwindSafe(|| runner.run(scenario))).map_err(|_| ())
}
