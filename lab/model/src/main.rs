//! The long run, and the replay of one finding.
//!
//! `model [--scenarios N] [--from SEED]` runs N seeds (1,000,000) on all processors; `model --seed SEED [--keep 0,3,..]`
//! runs one, whole or in part, and shows its steps.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use model::census::Census;
use model::generate;
use model::run::{Finding, check, keep, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut scenarios, mut from, mut seed, mut kept) = (1_000_000, 0, None, None);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let number = value.parse::<u64>();
        match (argument.as_str(), number) {
            ("--scenarios", Ok(number)) => scenarios = number,
            ("--from", Ok(number)) => from = number,
            ("--seed", Ok(number)) => seed = Some(number),
            ("--keep", _) => {
                kept = Some(
                    value
                        .split(',')
                        .filter_map(|at| at.parse().ok())
                        .collect::<Vec<usize>>(),
                )
            }
            _ => {
                eprintln!(
                    "usage: model [--scenarios N] [--from SEED] | --seed SEED [--keep 0,3,..]"
                );
                return ExitCode::from(2);
            }
        }
    }
    match seed {
        Some(seed) => replay(seed, kept),
        None => search(from, scenarios),
    }
}

fn replay(seed: u64, kept: Option<Vec<usize>>) -> ExitCode {
    let whole = generate::seeded(seed);
    let kept = kept.unwrap_or_else(|| (0..whole.steps.len()).collect());
    let scenario = keep(&whole, &kept);
    match run(&scenario) {
        Ok(_) => {
            println!("{scenario:#?}\nseed {seed} keeps to the contract");
            ExitCode::SUCCESS
        }
        Err(difference) => {
            println!(
                "{}",
                Finding {
                    seed,
                    kept,
                    scenario,
                    difference
                }
            );
            ExitCode::FAILURE
        }
    }
}

/// From so many scenarios on everything must be met that the census counts.
const LONG: u64 = 100_000;

/// Shows at most this many findings.
const MOST_FINDINGS: usize = 3;

fn search(from: u64, scenarios: u64) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let next = AtomicU64::new(from);
    let findings: Mutex<Vec<Box<Finding>>> = Mutex::new(Vec::new());
    let lock = || findings.lock().unwrap_or_else(PoisonError::into_inner);
    let met = Mutex::new(Census::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut census = Census::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + scenarios || lock().len() >= MOST_FINDINGS {
                        met.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .add(&census);
                        return;
                    }
                    match check(seed) {
                        Ok(of) => census.add(&of),
                        Err(finding) => lock().push(finding),
                    }
                }
            });
        }
    });
    let findings = lock();
    for finding in findings.iter() {
        println!("{finding}\n");
    }
    let met = met.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("met: {met}");
    let ran = next.load(Ordering::Relaxed).min(from + scenarios) - from;
    println!(
        "{ran} scenarios, {} steps, {:.1} s, {} findings",
        met.steps,
        began.elapsed().as_secs_f64(),
        findings.len()
    );
    let missing = met.missing();
    if !missing.is_empty() {
        println!("never met: {}", missing.join(", "));
    }
    if findings.is_empty() && (ran < LONG || missing.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
