//! Bounds that a policy sets to waiting, and idempotency keys.

mod common;

use bursar::{
    Attempt, Backoff, CallError, Classify, ContractError, EndedBy, Failure, Outcome, Policy, Retry,
    handler_fn,
};
use common::{Answer, Error, Script, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

#[test]
fn b10_the_longest_wait_is_counted_anew_when_a_call_queues_again_after_a_pause() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let backoff = Backoff::exponential(ms(500)).cap(ms(500));
    let patient = Policy::pure()
        .claim("a", 1)
        .max_wait(ms(100))
        .retry(Retry::up_to(2).on_transient().backoff(backoff));
    let patient = runtime.contract("patient", patient).unwrap();
    let other = runtime.contract("other", Policy::pure().claim("a", 1));
    let other = other.unwrap();

    let held = assert_ready_ok!(spawn(other.admit()).poll());
    let script = Script::new();
    let mut waits = spawn(patient.run(|| script.answer()));
    assert_pending!(waits.poll());
    clock.advance(ms(90));
    assert_pending!(waits.poll());
    drop(held);
    script.say(Err(Failure::transient("again").after(ms(200))));
    assert_pending!(waits.poll(), "it pauses");
    assert_eq!((script.begun(), in_use(&runtime, "a")), (1, 0));

    // Long past the end of the first wait, it waits for as long again.
    let held = assert_ready_ok!(spawn(other.admit()).poll());
    clock.advance(ms(200));
    assert_pending!(waits.poll());
    clock.advance(ms(99));
    assert_pending!(waits.poll(), "for longer than was left of the first wait");
    assert_eq!(waiting(&runtime, "a"), 1);
    drop(held);
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(waits.poll()), 7);

    // And no longer.
    let held = assert_ready_ok!(spawn(other.admit()).poll());
    let mut waits = spawn(patient.run(|| script.answer()));
    assert_pending!(waits.poll());
    drop(held);
    script.say(Err(Failure::transient("again").after(ms(200))));
    assert_pending!(waits.poll(), "it pauses");
    let _held = assert_ready_ok!(spawn(other.admit()).poll());
    clock.advance(ms(200));
    assert_pending!(waits.poll());
    clock.advance(ms(100));
    let error = assert_ready_err!(waits.poll());
    assert_eq!(error.outcome(), Outcome::Transient, "the last attempt's");
    assert_eq!(waiting(&runtime, "a"), 0);
}

#[test]
fn b10_a_policy_bounds_the_longest_wait_over_key_and_budgets() {
    let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
    let policy = Policy::pure().claim("a", 1).claim("b", 1).max_wait(ms(100));
    let patient = runtime.contract("patient", policy).unwrap();
    let a = runtime
        .contract("a alone", Policy::pure().claim("a", 1))
        .unwrap();
    let held = assert_ready_ok!(spawn(a.admit()).poll());
    let mut by_key = a.with().key("k");
    let key_held = spawn(by_key.admit());
    drop(key_held);

    // At a budget.
    let mut waits = spawn(patient.run(|| async { Answer::Ok(1) }));
    assert_pending!(waits.poll());
    clock.advance(ms(99));
    assert_pending!(waits.poll());
    clock.advance(ms(1));
    assert!(waits.is_woken());
    let error = assert_ready_err!(waits.poll());
    assert!(matches!(error, CallError::AdmissionTimedOut(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::Throttled);
    assert_eq!(error.refusal().unwrap().budget(), Some("a"));
    assert_eq!(waiting(&runtime, "a"), 0);

    // At the key first, and what is left of it at the budget.
    let keys = runtime.contract("key alone", Policy::pure()).unwrap();
    let mut key = keys.with().key("k");
    let key = assert_ready_ok!(spawn(key.admit()).poll());
    let mut call = patient.with().key("k");
    let mut waits = spawn(call.run(|_| async { Answer::Ok(1) }));
    assert_pending!(waits.poll());
    clock.advance(ms(60));
    drop(key);
    assert_pending!(waits.poll());
    clock.advance(ms(40));
    assert_ready_err!(waits.poll());
    drop(held);
    assert_eq!(
        assert_ready_ok!(spawn(patient.run(|| async { Answer::Ok(1) })).poll()),
        1
    );
    assert_idle(&runtime);

    let policy = Policy::pure().max_wait(ms(0));
    let error = runtime.contract("hurried", policy).unwrap_err();
    assert!(matches!(error, ContractError::InvalidDuration { .. }));
}

#[test]
fn b10_who_was_granted_in_time_is_not_woken_when_the_longest_wait_ends() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).max_wait(ms(100));
    let patient = runtime.contract("patient", policy).unwrap();
    let held = assert_ready_ok!(spawn(patient.admit()).poll());
    let mut waits = spawn(patient.run(std::future::pending::<Result<u32, Failure<&str>>>));
    assert_pending!(waits.poll());
    assert_eq!(clock.timers(), 1);
    drop(held);
    assert!(waits.is_woken());
    assert_pending!(waits.poll());
    assert_eq!(clock.timers(), 0, "its wait is over");
    clock.advance(ms(100));
    assert!(!waits.is_woken());
    drop(waits);
    assert_idle(&runtime);
}

#[test]
fn b10_the_longest_wait_counts_anew_after_a_pause() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let backoff = bursar::Backoff::exponential(ms(100));
    let policy = Policy::pure()
        .claim("a", 1)
        .max_wait(ms(100))
        .retry(Retry::up_to(3).on_throttled().backoff(backoff));
    let contract = runtime.contract("load", policy).unwrap();
    let other = runtime
        .contract("other", Policy::pure().claim("a", 1))
        .unwrap();
    let busy = || async { Err::<u32, _>(Failure::throttled("busy").after(ms(500))) };
    let mut run = spawn(contract.run(busy));
    assert_pending!(run.poll());
    let held = assert_ready_ok!(spawn(other.admit()).poll());
    clock.advance(ms(500));
    assert_pending!(run.poll());
    clock.advance(ms(99));
    assert_pending!(run.poll());
    clock.advance(ms(1));
    let error = assert_ready_err!(run.poll());
    let ended_by = error.attempted().unwrap().ended_by();
    assert_eq!(ended_by, Some(EndedBy::WaitTooLong));
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b10_a_policy_bounds_how_many_wait() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).max_waiting(2);
    let short = runtime.contract("short", policy).unwrap();
    let other = runtime
        .contract("other", Policy::pure().claim("a", 1))
        .unwrap();
    let held = assert_ready_ok!(spawn(short.admit()).poll());
    let mut first = spawn(short.admit());
    let mut keyed = short.with().key("k");
    let mut second = spawn(keyed.admit());
    let mut foreign = spawn(other.admit());
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(foreign.poll(), "others do not count");

    // Full, at the budget and at the key.
    for key in ["", "k"] {
        let mut call = short.with().key(key);
        let mut third = spawn(call.admit());
        assert_pending!(third.poll(), "one turn of the executor");
        let error = assert_ready_err!(third.poll());
        assert!(error.is_overloaded());
        assert_eq!(error.refusal().unwrap().is_key(), !key.is_empty());
    }
    assert_eq!(counts(&runtime, "short").rejected, 2);

    // A place comes free when a waiter leaves, and when one is granted.
    drop(first);
    let mut third = spawn(short.admit());
    assert_pending!(third.poll());
    drop(held);
    let held = assert_ready_ok!(second.poll());
    let mut fourth = spawn(short.admit());
    assert_pending!(fourth.poll());
    drop(held);
    drop(assert_ready_ok!(foreign.poll()));
    drop(assert_ready_ok!(third.poll()));
    drop(assert_ready_ok!(fourth.poll()));
    assert_idle(&runtime);
    // Nothing is left counted.
    let _held = assert_ready_ok!(spawn(short.admit()).poll());
    let mut waiters = [spawn(short.admit()), spawn(short.admit())];
    for waiter in &mut waiters {
        assert_pending!(waiter.poll());
    }
}

#[test]
fn c12_an_idempotency_key_makes_uncertain_retryable_and_reaches_every_attempt() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(3).on_uncertain_if_idempotency_key();
    let policy = Policy::non_idempotent().claim("a", 1).retry(retry);
    let charge = runtime.contract("charge", policy).unwrap();
    let seen = std::sync::Mutex::new(Vec::new());
    let handler = |attempt: &Attempt| {
        let mut seen = seen.lock().unwrap();
        seen.push(attempt.idempotency_key().map(str::to_owned));
        let last = seen.len() == 3;
        async move {
            if last {
                return Ok(7);
            }
            Err::<u32, Error>("lost").uncertain()
        }
    };
    let mut call = charge.with().idempotency_key("order 7");
    let mut run = spawn(call.run(handler));
    assert_pending!(run.poll());
    assert_pending!(run.poll());
    assert_eq!(assert_ready_ok!(run.poll()), 7);
    drop(run);
    assert_eq!(*seen.lock().unwrap(), vec![Some("order 7".to_owned()); 3]);

    // Without the key it is what it was: not repeated.
    let mut call = charge.with();
    let mut run = spawn(call.run(|attempt| async {
        assert_eq!(attempt.idempotency_key(), None);
        Err::<u32, Error>("lost").uncertain()
    }));
    let error = assert_ready_err!(run.poll());
    assert_eq!((error.attempts(), error.outcome()), (1, Outcome::Uncertain));
    assert_idle(&runtime);
}

#[test]
fn c12_an_empty_idempotency_key_is_none() {
    async fn lost(_: &u32) -> Answer {
        Err(Failure::uncertain("lost"))
    }
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = || Retry::up_to(2).on_uncertain_if_idempotency_key();
    let policy = || Policy::non_idempotent().retry(retry());
    let charge = runtime.contract("charge", policy()).unwrap();
    let mut call = charge.with().idempotency_key("");
    let mut run = spawn(call.run(|attempt| {
        assert_eq!(attempt.idempotency_key(), None);
        lost(&0)
    }));
    assert_eq!(assert_ready_err!(run.poll()).attempts(), 1);
    drop(run);
    // What is stated last counts.
    let mut call = charge.with().idempotency_key("order 7").idempotency_key("");
    let mut run = spawn(call.run(|_| lost(&0)));
    assert_eq!(assert_ready_err!(run.poll()).attempts(), 1);
    let typed = runtime.operation("typed", policy(), bursar::handler_fn(lost));
    let typed = typed.unwrap();
    let mut run = spawn(typed.with().idempotency_key("").call(1));
    assert_eq!(assert_ready_err!(run.poll()).attempts(), 1);
}

#[test]
fn c12_an_effect_left_to_the_call_is_idempotent_with_a_key() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = Policy::effect_per_call()
        .claim("a", 1)
        .retry(Retry::up_to(2).on_uncertain());
    let script = Script::new();
    let http = runtime.contract("http", policy).unwrap();
    for key in [None, Some("order 7")] {
        let mut call = http.with();
        if let Some(key) = key {
            call = call.idempotency_key(key);
        }
        script.say(Err(Failure::uncertain("lost")));
        let mut run = spawn(call.run(|_| script.answer()));
        if key.is_none() {
            assert_eq!(assert_ready_err!(run.poll()).attempts(), 1);
            continue;
        }
        assert_pending!(run.poll());
        script.say(Ok(7));
        assert_eq!(assert_ready_ok!(run.poll()), 7);
    }

    // Through a typed operation and on a thread as well.
    async fn lost(_: &u32) -> Answer {
        Err(Failure::uncertain("lost"))
    }
    let retry = Retry::up_to(2).on_uncertain_if_idempotency_key();
    let policy = Policy::non_idempotent().retry(retry);
    let typed = runtime
        .operation("typed", policy, handler_fn(lost))
        .unwrap();
    let mut run = spawn(typed.with().idempotency_key("order 7").call(1));
    assert_pending!(run.poll());
    assert_eq!(assert_ready_err!(run.poll()).attempts(), 2);
}
