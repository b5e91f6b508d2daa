//! Keys: where they come from (B5) and what they serialize (B6).

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bursar::seam::{HoldId, Standing};
use bursar::{
    CallError, Contract, Failure, Key, Outcome, Permit, Policy, Retry, Runtime, handler_fn,
};
use common::room::Room;
use common::{Error, assert_idle, counts, in_use, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok};

fn db(capacity: u32) -> Runtime {
    runtime(&[("db", capacity)]).0
}

fn contract(runtime: &Runtime, operation: &str) -> Contract {
    runtime.contract(operation, Policy::pure()).unwrap()
}

/// Holds a key that is free.
#[track_caller]
fn hold(contract: &Contract, key: impl Into<Key>) -> Permit {
    assert_ready_ok!(spawn(contract.with().key(key).admit()).poll())
}

/// Whether a call with this key would have to wait.
#[track_caller]
fn waits(contract: &Contract, key: impl Into<Key>) -> bool {
    spawn(contract.with().key(key).admit()).poll().is_pending()
}

#[test]
fn b5_the_key_is_computed_once_a_call_before_anything_is_held() {
    struct Job {
        brand: String,
    }

    let runtime = db(1);
    let computed = Arc::new(AtomicU32::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let policy = Policy::pure()
        .claim("db", 1)
        .retry(Retry::up_to(3).on_transient());
    let handler = handler_fn(|_: &Job| async { Err::<(), _>(Failure::transient("busy")) });
    let render = runtime.operation("render", policy, handler).unwrap();
    let render = {
        let (computed, seen, runtime) = (computed.clone(), seen.clone(), runtime.clone());
        render.serialize_by(move |job: &Job| {
            computed.fetch_add(1, Ordering::SeqCst);
            let stats = runtime.stats();
            seen.lock()
                .unwrap()
                .push((stats.keys, stats.budgets[0].in_use));
            &job.brand
        })
    };
    let job = || Job {
        brand: "Alba".to_owned(),
    };
    let mut call = spawn(render.call(job()));
    let mut polls = 0;
    let error = loop {
        polls += 1;
        if let std::task::Poll::Ready(end) = call.poll() {
            break end.unwrap_err();
        }
    };
    assert_eq!((error.attempts(), polls), (3, 3));
    assert_eq!(computed.load(Ordering::SeqCst), 1, "not once an attempt");

    // Nor once a wake-up, for calls that wait: for their key, then for a budget.
    let full = runtime
        .contract("full", Policy::pure().claim("db", 1))
        .unwrap();
    let none = contract(&runtime, "none");
    let key = hold(&none, "Alba");
    let units = hold(&full, "");
    let mut call = spawn(render.with().call(job()));
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    drop(key);
    assert_pending!(call.poll());
    drop(units);
    assert_pending!(call.poll());
    assert_eq!(computed.load(Ordering::SeqCst), 2);
    drop(call);
    // The second call found the key and the unit that others held.
    assert_eq!(*seen.lock().unwrap(), [(0, 0), (1, 1)]);
    assert_idle(&runtime);
}

#[test]
fn a_key_function_that_panics_leaves_nothing_held() {
    let runtime = db(1);
    let policy = Policy::pure().claim("db", 1);
    let handler = handler_fn(|_: &String| async { Ok::<_, Failure<Error>>(()) });
    let typed = runtime
        .operation("typed", policy, handler)
        .unwrap()
        .serialize_by(|name| name.strip_prefix("brand ").expect("this one panics"));
    let mut call = spawn(typed.call("user 7".to_owned()));
    let polled = catch_unwind(AssertUnwindSafe(|| call.poll()));
    assert!(polled.is_err());
    assert_idle(&runtime);
    assert_eq!(counts(&runtime, "typed").admitted, 0);
    assert_ready_ok!(spawn(typed.call("brand 7".to_owned())).poll());
}

#[test]
fn b5_an_empty_or_absent_key_serializes_nothing() {
    let runtime = db(1);
    let none = contract(&runtime, "none");
    let _absent = assert_ready_ok!(spawn(none.admit()).poll());
    let _absent = assert_ready_ok!(spawn(none.with().admit()).poll());
    let empty: [Key; 7] = [
        "".into(),
        String::new().into(),
        (&String::new()).into(),
        (&[][..]).into(),
        None::<u64>.into(),
        Some("").into(),
        Key::default(),
    ];
    let held = empty.map(|key| hold(&none, key));
    assert_eq!(runtime.stats().keys, 0);
    assert_eq!(counts(&runtime, "none").started, 9);
    drop(held);

    let room = Room::new();
    let room = &room;
    let stay = |_: &String| async {
        tokio::task::yield_now().await;
        Ok::<_, Failure<Error>>(())
    };
    let typed = runtime
        .operation("typed", Policy::pure(), handler_fn(stay))
        .unwrap()
        .serialize_by(String::as_str);
    let mut calls: Vec<_> = (0..4).map(|_| spawn(typed.call(String::new()))).collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    assert_eq!(counts(&runtime, "typed").started, 4);
    assert_eq!(runtime.stats().keys, 0);
    let mut run = spawn(none.run(|| room.stay()));
    assert_pending!(run.poll());
    assert_eq!(room.inside(), 1);
}

#[test]
fn b5_a_policy_may_require_a_key() {
    let runtime = db(1);
    let policy = || Policy::pure().claim("db", 1).require_key();
    let keyed = runtime.contract("keyed", policy()).unwrap();
    let rejects = runtime.contract("rejects", policy().reject()).unwrap();
    let right = |error: &CallError<_>, operation: &str| {
        assert!(matches!(error, CallError::KeyRequired(_)), "{error}");
        assert_eq!(error.outcome(), Outcome::Permanent);
        assert_eq!((error.operation(), error.attempts()), (operation, 0));
        assert!(
            error.never_ran() && error.to_string().contains("key"),
            "{error}"
        );
    };
    let run = async || -> Result<(), Failure<Error>> { panic!("it runs without a key") };
    let block = |_: &_| -> Result<(), Failure<Error>> { panic!("it runs without a key") };
    let full = hold(&keyed, "k");
    for (name, contract) in [("keyed", &keyed), ("rejects", &rejects)] {
        right(&assert_ready_err!(spawn(contract.run(run)).poll()), name);
        right(
            &assert_ready!(spawn(contract.run_held(run)).poll()).unwrap_err(),
            name,
        );
        right(
            &assert_ready_err!(spawn(contract.run_blocking(block)).poll()),
            name,
        );
        for key in [Key::NONE, "".into(), None::<&str>.into()] {
            let mut call = contract.with().key(key);
            right(&assert_ready_err!(spawn(call.run(|_| run())).poll()), name);
            let error = assert_ready_err!(spawn(call.admit()).poll());
            assert!(matches!(error, CallError::KeyRequired(_)), "{error}");
        }
        let of = counts(&runtime, name);
        assert_eq!(of.rejected, 0, "it is no overload");
        assert_eq!(of.admitted - of.finished, u64::from(name == "keyed"));
    }
    drop(full);
    drop(hold(&keyed, "k"));
    drop(hold(&rejects, 7));
    assert_idle(&runtime);

    let handler = handler_fn(|_: &String| async { Ok::<_, Failure<Error>>(()) });
    let bare = runtime.operation("bare", policy(), handler).unwrap();
    right(
        &assert_ready_err!(spawn(bare.call("k".into())).poll()),
        "bare",
    );
    let by_input = bare.serialize_by(String::as_str);
    assert_ready_ok!(spawn(by_input.call("k".into())).poll());
    right(
        &assert_ready_err!(spawn(by_input.call(String::new())).poll()),
        "bare",
    );
    assert_idle(&runtime);
}

#[test]
fn b5_a_key_waiter_holds_no_units() {
    let runtime = db(3);
    let one = Policy::pure().claim("db", 1);
    let one = runtime.contract("one", one).unwrap();
    let first = hold(&one, "k");
    let mut second = one.with().key("k");
    let mut second = spawn(second.admit());
    assert_pending!(second.poll());
    assert_eq!(in_use(&runtime, "db"), 1);
    let third = hold(&one, "");
    let fourth = hold(&one, "other");
    assert_eq!(in_use(&runtime, "db"), 3, "one was left for each");
    drop((first, third, fourth));
    drop(assert_ready_ok!(second.poll()));
}

#[test]
fn b6_one_key_is_serial_in_the_order_of_arrival_and_two_keys_are_not() {
    let runtime = db(100);
    let policy = Policy::pure().claim("db", 1);
    let one = runtime.contract("one", policy).unwrap();
    let rooms = ["A", "B"].map(|key| (key, Room::new()));
    let mut builders: Vec<_> = (0..5)
        .flat_map(|_| &rooms)
        .map(|(key, room)| (one.with().key(*key), room))
        .collect();
    let mut calls: Vec<_> = builders
        .iter_mut()
        .map(|(call, room)| spawn(call.run(|_| room.stay())))
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    for at in (0..calls.len()).step_by(2) {
        for (_, room) in &rooms {
            assert_eq!((room.inside(), room.entered()), (1, at / 2 + 1));
            room.let_out(1);
        }
        for call in &mut calls[at..at + 2] {
            assert_ready_ok!(call.poll());
        }
        let woken: Vec<_> = calls.iter().map(|call| call.is_woken()).collect();
        for (place, woken) in woken.into_iter().enumerate().skip(at + 2) {
            assert_eq!(woken, place < at + 4, "{place} after {at}");
        }
        for call in calls.iter_mut().skip(at + 2).take(2) {
            assert_pending!(call.poll());
        }
    }
    assert!(rooms.iter().all(|(_, room)| room.peak() == 1));
    assert_idle(&runtime);
}

#[test]
fn b6_all_operations_of_a_runtime_share_one_namespace() {
    let runtime = db(1);
    let (one, other) = (contract(&runtime, "one"), contract(&runtime, "other"));
    let handler = handler_fn(|_: &u64| async { Ok::<_, Failure<Error>>(()) });
    let typed = runtime
        .operation("typed", Policy::pure(), handler)
        .unwrap()
        .serialize_with(|number| *number);
    let held = hold(&one, "7");
    let mut first = other.with().key("7");
    let mut first = spawn(first.admit());
    let mut second = spawn(typed.call(7));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_ready_ok!(spawn(typed.call(8)).poll());
    drop(held);
    assert!(
        first.is_woken() && !second.is_woken(),
        "one queue, one order"
    );
    drop(assert_ready_ok!(first.poll()));
    assert_ready_ok!(second.poll());
    assert_idle(&runtime);
}

#[test]
fn b6_a_key_space_keeps_keys_apart() {
    let runtime = db(1);
    let spaced = |operation, space: &str| {
        let policy = Policy::pure().key_space(space);
        runtime.contract(operation, policy).unwrap()
    };
    let common = contract(&runtime, "common");
    let user = spaced("user", "user");
    let brand = spaced("brand", "brand");
    let brand_too = spaced("brand too", "brand");
    let held = [&common, &user, &brand].map(|contract| hold(contract, "7"));
    assert_eq!(runtime.stats().keys, 3);
    assert!(waits(&brand_too, "7"), "one space, one key");
    assert!(!waits(&brand_too, "8"));
    for contract in [&common, &user, &brand] {
        assert!(waits(contract, "7"));
    }
    // The space is no prefix of the key.
    assert!(!waits(&common, "brand7"));
    assert!(!waits(&common, "brand"));
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b6_keys_are_told_apart_by_every_byte() {
    let long = "k".repeat(1 << 20);
    let long_too = long.clone() + "!";
    let nearly = {
        let mut bytes = long.clone().into_bytes();
        *bytes.last_mut().unwrap() = b'l';
        bytes
    };
    let (at, over) = ("k".repeat(22), "k".repeat(23));
    let keys: [Key; 14] = [
        "a".into(),
        "a\0".into(),
        "\0".into(),
        "\0\0".into(),
        "A".into(),
        (&[0xff, 0xfe][..]).into(),
        (&[0xff, 0xff][..]).into(),
        at.into(),
        over.into(),
        long.clone().into(),
        long_too.into(),
        nearly.as_slice().into(),
        7.into(),
        (-7).into(),
    ];
    let runtime = db(1);
    let one = contract(&runtime, "one");
    let held = keys.each_ref().map(|key| hold(&one, key.clone()));
    assert_eq!(runtime.stats().keys, keys.len(), "no two of them meet");
    for key in &keys {
        assert!(waits(&one, key.clone()), "each meets itself");
    }
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b6_a_number_and_its_decimal_text_are_one_key() {
    let runtime = db(1);
    let one = contract(&runtime, "one");
    let pairs: [(Key, String); 7] = [
        (0_u8.into(), "0".to_owned()),
        (7_u16.into(), "7".to_owned()),
        ((-1_i32).into(), "-1".to_owned()),
        (i64::MIN.into(), i64::MIN.to_string()),
        (u64::MAX.into(), u64::MAX.to_string()),
        (u128::MAX.into(), u128::MAX.to_string()),
        (Some(42_u32).into(), "42".to_owned()),
    ];
    for (number, text) in pairs {
        let held = hold(&one, number);
        assert!(waits(&one, text.as_str()), "{text}");
        drop(held);
        assert!(!waits(&one, text.as_str()), "{text}");
    }
}

#[test]
fn b6_ten_thousand_keys_leave_nothing_behind() {
    const KEYS: usize = 10_000;

    let runtime = db(1);
    let rejects = runtime
        .contract("rejects", Policy::pure().reject())
        .unwrap();
    for round in 1..=2 {
        let held: Vec<_> = (0..KEYS).map(|key| hold(&rejects, key as u64)).collect();
        assert_eq!(runtime.stats().keys, KEYS);
        let refused = (0..KEYS).all(|key| waits(&rejects, key as u64));
        assert!(refused, "each is held");
        // Given back in another order than they were taken.
        let (even, odd): (Vec<_>, Vec<_>) = held
            .into_iter()
            .enumerate()
            .partition(|(at, _)| at % 2 == 0);
        drop(even);
        assert_eq!(runtime.stats().keys, KEYS / 2);
        drop(odd);
        assert_eq!(runtime.stats().keys, 0);
        let of = counts(&runtime, "rejects");
        assert_eq!(of.started, (KEYS * round) as u64);
        assert_eq!(of.rejected, (KEYS * round) as u64);
    }
    // Keys that come and go one by one never add up either.
    for key in 0..KEYS {
        let _held = hold(&rejects, format!("a key that does not fit inline: {key}"));
        assert_eq!(runtime.stats().keys, 1);
    }
    assert_idle(&runtime);
}

#[test]
fn b6_waiters_of_ten_thousand_keys_leave_nothing_behind() {
    const KEYS: u64 = 10_000;

    let runtime = db(1);
    let one = contract(&runtime, "one");
    let held: Vec<_> = (0..KEYS).map(|key| hold(&one, key)).collect();
    let mut builders: Vec<_> = (0..KEYS).map(|key| one.with().key(key)).collect();
    let mut waiters: Vec<_> = builders
        .iter_mut()
        .map(|call| spawn(call.admit()))
        .collect();
    for waiter in &mut waiters {
        assert_pending!(waiter.poll());
    }
    drop(held);
    assert_eq!(runtime.stats().keys, KEYS as usize, "each passed on");
    for (at, waiter) in waiters.iter_mut().enumerate() {
        assert!(waiter.is_woken());
        if at % 2 == 0 {
            drop(assert_ready_ok!(waiter.poll()));
        }
    }
    drop(waiters);
    assert_idle(&runtime);
}

/// A hundred thousand of them, so that some meet where the table looks for them.
#[test]
fn b6_a_key_of_another_space_is_another_key_wherever_it_lies() {
    let (runtime, _) = runtime(&[("db", 2)]);
    let of = |name: &str, space: &str| {
        let policy = Policy::pure().key_space(space).reject();
        runtime.contract(name, policy).unwrap()
    };
    let (here, there) = (of("here", "a"), of("there", "b"));
    for key in 0..100_000_u32 {
        let (mut one, mut other) = (here.with().key(key), there.with().key(key));
        let held = assert_ready_ok!(spawn(one.admit()).poll());
        let free = spawn(other.admit()).poll();
        assert!(matches!(free, Poll::Ready(Ok(_))), "key {key}: {free:?}");
        drop(held);
    }
}

#[test]
fn b6_a_turn_waits_for_a_key_that_somebody_else_holds() {
    let runtime = db(1);
    let contract = contract(&runtime, "load");
    let held = hold(&contract, "k");
    let mut turn = Standing::new(Some(runtime.id()), 8, Some(HoldId::unique()), None);
    let mut keyed = contract.with().key("k");
    let mut call = spawn(keyed.admit());
    turn.here(|| assert_pending!(call.poll()));
    drop(held);
    assert!(call.is_woken());
    drop(turn.here(|| assert_ready_ok!(call.poll())));
    drop(call);
    assert_idle(&runtime);
}
