//! C7, D1, E1 under load: calls that come and go on several threads, with deadlines that pass, callers that leave and
//! shutdowns that come in between. What is asserted holds for every order in which that may happen.

#![allow(
    clippy::disallowed_methods,
    reason = "a hammer of tasks on several threads, and a reader on another"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bursar::{Failure, Outcome, Policy, Retry, Runtime, Stats};
use common::{Answer, assert_idle, counts, ms, runtime};

fn assert_consistent(stats: &Stats) {
    for of in stats.operations.iter().chain([&stats.total()]) {
        assert!(
            of.started <= of.admitted && of.finished <= of.admitted,
            "{stats}"
        );
    }
}

/// Ends the reader, on a panic too.
struct Enough<'d>(&'d AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn e1_every_snapshot_read_meanwhile_is_consistent() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let builder = Runtime::builder().resource("a", 2);
    let runtime = builder.build().unwrap();
    let policy = Policy::pure().claim("a", 1);
    let waits = runtime.contract("waits", policy).unwrap();
    let rejects = runtime
        .contract("rejects", Policy::pure().claim("a", 1).reject())
        .unwrap();
    let done = AtomicBool::new(false);
    let snapshots = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut read, mut last) = (0_u32, runtime.stats().total());
            while !done.load(Ordering::Acquire) {
                let stats = runtime.stats();
                assert_consistent(&stats);
                let total = stats.total();
                assert!(total.finished >= last.finished && total.admitted >= last.admitted);
                (read, last) = (read + 1, total);
            }
            read
        });
        let enough = Enough(&done);
        executor.block_on(async {
            let callers: Vec<_> = (0..8)
                .map(|caller| {
                    let contract = if caller % 2 == 0 {
                        waits.clone()
                    } else {
                        rejects.clone()
                    };
                    tokio::spawn(async move {
                        let mut calls = 0;
                        loop {
                            let answer = contract.run(|| async {
                                tokio::task::yield_now().await;
                                Answer::Ok(1)
                            });
                            match answer.await {
                                Err(error) if error.is_stopping() => break calls,
                                _ => calls += 1,
                            }
                        }
                    })
                })
                .collect();
            while counts(&runtime, "waits").finished < 2_000 {
                tokio::task::yield_now().await;
            }
            runtime.shutdown().await.expect("from outside");
            assert_idle(&runtime);
            for caller in callers {
                caller.await.expect("no caller fails");
            }
        });
        drop(enough);
        reader.join().expect("every snapshot is consistent")
    });
    assert!(snapshots > 100, "{snapshots}");
    assert_idle(&runtime);
}

/// Numbers that only need to differ: what is asserted holds for each of them.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What a caller was told: on failure, the outcome and the number of attempts.
type Told = Result<u32, (Outcome, u32)>;

#[test]
fn c7_never_ran_is_never_said_of_what_ran_and_uncertain_never_of_what_did_not() {
    const CALLS: usize = 800;
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .build()
        .unwrap();
    let (runtime, clock) = runtime(&[("a", 4)]);
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let policy = Policy::idempotent()
        .claim("a", 1)
        .timeout(ms(3))
        .retry(retry);
    let contract = runtime.contract("work", policy.grace(ms(1))).unwrap();
    let runs: Arc<Vec<AtomicU32>> = Arc::new((0..CALLS).map(|_| AtomicU32::new(0)).collect());
    let told: Vec<(usize, Told)> = executor.block_on(async {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let (contract, runs, clock) = (contract.clone(), runs.clone(), clock.clone());
                tokio::spawn(async move {
                    let mut dice = Dice(caller as u64 + 1);
                    let mut told = Vec::new();
                    for number in (caller..CALLS).step_by(8) {
                        let (spins, again, runs) = (dice.throw(400), dice.throw(3), runs.clone());
                        let time = clock.clone();
                        let mut call = contract
                            .with()
                            .key(dice.throw(6))
                            .within(ms(dice.throw(12)));
                        let answer = call.run_blocking(move |attempt| {
                            runs[number].fetch_add(1, Ordering::SeqCst);
                            for spin in 0..spins {
                                std::thread::yield_now();
                                // Time passes with the work that is done.
                                if spin % 100 == 99 {
                                    time.advance(ms(1));
                                }
                            }
                            if again == 0 && attempt.number() == 1 {
                                return Err(Failure::transient("again"));
                            }
                            Answer::Ok(attempt.number())
                        });
                        let answer = answer.await;
                        told.push((
                            number,
                            answer.map_err(|error| (error.outcome(), error.attempts())),
                        ));
                    }
                    told
                })
            })
            .collect();
        let mut told = Vec::new();
        for caller in callers {
            told.extend(caller.await.expect("no caller fails"));
        }
        runtime.shutdown().await.expect("from outside");
        told
    });
    let mut kinds = [0; 3];
    for (number, answer) in told {
        let runs = runs[number].load(Ordering::SeqCst);
        match answer {
            Ok(attempts) => assert_eq!(runs, attempts),
            Err((outcome, attempts)) => {
                assert_eq!(
                    runs, attempts,
                    "{outcome}: attempts are told as they were made"
                );
                assert_eq!(outcome == Outcome::Throttled, runs == 0);
            }
        }
        kinds[match answer {
            Ok(_) => 0,
            Err((_, 0)) => 1,
            Err(_) => 2,
        }] += 1;
    }
    assert!(
        kinds.iter().all(|kind| *kind > 0),
        "of every kind: {kinds:?}"
    );
    assert_idle(&runtime);
}

#[test]
fn d1_a_drain_ends_whatever_is_dropped_or_withdrawn_meanwhile() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .build()
        .unwrap();
    for round in 0..150 {
        let (runtime, clock) = runtime(&[("a", 2), ("b", 3)]);
        let retry = Retry::up_to(3).on_transient();
        let both = Policy::pure().claim("b", 1).claim("a", 1).timeout(ms(2));
        let both = runtime.contract("both", both.retry(retry)).unwrap();
        let one = runtime
            .contract("one", Policy::pure().claim("b", 2))
            .unwrap();
        executor.block_on(async {
            let mut dice = Dice(round + 1);
            let mut callers = Vec::new();
            for _ in 0..24 {
                let (both, one, clock) = (both.clone(), one.clone(), clock.clone());
                let (form, key, within) = (dice.throw(5), dice.throw(3), ms(dice.throw(6)));
                let key = (key > 0).then_some(key);
                callers.push(tokio::spawn(async move {
                    let work = || async {
                        tokio::task::yield_now().await;
                        clock.advance(ms(1));
                        tokio::task::yield_now().await;
                        Answer::Err(Failure::transient("again"))
                    };
                    match form {
                        0 => drop(both.with().key(key).run(|_| work()).await),
                        1 => drop(both.with().key(key).within(within).run(|_| work()).await),
                        2 => {
                            let permit = one.with().key(key).admit().await;
                            tokio::task::yield_now().await;
                            drop(permit);
                        }
                        3 => {
                            let mut call = both.with().key(key);
                            let blocking = call.run_blocking(|_| {
                                std::thread::yield_now();
                                Answer::Ok(1)
                            });
                            drop(blocking.await);
                        }
                        _ => {
                            let nested = both.run(|| async {
                                let mut call =
                                    one.with().key(key.map(|key| key + 10)).within(ms(50));
                                let _ = call.run(|_| work()).await;
                                Answer::Ok(1)
                            });
                            drop(nested.await);
                        }
                    }
                }));
            }
            for _ in 0..dice.throw(8) {
                let victim = dice.throw(24) as usize;
                callers[victim].abort();
                tokio::task::yield_now().await;
            }
            let drained = tokio::select! {
                drained = runtime.shutdown() => drained,
                // Nested waits may wait for each other: their callers' deadlines end that.
                () = async {
                    loop {
                        callers[dice.throw(24) as usize].abort();
                        clock.advance(ms(1));
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                    }
                } => unreachable!("it goes on"),
            };
            drained.expect("from outside");
            assert_idle(&runtime);
            for caller in callers {
                let _cancelled_or_not = caller.await;
            }
        });
        assert_idle(&runtime);
        assert_eq!(clock.timers(), 0);
    }
}
