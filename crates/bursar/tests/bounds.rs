//! B9: what counts as a caller's bound, from when it counts, and on which forms of a call it may be put.

mod common;

use std::future::pending;
use std::time::Duration;

use bursar::{CallError, Clock, Failure, Policy, handler_fn};
use common::{Answer, Error, Gate, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

#[test]
fn b9_bounds_count_from_the_first_poll_of_each_run() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let mut builder = contract.with().within(ms(10));
    for _ in 0..3 {
        let mut call = task::spawn(builder.run(|attempt| {
            assert_eq!(attempt.remaining(), Some(ms(10)));
            pending::<Answer>()
        }));
        clock.advance(ms(100));
        assert_pending!(call.poll());
        clock.advance(ms(9));
        assert_pending!(call.poll());
        clock.advance(ms(1));
        assert_ready_err!(call.poll());
    }
    let mut builder = contract.with().deadline(clock.now() + ms(10));
    clock.advance(ms(4));
    let left = assert_ready_ok!(
        task::spawn(builder.run(|attempt| {
            let left = attempt.remaining();
            async move { Ok::<_, Failure<Error>>(left) }
        }))
        .poll()
    );
    assert_eq!(left, Some(ms(6)), "a moment stays where it was");
}

#[test]
fn b9_a_fired_token_stays_fired_and_any_future_may_be_one() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let (alive, gone) = tokio::sync::oneshot::channel::<()>();
    let mut builder = contract.with().until(gone);
    assert_ready_ok!(task::spawn(builder.run(|_| async { Answer::Ok(1) })).poll());
    drop(alive);
    for _ in 0..2 {
        let error = assert_ready_err!(task::spawn(builder.run(|_| async { Answer::Ok(2) })).poll());
        assert!(matches!(error, CallError::Withdrawn(_)));
    }
    assert_idle(&runtime);
}

#[test]
fn b9_a_typed_operations_call_is_bounded_too() {
    async fn sleep(_: &u32) -> Answer {
        pending().await
    }
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1);
    let work = runtime
        .operation("work", policy, handler_fn(sleep))
        .unwrap();
    let token = Gate::new();
    let deadline = clock.now() + ms(20);
    let mut within = task::spawn(work.with().within(ms(10)).call(1));
    assert_pending!(within.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(within.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    let mut by_deadline = task::spawn(work.with().deadline(deadline).call(1));
    assert_pending!(by_deadline.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(by_deadline.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    let mut until = task::spawn(work.with().until(token.wait()).call(1));
    assert_pending!(until.poll());
    token.open();
    let error = assert_ready_err!(until.poll());
    assert!(matches!(error, CallError::Cancelled(_)));
    assert_idle(&runtime);
}

#[test]
fn b9_a_bounded_admit_leaves_the_queue() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let mut builder = contract.with().key("k").within(ms(10));
    let held = assert_ready_ok!(task::spawn(builder.admit()).poll());
    // A permit is not bounded by what bounded its admission.
    clock.advance(ms(100));
    assert_eq!(in_use(&runtime, "a"), 1);
    let mut other = contract.with().within(ms(10));
    let mut admit = task::spawn(other.admit());
    assert_pending!(admit.poll());
    assert_eq!(waiting(&runtime, "a"), 1);
    clock.advance(ms(10));
    let error = assert_ready_err!(admit.poll());
    assert!(matches!(error, CallError::AdmissionTimedOut(_)));
    assert_eq!(waiting(&runtime, "a"), 0);
    drop((admit, held));
    assert_idle(&runtime);
}

#[test]
fn b9_a_permit_that_came_with_a_value_outlives_the_bound() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let token = Gate::new();
    let mut builder = contract.with().within(ms(10)).until(token.wait());
    let mut call = task::spawn(builder.run_held(|_| async { Answer::Ok(7) }));
    let (value, permit) = assert_ready_ok!(call.poll());
    drop(call);
    clock.advance(ms(100));
    token.open();
    assert_eq!((value, in_use(&runtime, "a")), (7, 1));
    assert_eq!(counts(&runtime, "work").finished, 0);
    drop(permit);
    assert_idle(&runtime);
}

#[test]
fn b9_a_bound_that_no_clock_can_tell_is_none() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let held = assert_ready_ok!(task::spawn(contract.admit()).poll());
    let mut builder = contract.with().within(Duration::MAX);
    let mut call = task::spawn(builder.run(|_| async { Answer::Ok(7) }));
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(1 << 30));
    assert_pending!(call.poll());
    drop(held);
    assert_ready_ok!(call.poll());
    assert_idle(&runtime);
}

#[test]
fn b9_no_timer_is_armed_for_a_call_that_does_not_wait() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let mut builder = contract.with().within(ms(10));
    let mut call = task::spawn(builder.run(|_| async {
        assert_eq!(clock.timers(), 0);
        Answer::Ok(7)
    }));
    assert_ready_ok!(call.poll());
    assert_eq!(clock.timers(), 0);
}
