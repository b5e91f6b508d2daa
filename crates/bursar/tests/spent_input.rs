//! C4: an attempt whose input is spent forbids another. C1: an error changed by its caller says what it said.

mod common;

use bursar::{Attempt, CallError, Failure, Handler, Outcome, Policy, Retry};
use common::{Answer, Error, assert_idle, counts, ms, runtime};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

fn again() -> Answer {
    Err(Failure::transient("again"))
}

/// Forbids another attempt in the second.
struct Spends;

impl Handler<u32> for Spends {
    type Output = u32;
    type Error = Error;

    async fn handle(&self, attempt: &Attempt, _: &u32) -> Answer {
        if attempt.number() == 2 {
            attempt.forbid_retry();
        }
        again()
    }
}

#[test]
fn c4_an_attempt_whose_input_is_spent_forbids_another() {
    let pool = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = || {
        Policy::pure()
            .claim("a", 1)
            .retry(Retry::up_to(5).on_transient())
    };
    let contract = runtime.contract("work", policy()).unwrap();
    let typed = runtime.operation("typed", policy(), Spends).unwrap();
    let spends = |attempt: &Attempt| {
        if attempt.number() == 2 {
            attempt.forbid_retry();
        }
        again()
    };
    let answers = [
        pool.block_on(contract.with().run(|attempt| async { spends(attempt) })),
        pool.block_on(contract.with().run_blocking(spends)),
        pool.block_on(typed.call(1)),
    ];
    for error in answers.map(Result::unwrap_err) {
        assert_eq!((error.attempts(), error.outcome()), (2, Outcome::Transient));
        let ended_by = error.attempted().unwrap().ended_by();
        assert_eq!(ended_by, None, "the failure alone ended it");
    }
    assert_eq!(counts(&runtime, "work").retried, 2);
    assert_idle(&runtime);
}

#[test]
fn c4_an_attempt_that_is_cut_off_after_its_input_was_spent_is_the_last() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let policy = Policy::pure().claim("a", 1).timeout(ms(10)).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        attempt.forbid_retry();
        std::future::pending::<Answer>()
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(call.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    assert_eq!(error.attempts(), 1);
    drop(call);
    // What one run forbade binds no other run of the same builder.
    let mut call = task::spawn(builder.run(|_| async { again() }));
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    assert_eq!(assert_ready_err!(call.poll()).attempts(), 3);
    drop(call);
    assert_idle(&runtime);
}

#[test]
fn c1_an_error_that_is_changed_keeps_what_is_known_of_its_call() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let claims = || Policy::pure().claim("a", 1);
    let waits = runtime.contract("waits", claims()).unwrap();
    let refuses = runtime.contract("refuses", claims().reject()).unwrap();
    let keyed = runtime.contract("keyed", claims().require_key()).unwrap();
    let timed = runtime.contract("timed", claims().timeout(ms(1))).unwrap();

    let mut errors: Vec<CallError<Error>> = Vec::new();
    let mut permit = Some(assert_ready_ok!(task::spawn(waits.admit()).poll()));
    let mut builder = refuses.with();
    let mut call = task::spawn(builder.run(|_| async { again() }));
    assert_pending!(call.poll());
    errors.push(assert_ready_err!(call.poll()));
    drop(call);
    let mut call = waits.with().within(ms(0));
    errors.push(assert_ready_err!(
        task::spawn(call.run(|_| async { again() })).poll()
    ));
    let mut call = waits.with().until(std::future::ready(()));
    errors.push(assert_ready_err!(
        task::spawn(call.run(|_| async { again() })).poll()
    ));
    permit.take();
    errors.push(assert_ready_err!(
        task::spawn(keyed.run(|| async { again() })).poll()
    ));
    let pushed_back = || async { Err::<u32, _>(Failure::throttled("later").after(ms(5))) };
    errors.push(assert_ready_err!(
        task::spawn(waits.run(pushed_back)).poll()
    ));
    let mut call = task::spawn(timed.run(std::future::pending::<Answer>));
    assert_pending!(call.poll());
    clock.advance(ms(1));
    errors.push(assert_ready_err!(call.poll()));
    drop(call);
    let mut polls = 0;
    let mut builder = waits.with().until(std::future::poll_fn(move |_| {
        polls += 1;
        if polls > 1 {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    }));
    let mut call = task::spawn(builder.run(|_| std::future::pending::<Answer>()));
    assert_pending!(call.poll());
    errors.push(assert_ready_err!(call.poll()));
    drop(call);
    let _drained = assert_ready!(task::spawn(runtime.shutdown()).poll());
    errors.push(assert_ready_err!(
        task::spawn(waits.run(|| async { again() })).poll()
    ));

    let mut kinds = Vec::new();
    for error in errors {
        let said = format!("{error:?}");
        kinds.push(said.split('(').next().unwrap().to_owned());
        let (outcome, attempts) = (error.outcome(), error.attempts());
        let pushback = error.failure().and_then(Failure::pushback);
        let own = error.error().copied();
        // Changed there and back, nothing of it has changed.
        let changed = error.map(str::to_owned);
        assert_eq!((changed.outcome(), changed.attempts()), (outcome, attempts));
        assert_eq!(changed.failure().and_then(Failure::pushback), pushback);
        assert_eq!(changed.error().map(String::as_str), own);
        assert_eq!(format!("{changed:?}"), said);
        let found = changed.try_map(Err::<u32, _>);
        assert_eq!(
            found.is_err(),
            own.is_some(),
            "what there is to find is found"
        );
        if let Ok(kept) = found {
            assert_eq!((kept.outcome(), kept.attempts()), (outcome, attempts));
        }
    }
    assert_eq!(
        kinds,
        [
            "Overloaded",
            "AdmissionTimedOut",
            "Withdrawn",
            "KeyRequired",
            "Failed",
            "TimedOut",
            "Cancelled",
            "Stopping"
        ]
    );
    assert_idle(&runtime);
}

#[test]
fn b9_a_deadline_that_may_be_missing_bounds_nothing_when_it_is() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let permit = assert_ready_ok!(task::spawn(contract.admit()).poll());
    let mut builder = contract.with().deadline(None);
    let mut call = task::spawn(builder.run(|_| async { Answer::Ok(7) }));
    assert_pending!(call.poll());
    clock.advance(ms(1 << 20));
    assert_pending!(call.poll());
    drop(permit);
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    drop(call);
    assert_idle(&runtime);
}
