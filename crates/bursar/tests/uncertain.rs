//! C6: a deadline that has passed without a classified answer is uncertain, for every effect.

mod common;

use std::future::pending;

use bursar::{CallError, Clock, Effect, Failure, Outcome, Policy, Retry};
use common::{Answer, Script, assert_idle, counts, ms, runtime};
use tokio_test::{assert_pending, assert_ready_err, task};

const EFFECTS: [Effect; 3] = [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent];

/// Where an unclassified error comes from, after a timeout of 10 ms.
#[derive(Clone, Copy, Debug)]
enum Late {
    /// Said when the handler is told.
    LastPoll,
    /// Said in a poll that took too long.
    SlowPoll,
    /// Said in the first poll, which took too long.
    SlowFirstPoll,
    /// Said in the poll that the passing of the deadline brought about: the handler has a timer of its own, as long as
    /// what it was lent.
    OwnTimer,
    /// Said in the grace.
    Grace,
    /// Never said.
    Silence,
}

const LATE: [Late; 6] = [
    Late::LastPoll,
    Late::SlowPoll,
    Late::SlowFirstPoll,
    Late::OwnTimer,
    Late::Grace,
    Late::Silence,
];

/// One attempt that is late in its way. `by_caller`: the deadline is the caller's, and the attempt has no timeout.
fn late(effect: Effect, late: Late, by_caller: bool) -> CallError<common::Error> {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let mut policy = Policy::dynamic().effect(effect).claim("a", 1);
    if !by_caller {
        policy = policy.timeout(ms(10));
        if matches!(late, Late::Grace) {
            policy = policy.grace(ms(10));
        }
    }
    let contract = runtime.contract("work", policy).unwrap();
    let script = Script::new();
    let mut builder = contract.with();
    if by_caller {
        builder = builder.within(ms(10));
    }
    let mut call = task::spawn(builder.run(|attempt| {
        let (clock, script) = (clock.clone(), script.clone());
        async move {
            match late {
                Late::LastPoll => attempt.cancelled().await,
                Late::SlowPoll => {
                    let _ = script.answer().await;
                    clock.advance(ms(11));
                }
                Late::SlowFirstPoll => clock.advance(ms(11)),
                Late::OwnTimer => {
                    let deadline = attempt.deadline().expect("a deadline was lent");
                    clock.sleep_until(deadline).await;
                }
                Late::Grace => {
                    let _ = script.answer().await;
                }
                Late::Silence => pending().await,
            }
            Answer::Err(Failure::unclassified("timed out, says the client"))
        }
    }));
    if !matches!(late, Late::SlowFirstPoll) {
        assert_pending!(call.poll());
    }
    match late {
        Late::LastPoll | Late::OwnTimer | Late::Silence => clock.advance(ms(10)),
        Late::SlowPoll => script.say(Ok(1)),
        Late::SlowFirstPoll => {}
        Late::Grace => {
            clock.advance(ms(10));
            assert_pending!(call.poll());
            script.say(Ok(1));
        }
    }
    let error = assert_ready_err!(call.poll());
    assert_idle(&runtime);
    error
}

#[test]
fn c6_no_classified_answer_at_the_deadline_is_uncertain_for_every_effect() {
    for effect in EFFECTS {
        for way in LATE {
            let error = late(effect, way, false);
            assert_eq!(error.outcome(), Outcome::Uncertain, "{effect}, {way:?}");
            let said = !matches!(way, Late::Silence);
            assert_eq!(error.error().is_some(), said, "the error is kept: {way:?}");
            let failure = error.failure().expect("a failure");
            assert_eq!(failure.outcome(), Outcome::Uncertain, "{effect}, {way:?}");
        }
    }
}

#[test]
fn c6_an_unclassified_error_past_the_callers_deadline_is_uncertain() {
    for effect in EFFECTS {
        for way in LATE {
            // A grace does not extend the caller's bound.
            if !matches!(way, Late::Grace) {
                let error = late(effect, way, true);
                assert_eq!(error.outcome(), Outcome::Uncertain, "{effect}, {way:?}");
            }
        }
    }
}

#[test]
fn c6_an_unclassified_error_before_the_deadline_is_permanent() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().timeout(ms(10)).grace(ms(10)))
        .unwrap();
    let script = Script::new();
    let mut call = task::spawn(contract.run(|| script.answer()));
    assert_pending!(call.poll());
    clock.advance(ms(9));
    script.say(Err(Failure::unclassified("no")));
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.outcome(), Outcome::Permanent);
}

#[test]
fn c6_a_late_attempt_is_retried_only_where_uncertain_is_safe() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let asks = || Retry::up_to(2).on_transient().on_uncertain();
    let policy = Policy::effect_per_call().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy.retry(asks())).unwrap();
    for (effect, attempts) in [
        (Some(Effect::Pure), 2),
        (Some(Effect::Idempotent), 2),
        (Some(Effect::NonIdempotent), 1),
        (None, 1),
    ] {
        for silent in [true, false] {
            let mut builder = contract.with();
            if let Some(effect) = effect {
                builder = builder.effect(effect);
            }
            let mut call = task::spawn(builder.run(|attempt| async move {
                attempt.cancelled().await;
                if silent {
                    pending::<()>().await;
                }
                Answer::Err(Failure::unclassified("late"))
            }));
            for _ in 1..attempts {
                assert_pending!(call.poll_until_idle());
                clock.advance(ms(10));
            }
            assert_pending!(call.poll_until_idle());
            clock.advance(ms(10));
            let error = assert_ready_err!(call.poll());
            assert_eq!(error.attempts(), attempts, "{effect:?}");
            assert_eq!(error.outcome(), Outcome::Uncertain, "{effect:?}");
        }
    }
    assert_eq!(counts(&runtime, "work").retried, 4);
    assert_idle(&runtime);
}

#[test]
fn c6_late_is_not_retried_where_only_transient_was_asked_for() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(5).on_transient();
    let policy = Policy::pure().timeout(ms(10)).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let mut call = task::spawn(contract.run(pending::<Answer>));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_eq!(assert_ready_err!(call.poll()).attempts(), 1);
}
