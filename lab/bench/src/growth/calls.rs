//! Curves of one call more, beside many things that are there already.

use std::future::{Future, pending};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bursar::{Policy, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{unconstrained, yield_now};

use super::short;
use crate::measure::{Contender, rotate};
use crate::peers::{Composed, Fault};
use crate::rows::fixtures::{Never, SECONDS, Texts, one_thread, runtime};
use crate::rows::{COMPOSED, KEYED, Pace, RUN};

/// The median of each contender.
pub(super) fn medians(pace: Pace, mut contenders: Vec<Contender<'_>>) -> Vec<(&'static str, f64)> {
    let measured = rotate(short(pace), &mut contenders);
    let names = measured.names().iter();
    names
        .map(|name| (*name, measured.median(name, |batch| batch.mean)))
        .collect()
}

pub(super) fn beside_keys(held: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let tokio = one_thread();
    let runtime = runtime(2_000_000, 1);
    let contract = runtime.contract("operation", Policy::idempotent().claim("first", 1));
    let contract = contract.expect("a policy that its runtime accepts");
    let composed = Composed::new(2_000_000, 1);
    let texts: Vec<String> = {
        let mut texts = Texts::new(1);
        (0..held).map(|_| texts.another().to_owned()).collect()
    };
    let permits: Vec<_> = texts
        .iter()
        .map(|key| tokio.block_on(async { contract.with().key(key).admit().await }))
        .collect();
    assert!(permits.iter().all(Result::is_ok), "every key is free");
    let mut cx = Context::from_waker(Waker::noop());
    // A guard is made by a future that is ready at once.
    let guards: Vec<_> = texts
        .iter()
        .map(|key| std::pin::pin!(composed.hold(key)).poll(&mut cx))
        .collect();
    assert!(guards.iter().all(Poll::is_ready), "every key is free");
    let (mut ours, mut theirs) = (Texts::new(2), Texts::new(2));
    let figures = medians(
        pace,
        vec![
            Contender::new(KEYED, |n| {
                tokio.block_on(unconstrained(async {
                    for i in 0..n {
                        let mut call = contract.with().key(ours.another());
                        let answer = call.run(|_| async { Ok::<_, Never>(black_box(i)) }).await;
                        black_box(answer.is_ok());
                    }
                }));
            }),
            Contender::new(COMPOSED, |n| {
                tokio.block_on(unconstrained(async {
                    for i in 0..n {
                        let handler = || async { Ok::<_, Fault>(black_box(i)) };
                        let answer = composed.keyed(theirs.another(), handler).await;
                        black_box(answer.is_ok());
                    }
                }));
            }),
        ],
    );
    drop(guards);
    figures
}

/// Futures that have been polled once, and wait.
fn waiting<F: Future>(count: u32, call: impl Fn() -> F) -> Vec<Pin<Box<F>>> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut calls: Vec<Pin<Box<F>>> = (0..count).map(|_| Box::pin(call())).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut cx).is_pending(), "it waits");
    }
    calls
}

pub(super) fn beside_timers(armed: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let tokio = one_thread();
    // Timers that do not fire meanwhile: each waits for its handler, which never ends.
    let long = SECONDS * 1000;
    let runtime = runtime(2_000_000, 1);
    let policy = || Policy::idempotent().claim("first", 1);
    let contract = runtime.contract("operation", policy().timeout(SECONDS));
    let contract = contract.expect("a policy that its runtime accepts");
    let parked = runtime.contract("parked", policy().timeout(long));
    let parked = parked.expect("a policy that its runtime accepts");
    let composed = Composed::new(2_000_000, 1);
    let entered = tokio.enter();
    let others = waiting(armed, || parked.run(pending::<Result<(), Never>>));
    drop(entered);
    let figures = medians(
        pace,
        vec![
            Contender::new(RUN, |n| {
                tokio.block_on(unconstrained(async {
                    for i in 0..n {
                        let handler = || async {
                            yield_now().await;
                            Ok::<_, Never>(black_box(i))
                        };
                        black_box(contract.run(handler).await.is_ok());
                    }
                }));
            }),
            Contender::new(COMPOSED, |n| {
                tokio.block_on(unconstrained(async {
                    for i in 0..n {
                        let handler = || async {
                            yield_now().await;
                            Ok::<_, Fault>(black_box(i))
                        };
                        black_box(composed.one_in_time(handler).await.is_ok());
                    }
                }));
            }),
        ],
    );
    let entered = tokio.enter();
    drop(others);
    drop(entered);
    figures
}

pub(super) fn under_budgets(budgets: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let tokio = one_thread();
    let names: Vec<String> = (0..budgets)
        .map(|which| format!("budget-{which:02}"))
        .collect();
    let builder = names.iter().fold(Runtime::builder(), |builder, name| {
        builder.resource(name, 8)
    });
    let runtime = builder.build().expect("budgets with names of their own");
    let policy = names
        .iter()
        .fold(Policy::idempotent(), |policy, name| policy.claim(name, 1));
    let contract = runtime.contract("operation", policy);
    let contract = contract.expect("a policy that its runtime accepts");
    let semaphores: Vec<Semaphore> = names.iter().map(|_| Semaphore::new(8)).collect();
    let a_call = medians(
        pace,
        vec![
            Contender::new(RUN, |n| {
                tokio.block_on(unconstrained(async {
                    for i in 0..n {
                        let handler = || async { Ok::<_, Never>(black_box(i)) };
                        black_box(contract.run(handler).await.is_ok());
                    }
                }));
            }),
            Contender::new("semaphores in a loop", |n| {
                tokio.block_on(unconstrained(async {
                    for i in 0..n {
                        let mut permits = Vec::with_capacity(semaphores.len());
                        for semaphore in &semaphores {
                            permits.push(semaphore.acquire().await);
                        }
                        black_box(i);
                        drop(permits);
                    }
                }));
            }),
        ],
    );
    let of_budget = |(name, figure)| (name, figure / f64::from(budgets));
    a_call.into_iter().map(of_budget).collect()
}
