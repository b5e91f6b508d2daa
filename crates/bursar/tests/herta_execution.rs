//! What HertaSDK's own suite checks of execution, lifecycle and numbers, stepped by hand and by barriers: its checks 13
//! to 18, 20 and 21.

#![allow(
    clippy::disallowed_methods,
    reason = "check 21 is a hammer of tasks on several threads"
)]

mod common;

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bursar::{CallError, Classify, Clock, Failure, Outcome, Policy, Retry, Runtime};
use common::{Answer, Gate, assert_idle, counts, in_use, ms, runtime};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

#[test]
fn herta_13_a_plain_error_passes_unchanged_is_permanent_and_runs_once() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(5).on_transient().on_uncertain();
    let policy = Policy::idempotent().claim("a", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let mut runs = 0;
    let mut call = task::spawn(contract.run(|| {
        runs += 1;
        async { Err::<(), _>(std::io::Error::other("plain")).unclassified() }
    }));
    let error = assert_ready_err!(call.poll());
    drop(call);
    assert_eq!((runs, error.outcome()), (1, Outcome::Permanent));
    let plain = error.into_error().expect("the error itself");
    assert_eq!(
        (plain.kind(), plain.to_string()),
        (std::io::ErrorKind::Other, "plain".into())
    );
}

#[test]
fn herta_14_an_unclassified_deadline_is_uncertain_and_each_attempt_has_its_own() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::idempotent()
        .claim("a", 1)
        .timeout(ms(50))
        .retry(Retry::up_to(2).on_uncertain());
    let contract = runtime.contract("work", policy).unwrap();
    let begin = clock.now();
    let mut begun = Vec::new();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        begun.push((clock.now() - begin, attempt.remaining()));
        pending::<Answer>()
    }));
    assert_pending!(call.poll());
    clock.advance(ms(50));
    assert_pending!(call.poll_until_idle());
    clock.advance(ms(50));
    let error = assert_ready_err!(call.poll_until_idle());
    drop(call);
    assert_eq!(begun, [(ms(0), Some(ms(50))), (ms(50), Some(ms(50)))]);
    assert_eq!((error.attempts(), error.outcome()), (2, Outcome::Uncertain));
    assert_idle(&runtime);
}

#[test]
fn herta_15_a_caller_that_cancels_attempt_1_of_10_gets_no_second() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(10).on_transient().on_uncertain();
    let policy = Policy::idempotent().claim("a", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let token = Gate::new();
    let mut runs = 0;
    let mut builder = contract.with().until(token.wait());
    let mut call = task::spawn(builder.run(|attempt| {
        runs += 1;
        async move {
            attempt.cancelled().await;
            Answer::Err(Failure::transient("try again, please"))
        }
    }));
    assert_pending!(call.poll());
    token.open();
    let error = assert_ready_err!(call.poll_until_idle());
    drop(call);
    assert!(matches!(error, CallError::Cancelled(_)), "{error:?}");
    assert_eq!((runs, error.attempts()), (1, 1));
    assert_idle(&runtime);
}

#[test]
fn herta_16_at_most_0_and_at_most_1_attempts_both_mean_one() {
    let (runtime, _) = runtime(&[("a", 1)]);
    for attempts in [0, 1] {
        let retry = Retry::up_to(attempts).on_transient();
        let policy = Policy::pure().claim("a", 1).retry(retry);
        let contract = runtime.contract("work", policy).unwrap();
        let mut runs = 0;
        let mut call = task::spawn(contract.run(|| {
            runs += 1;
            async { Answer::Err(Failure::transient("again")) }
        }));
        assert_eq!(assert_ready_err!(call.poll()).attempts(), 1);
        drop(call);
        assert_eq!(runs, 1);
    }
}

#[test]
fn herta_17_a_panic_reaches_the_caller_and_both_budgets_and_the_key_are_free_at_once() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let policy = Policy::pure().claim("a", 1).claim("b", 1);
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with().key("k");
    let mut call = task::spawn(builder.run(|attempt| async {
        assert_eq!((in_use(&runtime, "a"), in_use(&runtime, "b")), (1, 1));
        assert!(attempt.number() > 1, "boom");
        Answer::Ok(1)
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err());
    assert_idle(&runtime);
    let mut next = contract.with().key("k");
    assert_ready_ok!(task::spawn(next.run(|_| async { Answer::Ok(1) })).poll());
}

#[test]
fn herta_18_classifying_keeps_the_cause_and_the_innermost_verdict() {
    // Nothing is not a failure: there is no way to classify a success.
    assert_eq!(Ok::<_, &str>(7).transient().unwrap(), 7);
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime.contract("work", Policy::pure()).unwrap();
    let run = |answer: Result<(), Failure<std::io::Error>>| {
        let mut answer = Some(answer);
        let mut call = task::spawn(contract.run(|| {
            let answer = answer.take().expect("one attempt");
            async { answer }
        }));
        assert_ready_err!(call.poll())
    };
    let cause = || Err::<(), _>(std::io::Error::other("the cause"));
    let error = run(cause().throttled());
    let source = std::error::Error::source(&error).expect("the cause is reachable");
    assert_eq!(source.to_string(), "the cause");
    let error = run(cause().uncertain().transient().permanent());
    assert_eq!(error.outcome(), Outcome::Uncertain);
    let error = run(cause().classify(Outcome::Success));
    assert_eq!(error.outcome(), Outcome::Permanent);
    assert!(error.error().is_some());
}

#[test]
fn herta_20_shutdown_wakes_a_budget_waiter_and_a_key_waiter_while_the_holder_drains() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let gate = Gate::new();
    let mut builder = contract.with().key("k");
    let mut holder = task::spawn(builder.run(|_| async {
        gate.wait().await;
        Answer::Ok(7)
    }));
    assert_pending!(holder.poll());
    let mut at_budget = task::spawn(contract.run(|| async { Answer::Ok(1) }));
    assert_pending!(at_budget.poll());
    let mut keyed = contract.with().key("k");
    let mut at_key = task::spawn(keyed.run(|_| async { Answer::Ok(2) }));
    assert_pending!(at_key.poll());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert!(at_budget.is_woken() && at_key.is_woken());
    assert!(assert_ready_err!(at_budget.poll()).is_stopping());
    assert!(assert_ready_err!(at_key.poll()).is_stopping());
    assert_pending!(holder.poll());
    assert_pending!(shutdown.poll());
    gate.open();
    assert_eq!(assert_ready_ok!(holder.poll()), 7);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

/// One of check 21's rounds: 16 callers of 50 calls each, some with keys, some rejecting, some retrying, some nested,
/// and a shutdown among them.
async fn round(number: u32) -> Runtime {
    let builder = Runtime::builder().resource("a", 3).resource("b", 4);
    let runtime = builder.build().unwrap();
    let retry = || Retry::up_to(3).on_transient();
    let policy = Policy::pure().claim("a", 1).claim("b", 1).retry(retry());
    let waits = runtime.contract("waits", policy).unwrap();
    let rejects = runtime
        .contract("rejects", Policy::pure().claim("b", 2).reject())
        .unwrap();
    let free = runtime.contract("free", Policy::pure()).unwrap();
    let callers: Vec<_> = (0..16_u32)
        .map(|caller| {
            let (waits, rejects, free) = (waits.clone(), rejects.clone(), free.clone());
            tokio::spawn(async move {
                for call in 0..50_u32 {
                    let mix = caller.wrapping_mul(31) + call;
                    let key = if mix % 3 == 0 { mix % 5 + 1 } else { 0 };
                    let key = (key > 0).then_some(key);
                    let work = |attempt: u32| async move {
                        if mix % 4 == 0 {
                            tokio::task::yield_now().await;
                        }
                        if mix % 7 == 0 && attempt < 3 {
                            return Err(Failure::transient("again"));
                        }
                        Answer::Ok(attempt)
                    };
                    match mix % 3 {
                        0 => drop(
                            waits
                                .with()
                                .key(key)
                                .run(|attempt| work(attempt.number()))
                                .await,
                        ),
                        1 => drop(
                            rejects
                                .with()
                                .key(key)
                                .run(|attempt| work(attempt.number()))
                                .await,
                        ),
                        _ => {
                            // Nested in a call that holds nothing.
                            let outer = free.run(|| async {
                                let inner = waits.run(|| work(3)).await;
                                inner.map_err(|_| Failure::permanent("refused"))
                            });
                            drop(outer.await);
                        }
                    }
                }
            })
        })
        .collect();
    // At another place in each round: 16 x 50 calls are admitted if nothing comes between.
    while runtime.stats().total().admitted < u64::from(number) * 4 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.expect("from outside");
    // Balanced the moment it returns, whoever still calls in vain.
    let stats = runtime.stats();
    for of in &stats.operations {
        assert!(
            of.started <= of.admitted && of.admitted == of.finished,
            "{stats}"
        );
    }
    for caller in callers {
        caller.await.expect("no caller fails");
    }
    runtime
}

#[test]
fn herta_21_under_a_hammer_with_a_racing_shutdown_the_counters_balance() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let mut started = 0;
    for number in 0..200 {
        let runtime = executor.block_on(round(number));
        assert_idle(&runtime);
        started += counts(&runtime, "waits").started;
    }
    assert!(
        started > 200,
        "the shutdown does not always come first: {started}"
    );
}
