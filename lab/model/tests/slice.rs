//! A slice of the long run, the same seeds each time, and what makes the runner worth its word: it finds a fault and
//! makes it small.

#![forbid(unsafe_code)]

use model::run::check;

/// Seeds of the long run that CI repeats.
const SEEDS: u64 = 4_000;

#[test]
fn the_runtime_keeps_to_the_contract() {
    for seed in 0..SEEDS {
        if let Err(finding) = check(seed) {
            panic!("{finding}");
        }
    }
}
