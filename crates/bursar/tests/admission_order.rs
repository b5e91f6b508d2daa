//! The one order inside a call (B1), and that whoever waits holds nothing later in it (B7).

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Context;
use std::time::Duration;

use bursar::{CallError, Failure, Outcome, Policy, Runtime};
use common::room::{Room, ends, on_wake};
use common::{Error, assert_idle, counts, in_use, runtime, waiting};
use tokio::sync::oneshot;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};

/// Budgets whose byte order is neither that of a dictionary nor that of numbers.
const NAMES: [&str; 7] = ["10", "9", "Z", "a", "a1", "b", "\u{e9}"];

fn ordered() -> Runtime {
    let budgets = NAMES.map(|name| (name, 1));
    let mut shuffled = budgets;
    shuffled.reverse();
    shuffled.swap(0, 3);
    runtime(&shuffled).0
}

#[test]
fn b1_the_gate_comes_before_all_else() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let policy = || Policy::pure().claim("db", 1);
    let waits = runtime.contract("waits", policy()).unwrap();
    let rejects = runtime.contract("rejects", policy().reject()).unwrap();
    let held = assert_ready_ok!(spawn(waits.with().key("k").admit()).poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());

    // Full, its key held, its caller gone: still it is the gate that answers, at once.
    for contract in [&waits, &rejects] {
        let past = bursar::Clock::now(&clock);
        let calls = [
            contract.with(),
            contract.with().key("k"),
            contract.with().key("free"),
            contract.with().key("k").within(Duration::ZERO),
            contract.with().deadline(past),
            contract.with().until(std::future::ready(())),
        ];
        for mut call in calls {
            let what = format!("{call:?}");
            let error = assert_ready_err!(spawn(call.admit()).poll());
            assert!(error.is_stopping(), "{what}: {error}");
            assert_eq!(error.outcome(), Outcome::Throttled);
            assert!(error.never_ran());
        }
    }
    for (name, admitted) in [("waits", 1), ("rejects", 0)] {
        let of = counts(&runtime, name);
        assert_eq!((of.admitted, of.rejected), (admitted, 6), "{of:?}");
    }
    drop(held);
    assert_ready_ok!(drain.poll());
}

#[test]
fn b1_the_gate_comes_before_a_missing_key() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1).require_key();
    let contract = runtime.contract("keyed", policy).unwrap();
    assert_ready_ok!(spawn(runtime.shutdown()).poll());
    let error = assert_ready_err!(spawn(contract.admit()).poll());
    assert!(error.is_stopping(), "{error}");
    let of = counts(&runtime, "keyed");
    assert_eq!((of.admitted, of.rejected, of.finished), (0, 1, 0));
}

#[test]
fn b1_the_key_comes_before_the_budgets() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let full = runtime
        .contract("full", Policy::pure().claim("db", 1))
        .unwrap();
    let none = runtime.contract("none", Policy::pure()).unwrap();
    let key = assert_ready_ok!(spawn(none.with().key("k").admit()).poll());
    let db = assert_ready_ok!(spawn(full.admit()).poll());

    let mut call = full.with().key("k");
    let mut keyed = spawn(call.admit());
    assert_pending!(keyed.poll());
    assert_eq!(waiting(&runtime, "db"), 0, "it waits for its key alone");
    drop(key);
    assert!(keyed.is_woken());
    assert_pending!(keyed.poll());
    assert_eq!(waiting(&runtime, "db"), 1);
    drop(db);
    drop(assert_ready_ok!(keyed.poll()));
    assert_idle(&runtime);
}

#[test]
fn b1_budgets_are_taken_in_byte_order_of_their_names() {
    let runtime = ordered();
    let listed = ["b", "Z", "10", "\u{e9}", "a1", "9", "a"];
    let policy = listed
        .into_iter()
        .fold(Policy::pure(), |policy, name| policy.claim(name, 1));
    let all = runtime.contract("all", policy).unwrap();
    let holders = NAMES.map(|name| {
        let one = runtime.contract(name, Policy::pure().claim(name, 1));
        one.unwrap()
    });
    let mut held = [const { None }; NAMES.len()];
    for (held, holder) in held.iter_mut().zip(&holders) {
        *held = Some(assert_ready_ok!(spawn(holder.admit()).poll()));
    }

    let mut call = spawn(all.admit());
    for at in 0..NAMES.len() {
        assert_pending!(call.poll());
        for (name, place) in NAMES.into_iter().zip(0..) {
            let (uses, waits) = (in_use(&runtime, name), waiting(&runtime, name));
            assert_eq!((uses, waits), (1, u32::from(place == at)), "{name} at {at}");
        }
        held[at] = None;
        assert!(call.is_woken(), "{} came free", NAMES[at]);
    }
    drop(assert_ready_ok!(call.poll()));
    assert_idle(&runtime);
}

#[test]
fn b1_budgets_go_back_in_reverse_and_the_key_last() {
    ends(|| {
        let runtime = ordered();
        let policy = NAMES
            .into_iter()
            .fold(Policy::pure(), |policy, name| policy.claim(name, 1));
        let all = runtime.contract("all", policy).unwrap();
        let mut call = all.with().key("k");
        let held = assert_ready_ok!(spawn(call.admit()).poll());

        // One waiter for each thing held. Its waker, called in the middle of the release, tells what is back by then.
        let told = Arc::new(Mutex::new(Vec::new()));
        let wakers: Vec<_> = NAMES
            .into_iter()
            .chain(["the key"])
            .map(|name| {
                let (told, runtime) = (Arc::clone(&told), runtime.clone());
                on_wake(move || {
                    let finished = counts(&runtime, "all").finished;
                    told.lock().unwrap().push((name, finished));
                })
            })
            .collect();
        let contracts: Vec<_> = NAMES
            .into_iter()
            .map(|name| {
                let one = runtime.contract(name, Policy::pure().claim(name, 1));
                one.unwrap()
            })
            .collect();
        let mut waiters: Vec<_> = contracts
            .iter()
            .map(|contract| Box::pin(contract.admit()))
            .collect();
        for (waiter, waker) in waiters.iter_mut().zip(&wakers) {
            let polled = waiter.as_mut().poll(&mut Context::from_waker(waker));
            assert_pending!(polled);
        }
        let keyed = runtime.contract("keyed", Policy::pure()).unwrap();
        let mut keyed = keyed.with().key("k");
        let mut keyed = pin!(keyed.admit());
        let waker = &wakers[NAMES.len()];
        assert_pending!(keyed.as_mut().poll(&mut Context::from_waker(waker)));

        drop(held);
        let mut right: Vec<_> = NAMES.into_iter().rev().map(|name| (name, 1)).collect();
        right.push(("the key", 1));
        assert_eq!(*told.lock().unwrap(), right, "counted before all of it");
    });
}

#[test]
fn b1_all_is_back_when_the_answer_is_seen() {
    let (runtime, _) = runtime(&[("db", 2), ("net", 2)]);
    let policy = Policy::pure().claim("db", 1).claim("net", 2);
    let contract = runtime.contract("load", policy).unwrap();
    for fails in [false, true] {
        let (answer, asked) = oneshot::channel();
        let mut asked = Some(asked);
        let mut call = contract.with().key("k");
        let mut run = spawn(call.run(|_| {
            let asked = asked.take().unwrap();
            async { asked.await.unwrap() }
        }));
        assert_pending!(run.poll());
        assert_eq!((in_use(&runtime, "db"), in_use(&runtime, "net")), (1, 2));
        assert_eq!(runtime.stats().keys, 1);
        let said = if fails {
            Err(Failure::permanent("broken"))
        } else {
            Ok(7)
        };
        assert!(answer.send(said).is_ok());
        assert_eq!(assert_ready!(run.poll()).is_err(), fails);
        // The future is still there, and holds nothing.
        assert_idle(&runtime);
    }
}

#[test]
fn b7_a_key_waiter_holds_no_units() {
    let (runtime, _) = runtime(&[("db", 2), ("net", 1)]);
    let policy = Policy::pure().claim("db", 1).claim("net", 1);
    let contract = runtime.contract("load", policy).unwrap();
    let none = runtime.contract("none", Policy::pure()).unwrap();
    let _key = assert_ready_ok!(spawn(none.with().key("k").admit()).poll());
    let mut call = contract.with().key("k");
    let mut waiter = spawn(call.admit());
    assert_pending!(waiter.poll());
    assert_eq!((in_use(&runtime, "db"), in_use(&runtime, "net")), (0, 0));
    drop(assert_ready_ok!(spawn(contract.admit()).poll()));
}

#[test]
fn b7_a_budget_waiter_holds_its_key_and_the_budgets_before_and_nothing_after() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1), ("c", 1)]);
    let policy = Policy::pure().claim("c", 1).claim("b", 1).claim("a", 1);
    let all = runtime.contract("all", policy).unwrap();
    let b = runtime.contract("b", Policy::pure().claim("b", 1)).unwrap();
    let held = assert_ready_ok!(spawn(b.admit()).poll());
    let mut call = all.with().key("k");
    let mut waiter = spawn(call.admit());
    assert_pending!(waiter.poll());
    assert_eq!(
        ["a", "b", "c"].map(|name| in_use(&runtime, name)),
        [1, 1, 0]
    );
    assert_eq!(runtime.stats().keys, 1);
    drop(waiter);
    assert_eq!(
        ["a", "b", "c"].map(|name| in_use(&runtime, name)),
        [0, 1, 0]
    );
    assert_eq!(runtime.stats().keys, 0);
    drop(held);
    assert_idle(&runtime);
}

/// How a call that holds its key and one budget fails at the next budget.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    Rejected,
    Dropped,
    TokenFired,
    DeadlinePassed,
    ShutDown,
}

#[test]
fn b7_when_a_later_step_fails_all_is_back_when_the_error_is_seen() {
    use Fails::{DeadlinePassed, Dropped, Rejected, ShutDown, TokenFired};

    for fails in [Rejected, Dropped, TokenFired, DeadlinePassed, ShutDown] {
        let (runtime, clock) = runtime(&[("a", 2), ("b", 1)]);
        let policy = Policy::pure().claim("a", 2).claim("b", 1);
        let policy = if fails == Rejected {
            policy.reject()
        } else {
            policy
        };
        let both = runtime.contract("both", policy).unwrap();
        let b = runtime.contract("b", Policy::pure().claim("b", 1)).unwrap();
        let _held = assert_ready_ok!(spawn(b.admit()).poll());

        let room = Room::new();
        let (fire, token) = oneshot::channel::<()>();
        let mut call = both
            .with()
            .key("k")
            .until(token)
            .within(Duration::from_secs(1));
        let mut run = spawn(call.run(|_| room.stay()));
        assert_pending!(run.poll());
        let holds = if fails == Rejected { 0 } else { 2 };
        assert_eq!(in_use(&runtime, "a"), holds, "{fails:?}");

        let mut drain = spawn(runtime.shutdown());
        match fails {
            Rejected => assert!(run.is_woken()),
            Dropped => {}
            TokenFired => fire.send(()).unwrap(),
            DeadlinePassed => clock.advance(Duration::from_secs(1)),
            ShutDown => assert_pending!(drain.poll()),
        }
        if fails == Dropped {
            drop(run);
        } else {
            assert!(run.is_woken(), "{fails:?}");
            let error: CallError<Error> = assert_ready!(run.poll()).unwrap_err();
            let right = match fails {
                Rejected => matches!(error, CallError::Overloaded(_)),
                TokenFired => matches!(error, CallError::Withdrawn(_)),
                DeadlinePassed => matches!(error, CallError::AdmissionTimedOut(_)),
                _ => matches!(error, CallError::Stopping(_)),
            };
            assert!(right, "{fails:?}: {error}");
            assert_eq!(error.refusal().unwrap().operation(), "both");
            assert!(error.never_ran() && error.outcome() == Outcome::Throttled);
        }
        assert_eq!((in_use(&runtime, "a"), in_use(&runtime, "b")), (0, 1));
        assert_eq!(runtime.stats().keys, 0, "{fails:?}");
        assert_eq!(room.entered(), 0);
        let of = counts(&runtime, "both");
        assert_eq!((of.admitted, of.started, of.finished), (1, 0, 1), "{of:?}");
        assert_eq!(of.rejected, u64::from(fails == Rejected), "{of:?}");
    }
}
