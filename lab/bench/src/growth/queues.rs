//! Curves of queues: calls that wait, are granted one after another, or leave.

use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bursar::Policy;
use tokio::sync::{Notify, Semaphore};

use crate::calm::calmly;
use crate::figures::median;
use crate::peers::{Composed, Fault};
use crate::rows::fixtures::{Never, forever, one_thread, runtime};
use crate::rows::{COMPOSED, Leaving, Pace, RUN, full_composed, full_contract, leave};

/// The median of enough repeats, few for many items.
pub(super) fn repeated(items: u32, pace: Pace, mut a_time: impl FnMut() -> f64) -> f64 {
    let (all, least) = match pace {
        Pace::Smoke => (1, 1),
        Pace::Quick => (200_000, 2),
        Pace::Full => (2_000_000, 5),
    };
    let repeats = (all / items).clamp(least, 2_000);
    median((0..repeats).map(|_| calmly(&mut a_time)))
}

/// Nanoseconds since, the two clock reads left out, an item.
pub(super) fn since(began: Instant, items: u32) -> f64 {
    let took = began.elapsed();
    let clock = {
        let began = Instant::now();
        began.elapsed()
    };
    let took = took.saturating_sub(clock).max(Duration::from_nanos(1));
    took.as_nanos() as f64 / f64::from(items)
}

/// Lets all calls queue behind `holder`, gives it back, and lets each run in turn.
fn hand_on<F: Future, H>(items: u32, holder: H, call: impl Fn() -> F) -> f64 {
    let mut cx = Context::from_waker(Waker::noop());
    let mut calls: Vec<Pin<Box<F>>> = (0..items).map(|_| Box::pin(call())).collect();
    let began = Instant::now();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut cx).is_pending(), "nothing is free");
    }
    drop(holder);
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut cx).is_ready(), "its turn has come");
    }
    since(began, items)
}

pub(super) fn handed_on(items: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let tokio = one_thread();
    let contract = runtime(1, 1).contract("operation", Policy::idempotent().claim("first", 1));
    let contract = contract.expect("a policy that its runtime accepts");
    let composed = Composed::new(1, 1);
    let semaphore = Semaphore::new(1);
    let ours = || {
        let permit = tokio.block_on(contract.admit()).expect("a free unit");
        hand_on(items, permit, || contract.run(|| ready(Ok::<_, Never>(()))))
    };
    let theirs = || {
        let permit = composed.first().try_acquire().expect("a free unit");
        hand_on(items, permit, || composed.one(|| ready(Ok::<_, Fault>(()))))
    };
    let bare = || {
        let permit = semaphore.try_acquire().expect("a free unit");
        hand_on(items, permit, || async { drop(semaphore.acquire().await) })
    };
    vec![
        (RUN, repeated(items, pace, ours)),
        (COMPOSED, repeated(items, pace, theirs)),
        ("tokio Semaphore", repeated(items, pace, bare)),
    ]
}

fn leaving(items: u32, pace: Pace, order: Leaving) -> Vec<(&'static str, f64)> {
    let (contract, composed) = (full_contract(), full_composed());
    let ours = || leave(items, order, || contract.run(pending::<Result<(), Never>>));
    let theirs = || leave(items, order, || composed.one(pending::<Result<(), Fault>>));
    vec![
        (RUN, repeated(items, pace, ours)),
        (COMPOSED, repeated(items, pace, theirs)),
    ]
}

pub(super) fn leaving_in_order(items: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    leaving(items, pace, Leaving::InOrder)
}

pub(super) fn leaving_scattered(items: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    leaving(items, pace, Leaving::Scattered)
}

/// Spawns tasks that wait in a call, gives `holder` back, and waits for the last of them.
fn park<F, H>(items: u32, holder: H, call: impl Fn() -> F) -> f64
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let tokio = one_thread();
    let waiting = Arc::new(Notify::new());
    tokio.block_on(async {
        let began = Instant::now();
        let last = (0..items).map(|_| tokio.spawn(call())).last();
        // Behind all of them in the executor's queue: all wait when this has run.
        let all_wait = Arc::clone(&waiting);
        tokio.spawn(async move { all_wait.notify_one() });
        waiting.notified().await;
        drop(holder);
        if let Some(last) = last {
            assert!(last.await.is_ok(), "calls do not panic");
        }
        since(began, items)
    })
}

pub(super) fn parked(items: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let contract = runtime(1, 1).contract("operation", Policy::idempotent().claim("first", 1));
    let contract = forever(contract.expect("a policy that its runtime accepts"));
    let composed = forever(Composed::new(1, 1));
    let ours = || {
        let permit = one_thread()
            .block_on(contract.admit())
            .expect("a free unit");
        park(items, permit, || contract.run(|| ready(Ok::<_, Never>(()))))
    };
    let theirs = || {
        let permit = composed.first().try_acquire().expect("a free unit");
        park(items, permit, || composed.one(|| ready(Ok::<_, Fault>(()))))
    };
    vec![
        (RUN, repeated(items, pace, ours)),
        (COMPOSED, repeated(items, pace, theirs)),
    ]
}
