//! Holding beyond a handler (B13), and that a call takes neither task nor thread (B14).

#![allow(
    clippy::disallowed_methods,
    reason = "the calls here are made from threads and tasks of the test's own"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use bursar::{Contract, Failure, Permit, Policy, Retry, Runtime, handler_fn};
use common::room::Room;
use common::{Error, assert_idle, counts, in_use, ms, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

/// Two budgets and an operation that claims both.
fn both() -> (Runtime, Contract) {
    let (runtime, _) = runtime(&[("a", 3), ("b", 2)]);
    let policy = Policy::pure().claim("a", 2).claim("b", 2);
    let contract = runtime.contract("both", policy).unwrap();
    (runtime, contract)
}

#[track_caller]
fn assert_held(runtime: &Runtime, keys: usize) {
    assert_eq!((in_use(runtime, "a"), in_use(runtime, "b")), (2, 2));
    assert_eq!(runtime.stats().keys, keys);
    let of = counts(runtime, "both");
    assert_eq!(of.started, of.finished + 1, "it counts as executing");
}

async fn seven() -> Result<u32, Failure<Error>> {
    Ok(7)
}

#[test]
fn b13_a_permit_holds_key_and_units_until_it_is_dropped() {
    let (runtime, contract) = both();
    let permit = assert_ready_ok!(spawn(contract.admit()).poll());
    assert_eq!(permit.operation(), "both");
    assert_held(&runtime, 0);
    drop(permit);
    assert_idle(&runtime);

    let mut call = contract.with().key("k");
    let permit = assert_ready_ok!(spawn(call.admit()).poll());
    drop(call);
    assert_held(&runtime, 1);
    let mut next = contract.with().key("k");
    let mut next = spawn(next.admit());
    assert_pending!(next.poll());
    drop(permit);
    assert!(next.is_woken());
    drop(assert_ready_ok!(next.poll()));
    assert_idle(&runtime);
}

#[test]
fn b13_run_held_gives_the_value_and_goes_on_holding() {
    let (runtime, contract) = both();
    let handler = handler_fn(|(): &()| seven());
    let typed = runtime
        .operation("typed", Policy::pure(), handler)
        .unwrap()
        .serialize_by(|()| "k");
    let (value, permit) = assert_ready_ok!(spawn(contract.run_held(seven)).poll());
    assert_eq!((value, permit.operation()), (7, "both"));
    assert_held(&runtime, 0);
    drop(permit);
    let mut call = contract.with().key("k").within(ms(10));
    let (value, permit) = assert_ready_ok!(spawn(call.run_held(|_| seven())).poll());
    assert_eq!((value, permit.operation()), (7, "both"));
    assert_held(&runtime, 1);
    drop(permit);
    for bounded in [false, true] {
        let held = if bounded {
            assert_ready_ok!(spawn(typed.with().within(ms(10)).call_held(())).poll())
        } else {
            assert_ready_ok!(spawn(typed.call_held(())).poll())
        };
        assert_eq!((held.0, held.1.operation()), (7, "typed"));
        assert_pending!(spawn(typed.call(())).poll(), "the key is held");
        let of = counts(&runtime, "typed");
        assert_eq!(of.admitted, of.finished + 1);
        drop(held);
    }
    assert_idle(&runtime);
}

#[test]
fn b13_a_held_run_that_fails_or_is_dropped_holds_nothing() {
    let (runtime, contract) = both();
    let fails = || async { Err::<u32, _>(Failure::permanent("bad")) };
    assert_ready_err!(spawn(contract.run_held(fails)).poll());
    assert_idle(&runtime);
    let room = Room::new();
    let mut call = contract.with().key("k");
    let mut run = spawn(call.run_held(|_| room.stay()));
    assert_pending!(run.poll());
    assert_held(&runtime, 1);
    drop(run);
    assert_idle(&runtime);
    assert_eq!(room.inside(), 0);
}

#[test]
fn b13_a_held_run_retries_as_a_run_does() {
    let (runtime, _) = runtime(&[("a", 2), ("b", 2)]);
    let policy = Policy::pure()
        .claim("a", 2)
        .claim("b", 2)
        .retry(Retry::up_to(3).on_transient());
    let contract = runtime.contract("both", policy).unwrap();
    let mut made = 0;
    let mut run = spawn(contract.run_held(|| {
        made += 1;
        std::future::ready(if made < 3 {
            Err(Failure::transient("busy"))
        } else {
            Ok::<u32, Failure<Error>>(made)
        })
    }));
    assert_pending!(run.poll());
    assert_pending!(run.poll());
    let (value, permit) = assert_ready_ok!(run.poll());
    assert_eq!(value, 3);
    assert_held(&runtime, 0);
    assert_eq!(counts(&runtime, "both").retried, 2);
    drop(permit);
    assert_idle(&runtime);
}

#[test]
fn b13_a_drain_waits_for_permits() {
    let (runtime, contract) = both();
    let none = runtime.contract("none", Policy::pure()).unwrap();
    let permits: [Permit; 4] = [
        assert_ready_ok!(spawn(contract.admit()).poll()),
        assert_ready_ok!(spawn(none.with().key("k").admit()).poll()),
        assert_ready_ok!(spawn(none.admit()).poll()),
        assert_ready_ok!(spawn(none.run_held(seven)).poll()).1,
    ];
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    for permit in permits {
        assert_pending!(drain.poll());
        drop(permit);
    }
    assert!(drain.is_woken());
    assert_ready_ok!(drain.poll());
    assert_idle(&runtime);
}

#[test]
fn b13_a_permit_outlives_every_handle_and_may_be_dropped_anywhere() {
    let (runtime, contract) = both();
    let permit = assert_ready_ok!(spawn(contract.admit()).poll());
    let watched = runtime.clone();
    drop((runtime, contract));
    assert_held(&watched, 0);
    thread::spawn(move || drop(permit)).join().unwrap();
    assert_idle(&watched);
}

#[test]
fn b14_a_call_runs_in_its_callers_own_poll() {
    // There is no executor here at all, so nothing could have been spawned onto one.
    let (runtime, contract) = both();
    let here = thread::current().id();
    let handler = handler_fn(move |(): &()| async move {
        assert_eq!(thread::current().id(), here);
        seven().await
    });
    let typed = runtime.operation("typed", Policy::pure(), handler).unwrap();
    let on_this_thread = || async move {
        assert_eq!(thread::current().id(), here);
        seven().await
    };
    assert_ready_ok!(spawn(contract.run(on_this_thread)).poll());
    let mut call = contract.with().key("k");
    assert_ready_ok!(spawn(call.run(|_| on_this_thread())).poll());
    drop(assert_ready_ok!(
        spawn(call.run_held(|_| on_this_thread())).poll()
    ));
    assert_ready_ok!(spawn(typed.call(())).poll());
    assert_ready_ok!(spawn(runtime.shutdown()).poll());
}

#[test]
fn b14_neither_waiting_nor_running_nor_draining_takes_a_task_or_a_thread() {
    let threads = Arc::new(AtomicUsize::new(0));
    let executor = {
        let threads = Arc::clone(&threads);
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .on_thread_start(move || {
                threads.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap()
    };
    // The one worker is there once it has run something.
    executor.block_on(executor.spawn(async {})).unwrap();
    let _entered = executor.enter();
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let policy = Policy::pure()
        .claim("a", 1)
        .timeout(ms(60_000))
        .retry(Retry::up_to(3).on_transient());
    let contract = runtime.contract("load", policy).unwrap();
    let metrics = executor.metrics();
    while metrics.num_alive_tasks() > 0 {
        thread::yield_now();
    }

    let room = Room::new();
    let mut running = spawn(contract.run(|| room.stay()));
    let mut bounded = contract.with().key("k").within(ms(60_000));
    let mut waiting = spawn(bounded.run(|_| room.stay()));
    assert_pending!(running.poll(), "executing, its timer armed");
    assert_pending!(waiting.poll(), "waiting, its timer armed");
    let mut drain = spawn(runtime.shutdown_within(ms(60_000)));
    assert_pending!(drain.poll());
    assert_eq!(metrics.num_alive_tasks(), 0);
    assert_ready_err!(waiting.poll());
    room.let_out(1);
    assert_ready_ok!(running.poll());
    assert_ready_ok!(drain.poll());
    assert_eq!(metrics.num_alive_tasks(), 0);
    assert_eq!(threads.load(Ordering::SeqCst), 1);
}

#[test]
fn b14_run_blocking_takes_one_blocking_thread() {
    let threads = Arc::new(AtomicUsize::new(0));
    let executor = {
        let threads = Arc::clone(&threads);
        tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .on_thread_start(move || {
                threads.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap()
    };
    let (runtime, _) = runtime(&[("a", 1)]);
    let policy = Policy::pure()
        .claim("a", 1)
        .retry(Retry::up_to(4).on_transient());
    let contract = runtime.contract("load", policy).unwrap();
    let here = thread::current().id();
    let made = Arc::new(AtomicU32::new(0));
    let call = contract.run_blocking({
        let made = Arc::clone(&made);
        move |attempt| {
            assert_ne!(thread::current().id(), here);
            assert_eq!(made.fetch_add(1, Ordering::SeqCst) + 1, attempt.number());
            if attempt.number() < 4 {
                return Err(Failure::transient("busy"));
            }
            Ok::<_, Failure<Error>>(attempt.number())
        }
    });
    assert_eq!(executor.block_on(call).unwrap(), 4);
    assert_eq!(made.load(Ordering::SeqCst), 4);
    assert_eq!(threads.load(Ordering::SeqCst), 1, "one, and one is enough");
    assert_idle(&runtime);
}
