//! The first rounds of the long run.

#![forbid(unsafe_code)]
#![cfg(all(feature = "tokio", not(bursar_shuttle)))]

use chaos::rounds::{executor, round};

/// Rounds of the long run that every test run repeats.
const ROUNDS: u64 = 30;

#[test]
fn nothing_is_lost_under_load_and_disturbance() {
    let executor = executor();
    for seed in 0..ROUNDS {
        if let Err(finding) = round(&executor, seed) {
            panic!("{finding}");
        }
    }
}
