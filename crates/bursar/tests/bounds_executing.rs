//! A caller's bounds while its handler runs and between its attempts (B9).

#![allow(
    clippy::disallowed_methods,
    reason = "one test waits for the executor's blocking thread"
)]

mod common;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar::{
    Call, CallError, Contract, EndedBy, Failure, ManualClock, Outcome, Policy, Retry, Runtime,
};
use common::{Answer, Error, Script, assert_idle, counts, ms, runtime};
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

type Running<'a> = Spawn<Pin<Box<dyn Future<Output = Result<u32, CallError<Error>>> + 'a>>>;

/// A call whose handler has begun and waits for the script.
#[track_caller]
fn running<'a>(call: &'a mut Call<'_>, script: &'a Script) -> Running<'a> {
    let mut run: Running<'a> = spawn(Box::pin(call.run(|_| script.answer())));
    assert_pending!(run.poll());
    assert_eq!(script.begun(), 1);
    run
}

#[test]
fn b9_ended_while_executing_it_is_timed_out_or_cancelled_and_uncertain() {
    // What the handler says in its last poll: nothing, a failure, a success.
    let lasts: [fn() -> Option<Answer>; 5] = [
        || None,
        || Some(Err(Failure::transient("busy"))),
        || Some(Err(Failure::permanent("bad"))),
        || Some(Err(Failure::unclassified("odd"))),
        || Some(Ok(7)),
    ];
    for fired in [false, true] {
        for last in lasts {
            let (runtime, clock, _) = one();
            let policy = Policy::pure()
                .claim("db", 1)
                .retry(Retry::up_to(5).on_transient().on_uncertain());
            let contract = runtime.contract("load", policy).unwrap();
            let begun = AtomicU32::new(0);
            let (fire, token) = oneshot::channel::<()>();
            let mut call = contract.with().within(ms(10)).until(token);
            let mut run = spawn(call.run(|attempt| {
                begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    attempt.cancelled().await;
                    match last() {
                        Some(answer) => answer,
                        None => std::future::pending().await,
                    }
                }
            }));
            assert_pending!(run.poll());
            clock.advance(ms(9));
            assert_pending!(run.poll());
            if fired {
                fire.send(()).unwrap();
            } else {
                clock.advance(ms(1));
            }
            assert!(run.is_woken());
            let end = assert_ready!(run.poll());
            assert_idle(&runtime);
            assert_eq!(begun.load(Ordering::SeqCst), 1, "no further attempt");
            match last() {
                Some(Ok(value)) => {
                    assert_eq!(end.unwrap(), value, "a success in hand stands");
                }
                last => {
                    let error = end.unwrap_err();
                    let right = if fired {
                        matches!(error, CallError::Cancelled(_))
                    } else {
                        matches!(error, CallError::TimedOut(_))
                    };
                    assert!(right, "{error} after {last:?}, fired: {fired}");
                    assert_eq!(error.outcome(), Outcome::Uncertain, "{last:?}");
                    let by = if fired {
                        EndedBy::CallerLeft
                    } else {
                        EndedBy::CallerDeadline
                    };
                    let attempted = error.attempted().unwrap();
                    assert_eq!(attempted.ended_by(), Some(by));
                    assert_eq!((attempted.attempts(), error.never_ran()), (1, false));
                    let said = last.and_then(Result::err).and_then(Failure::into_error);
                    assert_eq!(error.error().copied(), said, "it becomes the source");
                }
            }
        }
    }
}

#[test]
fn b9_the_handler_is_told_and_polled_once_more() {
    for fired in [false, true] {
        let (runtime, clock, contract) = one();
        let polls = Mutex::new(Vec::new());
        let (fire, token) = oneshot::channel::<()>();
        let mut call = contract.with().within(ms(10)).until(token);
        let mut run = spawn(call.run(|attempt| {
            let polls = &polls;
            async move {
                let mut cancelled = pin!(attempt.cancelled());
                poll_fn(|cx| {
                    polls.lock().unwrap().push(attempt.is_cancelled());
                    cancelled.as_mut().poll(cx)
                })
                .await;
                Ok::<_, Failure<Error>>("it was done")
            }
        }));
        assert_pending!(run.poll());
        // The token is asked before the handler; the timer after it, so that a handler that is ready is heard first.
        let right: &[bool] = if fired {
            fire.send(()).unwrap();
            &[false, true]
        } else {
            clock.advance(ms(10));
            &[false, false, true]
        };
        assert_eq!(assert_ready_ok!(run.poll()), "it was done");
        assert_eq!(*polls.lock().unwrap(), right);
        assert_idle(&runtime);
    }
}

#[test]
fn b9_grace_does_not_extend_a_callers_bound() {
    for fired in [false, true] {
        let (runtime, clock) = common::runtime(&[("db", 1)]);
        let policy = Policy::pure().claim("db", 1).timeout(ms(10)).grace(ms(100));
        let contract = runtime.contract("load", policy).unwrap();
        let script = Script::new();
        let (fire, token) = oneshot::channel::<()>();
        let mut call = contract.with().within(ms(30)).until(token);
        let mut run = running(&mut call, &script);
        clock.advance(ms(10));
        assert_pending!(run.poll(), "in its grace");
        clock.advance(ms(19));
        assert_pending!(run.poll(), "in its grace");
        if fired {
            fire.send(()).unwrap();
        } else {
            clock.advance(ms(1));
        }
        assert!(run.is_woken());
        let error = assert_ready_err!(run.poll());
        assert_eq!(matches!(error, CallError::Cancelled(_)), fired, "{error}");
        assert_eq!(matches!(error, CallError::TimedOut(_)), !fired, "{error}");
        assert_eq!(error.outcome(), Outcome::Uncertain);
        assert_idle(&runtime);
    }
    // Nor does a bound that falls before the timeout leave any grace.
    let (runtime, clock) = common::runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1).timeout(ms(50)).grace(ms(100));
    let contract = runtime.contract("load", policy).unwrap();
    let script = Script::new();
    let mut call = contract.with().within(ms(30));
    let mut run = running(&mut call, &script);
    clock.advance(ms(30));
    let error = assert_ready_err!(run.poll());
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(EndedBy::CallerDeadline)
    );
}

#[test]
fn b9_a_next_attempt_that_cannot_start_in_time_is_not_started() {
    for fired in [false, true] {
        let (runtime, clock) = common::runtime(&[("db", 1)]);
        let policy = Policy::pure()
            .claim("db", 1)
            .retry(Retry::up_to(9).on_transient());
        let contract = runtime.contract("load", policy).unwrap();
        let script = Script::new();
        let (fire, token) = oneshot::channel::<()>();
        let mut call = contract.with().within(ms(10)).until(token);
        let mut run = running(&mut call, &script);
        script.say(Err(Failure::transient("busy")));
        assert_pending!(run.poll(), "one yield between attempts");
        if fired {
            fire.send(()).unwrap();
        } else {
            clock.advance(ms(10));
        }
        let error = assert_ready_err!(run.poll());
        assert_eq!(script.begun(), 1);
        // It ran, it failed in its own words, and what kept the next from starting stands beside.
        assert!(matches!(error, CallError::Failed(_)), "{error}");
        assert_eq!(error.outcome(), Outcome::Transient);
        assert_eq!(error.error(), Some(&"busy"));
        let by = if fired {
            EndedBy::CallerLeft
        } else {
            EndedBy::CallerDeadline
        };
        let attempted = error.attempted().unwrap();
        assert_eq!((attempted.attempts(), attempted.ended_by()), (1, Some(by)));
        assert_eq!(counts(&runtime, "load").retried, 0);
        assert_idle(&runtime);
    }
}

#[test]
fn b9_an_error_that_comes_after_the_callers_deadline_is_uncertain() {
    // The deadline passes while nobody polls; the handler's answer is there by the time somebody does.
    let errors: [fn() -> Failure<Error>; 3] = [
        || Failure::unclassified("odd"),
        || Failure::permanent("bad"),
        || Failure::transient("busy"),
    ];
    for error in errors {
        let (runtime, clock, contract) = one();
        let script = Script::new();
        let mut call = contract.with().within(ms(10));
        let mut run = running(&mut call, &script);
        clock.advance(ms(20));
        script.say(Err(error()));
        let end = assert_ready_err!(run.poll());
        assert_eq!(end.outcome(), Outcome::Uncertain, "{end:?}");
        assert!(matches!(end, CallError::TimedOut(_)), "{end:?}");
        assert_eq!(end.error().copied(), error().into_error());
        assert_idle(&runtime);
    }
}

#[test]
fn b9_a_blocking_handlers_error_that_comes_after_the_callers_deadline_is_uncertain() {
    let (runtime, clock, contract) = one();
    let executor = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let _entered = executor.enter();
    let (go, told) = std::sync::mpsc::channel();
    let mut call = contract.with().within(ms(10));
    let mut run = spawn(call.run_blocking(move |_| {
        told.recv().unwrap();
        clock.advance(ms(20));
        Err::<(), _>(Failure::<Error>::unclassified("odd"))
    }));
    assert_pending!(run.poll());
    go.send(()).unwrap();
    // There is one blocking thread: it takes this up when the handler has ended.
    let after = tokio::task::spawn_blocking(|| ());
    executor.block_on(after).unwrap();
    let end = assert_ready_err!(run.poll());
    assert_eq!(end.outcome(), Outcome::Uncertain, "{end:?}");
    assert!(matches!(end, CallError::TimedOut(_)), "{end:?}");
    assert_eq!(end.error(), Some(&"odd"));
    assert_idle(&runtime);
}

#[test]
fn b9_the_token_is_asked_before_the_handler() {
    let (runtime, _, contract) = one();
    let script = Script::new();
    let (fire, token) = oneshot::channel::<()>();
    let mut call = contract.with().until(token);
    let mut run = running(&mut call, &script);
    // Both are ready: it is the token that ends the call.
    script.say(Err(Failure::permanent("bad")));
    fire.send(()).unwrap();
    let error = assert_ready_err!(run.poll());
    assert!(matches!(error, CallError::Cancelled(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::Uncertain);
    assert_eq!(error.error(), Some(&"bad"));
    assert_idle(&runtime);
}
