//! Faults that users of other software met at admission and at keys, retold. Numbers are those of the collection.

#![allow(
    clippy::disallowed_methods,
    reason = "some cases need callers on tasks and threads of their own"
)]

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll};

use bursar::{CallError, ContractError, Failure, Policy, Runtime};
use common::room::{Room, watched};
use common::{Error, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

async fn done() -> Result<(), Failure<Error>> {
    Ok(())
}

#[test]
fn case_02_waiters_that_time_out_leave_the_queue() {
    let (runtime, clock) = runtime(&[("db", 5)]);
    let policy = || Policy::pure().claim("db", 1);
    let waits = runtime.contract("waits", policy()).unwrap();
    let rejects = runtime.contract("rejects", policy().reject()).unwrap();
    for round in 0..100 {
        let mut held: Vec<_> = (0..5)
            .map(|_| assert_ready_ok!(spawn(waits.admit()).poll()))
            .collect();
        let mut calls: Vec<_> = (0..6).map(|_| waits.with().within(ms(50))).collect();
        let mut waiters: Vec<_> = calls.iter_mut().map(|call| spawn(call.admit())).collect();
        for waiter in &mut waiters {
            assert_pending!(waiter.poll());
        }
        clock.advance(ms(50));
        // In half of the rounds a holder ends at that same moment, and grants to one whose time is up.
        if round % 2 == 1 {
            held.pop();
        }
        for waiter in &mut waiters {
            assert!(waiter.is_woken());
            let error = assert_ready_err!(waiter.poll());
            assert!(matches!(error, CallError::AdmissionTimedOut(_)), "{error}");
        }
        assert_eq!(waiting(&runtime, "db"), 0);
        drop(held);
        assert_eq!(in_use(&runtime, "db"), 0);
        let all: Vec<_> = (0..5)
            .map(|_| assert_ready_ok!(spawn(rejects.admit()).poll()))
            .collect();
        drop(all);
    }
    assert_eq!(counts(&runtime, "rejects").rejected, 0);
    assert_idle(&runtime);
}

#[test]
fn case_04_a_releaser_does_not_retake_its_permit_before_the_waiter() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let mut waiter = spawn(load.admit());
    let mut served_after = None;
    let mut own = spawn(load.admit());
    let mut permit = Some(assert_ready_ok!(own.poll()));
    for round in 1..=1_000 {
        if round == 3 {
            assert_pending!(waiter.poll());
        }
        drop(permit.take());
        if round == 3 {
            assert!(waiter.is_woken(), "the very next admission");
        }
        own = spawn(load.admit());
        if waiter.is_woken() && served_after.is_none() {
            assert_pending!(own.poll(), "it queues behind the waiter");
            served_after = Some(round);
            let theirs = assert_ready_ok!(waiter.poll());
            assert_pending!(own.poll());
            drop(theirs);
        }
        permit = Some(assert_ready_ok!(own.poll()));
    }
    assert_eq!(served_after, Some(3));
}

#[test]
fn case_04_a_light_call_does_not_overtake_a_heavy_waiter() {
    let (runtime, _) = runtime(&[("db", 3)]);
    let two = Policy::pure().claim("db", 2);
    let two = runtime.contract("two", two).unwrap();
    let one = Policy::pure().claim("db", 1).reject();
    let one = runtime.contract("one", one).unwrap();
    let _a = assert_ready_ok!(spawn(two.admit()).poll());
    let mut b = spawn(two.admit());
    assert_pending!(b.poll());
    let mut d = spawn(one.admit());
    assert_pending!(d.poll());
    let error = assert_ready_err!(d.poll());
    let usage = error.refusal().unwrap().usage().unwrap();
    assert_eq!((usage.capacity, usage.in_use, usage.waiting), (3, 2, 1));
}

/// Uses up the current task's cooperation budget, so that tokio's own primitives would yield.
fn exhaust() {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let semaphore = tokio::sync::Semaphore::new(1);
    for _ in 0..10_000 {
        if pin!(semaphore.acquire()).poll(&mut cx).is_pending() {
            return;
        }
    }
    panic!("tokio's cooperation budget has no end here");
}

#[tokio::test(flavor = "current_thread")]
async fn case_05_an_exhausted_cooperation_budget_does_not_reorder_callers() {
    const CALLS: usize = 200;

    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let held = load.admit().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |number: usize| {
        let (load, order) = (load.clone(), Arc::clone(&order));
        async move {
            let started = || async {
                order.lock().unwrap().push(number);
                done().await
            };
            load.run(started).await.unwrap();
        }
    };
    let many = tokio::spawn({
        let mut calls: Vec<_> = (1..=CALLS).map(|number| Box::pin(call(number))).collect();
        let mut begun = false;
        poll_fn(move |cx| {
            if !std::mem::replace(&mut begun, true) {
                exhaust();
            }
            calls.retain_mut(|call| call.as_mut().poll(cx).is_pending());
            if calls.is_empty() {
                return Poll::Ready(());
            }
            Poll::Pending
        })
    });
    let last = tokio::spawn(call(CALLS + 1));
    while waiting(&runtime, "db") as usize <= CALLS {
        tokio::task::yield_now().await;
    }
    drop(held);
    many.await.unwrap();
    last.await.unwrap();
    let right: Vec<_> = (1..=CALLS + 1).collect();
    assert_eq!(*order.lock().unwrap(), right);
    assert_idle(&runtime);
}

#[test]
fn case_07_one_release_of_4_starts_four_waiters() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let four = Policy::pure().claim("db", 4);
    let four = runtime.contract("four", four).unwrap();
    let one = Policy::pure().claim("db", 1);
    let one = runtime.contract("one", one).unwrap();
    let room = Room::new();
    let a = assert_ready_ok!(spawn(four.admit()).poll());
    let mut others: Vec<_> = (0..4).map(|_| spawn(one.run(|| room.stay()))).collect();
    for other in &mut others {
        assert_pending!(other.poll());
    }
    assert_eq!(room.inside(), 0);
    drop(a);
    for other in &mut others {
        assert!(other.is_woken());
        assert_pending!(other.poll());
    }
    assert_eq!(room.inside(), 4);
}

#[test]
fn case_08_an_impossible_weight_is_refused_before_it_can_block() {
    let (runtime, _) = runtime(&[("db", 3)]);
    let seven = Policy::pure().claim("db", 7);
    let error = runtime.contract("b", seven).unwrap_err();
    let right = ContractError::InvalidUnits {
        operation: "b".to_owned(),
        budget: "db".to_owned(),
        units: 7,
        capacity: 3,
    };
    assert_eq!(error, right);
    assert!(error.to_string().contains("7 units"), "{error}");
    assert!(error.to_string().contains("capacity is 3"), "{error}");
    let one = Policy::pure().claim("db", 1);
    let one = runtime.contract("c", one).unwrap();
    drop(assert_ready_ok!(spawn(one.admit()).poll()));
    let none = Runtime::builder().resource("db", 0).build();
    assert!(matches!(
        none.unwrap_err(),
        ContractError::InvalidCapacity { capacity: 0, .. }
    ));
}

#[test]
fn case_10_what_comes_later_in_the_order_is_not_held_while_waiting() {
    // The order is that of the names: the one that is full comes first here, last there.
    for (full, free, held_meanwhile) in [("db", "net", 0), ("net", "db", 1)] {
        let (runtime, _) = runtime(&[(full, 1), (free, 4)]);
        let both = Policy::pure().claim("net", 1).claim("db", 1);
        let both = runtime.contract("both", both).unwrap();
        let holder = Policy::pure().claim(full, 1);
        let holder = runtime.contract("holder", holder).unwrap();
        let held = assert_ready_ok!(spawn(holder.admit()).poll());
        let mut b = spawn(both.admit());
        assert_pending!(b.poll());
        assert_eq!(waiting(&runtime, full), 1);
        assert_eq!(in_use(&runtime, free), held_meanwhile);
        drop(b);
        assert_eq!((waiting(&runtime, full), in_use(&runtime, free)), (0, 0));
        drop(held);
        assert_idle(&runtime);
    }
}

#[test]
fn case_10_ten_thousand_racing_calls_in_either_order_end() {
    const CALLERS: usize = 8;
    const CALLS: usize = 1_250;

    let (runtime, _) = runtime(&[("db", 1), ("net", 4)]);
    let one = Policy::pure().claim("db", 1).claim("net", 2);
    let one = runtime.contract("db, net", one).unwrap();
    let other = Policy::pure().claim("net", 3).claim("db", 1);
    let other = runtime.contract("net, db", other).unwrap();
    let room = Room::new();
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let shared = Arc::new((one, other, room));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let shared = Arc::clone(&shared);
            executor.spawn(async move {
                let (one, other, room) = &*shared;
                for call in 0..CALLS {
                    let contract = if (caller + call) % 2 == 0 { one } else { other };
                    let run = contract.run(|| async {
                        let _inside = room.enter();
                        tokio::task::yield_now().await;
                        done().await
                    });
                    run.await.unwrap();
                }
            })
        })
        .collect();
    watched(&runtime, || {
        for caller in callers {
            executor.block_on(caller).unwrap();
        }
    });
    let (_, _, room) = &*shared;
    assert_eq!((room.peak(), room.entered()), (1, CALLERS * CALLS));
    assert_idle(&runtime);
}

#[test]
fn case_11_a_key_that_falls_idle_while_others_come_has_one_holder() {
    const CALLERS: usize = 8;
    const CALLS: usize = 50_000;

    let (runtime, _) = runtime(&[("db", 8)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let shared = Arc::new((load, Room::new(), Barrier::new(CALLERS)));
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CALLERS)
        .build()
        .unwrap();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let shared = Arc::clone(&shared);
            executor.spawn(async move {
                let (load, room, begin) = &*shared;
                let mut call = load.with().key("k");
                begin.wait();
                for _ in 0..CALLS {
                    let run = call.run(|_| async {
                        drop(room.enter());
                        done().await
                    });
                    run.await.unwrap();
                }
            })
        })
        .collect();
    watched(&runtime, || {
        for caller in callers {
            executor.block_on(caller).unwrap();
        }
    });
    let (_, room, _) = &*shared;
    assert_eq!((room.peak(), room.entered()), (1, CALLERS * CALLS));
    assert_idle(&runtime);
}

#[test]
fn case_13_a_waiter_that_is_dropped_does_not_block_its_key() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let room = Room::new();
    let a = assert_ready_ok!(spawn(load.with().key("k").admit()).poll());
    let mut call = load.with().key("k");
    let mut b = spawn(call.run(|_| room.stay()));
    assert_pending!(b.poll());
    drop(b);
    drop(a);
    assert_eq!(runtime.stats().keys, 0);
    let mut call = load.with().key("k");
    let mut c = spawn(call.run(|_| room.stay()));
    assert_pending!(c.poll());
    assert_eq!(room.inside(), 1, "C starts at once");
    room.let_out(1);
    assert_ready_ok!(c.poll());
    assert_eq!(runtime.stats().keys, 0);
    assert_idle(&runtime);
}

#[test]
fn case_15_a_refused_or_expired_call_frees_nothing_that_another_holds() {
    for expires in [false, true] {
        let (runtime, clock) = runtime(&[("db", 4)]);
        let policy = || Policy::pure().claim("db", 1);
        let waits = runtime.contract("waits", policy()).unwrap();
        let rejects = runtime.contract("rejects", policy().reject()).unwrap();
        let room = Room::new();
        let (mut a, mut c) = (waits.with().key("k"), waits.with().key("k"));
        let mut b = if expires {
            waits.with().key("k").within(ms(5))
        } else {
            rejects.with().key("k")
        };
        let mut a = spawn(a.run(|_| room.stay()));
        assert_pending!(a.poll());
        clock.advance(ms(10));
        let mut b = spawn(b.run(|_| room.stay()));
        assert_pending!(b.poll());
        clock.advance(ms(5));
        let error = assert_ready_err!(b.poll());
        assert_eq!(error.is_overloaded(), !expires, "{error}");
        drop(b);
        clock.advance(ms(5));
        let mut c = spawn(c.run(|_| room.stay()));
        assert_pending!(c.poll());
        clock.advance(ms(79));
        assert!(!c.is_woken());
        assert_pending!(c.poll());
        assert_eq!((room.inside(), room.entered()), (1, 1), "A still holds");
        clock.advance(ms(1));
        room.let_out(1);
        assert_ready_ok!(a.poll());
        assert!(c.is_woken());
        assert_pending!(c.poll());
        assert_eq!((room.inside(), room.entered(), room.peak()), (1, 2, 1));
        room.let_out(1);
        assert_ready_ok!(c.poll());
        assert_idle(&runtime);
    }
}

/// Case 13's kind at every number of waiters: dropping any subset of them leaves a queue that works.
#[test]
fn case_13_any_of_the_waiters_may_be_dropped() {
    const WAITERS: usize = 6;

    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    for keyed in [false, true] {
        for dropped in 0..1_usize << WAITERS {
            let key = if keyed { "k" } else { "" };
            let held = assert_ready_ok!(spawn(load.with().key(key).admit()).poll());
            let mut calls: Vec<_> = (0..WAITERS).map(|_| load.with().key(key)).collect();
            let mut waiters: Vec<_> = calls
                .iter_mut()
                .map(|call| Some(spawn(Box::pin(call.admit()))))
                .collect();
            for waiter in waiters.iter_mut().flatten() {
                assert_pending!(waiter.poll());
            }
            for (at, waiter) in waiters.iter_mut().enumerate() {
                if dropped & 1 << at != 0 {
                    *waiter = None;
                }
            }
            drop(held);
            let served = AtomicUsize::new(0);
            for mut waiter in waiters.into_iter().flatten() {
                assert!(waiter.is_woken(), "the next in order");
                drop(assert_ready_ok!(waiter.poll()));
                served.fetch_add(1, Ordering::Relaxed);
            }
            let left = WAITERS - dropped.count_ones() as usize;
            assert_eq!(served.into_inner(), left);
            drop(calls);
            assert_idle(&runtime);
        }
    }
}
