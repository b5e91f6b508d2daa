//! What is allocated: counted call by call, for each call that waits, and at the peak.
//!
//! Counting slows every allocation, so none of this is timed, and the program that times has no counter in it: the
//! counter is handed in by `bench-heap`.

use std::fmt::Write;
use std::future::{Future, pending};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Waker};

use bursar::Policy;
use kameo::actor::Spawn as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime as Tokio;
use tokio::task::{unconstrained, yield_now};

use crate::peers::{Composed, Fault, Kameo, Ractor};
use crate::report::Column;
use crate::rows::fixtures::{Never, Texts, contract, forever, one_thread};
use crate::rows::{
    COMPOSED, IDLE, KAMEO, KEYED, RACTOR, ROWS, RUN, YIELD, full_composed, full_contract, host,
    wake_ups,
};

/// What happened on the heap while something ran on this thread.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Allocations made.
    pub allocations: u64,
    /// Bytes allocated in all.
    pub bytes: u64,
    /// The most bytes held at one time.
    pub peak: u64,
    /// Bytes still held at the end.
    pub kept: i64,
}

/// Counts what happens on the heap while something runs on this thread.
pub type Count = fn(&mut dyn FnMut()) -> Counted;

/// One figure of one contender of one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The row.
    pub row: String,
    /// The contender.
    pub name: String,
    /// What it counts.
    pub column: Column,
    /// How much.
    pub figure: f64,
}

/// How many calls wait while their records are counted: a power of two, so that the vectors they lie in are full.
const WAITING: u32 = 1 << 16;

/// All figures of the rows that are wanted.
#[must_use]
pub fn figures(count: Count, wanted: impl Fn(&str) -> bool) -> Vec<Figure> {
    let mut figures = Vec::new();
    for spec in ROWS.iter().filter(|spec| wanted(spec.id)) {
        let mut add = |name: &str, column, figure| {
            figures.push(Figure {
                row: spec.id.to_owned(),
                name: name.to_owned(),
                column,
                figure,
            });
        };
        for mut contender in spec.countable().unwrap_or_default() {
            contender.run(256);
            // What a batch itself allocates falls out of the difference.
            let some = count(&mut || _ = black_box(contender.run(1000)));
            let more = count(&mut || _ = black_box(contender.run(2000)));
            let a_call = |more: u64, some: u64| more.saturating_sub(some) as f64 / 1000.0;
            let allocations = a_call(more.allocations, some.allocations);
            add(contender.name, Column::Allocations, allocations);
            add(
                contender.name,
                Column::Bytes,
                a_call(more.bytes, some.bytes),
            );
        }
        match spec.id {
            "unique-1" | "unique-2" => {
                let threads = if spec.id == "unique-1" { 1 } else { 2 };
                add(KEYED, Column::Peak, unique_bursar(count, threads));
                add(COMPOSED, Column::Peak, unique_composed(count, threads));
            }
            "parked" => {
                let (ours, theirs) = (full_contract(), full_composed());
                let our_call = || ours.run(pending::<Result<(), Never>>);
                let their_call = || theirs.one(pending::<Result<(), Fault>>);
                add(RUN, Column::Record, record(count, our_call));
                add(COMPOSED, Column::Record, record(count, their_call));
                add(RUN, Column::Task, task(count, our_call));
                add(COMPOSED, Column::Task, task(count, their_call));
            }
            "spot-yield" => add(YIELD, Column::WakeUps, wake_ups()),
            "spot-idle" => {
                let (idle, after) = idle_spots(count);
                add(IDLE, Column::Idle, idle);
                add(IDLE, Column::AfterBurst, after);
                add(RACTOR, Column::Idle, idle_ractors(count));
                add(KAMEO, Column::Idle, idle_kameos(count));
            }
            _ => {}
        }
    }
    figures
}

/// How many Spots there are while they are counted.
const SPOTS: u32 = 1_000_000;

/// How many of them have a burst of work, of so many turns each.
const BURSTS: (u32, u32) = (1_000, 100);

/// Bytes of each idle Spot, and how many more each keeps after a burst.
fn idle_spots(count: Count) -> (f64, f64) {
    let tokio = one_thread();
    let host = host(tokio);
    let mut spots = Vec::with_capacity(SPOTS as usize);
    let mut name = String::new();
    let mut names = 0;
    let made = count(&mut || {
        for n in 0..SPOTS {
            name.clear();
            _ = write!(name, "spot-{n}");
            names += name.len();
            spots.push(host.create(&name, ()).expect("a name that is free"));
        }
    });
    let of_names = names as f64 + name.capacity() as f64;
    let idle = (made.kept as f64 - of_names) / f64::from(SPOTS);
    let burst = || {
        tokio.block_on(async {
            for spot in &spots[..BURSTS.0 as usize] {
                let held = spot.enter().await.expect("an open Spot");
                for _ in 0..BURSTS.1 {
                    spot.send(|_| async {}).await.expect("room in the queue");
                }
                drop(held);
                spot.request(|_| async {}).await.expect("an open Spot");
            }
            for _ in 0..BURSTS.0 * BURSTS.1 {
                yield_now().await;
            }
        });
    };
    // The executor's own queues have grown before anything is counted.
    burst();
    let after = count(&mut || burst()).kept as f64 / f64::from(BURSTS.0);
    (idle, after)
}

/// Bytes of each idle actor of ractor.
fn idle_ractors(count: Count) -> f64 {
    let tokio = one_thread();
    let mut actors = Vec::with_capacity(WAITING as usize);
    let made = count(&mut || {
        tokio.block_on(async {
            for _ in 0..WAITING {
                let actor = ractor::Actor::spawn(None, Ractor, ()).await;
                actors.push(actor.expect("an actor").0);
            }
        });
    });
    made.kept as f64 / f64::from(WAITING)
}

/// Bytes of each idle actor of kameo.
fn idle_kameos(count: Count) -> f64 {
    let tokio = one_thread();
    let mut actors = Vec::with_capacity(WAITING as usize);
    let made = count(&mut || {
        tokio.block_on(async {
            for _ in 0..WAITING {
                let actor = Kameo::spawn(Kameo::default());
                actor.wait_for_startup().await;
                actors.push(actor);
            }
        });
    });
    made.kept as f64 / f64::from(WAITING)
}

/// The sum of the threads' own peaks, of 1,000,000 calls in all.
fn peak(count: Count, threads: u8, calls: impl Fn(Texts, u32) + Sync) -> f64 {
    let peaks: u64 = std::thread::scope(|scope| {
        let start = |which| {
            let calls = &calls;
            scope.spawn(move || {
                let n = 1_000_000 / u32::from(threads);
                count(&mut || calls(Texts::new(which), n)).peak
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let peaks = running.into_iter().map(|thread| thread.join());
        peaks.map(|peak| peak.expect("no panic")).sum()
    });
    peaks as f64
}

fn unique_bursar(count: Count, threads: u8) -> f64 {
    let contract = contract(Policy::idempotent().claim("first", 1));
    peak(count, threads, |mut texts, n| {
        one_thread().block_on(unconstrained(async {
            for i in 0..n {
                let mut call = contract.with().key(texts.another());
                let answer = call.run(|_| async { Ok::<_, Never>(i) }).await;
                black_box(answer.is_ok());
            }
        }));
    })
}

fn unique_composed(count: Count, threads: u8) -> f64 {
    let composed = forever(Composed::new(8, 8));
    peak(count, threads, |mut texts, n| {
        one_thread().block_on(unconstrained(async {
            for i in 0..n {
                let handler = || async { Ok::<_, Fault>(i) };
                let answer = composed.keyed(texts.another(), handler).await;
                black_box(answer.is_ok());
            }
        }));
    })
}

/// Bytes on the heap for each future that waits, beside the future.
fn record<F: Future>(count: Count, call: impl Fn() -> F) -> f64 {
    let mut calls: Vec<Pin<Box<F>>> = (0..WAITING).map(|_| Box::pin(call())).collect();
    let counted = count(&mut || {
        let mut cx = Context::from_waker(Waker::noop());
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut cx).is_pending(), "nothing is free");
        }
    });
    counted.kept as f64 / f64::from(WAITING)
}

/// Bytes on the heap for each tokio task that waits in a call.
fn task<F>(count: Count, call: impl Fn() -> F) -> f64
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let tokio = one_thread();
    // The executor's own queue has grown before anything is counted.
    spawn(tokio, || async {});
    let counted = count(&mut || spawn(tokio, &call));
    counted.kept as f64 / f64::from(WAITING)
}

fn spawn<F>(tokio: &Tokio, call: impl Fn() -> F)
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    for _ in 0..WAITING {
        drop(tokio.spawn(call()));
    }
    tokio.block_on(async {
        // Until the executor has polled them all, however few it takes at a time.
        for _ in 0..WAITING {
            yield_now().await;
        }
    });
}
