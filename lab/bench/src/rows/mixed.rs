//! A service under load: 64 tasks on 2 workers, three operations over two budgets, keyed and not, 1 us of work each.
//!
//! Three shapes. Arriving: a task gives the executor a turn after each call, as one does that fetches its next request.
//! Looping: it does not, so that only tokio's cooperation budget takes it off its worker. Suspending: the handler itself
//! suspends once, with what its call holds, so that budgets run out and calls queue.
//!
//! One more task does nothing but take turns; the longest it stood ready without being polled is what others wait.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bursar::{Contract, Policy};
use tokio::runtime::Runtime as Tokio;
use tokio::task::{coop, unconstrained, yield_now};

use super::fixtures::{Never, forever, runtime, two_workers};
use super::{BURSAR, COMPOSED};
use crate::figures::{quantile, sorted};
use crate::measure::{Batch, Contender, Latency};
use crate::peers::{Composed, Fault};
use crate::work::Work;

const TASKS: u32 = 64;
const FIRST: u32 = 8;
const SECOND: u32 = 4;

/// What surrounds a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Arriving,
    Looping,
    /// Looping, with a word to the cooperation budget before each call.
    Cooperating,
    Suspending,
}

/// One way to make the `k`th call of a task.
trait Load: Copy + Send + Sync + 'static {
    fn call(self, k: u32, handler: Handled) -> impl Future<Output = bool> + Send;
}

/// What each handler does.
#[derive(Clone, Copy)]
struct Handled {
    work: Work,
    suspends: bool,
}

impl Handled {
    async fn run(self) {
        self.work.run();
        if self.suspends {
            yield_now().await;
        }
    }
}

/// Customers: so many that calls of the same one meet now and then.
fn key(k: u32) -> &'static str {
    static KEYS: LazyLock<Vec<String>> = LazyLock::new(|| {
        (0..256)
            .map(|which| format!("customer-{which:03}"))
            .collect()
    });
    &KEYS[(k.wrapping_mul(0x9e37_79b9) >> 24) as usize]
}

#[derive(Clone, Copy)]
struct Bursar {
    render: &'static Contract,
    charge: &'static Contract,
}

impl Load for Bursar {
    async fn call(self, k: u32, handled: Handled) -> bool {
        match k % 3 {
            0 => {
                let handler = || async {
                    handled.run().await;
                    Ok::<_, Never>(())
                };
                self.render.run(handler).await.is_ok()
            }
            which => {
                let of = if which == 1 { self.render } else { self.charge };
                let mut call = of.with().key(key(k));
                let handler = |_: &_| async {
                    handled.run().await;
                    Ok::<_, Never>(())
                };
                call.run(handler).await.is_ok()
            }
        }
    }
}

impl Load for &'static Composed {
    async fn call(self, k: u32, handled: Handled) -> bool {
        let handler = || async {
            handled.run().await;
            Ok::<_, Fault>(())
        };
        match k % 3 {
            0 => self.one(handler).await.is_ok(),
            1 => self.keyed(key(k), handler).await.is_ok(),
            _ => self.keyed_two(key(k), handler).await.is_ok(),
        }
    }
}

/// One task's calls; what each of them took, in nanoseconds.
async fn task<L: Load>(load: L, shape: Shape, work: Work, which: u32, calls: u32) -> Vec<f64> {
    let mut took = Vec::with_capacity(calls as usize);
    let handled = Handled {
        work,
        suspends: shape == Shape::Suspending,
    };
    for k in 0..calls {
        if shape == Shape::Cooperating {
            coop::consume_budget().await;
        }
        let began = Instant::now();
        assert!(
            load.call(which * 7 + k, handled).await,
            "nothing is refused"
        );
        took.push(began.elapsed().as_nanos() as f64);
        if shape == Shape::Arriving {
            yield_now().await;
        }
    }
    took
}

/// Takes turns until all others have ended; the longest time between two.
async fn watch(ended: Arc<AtomicBool>) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    while !ended.load(Ordering::Acquire) {
        yield_now().await;
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

/// How tasks are spawned: as they are, or out of the cooperation budget's reach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spawned {
    Plain,
    Unconstrained,
}

fn load<L: Load>(
    name: &'static str,
    tokio: &'static Tokio,
    load: L,
    shape: Shape,
    spawned: Spawned,
) -> Contender<'static> {
    let work = Work::lasting(Duration::from_micros(1));
    Contender::timed(name, move |calls| {
        let ended = Arc::new(AtomicBool::new(false));
        let watcher = tokio.spawn(watch(Arc::clone(&ended)));
        let began = Instant::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|which| {
                let task = task(load, shape, work, which, calls);
                match spawned {
                    Spawned::Plain => tokio.spawn(task),
                    Spawned::Unconstrained => tokio.spawn(unconstrained(task)),
                }
            })
            .collect();
        let mut all = Vec::with_capacity((TASKS * calls) as usize);
        let unpolled = tokio.block_on(async {
            for task in tasks {
                all.extend(task.await.expect("calls that do not panic"));
            }
            ended.store(true, Ordering::Release);
            watcher.await.expect("a watcher that does not panic")
        });
        let took = began.elapsed();
        let all = sorted(all);
        Batch {
            latency: Some(Latency {
                p50: quantile(&all, 0.5),
                p99: quantile(&all, 0.99),
                unpolled: unpolled.as_nanos() as f64,
            }),
            ..Batch::lasting(took, TASKS * calls)
        }
    })
}

fn bursar() -> Bursar {
    let runtime = runtime(FIRST, SECOND);
    let both = Policy::idempotent().claim("first", 1).claim("second", 1);
    let render = runtime.contract("render", Policy::idempotent().claim("first", 1));
    let charge = runtime.contract("charge", both);
    Bursar {
        render: forever(render.expect("a policy that its runtime accepts")),
        charge: forever(charge.expect("a policy that its runtime accepts")),
    }
}

fn composed() -> &'static Composed {
    forever(Composed::new(FIRST as usize, SECOND as usize))
}

pub(super) fn arriving() -> Vec<Contender<'static>> {
    both(Shape::Arriving)
}

pub(super) fn suspending() -> Vec<Contender<'static>> {
    both(Shape::Suspending)
}

fn both(shape: Shape) -> Vec<Contender<'static>> {
    let tokio = two_workers();
    vec![
        load(BURSAR, tokio, bursar(), shape, Spawned::Plain),
        load(COMPOSED, tokio, composed(), shape, Spawned::Plain),
        load(
            "composed, unconstrained",
            tokio,
            composed(),
            shape,
            Spawned::Unconstrained,
        ),
    ]
}

pub(super) fn looping() -> Vec<Contender<'static>> {
    let tokio = two_workers();
    let mut contenders = both(Shape::Looping);
    contenders.push(load(
        "bursar, consume_budget between calls",
        tokio,
        bursar(),
        Shape::Cooperating,
        Spawned::Plain,
    ));
    contenders
}
