//! The checks of HertaSDK's own suite that concern construction, admission, the drain's beginning and the counters,
//! each stepped by hand. Numbers are those of that suite.

mod common;

use bursar::{
    CallError, ContractError, Effect, Failure, Outcome, Policy, Retry, Runtime, handler_fn,
};
use common::room::Room;
use common::{Error, assert_idle, counts, in_use, runtime, waiting};
use tokio::sync::oneshot;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};

#[test]
fn herta_01_a_runtime_is_refused_for_its_budgets() {
    use ContractError::{DuplicateBudget, EmptyBudgetName, InvalidCapacity, NoBudgets};

    let build = |budgets: &[(&str, u32)]| {
        let builder = Runtime::builder();
        budgets
            .iter()
            .fold(builder, |builder, (name, capacity)| {
                builder.resource(*name, *capacity)
            })
            .build()
            .map(drop)
    };
    assert_eq!(build(&[]), Err(NoBudgets));
    assert_eq!(build(&[("", 1)]), Err(EmptyBudgetName));
    // A negative capacity cannot be said; what an unsigned one would be read as is refused.
    for capacity in [0, -1_i32 as u32, i32::MIN as u32] {
        let budget = "db".to_owned();
        let error = InvalidCapacity { budget, capacity };
        assert_eq!(build(&[("db", capacity)]), Err(error));
    }
    let budget = "db".to_owned();
    assert_eq!(
        build(&[("db", 1), ("db", 1)]),
        Err(DuplicateBudget { budget })
    );
    assert_eq!(build(&[("db", 1)]), Ok(()));
}

#[test]
fn herta_02_an_operation_is_refused_for_its_claims_and_its_name() {
    // A missing handler or runtime cannot be said.
    let (runtime, _) = runtime(&[("db", 2)]);
    let refused = |name: &str, claims: &[(&str, u32)]| {
        let policy = claims
            .iter()
            .fold(Policy::pure(), |policy, (budget, units)| {
                policy.claim(*budget, *units)
            });
        let handler = handler_fn(|(): &()| async { Ok::<_, Failure<Error>>(()) });
        runtime.operation(name, policy, handler).unwrap_err()
    };
    assert!(matches!(
        refused("load", &[("net", 1)]),
        ContractError::UnknownBudget { .. }
    ));
    for units in [0, -1_i32 as u32, 3] {
        assert!(matches!(
            refused("load", &[("db", units)]),
            ContractError::InvalidUnits { capacity: 2, .. }
        ));
    }
    assert!(matches!(
        refused("load", &[("db", 1), ("db", 1)]),
        ContractError::DuplicateClaim { .. }
    ));
    assert_eq!(refused("", &[("db", 1)]), ContractError::EmptyOperationName);
}

#[test]
fn herta_03_an_operation_is_refused_for_its_effect_and_its_retries() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let refused = |effect: Option<Effect>, outcome| {
        let retry = Retry::up_to(2).on(outcome, true);
        let policy = Policy::dynamic().effect(effect).retry(retry);
        runtime.contract("charge", policy).unwrap_err()
    };
    let unsafe_retry = refused(Some(Effect::NonIdempotent), Outcome::Uncertain);
    let operation = "charge".to_owned();
    assert_eq!(unsafe_retry, ContractError::UnsafeRetry { operation });
    let message = unsafe_retry.to_string();
    assert!(message.contains("NonIdempotent"), "{message}");
    assert!(message.contains("Uncertain"), "{message}");
    assert!(matches!(
        refused(None, Outcome::Transient),
        ContractError::EffectRequired { .. }
    ));
    // An effect or an outcome out of range cannot be said.
    for invalid in [Outcome::Throttled, Outcome::Success, Outcome::Permanent] {
        assert!(matches!(
            refused(Some(Effect::Pure), invalid),
            ContractError::InvalidRetry { outcome, .. } if outcome == invalid
        ));
        let inert = Retry::up_to(2).on(invalid, false);
        let policy = Policy::dynamic().effect(Effect::Pure).retry(inert);
        assert!(runtime.contract("charge", policy).is_ok());
    }
}

#[test]
fn herta_04_capacity_8_lets_8_of_20_in_and_never_9() {
    let (runtime, _) = runtime(&[("renderer", 8)]);
    let policy = Policy::pure().claim("renderer", 1);
    let render = runtime.contract("render", policy).unwrap();
    let room = Room::new();
    let mut calls: Vec<_> = (0..20).map(|_| spawn(render.run(|| room.stay()))).collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    assert_eq!((room.inside(), waiting(&runtime, "renderer")), (8, 12));
    for ended in 1..=20 {
        room.let_out(1);
        let mut done = 0;
        calls.retain_mut(|call| {
            let ready = call.is_woken() && call.poll().is_ready();
            done += usize::from(ready);
            !ready
        });
        assert_eq!(done, 1);
        for call in calls.iter_mut().filter(|call| call.is_woken()) {
            assert_pending!(call.poll(), "it took the place");
        }
        assert_eq!(room.inside(), 8.min(20 - ended));
    }
    assert_eq!((room.peak(), room.entered()), (8, 20));
    assert_idle(&runtime);
}

#[test]
fn herta_05_reject_against_a_full_budget_fails_at_once() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1).reject();
    let load = runtime.contract("load", policy).unwrap();
    let _held = assert_ready_ok!(spawn(load.admit()).poll());
    let room = Room::new();
    let mut call = spawn(load.run(|| room.stay()));
    assert_pending!(call.poll());
    assert!(call.is_woken(), "nothing else has to happen");
    let error = assert_ready_err!(call.poll());
    assert!(matches!(error, CallError::Overloaded(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::Throttled);
    assert_eq!(room.entered(), 0);
}

#[test]
fn herta_06_two_operations_share_a_budget_of_4() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let claims = |units: u32| {
        let policy = Policy::pure().claim("db", units);
        let name = format!("claims {units}");
        runtime.contract(&name, policy).unwrap()
    };
    let (one, three) = (claims(1), claims(3));
    let room = Room::new();
    let mut calls: Vec<_> = [&one, &three, &one, &one, &three, &three, &one]
        .into_iter()
        .map(|contract| spawn(contract.run(|| room.stay())))
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let mut ran = 0;
    while !calls.is_empty() {
        assert!(in_use(&runtime, "db") <= 4);
        assert!(room.inside() > 0, "somebody is always inside");
        room.let_out(1);
        calls.retain_mut(|call| {
            let ready = call.is_woken() && call.poll().is_ready();
            ran += usize::from(ready);
            assert!(in_use(&runtime, "db") <= 4);
            !ready
        });
    }
    assert_eq!((ran, room.entered()), (7, 7));
    assert_idle(&runtime);
}

#[test]
fn herta_07_one_key_never_overlaps_and_two_do() {
    let (runtime, _) = runtime(&[("db", 8)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let rooms = [Room::new(), Room::new()];
    let all = Room::new();
    let mut builders: Vec<_> = (0..8)
        .map(|at| (load.with().key(["A", "B"][at % 2]), &rooms[at % 2]))
        .collect();
    let mut calls: Vec<_> = builders
        .iter_mut()
        .map(|(call, room)| {
            let (all, room): (&Room, &Room) = (&all, room);
            spawn(call.run(move |_| async move {
                let _inside = all.enter();
                room.stay().await
            }))
        })
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    while !calls.is_empty() {
        assert_eq!(all.inside(), 2);
        for room in &rooms {
            room.let_out(1);
        }
        calls.retain_mut(|call| !(call.is_woken() && call.poll().is_ready()));
        for call in calls.iter_mut().filter(|call| call.is_woken()) {
            assert_pending!(call.poll());
        }
    }
    assert_eq!((all.peak(), all.entered()), (2, 8));
    assert!(rooms.iter().all(|room| room.peak() == 1));
    assert_idle(&runtime);
}

#[test]
fn herta_08_a_cancelled_waiter_leaves_promptly_and_leaves_nothing_behind() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let room = Room::new();
    let held = assert_ready_ok!(spawn(load.admit()).poll());
    let (fire, token) = oneshot::channel::<()>();
    let mut call = load.with().until(token);
    let mut waiter = spawn(call.run(|_| room.stay()));
    assert_pending!(waiter.poll());
    assert_eq!(waiting(&runtime, "db"), 1);
    fire.send(()).unwrap();
    assert!(waiter.is_woken());
    let error = assert_ready_err!(waiter.poll());
    assert!(matches!(error, CallError::Withdrawn(_)), "{error}");
    assert_eq!((in_use(&runtime, "db"), waiting(&runtime, "db")), (1, 0));
    drop(held);
    assert_eq!(in_use(&runtime, "db"), 0);
    drop(assert_ready_ok!(spawn(load.admit()).poll()));
    assert_eq!(room.entered(), 0);
    assert_idle(&runtime);
}

#[test]
fn herta_09_a_rejected_claim_of_two_keeps_neither() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let policy = Policy::pure().claim("a", 1).claim("b", 1).reject();
    let both = runtime.contract("both", policy).unwrap();
    let b = runtime.contract("b", Policy::pure().claim("b", 1)).unwrap();
    let held = assert_ready_ok!(spawn(b.admit()).poll());
    let mut call = spawn(both.admit());
    assert_pending!(call.poll());
    assert_eq!((in_use(&runtime, "a"), in_use(&runtime, "b")), (0, 1));
    assert_ready_err!(call.poll());
    let a = Policy::pure().claim("a", 1).reject();
    let a = runtime.contract("a", a).unwrap();
    drop(assert_ready_ok!(spawn(a.admit()).poll()));
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn herta_10_budgets_are_waited_for_in_one_global_order() {
    let (runtime, _) = runtime(&[("b", 1), ("a", 1)]);
    let policy = Policy::pure().claim("b", 1).claim("a", 1);
    let both = runtime.contract("both", policy).unwrap();
    let a = runtime.contract("a", Policy::pure().claim("a", 1)).unwrap();
    let b = Policy::pure().claim("b", 1).reject();
    let b = runtime.contract("b", b).unwrap();
    let held = assert_ready_ok!(spawn(a.admit()).poll());
    let mut call = spawn(both.admit());
    assert_pending!(call.poll());
    drop(assert_ready_ok!(spawn(b.admit()).poll(), "b stays free"));
    drop(held);
    drop(assert_ready_ok!(call.poll()));
    assert_idle(&runtime);
}

#[test]
fn herta_11_a_waiter_on_a_key_holds_no_units() {
    let (runtime, _) = runtime(&[("db", 3)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let two = Policy::pure().claim("db", 2).reject();
    let two = runtime.contract("two", two).unwrap();
    let room = Room::new();
    let (mut first, mut second) = (load.with().key("k"), load.with().key("k"));
    let mut first = spawn(first.run(|_| room.stay()));
    let mut second = spawn(second.run(|_| room.stay()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_eq!(in_use(&runtime, "db"), 1);
    drop(assert_ready_ok!(spawn(two.admit()).poll(), "two are left"));
    room.let_out(2);
    assert_ready_ok!(first.poll());
    assert_ready_ok!(second.poll());
    assert_eq!(room.peak(), 1);
    assert_idle(&runtime);
}

#[test]
fn herta_12_calls_with_an_empty_key_overlap() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let room = Room::new();
    let mut builders: Vec<_> = (0..4).map(|_| load.with().key("")).collect();
    let mut calls: Vec<_> = builders
        .iter_mut()
        .map(|call| spawn(call.run(|_| room.stay())))
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    assert_eq!(room.inside(), 4);
    room.let_out(4);
    for call in &mut calls {
        assert_ready_ok!(call.poll());
    }
    assert_idle(&runtime);
}

#[test]
fn herta_19_shutdown_refuses_newcomers_and_lets_three_finish() {
    let (runtime, _) = runtime(&[("db", 8)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let room = Room::new();
    let mut calls: Vec<_> = (0..3).map(|_| spawn(load.run(|| room.stay()))).collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    let error = assert_ready!(spawn(load.run(|| room.stay())).poll()).unwrap_err();
    assert!(matches!(error, CallError::Stopping(_)), "{error}");
    for call in &mut calls {
        assert_pending!(drain.poll());
        assert_pending!(call.poll(), "it executes, and goes on");
        room.let_out(1);
        assert_ready_ok!(call.poll());
    }
    assert!(drain.is_woken());
    assert_ready_ok!(drain.poll());
    let of = counts(&runtime, "load");
    assert_eq!((of.admitted, of.finished, of.rejected), (3, 3, 1));
    assert_idle(&runtime);
}

#[test]
fn herta_22_two_calls_with_one_retry_each_are_counted() {
    let (runtime, _) = runtime(&[("db", 2)]);
    let policy = Policy::pure()
        .claim("db", 1)
        .retry(Retry::up_to(3).on_transient());
    let load = runtime.contract("load", policy).unwrap();
    let mut calls: Vec<_> = (0..2)
        .map(|_| {
            let mut attempts = 0;
            spawn(load.run(move || {
                attempts += 1;
                std::future::ready(if attempts == 1 {
                    Err(Failure::<Error>::transient("busy"))
                } else {
                    Ok(attempts)
                })
            }))
        })
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    for call in &mut calls {
        assert_eq!(assert_ready_ok!(call.poll()), 2);
    }
    let of = counts(&runtime, "load");
    assert_eq!((of.admitted, of.started, of.finished), (2, 2, 2));
    assert_eq!((of.retried, of.rejected), (2, 0));
    assert_idle(&runtime);
}
