//! Reject: decided at the first poll, rolled back and counted before its one yield (B4).

mod common;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use bursar::{
    Attempt, CallError, Contract, Failure, Handler, Outcome, Policy, Runtime, handler_fn,
};
use common::{Error, assert_idle, counts, in_use, runtime, waiting};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};

/// Two budgets of one unit each, and an operation that claims both and rejects.
fn rejecting() -> (Runtime, Contract) {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let policy = Policy::pure().claim("a", 1).claim("b", 1).reject();
    let contract = runtime.contract("rejects", policy).unwrap();
    (runtime, contract)
}

fn holder(runtime: &Runtime, budget: &str) -> Contract {
    let policy = Policy::pure().claim(budget, 1);
    runtime.contract(budget, policy).unwrap()
}

/// What a refusal must have done by the end of its first poll, and what it must do in the second.
#[track_caller]
fn assert_refused<T: Debug, E: Debug>(
    runtime: &Runtime,
    call: impl Future<Output = Result<T, CallError<E>>>,
) -> CallError<E> {
    let before = counts(runtime, "rejects");
    let keys = runtime.stats().keys;
    let mut call = spawn(call);
    assert_pending!(call.poll(), "it yields");
    assert!(call.is_woken(), "it asks to be polled again at once");
    let after = counts(runtime, "rejects");
    assert_eq!(after.admitted, before.admitted + 1);
    assert_eq!(after.rejected, before.rejected + 1);
    assert_eq!(after.finished, before.finished + 1);
    assert_eq!(after.started, before.started);
    assert_eq!((in_use(runtime, "a"), waiting(runtime, "a")), (0, 0));
    assert_eq!((in_use(runtime, "b"), waiting(runtime, "b")), (1, 0));
    assert_eq!(runtime.stats().keys, keys);
    let error = assert_ready!(call.poll(), "it yields once").unwrap_err();
    drop(call);
    assert_eq!(counts(runtime, "rejects"), after, "counted once");
    assert!(error.is_overloaded(), "{error}");
    assert_eq!(error.outcome(), Outcome::Throttled);
    assert!(error.never_ran());
    assert_eq!(error.attempts(), 0);
    error
}

async fn never() -> Result<(), Failure<Error>> {
    panic!("a refused handler runs")
}

#[test]
fn b4_every_form_decides_rolls_back_and_counts_before_its_one_yield() {
    struct Never;
    impl Handler<()> for Never {
        type Output = ();
        type Error = Error;

        async fn handle(&self, _: &Attempt, (): &()) -> Result<(), Failure<Error>> {
            never().await
        }
    }

    let (runtime, contract) = rejecting();
    let b = holder(&runtime, "b");
    let held = assert_ready_ok!(spawn(b.admit()).poll());
    assert_refused(&runtime, contract.run(never));
    assert_refused(&runtime, contract.run_held(never));
    assert_refused(&runtime, contract.admit());
    assert_refused(
        &runtime,
        contract.run_blocking(|_| -> Result<(), Failure<Error>> { panic!("it runs") }),
    );
    for key in ["", "k"] {
        let mut call = contract.with().key(key);
        assert_refused(&runtime, call.run(|_| never()));
        assert_refused(&runtime, call.run_held(|_| never()));
        let second = Duration::from_secs(1);
        let token = std::future::pending::<()>();
        let mut call = contract.with().key(key).within(second).until(token);
        assert_refused(&runtime, call.run(|_| never()));
        assert_refused(&runtime, call.run_held(|_| never()));
        assert_refused(&runtime, call.admit());
        assert_refused(
            &runtime,
            call.run_blocking(|_| -> Result<(), Failure<Error>> { panic!("it runs") }),
        );
    }
    drop(held);
    drop(b);

    // The same through typed operations, which are operations of their own.
    let (runtime, _) = common::runtime(&[("a", 1), ("b", 1)]);
    let policy = || Policy::pure().claim("a", 1).claim("b", 1).reject();
    let typed = runtime.operation("rejects", policy(), Never).unwrap();
    let b = holder(&runtime, "b");
    let _held = assert_ready_ok!(spawn(b.admit()).poll());
    assert_refused(&runtime, typed.call(()));
    assert_refused(&runtime, typed.call_held(()));
    assert_refused(&runtime, typed.with().within(common::ms(1)).call(()));
    assert_refused(&runtime, typed.with().call_held(()));
    let boxed = typed.boxed().serialize_by(|()| "k");
    assert_refused(&runtime, boxed.call(()));
}

#[test]
fn b4_a_refusal_carries_its_evidence() {
    let (runtime, _) = runtime(&[("db", 8)]);
    let waits = runtime
        .contract("waits", Policy::pure().claim("db", 5))
        .unwrap();
    let rejects = Policy::pure().claim("db", 2).reject();
    let rejects = runtime.contract("rejects", rejects).unwrap();
    let _held = assert_ready_ok!(spawn(waits.admit()).poll());
    let mut waiter = spawn(waits.admit());
    assert_pending!(waiter.poll());

    let mut call = spawn(rejects.admit());
    assert_pending!(call.poll());
    let error = assert_ready_err!(call.poll());
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.operation(), "rejects");
    assert_eq!(refusal.budget(), Some("db"));
    assert_eq!(refusal.units(), Some(2));
    assert!(!refusal.is_key());
    let usage = refusal.usage().unwrap();
    assert_eq!((usage.capacity, usage.in_use, usage.waiting), (8, 5, 1));
    for part in ["\"rejects\"", "2", "\"db\"", "5 of 8", "1 waiting"] {
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}

#[test]
fn b4_a_held_key_refuses_at_once() {
    let (runtime, contract) = rejecting();
    let none = runtime.contract("none", Policy::pure()).unwrap();
    let b = holder(&runtime, "b");
    let _b = assert_ready_ok!(spawn(b.admit()).poll());
    let key = assert_ready_ok!(spawn(none.with().key("k").admit()).poll());
    let mut waiting = none.with().key("k");
    let mut waiting = spawn(waiting.admit());
    assert_pending!(waiting.poll());

    let mut call = contract.with().key("k");
    let error = assert_refused(&runtime, call.admit());
    let refusal = error.refusal().unwrap();
    assert!(refusal.is_key());
    assert_eq!((refusal.budget(), refusal.units()), (None, None));
    let usage = refusal.usage().unwrap();
    assert_eq!((usage.capacity, usage.in_use, usage.waiting), (1, 1, 1));
    assert!(error.to_string().contains("key"), "{error}");
    drop((waiting, key));
    let error = assert_refused(&runtime, call.admit());
    assert_eq!(error.refusal().unwrap().budget(), Some("b"));
}

#[test]
fn b4_what_fits_is_refused_while_somebody_waits() {
    let (runtime, _) = runtime(&[("db", 3)]);
    let two = runtime
        .contract("two", Policy::pure().claim("db", 2))
        .unwrap();
    let one = runtime
        .contract("one", Policy::pure().claim("db", 1).reject())
        .unwrap();
    let held = assert_ready_ok!(spawn(two.admit()).poll());
    drop(assert_ready_ok!(spawn(one.admit()).poll()));
    let mut waiter = spawn(two.admit());
    assert_pending!(waiter.poll());
    let mut call = spawn(one.admit());
    assert_pending!(call.poll());
    let error = assert_ready_err!(call.poll());
    let usage = error.refusal().unwrap().usage().unwrap();
    assert_eq!((usage.in_use, usage.waiting), (2, 1));
    drop(waiter);
    drop(assert_ready_ok!(spawn(one.admit()).poll()));
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b4_what_is_free_is_taken_without_a_yield() {
    let (runtime, contract) = rejecting();
    drop(assert_ready_ok!(spawn(contract.admit()).poll()));
    let mut call = contract.with().key("k").within(Duration::from_secs(1));
    drop(assert_ready_ok!(spawn(call.admit()).poll()));
    let of = counts(&runtime, "rejects");
    assert_eq!((of.admitted, of.rejected, of.finished), (2, 0, 2));
}

#[test]
fn b4_a_refused_caller_that_leaves_during_the_yield_is_counted_once() {
    let (runtime, contract) = rejecting();
    let b = holder(&runtime, "b");
    let held = assert_ready_ok!(spawn(b.admit()).poll());
    for _ in 0..2 {
        assert_pending!(spawn(contract.run(never)).poll());
        assert_pending!(spawn(contract.admit()).poll());
    }
    let of = counts(&runtime, "rejects");
    assert_eq!((of.admitted, of.rejected, of.finished), (4, 4, 4));
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b4_what_changes_during_the_yield_changes_nothing() {
    let (runtime, contract) = rejecting();
    let b = holder(&runtime, "b");
    let held = assert_ready_ok!(spawn(b.admit()).poll());
    let (fire, token) = tokio::sync::oneshot::channel::<()>();
    let mut bounded = contract.with().until(token);
    let mut bounded = spawn(bounded.admit());
    let mut plain = spawn(contract.admit());
    assert_pending!(bounded.poll());
    assert_pending!(plain.poll());
    fire.send(()).unwrap();
    drop(held);
    assert_ready_ok!(spawn(runtime.shutdown()).poll());
    assert!(assert_ready_err!(bounded.poll()).is_overloaded());
    assert!(assert_ready_err!(plain.poll()).is_overloaded());
    assert_idle(&runtime);
}

/// Without the yield the loops below would never let the holder run: there is one thread.
#[tokio::test(flavor = "current_thread")]
async fn b4_a_tight_retry_loop_lets_the_holders_run() {
    const PATIENCE: u32 = 10_000;

    let (runtime, contract) = rejecting();
    let handler = handler_fn(|(): &()| async { Ok::<_, Failure<Error>>(()) });
    let policy = Policy::pure().claim("b", 1).reject();
    let typed = runtime.operation("typed", policy, handler).unwrap();
    let b = holder(&runtime, "b");
    let hold = b.run(async || {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        Ok::<_, Failure<Error>>(())
    });
    let admit = async {
        let mut tries = 0;
        while contract.admit().await.is_err() {
            tries += 1;
            assert!(tries < PATIENCE, "the holder does not come to run");
        }
        tries
    };
    let call = async {
        let mut tries = 0;
        while typed.call(()).await.is_err() {
            tries += 1;
            assert!(tries < PATIENCE, "the holder does not come to run");
        }
        tries
    };
    let (held, admitted, called) = tokio::join!(biased; hold, admit, call);
    held.unwrap();
    assert!(admitted > 0 && called > 0, "both met the holder");
    assert_idle(&runtime);
}
