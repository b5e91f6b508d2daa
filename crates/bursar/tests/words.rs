//! C2: classification is the handler's word. What each word means, what is left unsaid, which word stays when there
//! are several, and what becomes of a nested call's error.

mod common;

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use bursar::{CallError, Carry, Classify, Contract, Failure, Outcome, Policy, Retry};
use common::{Answer, Error, assert_idle, ms, runtime};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

const VERDICTS: [Outcome; 4] = [
    Outcome::Transient,
    Outcome::Permanent,
    Outcome::Throttled,
    Outcome::Uncertain,
];

/// The word for an outcome; none for "unclassified".
fn say<T, R: bursar::Reason>(result: Result<T, R>, word: Option<Outcome>) -> Failure<R::Error> {
    let said = match word {
        Some(Outcome::Transient) => result.transient(),
        Some(Outcome::Permanent) => result.permanent(),
        Some(Outcome::Throttled) => result.throttled(),
        Some(Outcome::Uncertain) => result.uncertain(),
        _ => result.unclassified(),
    };
    said.err().expect("it was a failure")
}

fn words() -> impl Iterator<Item = Option<Outcome>> {
    VERDICTS.into_iter().map(Some).chain([None])
}

#[test]
fn c2_each_word_means_its_outcome() {
    for verdict in VERDICTS {
        let failure = say(Err::<(), _>("no"), Some(verdict));
        assert_eq!(
            (failure.outcome(), failure.is_classified()),
            (verdict, true)
        );
        assert_eq!(failure.error(), Some(&"no"));
        let failure = Err::<(), _>("no").classify(verdict).unwrap_err();
        assert_eq!(
            (failure.outcome(), failure.is_classified()),
            (verdict, true)
        );
    }
    assert_eq!(Ok::<_, Error>(7).uncertain().unwrap(), 7);
    assert_eq!(Ok::<_, Error>(7).classify(None).unwrap(), 7);
}

#[test]
fn c2_classified_as_nothing_or_as_success_is_unclassified() {
    for nothing in [None, Some(Outcome::Success)] {
        let by_method = Err::<(), _>("no").classify(nothing).unwrap_err();
        let by_function = Failure::classified("no", nothing);
        let again = Err::<(), _>(Failure::unclassified("no"))
            .classify(nothing)
            .unwrap_err();
        for failure in [by_method, by_function, again] {
            assert_eq!(failure.outcome(), Outcome::Permanent);
            assert!(!failure.is_classified());
            assert_eq!(failure.into_error(), Some("no"));
        }
    }
}

#[test]
fn c2_the_innermost_verdict_stays() {
    for inner in VERDICTS {
        for outer in words() {
            let failure = say(Err::<(), _>("no"), Some(inner));
            let failure = say(Err::<(), _>(failure), outer);
            assert_eq!(failure.outcome(), inner, "{inner}, then {outer:?}");
            // And a third word, through a change of the error.
            let failure = say(
                Err::<(), _>(failure.map(str::len)),
                Some(Outcome::Throttled),
            );
            assert_eq!((failure.outcome(), failure.error()), (inner, Some(&2)));
            let failure = Err::<(), _>(failure)
                .classify(Outcome::Success)
                .unwrap_err();
            assert_eq!(failure.outcome(), inner);
        }
    }
}

#[test]
fn c2_what_nobody_classified_takes_the_first_word() {
    for outer in VERDICTS {
        let failure = say(Err::<(), _>(Failure::unclassified("no")), Some(outer));
        assert_eq!((failure.outcome(), failure.is_classified()), (outer, true));
    }
}

#[test]
fn c2_a_word_that_depends_on_the_error_obeys_the_same_rules() {
    let by = |outcome: Option<Outcome>| {
        move |error: &&str| error.starts_with("no").then_some(outcome).flatten()
    };
    for verdict in VERDICTS {
        let failure = Err::<(), _>("no")
            .classify_by(by(Some(verdict)))
            .unwrap_err();
        assert_eq!(
            (failure.outcome(), failure.is_classified()),
            (verdict, true)
        );
        let failure = Err::<(), _>("yes")
            .classify_by(by(Some(verdict)))
            .unwrap_err();
        assert_eq!(
            (failure.outcome(), failure.is_classified()),
            (Outcome::Permanent, false)
        );
        // The innermost stays, whatever is computed later.
        let again = Err::<(), _>(Failure::classified("no", verdict));
        let failure = again.classify_by(|_| Outcome::Throttled).unwrap_err();
        assert_eq!(failure.outcome(), verdict);
    }
    for nothing in [None, Some(Outcome::Success)] {
        let failure = Err::<(), _>("no").classify_by(by(nothing)).unwrap_err();
        assert!(!failure.is_classified() && failure.outcome() == Outcome::Permanent);
    }
    for (name, outcome, error) in nested_errors() {
        let failure = Err::<(), _>(error)
            .classify_by(|nested| {
                assert_eq!(nested.outcome(), outcome);
                Outcome::Transient
            })
            .unwrap_err();
        let lowered = failure.outcome() == Outcome::Transient;
        assert_eq!(lowered, outcome != Outcome::Uncertain, "{name}");
    }
}

#[derive(Debug)]
struct Wrapped(std::io::Error);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk said no")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn c2_an_unclassified_error_is_permanent_runs_once_and_keeps_message_and_source() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(5).on_transient().on_uncertain();
    let policy = Policy::pure().claim("a", 1).timeout(ms(10)).retry(retry);
    let contract = runtime.contract("write", policy).unwrap();
    for word in [Some(None), Some(Some(Outcome::Success)), None] {
        let mut runs = 0;
        let mut call = task::spawn(contract.run(|| {
            runs += 1;
            let error = Wrapped(std::io::Error::other("sector 7"));
            let failed = match word {
                Some(word) => Err::<(), _>(error).classify(word),
                None => Err(error).unclassified(),
            };
            async move { failed }
        }));
        let error = assert_ready_err!(call.poll());
        drop(call);
        assert_eq!((runs, error.attempts()), (1, 1));
        assert_eq!(error.outcome(), Outcome::Permanent);
        assert!(matches!(error, CallError::Failed(_)));
        let source = error.source().expect("the handler's error");
        assert_eq!(source.to_string(), "the disk said no");
        let innermost = source.source().expect("its cause");
        assert_eq!(innermost.to_string(), "sector 7");
        let back = error.into_error().expect("the handler's error, by value");
        assert_eq!(back.0.kind(), std::io::ErrorKind::Other);
    }
    assert_idle(&runtime);
}

/// A nested call's errors, one of each kind, with what became of each call.
fn nested_errors() -> Vec<(&'static str, Outcome, CallError<Error>)> {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(2).on_transient().on_uncertain();
    let policy = Policy::idempotent().claim("a", 1).retry(retry);
    let contract = runtime.contract("inner", policy).unwrap();
    let reject = runtime
        .contract("reject", Policy::pure().claim("a", 1).reject())
        .unwrap();
    let keyed = runtime
        .contract("keyed", Policy::pure().require_key())
        .unwrap();

    let run = |contract: &Contract, answers: Vec<Answer>| {
        let mut answers = answers.into_iter();
        let mut call = task::spawn(contract.run(|| {
            let answer = answers.next().expect("an answer for each attempt");
            async { answer }
        }));
        loop {
            if let Poll::Ready(answer) = call.poll() {
                return answer.unwrap_err();
            }
            assert!(call.is_woken());
        }
    };
    let transient = || Err(Failure::transient("transient"));
    let permanent = || Err(Failure::permanent("permanent"));
    let uncertain = || Err(Failure::uncertain("uncertain"));
    let mut errors = vec![
        (
            "transient",
            Outcome::Transient,
            run(&contract, vec![transient(), transient()]),
        ),
        (
            "permanent",
            Outcome::Permanent,
            run(&contract, vec![permanent()]),
        ),
        (
            "throttled",
            Outcome::Throttled,
            run(&contract, vec![Err(Failure::throttled("no"))]),
        ),
        (
            "unclassified",
            Outcome::Permanent,
            run(&contract, vec![Err(Failure::unclassified("no"))]),
        ),
        (
            "uncertain",
            Outcome::Uncertain,
            run(&contract, vec![transient(), uncertain()]),
        ),
        (
            "uncertain once",
            Outcome::Uncertain,
            run(&contract, vec![uncertain(), transient()]),
        ),
        (
            "uncertain, then permanent",
            Outcome::Uncertain,
            run(&contract, vec![uncertain(), permanent()]),
        ),
        ("key required", Outcome::Permanent, run(&keyed, vec![])),
    ];

    let pending = || async { std::future::pending::<Answer>().await };
    for (name, fires) in [("timed out", false), ("cancelled", true)] {
        let token = common::Gate::new();
        let mut builder = contract.with().within(ms(10)).until(token.wait());
        let mut call = task::spawn(builder.run(|_| pending()));
        assert_pending!(call.poll());
        if fires {
            token.open();
        } else {
            clock.advance(ms(10));
        }
        errors.push((name, Outcome::Uncertain, assert_ready_err!(call.poll())));
    }

    let held = assert_ready_ok!(task::spawn(contract.admit()).poll());
    errors.push(("overloaded", Outcome::Throttled, run(&reject, vec![])));
    let mut builder = contract.with().within(ms(0));
    let call = assert_ready!(task::spawn(builder.run(|_| pending())).poll());
    errors.push(("too late", Outcome::Throttled, call.unwrap_err()));
    let mut builder = contract.with().until(async {});
    let call = assert_ready!(task::spawn(builder.run(|_| pending())).poll());
    errors.push(("withdrawn", Outcome::Throttled, call.unwrap_err()));
    assert_pending!(task::spawn(runtime.shutdown()).poll());
    errors.push(("stopping", Outcome::Throttled, run(&contract, vec![])));
    drop(held);
    assert_idle(&runtime);
    errors
}

#[test]
fn c2_carry_keeps_a_nested_calls_verdict() {
    for (name, outcome, error) in nested_errors() {
        assert_eq!(error.outcome(), outcome, "{name}");
        let kind = std::mem::discriminant(&error);
        let failure = Err::<(), _>(error).carry().unwrap_err();
        assert_eq!(
            (failure.outcome(), failure.is_classified()),
            (outcome, true),
            "{name}"
        );
        // Once carried it is a failure like others: the verdict stays.
        let failure = say(Err::<(), _>(failure), Some(Outcome::Transient));
        assert_eq!(failure.outcome(), outcome, "{name}");
        let back = failure.into_error().expect("the nested error, whole");
        assert!(std::mem::discriminant(&back) == kind, "{name}");
    }
}

#[test]
fn c2_other_words_classify_a_nested_call_afresh_but_never_lower_uncertain() {
    for word in words() {
        for (name, outcome, error) in nested_errors() {
            let failure = say(Err::<(), _>(error), word);
            let right = match outcome {
                Outcome::Uncertain => Outcome::Uncertain,
                _ => word.unwrap_or(Outcome::Permanent),
            };
            assert_eq!(failure.outcome(), right, "{name}, then {word:?}");
        }
    }
    for (name, outcome, error) in nested_errors() {
        let failure = Err::<(), _>(error).classify(Outcome::Success).unwrap_err();
        let lowered = failure.outcome() != Outcome::Uncertain;
        assert_eq!(lowered, outcome != Outcome::Uncertain, "{name}");
    }
}

/// Calls `inner`, whose handler is uncertain, from inside a `NonIdempotent` call that retries what is transient.
fn nest(say: impl Fn(Result<u32, CallError<Error>>) -> Result<u32, Failure<CallError<Error>>>) {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let inner = runtime
        .contract("inner", Policy::non_idempotent().claim("a", 1))
        .unwrap();
    let policy = Policy::non_idempotent()
        .claim("b", 1)
        .retry(Retry::up_to(3).on_transient());
    let outer = runtime.contract("outer", policy).unwrap();
    let mut sent = 0;
    let mut call = task::spawn(outer.run(|| {
        sent += 1;
        let (inner, say) = (&inner, &say);
        async move { say(inner.run(|| async { Err("lost").uncertain() }).await) }
    }));
    let error = assert_ready_err!(call.poll());
    drop(call);
    assert_eq!(
        (error.outcome(), error.attempts(), sent),
        (Outcome::Uncertain, 1, 1)
    );
    let nested = error.into_error().expect("the nested call's error");
    assert_eq!(nested.error(), Some(&"lost"));
    assert_idle(&runtime);
}

#[test]
fn c2_a_nested_uncertain_is_not_repeated_whatever_the_word() {
    nest(Carry::carry);
    nest(Classify::transient);
    nest(Classify::permanent);
    nest(Classify::unclassified);
    nest(|nested| nested.carry().transient());
    nest(|nested| nested.permanent().transient());
}

#[test]
fn c2_verdicts_pass_through_three_calls() {
    let (runtime, _) = runtime(&[("a", 3)]);
    let policy = || {
        let retry = Retry::up_to(2).on_transient();
        Policy::non_idempotent().claim("a", 1).retry(retry)
    };
    let [one, two, three] =
        ["one", "two", "three"].map(|name| runtime.contract(name, policy()).unwrap());
    for (inner, attempts) in [(Outcome::Transient, 8), (Outcome::Uncertain, 1)] {
        let runs = AtomicU32::new(0);
        let mut call = task::spawn(one.run(|| async {
            two.run(|| async {
                three
                    .run(|| async {
                        runs.fetch_add(1, Ordering::Relaxed);
                        Err::<(), _>("innermost").classify(inner)
                    })
                    .await
                    .carry()
            })
            .await
            .carry()
        }));
        let error = loop {
            if let Poll::Ready(answer) = call.poll() {
                break answer.unwrap_err();
            }
            assert!(call.is_woken());
        };
        assert_eq!(error.outcome(), inner);
        assert_eq!(runs.load(Ordering::Relaxed), attempts);
        let innermost = error.error().and_then(CallError::error);
        let innermost = innermost.and_then(CallError::error);
        assert_eq!(innermost, Some(&"innermost"));
    }
    assert_idle(&runtime);
}

#[test]
fn c2_the_source_is_reachable_through_nested_calls() {
    let (runtime, _) = runtime(&[("a", 2)]);
    let policy = || Policy::pure().claim("a", 1);
    let outer = runtime.contract("outer", policy()).unwrap();
    let inner = runtime.contract("inner", policy()).unwrap();
    let mut call = task::spawn(outer.run(|| async {
        let io = || async { Err::<(), _>(std::io::Error::other("sector 7")).unclassified() };
        inner.run(io).await.carry()
    }));
    let error = assert_ready_err!(call.poll());
    let nested = error.source().expect("the nested call's error");
    let nested = nested.downcast_ref::<CallError<std::io::Error>>();
    assert_eq!(nested.expect("by its type").operation(), "inner");
    let innermost = nested.and_then(|nested| nested.source());
    assert_eq!(innermost.expect("its source").to_string(), "sector 7");
    assert_eq!(
        (error.operation(), error.outcome()),
        ("outer", Outcome::Permanent)
    );
}

#[test]
fn c2_carry_keeps_the_pause_that_a_nested_call_was_told() {
    let (runtime, _) = runtime(&[("a", 2)]);
    let policy = || Policy::pure().claim("a", 1);
    let outer = runtime.contract("outer", policy()).unwrap();
    let inner = runtime.contract("inner", policy()).unwrap();
    let busy = || async { Err::<(), _>(Failure::throttled("busy").after(ms(70))) };
    let mut call = task::spawn(outer.run(|| async { inner.run(busy).await.carry() }));
    let error = assert_ready_err!(call.poll());
    let failure = error.failure().expect("it ran");
    assert_eq!(
        (failure.outcome(), failure.pushback()),
        (Outcome::Throttled, Some(ms(70)))
    );
}
