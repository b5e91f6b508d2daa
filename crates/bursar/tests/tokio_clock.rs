//! C5, B9, D3 under the default clock: time is tokio's, the paused one included.

mod common;

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bursar::{CallError, Outcome, Policy, Retry, Runtime, ShutdownError};
use common::{Answer, assert_idle, counts, in_use, ms};
use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

fn one_unit() -> Runtime {
    Runtime::builder().resource("a", 1).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn c5_timeouts_follow_tokios_clock() {
    let runtime = one_unit();
    let retry = Retry::up_to(2).on_uncertain();
    let policy = Policy::pure()
        .claim("a", 1)
        .timeout(ms(10))
        .grace(ms(5))
        .retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        assert_eq!(attempt.remaining(), Some(ms(10)));
        pending::<Answer>()
    }));
    for _ in 0..2 {
        assert_pending!(call.poll());
        advance(ms(10)).await;
        assert_pending!(call.poll());
        advance(ms(4)).await;
        assert_eq!(in_use(&runtime, "a"), 1);
        assert!(call.poll().is_pending());
        advance(ms(1)).await;
        if counts(&runtime, "work").retried == 0 {
            assert_pending!(call.poll(), "between the two attempts");
        }
    }
    let error = assert_ready_err!(call.poll());
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 2));
    assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn c5_a_timeout_is_not_cut_short_by_what_bounded_the_wait_before_it() {
    let runtime = one_unit();
    let policy = Policy::pure()
        .claim("a", 1)
        .max_wait(ms(10))
        .timeout(ms(50));
    let contract = runtime.contract("work", policy).unwrap();
    let held = contract.admit().await.unwrap();
    let mut call = task::spawn(contract.run(pending::<Answer>));
    assert_pending!(call.poll());
    advance(ms(1)).await;
    drop(held);
    assert_pending!(call.poll(), "it executes");
    advance(ms(49)).await;
    assert_pending!(call.poll());
    advance(ms(1)).await;
    assert!(matches!(
        assert_ready_err!(call.poll()),
        CallError::TimedOut(_)
    ));
    assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn b9_a_callers_bounds_follow_tokios_clock() {
    let runtime = one_unit();
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let held = contract.admit().await.unwrap();
    let mut within = contract.with().within(ms(10));
    // Nothing else is ready: tokio moves its clock to the next timer by itself.
    let error = within.run(|_| async { Answer::Ok(1) }).await.unwrap_err();
    assert!(matches!(error, CallError::AdmissionTimedOut(_)));
    let deadline = tokio_now() + ms(10);
    let mut by = contract.with().deadline(deadline);
    assert!(matches!(
        by.admit().await,
        Err(CallError::AdmissionTimedOut(_))
    ));
    assert_eq!(tokio_now(), deadline);
    drop(held);
    let mut within = contract.with().within(ms(10));
    let error = within.run(|_| pending::<Answer>()).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut(_)));
    assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn d3_a_bounded_shutdown_follows_tokios_clock() {
    let runtime = one_unit();
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let held = contract.admit().await.unwrap();
    let begin = tokio_now();
    let error = runtime
        .shutdown_within(Duration::from_secs(3))
        .await
        .unwrap_err();
    assert!(matches!(error, ShutdownError::StillRunning(_)));
    assert_eq!(tokio_now() - begin, Duration::from_secs(3));
    drop(held);
    runtime.shutdown_within(ms(0)).await.unwrap();
    assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn c5_a_timeout_longer_than_tokio_can_tell_is_none() {
    let runtime = one_unit();
    let policy = Policy::pure()
        .claim("a", 1)
        .timeout(Duration::MAX)
        .grace(Duration::MAX);
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with().within(Duration::from_secs(1 << 40));
    let mut call = task::spawn(builder.run(|_| pending::<Answer>()));
    assert_pending!(call.poll());
    advance(Duration::from_secs(60 * 365 * 24 * 3_600)).await;
    assert_pending!(call.poll());
    drop(call);
    let held = contract.admit().await.unwrap();
    let mut shutdown = task::spawn(runtime.shutdown_within(Duration::MAX));
    assert_pending!(shutdown.poll());
    drop(held);
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

#[test]
fn c5_no_timer_is_needed_until_the_handler_suspends() {
    // Outside tokio there is a time to read, and no timer to arm.
    let runtime = one_unit();
    let policy = Policy::pure().claim("a", 1).timeout(ms(60_000));
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with().key("k").within(ms(60_000));
    let mut call = task::spawn(builder.run(|attempt| {
        let left = attempt.remaining();
        async move { Ok::<_, bursar::Failure<common::Error>>(left) }
    }));
    assert!(assert_ready_ok!(call.poll()).is_some_and(|left| left <= ms(60_000)));
    drop(call);
    let mut call = task::spawn(builder.run(|_| pending::<Answer>()));
    assert!(
        catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err(),
        "as documented"
    );
    drop(call);
    assert_idle(&runtime);
    let drained = assert_ready!(task::spawn(runtime.shutdown_within(ms(60_000))).poll());
    assert!(drained.is_ok(), "drained at once, it needs none either");
}

#[allow(
    clippy::disallowed_methods,
    reason = "the ambient clock is the subject here"
)]
fn tokio_now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}
