//! Rounds on real threads and a multi-thread tokio, each made from a seed.
//!
//! A seed fixes what a round does, not how its threads interleave: a failing round is replayed by running its seed again,
//! as often as it takes.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime as Executor};

use crate::random::Random;

mod calls;
mod line;
mod place;
mod spots;
mod storm;

/// A round that took longer hangs: something was lost. No round's verdict depends on it otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

const USAGE: &str = "usage: chaos [--rounds N] [--from SEED] | --seed SEED [--times N]";

/// What runs the rounds: more workers than processors, so that they are preempted, and few blocking threads, so that
/// blocking attempts queue for one.
///
/// # Panics
/// If the system gives no threads.
#[must_use]
pub fn executor() -> Executor {
    Builder::new_multi_thread()
        .worker_threads(4)
        .max_blocking_threads(3)
        .enable_time()
        .build()
        .expect("the system gives threads")
}

/// How much a round did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Calls polled at least once, and work handed to Spots.
    pub calls: u64,
    /// Times that somebody went in: handlers that ran, holders of permits, and turns.
    pub entries: u64,
}

/// One round.
///
/// # Errors
/// What of the contract was broken.
pub fn round(executor: &Executor, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    match random.below(9) {
        0 | 1 => line::budget(executor, seed, &mut random),
        2 => line::key(executor, seed, &mut random),
        3 => storm::threads(executor, seed, &mut random),
        4 | 5 => storm::tasks(executor, seed, &mut random),
        _ => spots::round(executor, seed, &mut random),
    }
    .map_err(|why| {
        format!(
            "round {seed} fails: {why}\nreplay: cargo run --release -p chaos -- --seed {seed} --times 1000"
        )
    })
}

/// Runs what the arguments ask for. True if nothing was found.
pub fn command(mut arguments: impl Iterator<Item = String>) -> bool {
    let (mut rounds, mut from, mut seed, mut times) = (1_000, 0, None, 1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().unwrap_or_default().parse::<u64>();
        match (argument.as_str(), value) {
            ("--rounds", Ok(number)) => rounds = number,
            ("--from", Ok(number)) => from = number,
            ("--seed", Ok(number)) => seed = Some(number),
            ("--times", Ok(number)) => times = number,
            _ => {
                eprintln!("{USAGE}");
                return false;
            }
        }
    }
    let seeds: Box<dyn Iterator<Item = u64>> = match seed {
        Some(seed) => Box::new((0..times).map(move |_| seed)),
        None => Box::new(from..from + rounds),
    };
    let began = Instant::now();
    let executor = executor();
    let (mut ran, mut all) = (0, Tally::default());
    for seed in seeds {
        match round(&executor, seed) {
            Ok(tally) => {
                ran += 1;
                all.calls += tally.calls;
                all.entries += tally.entries;
            }
            Err(finding) => {
                println!("{finding}");
                // What hangs would keep the executor from going away.
                executor.shutdown_background();
                return false;
            }
        }
    }
    println!(
        "{ran} rounds, {} calls, {} entries, {:.1} s, none fails",
        all.calls,
        all.entries,
        began.elapsed().as_secs_f64()
    );
    true
}

/// Waits for what must end, turning the clock meanwhile.
///
/// # Errors
/// It does not end.
fn wait_turning<T>(
    executor: &Executor,
    clock: &bursar::ManualClock,
    what: impl Future<Output = T>,
) -> Result<T, String> {
    executor.block_on(async {
        let mut what = std::pin::pin!(what);
        let began = Instant::now();
        loop {
            clock.advance(Duration::from_millis(1));
            // The pace of the clock in real time; what ends in between is seen at once.
            match tokio::time::timeout(Duration::from_micros(200), what.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(_) if began.elapsed() > PATIENCE => {
                    return Err("it hangs: a wake-up, a unit or a key was lost".to_owned());
                }
                Err(_) => {}
            }
        }
    })
}
