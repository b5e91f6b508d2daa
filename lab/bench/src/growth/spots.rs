//! Curves of Spots and of their timers.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bursar::{ManualClock, Runtime};
use bursar_spot::{Host, Schedule, Spot};
use tokio::sync::Mutex;
use tokio::task::{unconstrained, yield_now};

use super::calls::medians;
use super::queues::{repeated, since};
use crate::measure::Contender;
use crate::rows::fixtures::{one_thread, runtime};
use crate::rows::{Pace, REQUEST};

fn host(runtime: &Runtime) -> Host {
    let _entered = one_thread().enter();
    Host::new(runtime)
}

fn made(host: &Host, spots: u32) -> Vec<Spot<u64>> {
    let name = |n| format!("spot-{n}");
    let made = (0..spots).map(|n| host.create(&name(n), 0));
    made.map(|spot| spot.expect("a name that is free"))
        .collect()
}

/// Odd, near the golden section: goes from one to another far away, and reaches them all.
fn step(count: usize) -> usize {
    (count as f64 * 0.618) as usize / 10 * 10 + 7
}

/// A request to one of so many, another each time.
pub(super) fn requests(spots: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let tokio = one_thread();
    let (spots, mutexes) = (
        made(&host(&runtime(8, 8)), spots),
        (0..spots)
            .map(|_| Arc::new(Mutex::new(0_u64)))
            .collect::<Vec<_>>(),
    );
    let count = spots.len();
    let (mut ours, mut theirs) = (0, 0);
    medians(
        pace,
        vec![
            Contender::new(REQUEST, |n| {
                tokio.block_on(unconstrained(async {
                    for _ in 0..n {
                        ours = (ours + step(count)) % count;
                        let answer = spots[ours].request(|mut turn| async move {
                            *turn.state() += 1;
                            *turn.state()
                        });
                        black_box(answer.await.is_ok());
                    }
                }));
            }),
            Contender::new("tokio Mutex", |n| {
                tokio.block_on(unconstrained(async {
                    for _ in 0..n {
                        theirs = (theirs + step(count)) % count;
                        let mut held = mutexes[theirs].lock().await;
                        *held += 1;
                        black_box(*held);
                    }
                }));
            }),
        ],
    )
}

/// So many made, and closed one after another.
pub(super) fn lives(spots: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let host = host(&runtime(8, 8));
    let tokio = one_thread();
    let mut close = Vec::new();
    let create = repeated(spots, pace, || {
        let began = Instant::now();
        let all = made(&host, spots);
        let create = since(began, spots);
        let began = Instant::now();
        tokio.block_on(unconstrained(async {
            for spot in all {
                host.close(spot.name()).await.expect("an open Spot");
            }
        }));
        close.push(since(began, spots));
        create
    });
    vec![("create", create), ("close", crate::figures::median(close))]
}

/// How many Spots share the timers.
const SPOTS: u32 = 100;

/// So many timers registered, each of which then ticks once a period, all over it.
pub(super) fn ticks(timers: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    const PERIOD: Duration = Duration::from_secs(1);
    let tokio = one_thread();
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .resource("unused", 1)
        .clock(clock.clone());
    let host = host(&runtime.build().expect("a budget"));
    let spots = made(&host, SPOTS.min(timers));
    let ticked = Arc::new(AtomicU32::new(0));
    let mut generation = 0_usize;
    let register = repeated(timers, pace, || {
        // Others than the last time, since a name that is known is registered anew.
        generation += 1;
        for timer in 0..if generation == 1 { 0 } else { timers } {
            let spot = &spots[timer as usize % spots.len()];
            spot.cancel_timer(&format!("{}-{timer}", generation - 1));
        }
        let names: Vec<String> = (0..timers).map(|of| format!("{generation}-{of}")).collect();
        let began = Instant::now();
        for (at, name) in names.iter().enumerate() {
            let ticked = Arc::clone(&ticked);
            let first = PERIOD * (at * step(names.len()) % names.len()) as u32 / timers;
            let schedule = Schedule::every(PERIOD).first_after(PERIOD + first);
            let registered = spots[at % spots.len()].timer(name, schedule, move |_, _| {
                ticked.fetch_add(1, Ordering::Relaxed);
                async {}
            });
            registered.expect("a schedule");
        }
        since(began, timers)
    });
    // The first period is over when all are within theirs.
    clock.advance(PERIOD);
    let tick = repeated(timers, pace, || {
        ticked.store(0, Ordering::Relaxed);
        let began = Instant::now();
        clock.advance(PERIOD);
        tokio.block_on(async {
            while ticked.load(Ordering::Relaxed) < timers {
                yield_now().await;
            }
        });
        since(began, timers)
    });
    vec![("register", register), ("tick", tick)]
}
