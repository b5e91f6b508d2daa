//! Calls that find everything free, or are refused: what a contract itself costs.
//!
//! Calls run in one task that the executor's cooperation budget does not interrupt, so that the figures are those of
//! calls and not of turns; what the budget does is measured by the mixed load.

use std::hint::black_box;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bursar::{Contract, Failure, Policy, Runtime};
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio::sync::Semaphore;
use tokio::task::unconstrained;

use super::{Pace, Spec};
use crate::measure::{Contender, rotate};
use crate::peers::{Composed, Fault};
use crate::report::Row;

type Never = Failure<std::convert::Infallible>;

const KEY: &str = "customer-000017";
const SECONDS: Duration = Duration::from_secs(2);

pub(super) fn executor() -> Tokio {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a tokio runtime on this thread")
}

fn runtime() -> Runtime {
    Runtime::builder()
        .resource("first", 8)
        .resource("second", 8)
        .build()
        .expect("two budgets")
}

fn contract<E>(policy: Policy<E>) -> Contract {
    runtime()
        .contract("operation", policy)
        .expect("a policy that its runtime accepts")
}

/// A contender whose calls follow each other in one task: `$call` is awaited once for each `$i`.
macro_rules! calls {
    ($tokio:expr, $name:expr, |$i:ident| $call:expr) => {
        Contender::new($name, |n| {
            $tokio.block_on(unconstrained(async {
                for $i in 0..n {
                    let answer = $call.await;
                    let _ = black_box(answer);
                }
            }));
        })
    };
}

pub(super) fn one_budget(spec: &Spec, pace: Pace) -> Row {
    let tokio = executor();
    let semaphore = Arc::new(Semaphore::new(8));
    let composed = Composed::new(8, 8);
    let contract = contract(Policy::idempotent().claim("first", 1));
    let mut contenders = [
        calls!(tokio, "bursar run", |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        Contender::new("tokio Semaphore", |n| {
            tokio.block_on(unconstrained(async {
                for i in 0..n {
                    let permit = semaphore.acquire().await;
                    black_box(i);
                    drop(permit);
                }
            }));
        }),
        calls!(tokio, "composed", |i| composed
            .one(|| async { Ok::<_, Fault>(black_box(i)) })),
        calls!(tokio, "bursar with().run", |i| async {
            contract
                .with()
                .run(|_| async { Ok::<_, Never>(black_box(i)) })
                .await
        }),
    ];
    let measured = rotate(pace.short(), &mut contenders);
    Row::of_times(spec.id, spec.title, &measured).at_most(
        &measured,
        "bursar run",
        "tokio Semaphore",
        0.85,
    )
}

pub(super) fn two_budgets(spec: &Spec, pace: Pace) -> Row {
    let tokio = executor();
    let composed = Composed::new(8, 8);
    let contract = contract(Policy::idempotent().claim("first", 1).claim("second", 1));
    let mut contenders = [
        calls!(tokio, "bursar run", |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(tokio, "composed", |i| composed
            .two(|| async { Ok::<_, Fault>(black_box(i)) })),
    ];
    let measured = rotate(pace.short(), &mut contenders);
    Row::of_times(spec.id, spec.title, &measured).at_most(&measured, "bursar run", "composed", 0.45)
}

pub(super) fn in_time(spec: &Spec, pace: Pace) -> Row {
    let tokio = executor();
    let composed = Composed::new(8, 8);
    let contract = contract(Policy::idempotent().claim("first", 1).timeout(SECONDS));
    let mut contenders = [
        calls!(tokio, "bursar run", |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(tokio, "composed", |i| composed
            .one_in_time(|| async { Ok::<_, Fault>(black_box(i)) })),
        Contender::new("one clock read", |n| {
            for _ in 0..n {
                black_box(std::time::Instant::now());
            }
        }),
    ];
    let measured = rotate(pace.short(), &mut contenders);
    Row::of_times(spec.id, spec.title, &measured).at_most(&measured, "bursar run", "composed", 0.65)
}

pub(super) fn keyed(spec: &Spec, pace: Pace) -> Row {
    let tokio = executor();
    let composed = Composed::new(8, 8);
    let contract = contract(Policy::idempotent().claim("first", 1));
    let mut contenders = [
        calls!(tokio, "bursar key().run", |i| async {
            contract
                .with()
                .key(black_box(KEY))
                .run(|_| async { Ok::<_, Never>(black_box(i)) })
                .await
        }),
        calls!(tokio, "composed", |i| composed
            .keyed(black_box(KEY), || async {
                Ok::<_, Fault>(black_box(i))
            })),
    ];
    let measured = rotate(pace.short(), &mut contenders);
    Row::of_times(spec.id, spec.title, &measured).at_most(
        &measured,
        "bursar key().run",
        "composed",
        0.35,
    )
}

pub(super) fn keyed_in_time(spec: &Spec, pace: Pace) -> Row {
    let tokio = executor();
    let composed = Composed::new(8, 8);
    let contract = contract(Policy::idempotent().claim("first", 1).timeout(SECONDS));
    let mut contenders = [
        calls!(tokio, "bursar key().run", |i| async {
            contract
                .with()
                .key(black_box(KEY))
                .run(|_| async { Ok::<_, Never>(black_box(i)) })
                .await
        }),
        calls!(tokio, "composed", |i| composed
            .keyed_in_time(black_box(KEY), || async {
                Ok::<_, Fault>(black_box(i))
            })),
    ];
    let measured = rotate(pace.short(), &mut contenders);
    Row::of_times(spec.id, spec.title, &measured).at_most(
        &measured,
        "bursar key().run",
        "composed",
        0.42,
    )
}

/// Gives the executor one turn, and no more: what `tokio::task::yield_now` does without its visit to the drivers.
async fn one_turn() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

pub(super) fn reject(spec: &Spec, pace: Pace) -> Row {
    let tokio = executor();
    let composed = Composed::new(1, 1);
    let full = composed.first().try_acquire().expect("the only unit");
    let runtime = Runtime::builder()
        .resource("first", 1)
        .build()
        .expect("one budget");
    let policy = Policy::idempotent().claim("first", 1);
    let contract = runtime
        .contract("operation", policy.reject())
        .expect("a policy that its runtime accepts");
    let held = tokio
        .block_on(contract.admit())
        .expect("the only unit is free");
    let mut contenders = [
        calls!(tokio, "bursar run", |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(tokio, "composed and one turn", |i| async {
            let refused = composed
                .one_or_nothing(|| async { Ok::<_, Fault>(black_box(i)) })
                .await;
            one_turn().await;
            refused
        }),
        calls!(tokio, "composed and yield_now", |i| async {
            let refused = composed
                .one_or_nothing(|| async { Ok::<_, Fault>(black_box(i)) })
                .await;
            tokio::task::yield_now().await;
            refused
        }),
        calls!(tokio, "composed without a turn", |i| composed
            .one_or_nothing(|| async { Ok::<_, Fault>(black_box(i)) })),
    ];
    let measured = rotate(pace.short(), &mut contenders);
    drop((held, full));
    Row::of_times(spec.id, spec.title, &measured).at_most(
        &measured,
        "bursar run",
        "composed and one turn",
        1.1,
    )
}
