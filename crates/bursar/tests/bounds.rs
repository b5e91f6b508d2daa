//! A caller bounds its whole call (B9): a deadline, a moment, a token; before it runs, and over its runs.

mod common;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use bursar::{
    Attempt, CallError, Clock, Contract, Failure, ManualClock, Outcome, Policy, Retry, Runtime,
    handler_fn,
};
use common::room::Room;
use common::{Answer, Error, Gate, assert_idle, ms, runtime};
use tokio::sync::oneshot;
use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};

fn one() -> (Runtime, ManualClock, Contract) {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let contract = runtime
        .contract("one", Policy::pure().claim("db", 1))
        .unwrap();
    (runtime, clock, contract)
}

async fn never() -> Answer {
    panic!("nothing was to run")
}

/// The error of a call that never ran.
#[track_caller]
fn never_ran<T: std::fmt::Debug, E: std::fmt::Debug>(
    call: impl Future<Output = Result<T, CallError<E>>>,
    fired: bool,
) {
    let error = assert_ready!(spawn(call).poll(), "answered at its first poll").unwrap_err();
    match error {
        CallError::Withdrawn(_) => assert!(fired),
        CallError::AdmissionTimedOut(_) => assert!(!fired),
        _ => panic!("{error}"),
    }
    assert_eq!(error.outcome(), Outcome::Throttled);
    assert!(error.never_ran());
    assert_eq!(error.attempts(), 0);
}

#[test]
fn b9_an_expired_deadline_or_fired_token_runs_nothing_though_capacity_is_free() {
    let (runtime, clock, contract) = one();
    clock.advance(ms(5));
    let handler = handler_fn(|(): &()| never());
    let typed = runtime
        .operation("typed", Policy::pure().claim("db", 1), handler)
        .unwrap();
    let rejects = Policy::pure().claim("db", 1).reject();
    let rejects = runtime.contract("rejects", rejects).unwrap();
    let block = |_: &_| -> Answer { panic!("nothing was to run") };
    let now = clock.now();
    for bound in 0..4 {
        let fired = bound == 3;
        for contract in [&contract, &rejects] {
            for key in ["", "k"] {
                let call = contract.with().key(key);
                let mut call = match bound {
                    0 => call.within(Duration::ZERO),
                    1 => call.deadline(now),
                    2 => call.deadline(now - ms(5)).within(ms(5)),
                    _ => call.until(async { 7 }).within(ms(5)),
                };
                never_ran(call.run(|_| never()), fired);
                never_ran(call.run_held(|_| never()), fired);
                never_ran(call.admit(), fired);
                never_ran(call.run_blocking(block), fired);
            }
        }
        let call = || match bound {
            0 => typed.with().within(Duration::ZERO),
            1 => typed.with().deadline(now),
            2 => typed.with().deadline(now - ms(5)).within(ms(5)),
            _ => typed.with().until(async { 7 }),
        };
        never_ran(call().call(()), fired);
        never_ran(call().call_held(()), fired);
    }
    let of = runtime.stats().total();
    assert_eq!((of.started, of.rejected), (0, 0));
    assert_idle(&runtime);
}

#[test]
fn b9_ended_while_waiting_it_never_ran() {
    let (runtime, clock, contract) = one();
    let moment = clock.now() + ms(20);
    for key in ["", "k"] {
        let held = assert_ready_ok!(spawn(contract.with().key(key).admit()).poll());
        let (fire, token) = oneshot::channel::<()>();
        let mut calls = [
            contract.with().key(key).within(ms(10)),
            contract.with().key(key).deadline(clock.now() + ms(10)),
            contract.with().key(key).until(token),
        ];
        let mut waiters = calls.each_mut().map(|call| spawn(call.run(|_| never())));
        for waiter in &mut waiters {
            assert_pending!(waiter.poll());
        }
        clock.advance(ms(10) - Duration::from_nanos(1));
        assert!(waiters.iter().all(|waiter| !waiter.is_woken()));
        for waiter in &mut waiters {
            assert_pending!(waiter.poll());
        }
        clock.advance(Duration::from_nanos(1));
        fire.send(()).unwrap();
        assert!(waiters.iter().all(Spawn::is_woken));
        for (at, mut waiter) in waiters.into_iter().enumerate() {
            let error = assert_ready_err!(waiter.poll());
            let refusal = error.refusal().unwrap();
            assert_eq!(refusal.operation(), "one");
            assert_eq!(refusal.is_key(), key == "k");
            assert_eq!(refusal.budget(), (key != "k").then_some("db"));
            let usage = refusal.usage().unwrap();
            assert_eq!((usage.in_use, usage.waiting), (1, 3 - at as u32));
            assert_eq!(matches!(error, CallError::Withdrawn(_)), at == 2);
            assert_eq!(matches!(error, CallError::AdmissionTimedOut(_)), at != 2);
            assert!(error.never_ran() && error.outcome() == Outcome::Throttled);
        }
        drop(held);
    }
    assert_eq!(clock.now(), moment);
    assert_eq!(clock.timers(), 0);
    assert_idle(&runtime);
}

#[test]
fn b9_the_earlier_of_within_and_deadline_counts_and_within_from_the_first_poll() {
    let (_runtime, clock, contract) = one();
    let _held = assert_ready_ok!(spawn(contract.admit()).poll());
    let made = clock.now();
    for (within, deadline, ends) in [(30, 70, 60), (70, 60, 60), (50, 60, 60)] {
        let mut call = contract
            .with()
            .within(ms(within))
            .deadline(made + ms(deadline));
        let mut waiter = spawn(call.admit());
        if clock.now() == made {
            clock.advance(ms(30));
        }
        assert_pending!(waiter.poll());
        assert_eq!(clock.timers(), 1);
        let mut before = spawn(clock.sleep_until(made + ms(ends) - Duration::from_nanos(1)));
        assert_pending!(before.poll());
        drop(waiter);
    }
    // Thirty from the first poll at thirty, not from its making.
    let mut call = contract.with().within(ms(30)).deadline(made + ms(70));
    let mut waiter = spawn(call.admit());
    assert_pending!(waiter.poll());
    clock.advance(ms(29));
    assert_pending!(waiter.poll());
    clock.advance(ms(1));
    assert_ready_err!(waiter.poll());
}

#[test]
fn b9_a_token_known_to_have_fired_starts_no_handler() {
    // Ready the second time it is asked, in whichever poll of the call that is.
    for retries in [false, true] {
        let (runtime, _) = common::runtime(&[("db", 1)]);
        let policy = Policy::pure()
            .claim("db", 1)
            .retry(Retry::up_to(9).on_transient());
        let contract = runtime.contract("load", policy).unwrap();
        for fires_at in 1..6 {
            let mut asked = 0;
            let token = poll_fn(|_| {
                asked += 1;
                if asked < fires_at {
                    return Poll::Pending;
                }
                Poll::Ready(())
            });
            let mut call = contract.with().until(token);
            let mut run = spawn(call.run(|attempt| async move {
                assert!(!attempt.is_cancelled(), "told to stop before it began");
                if retries {
                    return Err(Failure::transient("busy"));
                }
                Ok::<_, Failure<Error>>(7)
            }));
            for _ in 0..100 {
                if run.poll().is_ready() {
                    break;
                }
            }
        }
        assert_idle(&runtime);
    }
}

#[test]
fn b9_a_token_may_be_anything_is_asked_no_more_once_fired_and_stays_fired() {
    let (runtime, _, contract) = one();
    let asked = AtomicU32::new(0);
    let token = async {
        asked.fetch_add(1, Ordering::SeqCst);
        "polled after it completed, an async block panics"
    };
    let mut call = contract.with().until(token);
    for _ in 0..3 {
        let error = assert_ready_err!(spawn(call.run(|_| never())).poll());
        assert!(matches!(error, CallError::Withdrawn(_)), "{error}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    // A sender that goes away is a token that fires: what it completes with does not matter.
    let (fire, token) = oneshot::channel::<()>();
    let mut call = contract.with().until(token);
    assert_ready_ok!(spawn(call.run(|_| async { Ok::<_, Failure<Error>>(7) })).poll());
    drop(fire);
    assert_ready_err!(spawn(call.run(|_| never())).poll());
    assert_idle(&runtime);
}

#[test]
fn b9_a_bound_counts_anew_for_each_run_of_a_builder() {
    let (runtime, clock, contract) = one();
    let room = Room::new();
    let mut call = contract.with().within(ms(10));
    for _ in 0..3 {
        let mut run = spawn(call.run(|attempt| {
            assert_eq!(attempt.remaining(), Some(ms(10)));
            room.stay()
        }));
        assert_pending!(run.poll());
        clock.advance(ms(9));
        room.let_out(1);
        assert_ready_ok!(run.poll());
    }
    assert_idle(&runtime);
}

#[test]
fn b9_the_wait_counts_against_the_bound_that_the_handler_is_lent() {
    let (runtime, clock, contract) = one();
    let held = assert_ready_ok!(spawn(contract.admit()).poll());
    let deadline = clock.now() + ms(10);
    let mut call = contract.with().within(ms(10));
    let mut run = spawn(call.run(|attempt| async move {
        assert_eq!(attempt.deadline(), Some(deadline));
        Ok::<_, Failure<Error>>(attempt.remaining())
    }));
    assert_pending!(run.poll());
    clock.advance(ms(4));
    drop(held);
    assert_eq!(assert_ready_ok!(run.poll()), Some(ms(6)));
    assert_idle(&runtime);
}

#[test]
fn b9_a_bound_on_admit_ends_with_admission() {
    let (runtime, clock, contract) = one();
    let (fire, token) = oneshot::channel::<()>();
    let mut call = contract.with().within(ms(10)).until(token);
    let permit = assert_ready_ok!(spawn(call.admit()).poll());
    clock.advance(ms(60));
    fire.send(()).unwrap();
    assert_eq!(common::in_use(&runtime, "db"), 1);
    assert_eq!(clock.timers(), 0);
    drop(permit);
    assert_idle(&runtime);
}

#[test]
fn b9_a_deadline_that_was_taken_back_bounds_no_later_run() {
    let (_runtime, clock, contract) = one();
    let mut builder = contract.with().deadline(clock.now() + ms(10));
    assert_ready_ok!(spawn(builder.run(|_| async { Answer::Ok(1) })).poll());
    let mut builder = builder.deadline(None);
    clock.advance(ms(10));
    let failing = |_: &Attempt| async { Answer::Err(Failure::transient("x")) };
    let error = assert_ready_err!(spawn(builder.run(failing)).poll());
    assert!(matches!(error, CallError::Failed(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::Transient);
    let gate = Gate::new();
    let mut call = spawn(builder.run(|_| async {
        gate.wait().await;
        Answer::Ok(1)
    }));
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    gate.open();
    assert_ready_ok!(call.poll());
}
