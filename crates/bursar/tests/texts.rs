//! What people read of errors, outcomes, reports and names: sentences that say what happened, whole.

mod common;

use bursar::seam::{HoldId, Standing};
use bursar::{
    Backoff, Carry, Classify, Effect, Failure, Key, Outcome, Policy, Retry, RetryBudget, Runtime,
    handler_fn,
};
use common::{Answer, Error, Gate, ms, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

async fn one() -> Answer {
    Ok(1)
}

#[test]
fn effects_and_outcomes_are_their_names() {
    for effect in [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent] {
        assert_eq!(effect.to_string(), format!("{effect:?}"));
    }
    for outcome in [
        Outcome::Success,
        Outcome::Transient,
        Outcome::Permanent,
        Outcome::Throttled,
        Outcome::Uncertain,
    ] {
        assert_eq!(outcome.to_string(), format!("{outcome:?}"));
    }
}

#[test]
fn a_failure_says_its_error_and_what_it_means() {
    assert_eq!(Failure::transient("lost").to_string(), "lost (Transient)");
    let unsaid = Failure::unclassified("lost");
    assert_eq!(unsaid.to_string(), "lost (unclassified)");
}

/// The last failure of a call of "load", which is answered by `answer` at each attempt.
fn told(
    retry: Retry<bursar::Certain>,
    answer: fn() -> Answer,
    attempts: u32,
) -> bursar::CallError<Error> {
    let clock = bursar::ManualClock::new();
    let builder = Runtime::builder().clock(clock.clone()).resource("db", 1);
    let runtime = builder.retry_budget(RetryBudget::new(2)).build().unwrap();
    let load = Policy::pure().claim("db", 1).retry(retry).timeout(ms(50));
    let load = runtime.contract("load", load).unwrap();
    let mut call = spawn(load.run(|| async move { answer() }));
    for _ in 1..attempts {
        assert_pending!(call.poll());
    }
    assert_ready_err!(call.poll())
}

#[test]
fn a_call_that_ran_and_failed_says_how_often_it_tried_and_what_ended_it() {
    let lost = || Err(Failure::transient("lost"));
    let error = told(Retry::up_to(1), lost, 1);
    assert_eq!(
        error.to_string(),
        "operation \"load\" failed after 1 attempt (Transient)"
    );
    let bursar::CallError::Failed(ran) = &error else {
        panic!("{error:?}");
    };
    assert_eq!((ran.operation(), error.operation()), ("load", "load"));
    let error = told(Retry::up_to(2).on_transient(), lost, 2);
    assert_eq!(
        error.to_string(),
        "operation \"load\" failed after 2 attempts (Transient)"
    );
    let error = told(Retry::up_to(9).on_transient(), lost, 3);
    assert_eq!(
        error.to_string(),
        "operation \"load\" failed after 3 attempts (Transient), ended by the retry budget, which is spent"
    );
}

#[test]
fn a_contract_that_asks_for_what_cannot_be_says_why() {
    let (runtime, _) = runtime(&[("db", 1)]);
    for (outcome, why) in [
        (Outcome::Success, "which is no failure"),
        (Outcome::Permanent, "which would fail the same way again"),
        (
            Outcome::Throttled,
            "which needs a backoff, and none is declared",
        ),
    ] {
        let retry = Retry::up_to(2).on(outcome, true);
        let policy = Policy::dynamic().effect(Effect::Pure).retry(retry);
        let error = runtime.contract("load", policy).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("operation \"load\" asks for a retry after {outcome}, {why}")
        );
    }
}

#[test]
fn to_ask_for_a_retry_twice_is_to_ask_once() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let retry = Retry::up_to(2).on_transient().on_transient();
    let load = runtime
        .contract("load", Policy::pure().retry(retry))
        .unwrap();
    let mut call = spawn(load.run(|| async { Err::<(), _>(Failure::transient("lost")) }));
    assert_pending!(call.poll());
    assert_eq!(assert_ready_err!(call.poll()).attempts(), 2);
}

#[test]
fn a_drain_that_is_not_over_names_what_still_runs() {
    let (runtime, clock) = runtime(&[("db", 3)]);
    let contract = |name: &str| {
        let policy = Policy::pure().claim("db", 1);
        runtime.contract(name, policy).unwrap()
    };
    let (load, save) = (contract("load"), contract("save"));
    let _idle = contract("idle");
    let mut held = Vec::new();
    for of in [&load, &save, &load] {
        held.push(assert_ready_ok!(spawn(of.admit()).poll()));
    }
    let mut shutdown = spawn(runtime.shutdown_within(ms(10)));
    assert_pending!(shutdown.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(shutdown.poll());
    assert_eq!(
        error.to_string(),
        "the drain did not end in time; still running: \"load\" (2), \"save\" (1)"
    );
    let bursar::ShutdownError::StillRunning(report) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(report.running(), 3);
    drop(held);
    let report = assert_ready_ok!(spawn(runtime.shutdown()).poll());
    assert_eq!(report.running(), 0);
}

#[test]
fn a_refusal_names_its_chain_from_the_inside_out() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let contract = |name: &str, budget: &str| {
        let policy = Policy::pure().claim(budget, 1);
        runtime.contract(name, policy).unwrap()
    };
    let (outer, middle, inner) = (
        contract("outer", "a"),
        contract("middle", "b"),
        contract("inner", "a"),
    );
    let mut call = spawn(outer.run(|| async {
        let nested = middle
            .with()
            .key("k")
            .run(|_| async { inner.run(one).await.carry() })
            .await;
        nested.carry()
    }));
    let error = assert_ready_err!(call.poll());
    let nested = error
        .error()
        .and_then(|middle| middle.error())
        .expect("nested calls");
    assert_eq!(
        nested.to_string(),
        "operation \"inner\" did not start, it would wait for what its own caller holds: it needs 1 of budget \"a\": \
         1 of 1 in use, 0 waiting; called from inside \"middle\" (holding 1 of \"b\", its key), inside \"outer\" (holding 1 of \"a\")"
    );
}

/// A wait from inside of a turn, and from inside of another runtime's call.
#[test]
fn a_refusal_names_turns_and_other_runtimes_as_such() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let (other, _) = common::runtime(&[("x", 1)]);
    let inner = runtime
        .contract("inner", Policy::pure().claim("a", 1))
        .unwrap();
    let outer = other
        .contract("outer", Policy::pure().claim("x", 1))
        .unwrap();
    let _held = assert_ready_ok!(spawn(inner.admit()).poll());

    let mut turn = Standing::new(Some(runtime.id()), 8, Some(HoldId::unique()), None);
    let mut call = spawn(inner.run(one));
    turn.here(|| assert_pending!(call.poll()));
    clock.advance(runtime.nested_wait());
    let error = turn.here(|| assert_ready_err!(call.poll()));
    let chain = error.refusal().expect("it never ran").chain().to_vec();
    assert!(chain.iter().all(bursar::Holder::is_turn), "{chain:?}");
    assert_eq!(chain.len(), 1);
    assert!(
        error.to_string().ends_with("; called from inside a turn"),
        "{error}"
    );

    let mut call = spawn(outer.run(|| async { inner.run(one).await.carry() }));
    assert_pending!(call.poll());
    clock.advance(runtime.nested_wait());
    let error = assert_ready_err!(call.poll());
    let nested = error.error().expect("a nested call");
    let chain = nested.refusal().expect("it never ran").chain();
    assert!(!chain[0].is_turn(), "{chain:?}");
    assert!(
        nested
            .to_string()
            .ends_with("; called from inside a call of another runtime"),
        "{nested}"
    );
}

#[test]
fn an_operation_has_its_contracts_name() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let handler = handler_fn(|_: &u32| async { Ok::<_, Failure<Error>>(()) });
    let save = runtime.operation("save", Policy::pure(), handler).unwrap();
    assert_eq!((save.name(), save.contract().name()), ("save", "save"));
}

#[test]
fn a_key_is_made_of_a_borrowed_string_too() {
    let text = "brand".to_owned();
    assert_eq!(Key::from(&text), Key::from("brand"));
    assert!(!Key::from(&text).is_empty());
}

/// What a handler says of a pause is not lost in the message of its call.
#[test]
fn a_pause_is_ended_by_what_the_message_says() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let retry = Retry::up_to(3)
        .on_transient()
        .backoff(Backoff::exponential(ms(10)));
    let load = Policy::pure().claim("db", 1).retry(retry);
    let load = runtime.contract("load", load).unwrap();
    let gate = Gate::new();
    let mut with = load.with().until({
        let gate = gate.clone();
        async move { gate.wait().await }
    });
    let mut call = spawn(with.run(|_| async { Err::<(), _>("lost").transient() }));
    assert_pending!(call.poll());
    gate.open();
    let error = assert_ready_err!(call.poll());
    assert_eq!(
        error.to_string(),
        "operation \"load\" failed after 1 attempt (Transient), ended by the caller's leaving"
    );
}
