//! Construction: what a runtime and an operation are refused for, before anything is served (A1 to A6).

#![allow(
    clippy::disallowed_methods,
    reason = "one test asks tokio's clock for its farthest moment"
)]

mod common;

use std::time::Duration;

use bursar::{
    CallError, ContractError, Effect, Failure, Outcome, Policy, Retry, Runtime, handler_fn,
};
use common::room::Room;
use common::{Error, counts, in_use};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok};

const MOST: u32 = (1 << 31) - 1;

fn runtime(budgets: &[(&str, u32)]) -> Runtime {
    common::runtime(budgets).0
}

fn refused<E>(runtime: &Runtime, operation: &str, policy: Policy<E>) -> ContractError {
    runtime.contract(operation, policy).unwrap_err()
}

/// How often a handler that always fails so is run.
fn attempts<E>(policy: Policy<E>, stated: Option<Effect>, failure: fn() -> Failure<Error>) -> u32 {
    let runtime = runtime(&[("worker", 1)]);
    let contract = runtime.contract("work", policy.claim("worker", 1)).unwrap();
    let mut call = contract.with();
    if let Some(effect) = stated {
        call = call.effect(effect);
    }
    let mut made = 0;
    let mut run = spawn(call.run(|attempt| {
        made += 1;
        assert_eq!(attempt.number(), made);
        async move { Err::<(), _>(failure()) }
    }));
    loop {
        if let std::task::Poll::Ready(end) = run.poll() {
            assert_eq!(end.unwrap_err().attempts(), run_attempts(&runtime));
            break;
        }
        assert!(run.is_woken(), "nothing here waits");
    }
    drop(run);
    made
}

/// The attempts of the one call there was.
fn run_attempts(runtime: &Runtime) -> u32 {
    let of = counts(runtime, "work");
    u32::try_from(of.started + of.retried).unwrap()
}

#[test]
fn a1_a_runtime_needs_a_budget() {
    assert_eq!(
        Runtime::builder().build().unwrap_err(),
        ContractError::NoBudgets
    );
    assert!(Runtime::builder().resource("one", 1).build().is_ok());
}

#[test]
fn a1_names_of_budgets_are_neither_empty_nor_repeated() {
    let empty = Runtime::builder().resource("a", 1).resource("", 1).build();
    assert_eq!(empty.unwrap_err(), ContractError::EmptyBudgetName);
    let twice = Runtime::builder()
        .resource("db", 1)
        .resource("net", 1)
        .resource("db", 2)
        .build()
        .unwrap_err();
    assert_eq!(
        twice,
        ContractError::DuplicateBudget {
            budget: "db".to_owned()
        }
    );
    assert!(twice.to_string().contains("\"db\""), "{twice}");
    // Names are compared byte for byte.
    runtime(&[("db", 1), ("DB", 1), ("db ", 1)]);
}

#[test]
fn a1_a_capacity_lies_between_1_and_2_to_the_31_minus_1() {
    for capacity in [0, MOST + 1, u32::MAX] {
        let error = Runtime::builder()
            .resource("good", 1)
            .resource("bad", capacity)
            .build()
            .unwrap_err();
        assert_eq!(
            error,
            ContractError::InvalidCapacity {
                budget: "bad".to_owned(),
                capacity
            }
        );
        let text = error.to_string();
        assert!(text.contains("\"bad\""), "{text}");
        assert!(text.contains(&capacity.to_string()), "{text}");
        assert!(text.contains(&MOST.to_string()), "{text}");
    }
    for capacity in [1, 2, MOST] {
        let runtime = runtime(&[("whole", capacity)]);
        let whole = runtime
            .contract("whole", Policy::pure().claim("whole", capacity).reject())
            .unwrap();
        let held = assert_ready_ok!(spawn(whole.admit()).poll());
        assert_eq!(in_use(&runtime, "whole"), capacity);
        assert_pending!(spawn(whole.admit()).poll(), "refused after one yield");
        drop(held);
        assert_eq!(in_use(&runtime, "whole"), 0);
    }
}

#[test]
fn a2_a_policy_is_checked_when_its_operation_is_built() {
    let runtime = runtime(&[("db", 4), ("net", 2)]);
    let operation = || "load".to_owned();
    let units = |budget: &str, units, capacity| ContractError::InvalidUnits {
        operation: operation(),
        budget: budget.to_owned(),
        units,
        capacity,
    };
    type Declare = fn() -> Policy<bursar::Pure>;
    let cases: [(&str, Declare, ContractError); 7] = [
        ("", Policy::pure, ContractError::EmptyOperationName),
        (
            "load",
            || Policy::pure().claim("dbs", 1),
            ContractError::UnknownBudget {
                operation: operation(),
                budget: "dbs".to_owned(),
                known: vec!["\"db\"".to_owned(), "\"net\"".to_owned()],
            },
        ),
        (
            "load",
            || Policy::pure().claim("db", 1).claim("net", 1).claim("db", 1),
            ContractError::DuplicateClaim {
                operation: operation(),
                budget: "db".to_owned(),
            },
        ),
        ("load", || Policy::pure().claim("db", 0), units("db", 0, 4)),
        ("load", || Policy::pure().claim("db", 5), units("db", 5, 4)),
        (
            "load",
            || Policy::pure().claim("db", 4).claim("net", u32::MAX),
            units("net", u32::MAX, 2),
        ),
        (
            "load",
            || Policy::pure().key_space(""),
            ContractError::EmptyKeySpace {
                operation: operation(),
            },
        ),
    ];
    for (name, policy, error) in cases {
        assert_eq!(refused(&runtime, name, policy()), error);
        let handler = handler_fn(|(): &()| async { Ok::<_, Failure<Error>>(()) });
        let typed = runtime.operation(name, policy(), handler);
        assert_eq!(typed.unwrap_err(), error);
    }
    // A refused operation leaves no trace.
    assert_eq!(runtime.stats().operations, []);
}

#[test]
fn a2_every_unit_up_to_the_capacity_may_be_claimed() {
    let runtime = runtime(&[("db", 4)]);
    for units in 1..=4 {
        runtime
            .contract("load", Policy::pure().claim("db", units))
            .unwrap();
    }
}

#[test]
fn a2_the_error_names_operation_budget_and_both_numbers() {
    let runtime = runtime(&[("renderer", 8)]);
    let error = refused(&runtime, "render", Policy::pure().claim("renderer", 9));
    assert_eq!(
        error.to_string(),
        "operation \"render\" claims 9 units of budget \"renderer\", whose capacity is 8"
    );
    let error = refused(&runtime, "render", Policy::pure().claim("renderer", 0));
    for part in ["\"render\"", "0 units", "\"renderer\""] {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
    let error = refused(&runtime, "render", Policy::pure().claim("render", 1));
    for part in ["operation \"render\"", "budget \"render\"", "\"renderer\""] {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}

#[test]
fn a2_no_claims_at_all_are_legal() {
    let runtime = runtime(&[("db", 1)]);
    let full = runtime
        .contract("full", Policy::pure().claim("db", 1))
        .unwrap();
    let _full = assert_ready_ok!(spawn(full.admit()).poll());
    let free = runtime.contract("free", Policy::pure()).unwrap();
    let mut run = spawn(free.run(|| async { Ok::<_, Failure<Error>>(7) }));
    assert_eq!(assert_ready_ok!(run.poll()), 7);
}

#[test]
fn a2_admission_is_wait_unless_reject_is_declared() {
    let runtime = runtime(&[("db", 1)]);
    let policy = || Policy::pure().claim("db", 1);
    let waits = runtime.contract("waits", policy()).unwrap();
    let rejects = runtime.contract("rejects", policy().reject()).unwrap();
    let held = assert_ready_ok!(spawn(waits.admit()).poll());
    let mut waiting = spawn(waits.admit());
    assert_pending!(waiting.poll());
    let mut rejected = spawn(rejects.admit());
    assert_pending!(rejected.poll());
    let error = assert_ready!(rejected.poll()).unwrap_err();
    assert!(matches!(error, CallError::Overloaded(_)), "{error}");
    drop(held);
    assert!(waiting.is_woken());
    drop(assert_ready_ok!(waiting.poll()));
}

#[test]
fn a3_a_contract_composed_at_run_time_must_state_its_effect() {
    let runtime = runtime(&[("db", 1)]);
    let missing = ContractError::EffectRequired {
        operation: "load".to_owned(),
    };
    assert_eq!(refused(&runtime, "load", Policy::dynamic()), missing);
    assert_eq!(
        refused(&runtime, "load", Policy::dynamic().effect(None)),
        missing
    );
    let taken_back = Policy::dynamic().effect(Effect::Pure).effect(None);
    assert_eq!(refused(&runtime, "load", taken_back), missing);
    for part in ["\"load\"", "Pure", "Idempotent", "NonIdempotent"] {
        assert!(missing.to_string().contains(part), "{missing} lacks {part}");
    }
    for effect in [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent] {
        let stated = Policy::dynamic().effect(effect);
        assert!(runtime.contract("load", stated).is_ok());
    }
    let per_call = Policy::dynamic().each_call_states_its_effect();
    assert!(runtime.contract("load", per_call).is_ok());
}

#[test]
fn a3_each_call_of_one_operation_may_state_its_own_effect() {
    let policy = || Policy::effect_per_call().retry(Retry::up_to(3).on_uncertain());
    let lost = || Failure::uncertain("lost");
    assert_eq!(attempts(policy(), Some(Effect::Pure), lost), 3);
    assert_eq!(attempts(policy(), Some(Effect::Idempotent), lost), 3);
    assert_eq!(attempts(policy(), Some(Effect::NonIdempotent), lost), 1);
    assert_eq!(
        attempts(policy(), None, lost),
        1,
        "silence is the strictest"
    );
    let composed = Policy::dynamic()
        .each_call_states_its_effect()
        .retry(Retry::up_to(3).on(Outcome::Uncertain, true));
    assert_eq!(attempts(composed, Some(Effect::Pure), lost), 3);
}

#[test]
fn a3_a_call_may_be_stricter_than_its_policy_and_never_laxer() {
    let lost = || Failure::uncertain("lost");
    let policy = || Policy::pure().retry(Retry::up_to(3).on_uncertain());
    assert_eq!(attempts(policy(), Some(Effect::NonIdempotent), lost), 1);
    assert_eq!(attempts(policy(), Some(Effect::Idempotent), lost), 3);
    let fixed = Policy::non_idempotent().retry(Retry::up_to(3).on_transient());
    assert_eq!(attempts(fixed, Some(Effect::Pure), lost), 1);
}

#[test]
fn a4_only_transient_and_uncertain_may_be_retried_without_a_backoff() {
    let runtime = runtime(&[("db", 1)]);
    for effect in [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent] {
        let policy = |outcome| {
            Policy::dynamic()
                .effect(effect)
                .retry(Retry::up_to(2).on(outcome, true))
        };
        for outcome in [Outcome::Success, Outcome::Permanent, Outcome::Throttled] {
            let error = refused(&runtime, "load", policy(outcome));
            assert_eq!(
                error,
                ContractError::InvalidRetry {
                    operation: "load".to_owned(),
                    outcome
                }
            );
            let text = error.to_string();
            assert!(text.contains("\"load\""), "{text}");
            assert!(text.contains(&outcome.to_string()), "{text}");
        }
        assert!(runtime.contract("load", policy(Outcome::Transient)).is_ok());
        let uncertain = runtime.contract("load", policy(Outcome::Uncertain));
        assert_eq!(uncertain.is_ok(), effect != Effect::NonIdempotent);
    }
    // The one attempt that 0 and 1 stand for changes nothing about what may be asked.
    let once = Policy::dynamic()
        .effect(Effect::Pure)
        .retry(Retry::up_to(1).on(Outcome::Success, true));
    assert!(matches!(
        refused(&runtime, "load", once),
        ContractError::InvalidRetry { .. }
    ));
}

#[test]
fn a4_uncertain_on_non_idempotent_is_an_unsafe_retry() {
    let runtime = runtime(&[("db", 1)]);
    let ways = [
        Retry::up_to(2).on(Outcome::Uncertain, true),
        Retry::up_to(2)
            .on(Outcome::Transient, true)
            .on(Outcome::Uncertain, true),
        Retry::up_to(2).on_uncertain().on(Outcome::Transient, false),
    ];
    for retry in ways {
        let policy = Policy::dynamic().effect(Effect::NonIdempotent).retry(retry);
        let error = refused(&runtime, "charge", policy);
        assert_eq!(
            error,
            ContractError::UnsafeRetry {
                operation: "charge".to_owned()
            }
        );
        for part in ["\"charge\"", "NonIdempotent", "Uncertain"] {
            assert!(error.to_string().contains(part), "{error} lacks {part}");
        }
    }
    // Asked for before the effect is stated, it is found all the same.
    let late = Policy::dynamic()
        .retry(Retry::up_to(2).on_uncertain())
        .effect(Effect::NonIdempotent);
    assert!(matches!(
        refused(&runtime, "charge", late),
        ContractError::UnsafeRetry { .. }
    ));
}

#[test]
fn a4_an_entry_set_to_no_is_inert() {
    let runtime = runtime(&[("db", 1)]);
    let retry = [
        Outcome::Success,
        Outcome::Permanent,
        Outcome::Throttled,
        Outcome::Uncertain,
    ]
    .into_iter()
    .fold(
        Retry::up_to(3).on(Outcome::Transient, true),
        |retry, outcome| retry.on(outcome, true).on(outcome, false),
    );
    let policy = Policy::dynamic().effect(Effect::NonIdempotent).retry(retry);
    assert!(runtime.contract("charge", policy).is_ok());
    let inert = || {
        Policy::dynamic()
            .effect(Effect::Pure)
            .retry(Retry::up_to(3).on(Outcome::Transient, false))
    };
    assert_eq!(attempts(inert(), None, || Failure::transient("busy")), 1);
}

#[test]
fn a5_zero_and_one_attempts_both_mean_one() {
    for most in [0, 1] {
        let policy = || Policy::pure().retry(Retry::up_to(most).on_transient().on_uncertain());
        assert_eq!(attempts(policy(), None, || Failure::transient("busy")), 1);
        assert_eq!(attempts(policy(), None, || Failure::uncertain("lost")), 1);
    }
}

#[test]
fn a5_max_attempts_counts_the_first() {
    for most in [2, 3, 10] {
        let policy = || Policy::pure().retry(Retry::up_to(most).on_transient().on_uncertain());
        assert_eq!(
            attempts(policy(), None, || Failure::transient("busy")),
            most
        );
        assert_eq!(
            attempts(policy(), None, || Failure::uncertain("lost")),
            most
        );
    }
}

#[test]
fn a6_a_zero_timeout_is_refused() {
    let runtime = runtime(&[("db", 1)]);
    let error = refused(&runtime, "load", Policy::pure().timeout(Duration::ZERO));
    assert!(
        matches!(
            &error,
            ContractError::InvalidDuration { operation, setting: "timeout", value, .. }
                if operation == "load" && value.is_zero()
        ),
        "{error:?}"
    );
    for part in ["\"load\"", "timeout", "0ns", "longer than zero"] {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
    let shortest = Policy::pure().timeout(Duration::from_nanos(1));
    assert!(runtime.contract("load", shortest).is_ok());
}

#[test]
fn a6_a_grace_needs_a_timeout() {
    let runtime = runtime(&[("db", 1)]);
    let second = Duration::from_secs(1);
    for grace in [Duration::ZERO, second, Duration::MAX] {
        let error = refused(&runtime, "load", Policy::pure().grace(grace));
        assert!(
            matches!(
                error,
                ContractError::InvalidDuration { setting: "grace", value, .. } if value == grace
            ),
            "{error:?}"
        );
        let with = Policy::pure().grace(grace).timeout(second);
        assert!(runtime.contract("load", with).is_ok());
    }
}

#[test]
fn a6_huge_durations_clamp() {
    let (runtime, clock) = common::runtime(&[("db", 1)]);
    let century = Duration::from_secs(100 * 365 * 86_400);
    for huge in [
        century,
        Duration::from_secs(u64::from(u32::MAX) * 300),
        Duration::MAX,
    ] {
        let policy = Policy::pure().claim("db", 1).timeout(huge).grace(huge);
        let contract = runtime.contract("load", policy).unwrap();
        let room = Room::new();
        let mut call = contract.with().within(huge);
        let mut run = spawn(call.run(|attempt| {
            assert!(attempt.remaining().is_none_or(|left| left >= century));
            room.stay()
        }));
        assert_pending!(run.poll());
        clock.advance(century / 2);
        assert_pending!(run.poll(), "half a century is no time");
        room.let_out(1);
        assert_ready_ok!(run.poll());
    }
    common::assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn a6_the_farthest_moment_of_the_default_clock_is_no_overflow() {
    let now = tokio::time::Instant::now().into_std();
    let farthest = farthest_from(now);
    let runtime = Runtime::builder().resource("db", 1).build().unwrap();
    let policy = Policy::pure().claim("db", 1).timeout(farthest);
    let contract = runtime.contract("load", policy).unwrap();
    let room = Room::new();

    let mut by_timeout = spawn(contract.run(|| room.stay()));
    assert_pending!(by_timeout.poll(), "executing, its timer armed");
    let mut call = contract.with().deadline(now + farthest);
    let mut by_deadline = spawn(call.run(|_| room.stay()));
    assert_pending!(by_deadline.poll(), "waiting, its timer armed");
    room.let_out(2);
    assert_ready_ok!(by_timeout.poll());
    assert_ready_ok!(by_deadline.poll());
    runtime.shutdown_within(farthest).await.unwrap();
}

/// The longest duration that can still be added to `now`.
fn farthest_from(now: std::time::Instant) -> Duration {
    let (mut fits, mut over) = (Duration::ZERO, Duration::MAX);
    while over - fits > Duration::from_nanos(1) {
        let middle = fits + (over - fits) / 2;
        match now.checked_add(middle) {
            Some(_) => fits = middle,
            None => over = middle,
        }
    }
    fits
}
