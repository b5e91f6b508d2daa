//! A slice of the long run, the same seeds each time, and what makes the runner worth its word: it finds a fault and
//! makes it small.

#![forbid(unsafe_code)]

use model::census::{Census, RARE};
use model::run::check;

/// Seeds of the long run that CI repeats.
const SEEDS: u64 = 4_000;

#[test]
fn the_runtime_keeps_to_the_contract() {
    let mut met = Census::default();
    for seed in 0..SEEDS {
        match check(seed) {
            Ok(census) => met.add(&census),
            Err(finding) => panic!("{finding}"),
        }
    }
    let mut missing = met.missing();
    missing.retain(|what| !RARE.contains(what));
    assert_eq!(missing, Vec::<&str>::new(), "no scenario comes to it");
}
