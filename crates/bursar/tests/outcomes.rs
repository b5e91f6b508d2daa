//! C1, C3, C4: what becomes of a call whose attempts ended so or so, and whether another attempt follows.

mod common;

use std::sync::Mutex;

use bursar::{CallError, Contract, Effect, EndedBy, Failure, Outcome, Policy, Retry, Runtime};
use common::{
    Answer, Error, Gate, Script, assert_idle, counts, in_use, lock, ms, runtime, waiting,
};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

fn fails(outcome: Outcome) -> Answer {
    Err(Failure::classified("no", outcome))
}

/// Runs a call whose attempts answer so, one after another, and says how many were made.
fn run(
    contract: &Contract,
    effect: Option<Effect>,
    answers: &[Outcome],
) -> (Result<u32, CallError<Error>>, usize) {
    let mut answers = answers.iter();
    let mut builder = contract.with();
    if let Some(effect) = effect {
        builder = builder.effect(effect);
    }
    let mut made = 0;
    let mut call = task::spawn(builder.run(|attempt| {
        made += 1;
        assert_eq!(attempt.number() as usize, made);
        let answer = match answers.next().expect("an answer for each attempt") {
            Outcome::Success => Ok(7),
            outcome => fails(*outcome),
        };
        async { answer }
    }));
    let answer = assert_ready!(call.poll_until_idle());
    drop(call);
    (answer, made)
}

const EVERYTHING: fn(u32) -> Retry<bursar::Doubtful> =
    |attempts| Retry::up_to(attempts).on_transient().on_uncertain();

use Outcome::{Permanent, Success, Throttled, Transient, Uncertain};

#[test]
fn c1_every_attempt_ends_in_exactly_one_outcome() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    assert_eq!(run(&contract, None, &[Success]).0.unwrap(), 7);
    for outcome in [Transient, Permanent, Throttled, Uncertain] {
        let (answer, made) = run(&contract, None, &[outcome]);
        let error = answer.unwrap_err();
        assert_eq!((error.outcome(), error.attempts(), made), (outcome, 1, 1));
        assert_eq!((error.error(), error.never_ran()), (Some(&"no"), false));
        assert_eq!(error.attempted().unwrap().ended_by(), None);
        assert_eq!(error.operation(), "work");
    }
    assert_idle(&runtime);
}

#[test]
fn c1_a_call_is_uncertain_if_any_of_its_attempts_was() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = Policy::idempotent().claim("a", 1).retry(EVERYTHING(3));
    let contract = runtime.contract("work", policy).unwrap();
    for (answers, last) in [
        (&[Uncertain, Permanent][..], Permanent),
        (&[Uncertain, Throttled], Throttled),
        (&[Uncertain, Transient, Transient], Transient),
        (&[Transient, Uncertain, Permanent], Permanent),
        (&[Transient, Transient, Uncertain], Uncertain),
    ] {
        let (answer, made) = run(&contract, None, answers);
        let error = answer.unwrap_err();
        assert_eq!(error.outcome(), Uncertain, "{answers:?}");
        assert_eq!(error.attempts() as usize, answers.len());
        assert_eq!(made, answers.len());
        assert_eq!(
            error.failure().unwrap().outcome(),
            last,
            "the last failure, as it was"
        );
    }
    let error = run(&contract, None, &[Transient, Transient, Permanent]).0;
    assert_eq!(error.unwrap_err().outcome(), Permanent, "and only then");
    assert_eq!(
        run(&contract, None, &[Uncertain, Uncertain, Success])
            .0
            .unwrap(),
        7
    );
}

#[test]
fn c1_a_timeout_earlier_in_the_call_leaves_it_uncertain() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::idempotent().timeout(ms(10)).retry(EVERYTHING(2));
    let contract = runtime.contract("work", policy).unwrap();
    let script = Script::new();
    let mut call = task::spawn(contract.run(|| script.answer()));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_pending!(call.poll_until_idle());
    assert_eq!(script.begun(), 2);
    script.say(fails(Permanent));
    let error = assert_ready_err!(call.poll());
    assert_eq!((error.outcome(), error.attempts()), (Uncertain, 2));
    assert_eq!(error.failure().unwrap().outcome(), Permanent);
    assert!(matches!(error, CallError::Failed(_)));
}

#[test]
fn c1_errors_that_say_it_never_ran_have_no_attempt() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let wait = runtime
        .contract("wait", Policy::pure().claim("a", 1))
        .unwrap();
    let reject = runtime
        .contract("reject", Policy::pure().claim("a", 1).reject())
        .unwrap();
    let keyed = runtime
        .contract("keyed", Policy::pure().claim("a", 1).require_key())
        .unwrap();
    let held = assert_ready_ok!(task::spawn(wait.admit()).poll());
    let mut ran = false;
    let mut handler = || {
        ran = true;
        async { Answer::Ok(7) }
    };

    let overloaded = assert_ready_err!(task::spawn(reject.run(&mut handler)).poll_until_idle());
    assert!(overloaded.is_overloaded());
    let mut builder = wait.with().within(ms(5));
    let mut call = task::spawn(builder.run(|_| handler()));
    assert_pending!(call.poll());
    clock.advance(ms(5));
    let late = assert_ready_err!(call.poll());
    drop(call);
    assert!(matches!(late, CallError::AdmissionTimedOut(_)));
    let token = Gate::new();
    let mut builder = wait.with().until(token.wait());
    let mut call = task::spawn(builder.run(|_| handler()));
    assert_pending!(call.poll());
    token.open();
    let left = assert_ready_err!(call.poll());
    drop(call);
    assert!(matches!(left, CallError::Withdrawn(_)));
    let keyless = assert_ready_err!(task::spawn(keyed.run(&mut handler)).poll());
    assert!(matches!(keyless, CallError::KeyRequired(_)));
    let mut waiting = task::spawn(wait.run(&mut handler));
    assert_pending!(waiting.poll());
    assert_pending!(task::spawn(runtime.shutdown()).poll());
    let stopped = assert_ready_err!(waiting.poll());
    drop(waiting);
    let refused = assert_ready_err!(task::spawn(wait.run(&mut handler)).poll());
    assert!(stopped.is_stopping() && refused.is_stopping());

    for (error, outcome) in [
        (overloaded, Throttled),
        (late, Throttled),
        (left, Throttled),
        (keyless, Permanent),
        (stopped, Throttled),
        (refused, Throttled),
    ] {
        assert_eq!(
            (error.outcome(), error.attempts()),
            (outcome, 0),
            "{error:?}"
        );
        assert!(error.never_ran() && error.refusal().is_some());
        assert!(error.failure().is_none() && error.attempted().is_none());
    }
    assert!(!ran);
    drop(held);
    assert_idle(&runtime);
}

/// A call one of whose attempts failed, and that is about to try again.
fn between(fire: impl FnOnce(&Gate), late: bool) -> CallError<Error> {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::non_idempotent()
        .claim("a", 1)
        .retry(Retry::up_to(5).on_transient());
    let contract = runtime.contract("work", policy).unwrap();
    let token = Gate::new();
    let mut runs = 0;
    let mut builder = contract.with().within(ms(10)).until(token.wait());
    let mut call = task::spawn(builder.run(|_| {
        runs += 1;
        async { fails(Transient) }
    }));
    assert_pending!(call.poll());
    fire(&token);
    if late {
        clock.advance(ms(10));
    }
    let error = assert_ready_err!(call.poll());
    drop(call);
    assert_eq!((runs, counts(&runtime, "work").retried), (1, 0));
    assert_idle(&runtime);
    error
}

#[test]
fn c1_what_ends_a_call_between_attempts_stands_beside_the_last_failure() {
    let left = between(Gate::open, false);
    let late = between(|_| (), true);
    for (error, by) in [(left, EndedBy::CallerLeft), (late, EndedBy::CallerDeadline)] {
        assert!(matches!(error, CallError::Failed(_)), "{error:?}");
        assert_eq!((error.outcome(), error.attempts()), (Transient, 1));
        assert_eq!((error.error(), error.never_ran()), (Some(&"no"), false));
        assert_eq!(error.attempted().unwrap().ended_by(), Some(by));
    }
}

#[test]
fn c1_a_timed_out_attempt_stays_timed_out_whatever_keeps_the_next_from_starting() {
    for fires in [true, false] {
        let (runtime, clock) = runtime(&[("a", 1)]);
        let policy = Policy::idempotent().claim("a", 1).timeout(ms(10));
        let contract = runtime
            .contract("work", policy.retry(EVERYTHING(5)))
            .unwrap();
        let token = Gate::new();
        let mut builder = contract.with().within(ms(15)).until(token.wait());
        let mut call = task::spawn(builder.run(|_| std::future::pending::<Answer>()));
        assert_pending!(call.poll());
        clock.advance(ms(10));
        assert_pending!(call.poll());
        let by = if fires {
            token.open();
            EndedBy::CallerLeft
        } else {
            clock.advance(ms(5));
            EndedBy::CallerDeadline
        };
        let error = assert_ready_err!(call.poll());
        assert!(matches!(error, CallError::TimedOut(_)), "{error:?}");
        assert_eq!((error.outcome(), error.attempts()), (Uncertain, 1));
        assert_eq!(error.attempted().unwrap().ended_by(), Some(by));
        assert_eq!(counts(&runtime, "work").retried, 0);
        assert_idle(&runtime);
    }
}

#[test]
fn c3_transient_is_trusted_with_every_effect() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = || Retry::up_to(3).on_transient();
    let contracts = [
        runtime.contract("pure", Policy::pure().retry(retry())),
        runtime.contract("idempotent", Policy::idempotent().retry(retry())),
        runtime.contract("non-idempotent", Policy::non_idempotent().retry(retry())),
        runtime.contract("per call", Policy::effect_per_call().retry(retry())),
    ];
    for contract in contracts {
        let contract = contract.unwrap();
        let (answer, made) = run(&contract, None, &[Transient, Transient, Success]);
        assert_eq!((answer.unwrap(), made), (7, 3), "{}", contract.name());
        assert_eq!(counts(&runtime, contract.name()).retried, 2);
    }
}

#[test]
fn c4_a_retry_must_be_asked_for_safe_and_left() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let effects = [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent];
    for (asks_transient, asks_uncertain) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        for effect in effects {
            if asks_uncertain && effect == Effect::NonIdempotent {
                continue;
            }
            let retry = Retry::up_to(3)
                .on(Transient, asks_transient)
                .on(Uncertain, asks_uncertain);
            let policy = Policy::dynamic().effect(effect).claim("a", 1).retry(retry);
            let contract = runtime.contract("work", policy).unwrap();
            for outcome in [Transient, Permanent, Throttled, Uncertain] {
                let again = match outcome {
                    Transient => asks_transient,
                    Uncertain => asks_uncertain,
                    _ => false,
                };
                let (answer, made) = run(&contract, None, &[outcome; 3]);
                let expected = if again { 3 } else { 1 };
                assert_eq!(
                    made, expected,
                    "{effect} {outcome} {asks_transient} {asks_uncertain}"
                );
                assert_eq!(answer.unwrap_err().attempts(), expected as u32);
            }
        }
    }
}

#[test]
fn c4_an_effect_stated_by_the_call_decides_for_that_call() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let per_call = runtime
        .contract("per call", Policy::effect_per_call().retry(EVERYTHING(3)))
        .unwrap();
    let idempotent = runtime
        .contract("idempotent", Policy::idempotent().retry(EVERYTHING(3)))
        .unwrap();
    for (contract, stated, attempts) in [
        (&per_call, Some(Effect::Pure), 3),
        (&per_call, Some(Effect::Idempotent), 3),
        (&per_call, Some(Effect::NonIdempotent), 1),
        // A call that says nothing is NonIdempotent.
        (&per_call, None, 1),
        // A policy's effect may be made stricter by a call, never looser.
        (&idempotent, Some(Effect::NonIdempotent), 1),
        (&idempotent, Some(Effect::Pure), 3),
        (&idempotent, None, 3),
    ] {
        let (_, made) = run(contract, stated, &[Uncertain; 3]);
        assert_eq!(made, attempts, "{} {stated:?}", contract.name());
        let (_, made) = run(contract, stated, &[Transient; 3]);
        assert_eq!(made, 3, "transient is safe with every effect");
    }
}

#[test]
fn a3_a_contract_tells_the_effect_that_its_policy_declares() {
    let (runtime, _) = runtime(&[("a", 1)]);
    for (contract, effect) in [
        (runtime.contract("pure", Policy::pure()), Some(Effect::Pure)),
        (
            runtime.contract("non-idempotent", Policy::non_idempotent()),
            Some(Effect::NonIdempotent),
        ),
        (
            runtime.contract("per call", Policy::effect_per_call()),
            None,
        ),
    ] {
        assert_eq!(contract.unwrap().effect(), effect);
    }
}

#[test]
fn c4_every_form_of_a_call_obeys_its_effect() {
    async fn uncertain(_: &u32) -> Answer {
        fails(Uncertain)
    }
    let pool = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = || Policy::effect_per_call().retry(EVERYTHING(3));
    let contract = runtime.contract("work", policy()).unwrap();
    let handler = bursar::handler_fn(uncertain);
    let typed = runtime.operation("typed", policy(), handler).unwrap();
    for (effect, attempts) in [(Effect::Pure, 3), (Effect::NonIdempotent, 1)] {
        let call = || contract.with().effect(effect);
        let held = pool.block_on(call().run_held(|_| async { fails(Uncertain) }));
        assert_eq!(held.unwrap_err().attempts(), attempts);
        let blocking = pool.block_on(call().run_blocking(|_| fails(Uncertain)));
        assert_eq!(blocking.unwrap_err().attempts(), attempts);
        let answer = pool.block_on(typed.with().effect(effect).call(1));
        assert_eq!(answer.unwrap_err().attempts(), attempts);
        let held = pool.block_on(typed.with().effect(effect).call_held(1));
        assert_eq!(held.unwrap_err().attempts(), attempts);
    }
    assert_eq!(pool.block_on(typed.call(1)).unwrap_err().attempts(), 1);
    assert_eq!(
        pool.block_on(contract.run_blocking(|_| fails(Uncertain)))
            .unwrap_err()
            .attempts(),
        1
    );
    assert_idle(&runtime);
}

#[test]
fn c4_an_uncertain_attempt_ends_a_call_that_must_not_repeat_it() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::effect_per_call().retry(EVERYTHING(9)))
        .unwrap();
    let (answer, made) = run(&contract, None, &[Transient, Transient, Uncertain]);
    let error = answer.unwrap_err();
    assert_eq!((error.outcome(), error.attempts(), made), (Uncertain, 3, 3));
}

#[test]
fn c4_a_calls_own_refusal_is_never_retried() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let holder = runtime
        .contract("holder", Policy::pure().claim("a", 1))
        .unwrap();
    let policy = Policy::pure().claim("a", 1).reject().retry(EVERYTHING(5));
    let contract = runtime.contract("work", policy).unwrap();
    let held = assert_ready_ok!(task::spawn(holder.admit()).poll());
    let mut call = task::spawn(contract.run(|| async { Answer::Ok(7) }));
    assert_pending!(call.poll());
    // Even if there is room by the time it is answered.
    drop(held);
    let error = assert_ready_err!(call.poll());
    assert!(error.is_overloaded());
    let of = counts(&runtime, "work");
    assert_eq!((of.rejected, of.started, of.retried), (1, 0, 0));
}

/// A runtime in which `work` retries, and `other` needs the same budget.
fn retrying(attempts: u32) -> (Runtime, Contract, Contract) {
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).retry(EVERYTHING(attempts));
    let contract = runtime.contract("work", policy).unwrap();
    let other = runtime
        .contract("other", Policy::pure().claim("a", 1))
        .unwrap();
    (runtime, contract, other)
}

#[test]
fn c4_attempts_follow_each_other_under_the_same_key_and_units_with_one_yield_between() {
    let (runtime, contract, other) = retrying(3);
    let seen = Mutex::new(Vec::new());
    let mut builder = contract.with().key("k");
    let mut call = task::spawn(builder.run(|attempt| {
        lock(&seen).push((
            attempt.number(),
            in_use(&runtime, "a"),
            runtime.stats().keys,
        ));
        async { fails(Transient) }
    }));
    assert_pending!(call.poll());
    assert_eq!(lock(&seen).len(), 1, "it yields once");
    let mut waits = task::spawn(other.run(|| async { Answer::Ok(1) }));
    let mut same_key = other.with().key("k");
    let mut queued = task::spawn(same_key.run(|_| async { Answer::Ok(2) }));
    assert_pending!(waits.poll());
    assert_pending!(queued.poll());
    for made in 2..=3 {
        assert!(call.is_woken(), "and is ready to go on at once");
        assert_eq!((in_use(&runtime, "a"), waiting(&runtime, "a")), (1, 1));
        let polled = call.poll();
        assert_eq!(lock(&seen).len(), made);
        assert_eq!(polled.is_ready(), made == 3);
        assert!(waits.is_woken() == (made == 3) && queued.is_woken() == (made == 3));
    }
    assert_eq!(*lock(&seen), [(1, 1, 1), (2, 1, 1), (3, 1, 1)]);
    assert_ready_ok!(waits.poll());
    assert_ready_ok!(queued.poll());
    assert_eq!(counts(&runtime, "work").retried, 2);
    assert_idle(&runtime);
}

#[test]
fn c4_a_loop_of_retries_that_never_suspends_can_be_left() {
    let (runtime, contract, _) = retrying(u32::MAX);
    let token = Gate::new();
    let mut builder = contract.with().until(token.wait());
    let mut call = task::spawn(builder.run(|_| async { fails(Transient) }));
    for _ in 0..100 {
        assert_pending!(call.poll());
    }
    token.open();
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.attempts(), 100);
    let mut call = task::spawn(contract.run(|| async { fails(Transient) }));
    assert_pending!(call.poll());
    drop(call);
    assert_eq!(counts(&runtime, "work").retried, 99);
    assert_idle(&runtime);
}
