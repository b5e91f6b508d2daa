//! E2 on threads: what holds in every snapshot, whatever moves meanwhile, and what it says once nothing moves.

#![allow(
    clippy::disallowed_methods,
    reason = "the snapshots here are taken while other threads call"
)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Waker;
use std::thread;

use bursar::{Contract, Failure, Policy, Retry, Runtime, Snapshot};
use common::room::watched;
use common::{Error, assert_idle, runtime};
use tokio_test::task::spawn;

const CALLERS: usize = 4;

fn contracts(runtime: &Runtime) -> [Contract; 3] {
    let waits = Policy::pure().claim("a", 1).claim("b", 2);
    let waits = waits.retry(Retry::up_to(2).on_transient());
    [
        runtime.contract("waits", waits).unwrap(),
        runtime
            .contract("rejects", Policy::pure().claim("b", 1).reject())
            .unwrap(),
        runtime
            .contract("heavy", Policy::pure().claim("a", 2))
            .unwrap(),
    ]
}

/// Polled once and dropped, or polled until it ends.
fn call(contracts: &[Contract; 3], number: usize) {
    let contract = &contracts[number % 3];
    let key = ["", "k", "l"][number / 3 % 3];
    let mut call = contract.with().key(key);
    let work = move |attempt: &bursar::Attempt| {
        let fails = number % 5 == 0 && attempt.number() == 1;
        async move {
            if fails {
                return Err(Failure::<Error>::transient("again"));
            }
            Ok(number)
        }
    };
    if number % 7 == 0 {
        drop(spawn(call.run(work)).poll());
    } else {
        // Whether it ran or was refused is not the question.
        let _answer = tokio_test::block_on(call.run(work));
    }
}

#[track_caller]
fn assert_sound(of: &Snapshot) {
    for budget in &of.budgets {
        assert!(budget.in_use <= budget.capacity + budget.owed, "\n{of}");
        assert!(budget.unnoticed <= budget.in_use, "\n{of}");
        assert!(budget.holders.iter().all(|of| of.units > 0), "\n{of}");
        let held: u32 = budget.holders.iter().map(|of| of.units).sum();
        assert_eq!(held + budget.unattributed, budget.in_use, "\n{of}");
        let queued: u32 = budget.queue.iter().map(|run| run.calls).sum();
        assert!(queued <= budget.waiting, "\n{of}");
    }
    for operation in &of.operations {
        let stats = &operation.stats;
        assert!(stats.started <= stats.admitted, "\n{of}");
        assert!(stats.finished <= stats.admitted, "\n{of}");
    }
    for key in &of.keys {
        assert!(
            ["waits", "rejects", "heavy"].contains(&&*key.holder),
            "\n{of}"
        );
    }
}

#[test]
fn e2_a_snapshot_under_load_never_shows_more_in_use_than_there_is() {
    const CALLS: usize = 4_000;

    let (runtime, _) = runtime(&[("a", 3), ("b", 3)]);
    let contracts = contracts(&runtime);
    let (begin, ended) = (Barrier::new(CALLERS + 2), AtomicUsize::new(0));
    watched(&runtime, || {
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (begin, ended, contracts) = (&begin, &ended, &contracts);
                scope.spawn(move || {
                    begin.wait();
                    for number in 0..CALLS {
                        call(contracts, number + caller);
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            let (begin, ended, runtime) = (&begin, &ended, &runtime);
            scope.spawn(move || {
                begin.wait();
                let mut capacity = 2;
                while ended.load(Ordering::SeqCst) < CALLERS {
                    runtime.resize("b", capacity).unwrap();
                    capacity = 2 + capacity % 4;
                    thread::yield_now();
                }
            });
            begin.wait();
            while ended.load(Ordering::SeqCst) < CALLERS {
                assert_sound(&runtime.snapshot());
            }
        });
    });
    let rest = runtime.snapshot();
    assert_sound(&rest);
    assert!(rest.keys.is_empty() && rest.budgets.iter().all(|of| of.in_use == 0));
    for of in &rest.operations {
        assert_eq!((of.executing, of.waiting, of.paused), (0, 0, 0), "\n{rest}");
        assert_eq!(of.stats.outcomes.all(), of.stats.finished, "\n{rest}");
    }
    assert_idle(&runtime);
}

#[test]
fn e2_what_stands_still_is_told_exactly_while_others_run() {
    let (runtime, _) = runtime(&[("a", 8), ("b", 8), ("stuck", 2)]);
    let contracts = contracts(&runtime);
    let stuck = runtime
        .contract("stuck", Policy::pure().claim("a", 1).claim("stuck", 1))
        .unwrap();
    let mut held: Vec<_> = (0..3).map(|_| spawn(stuck.admit())).collect();
    let permits: Vec<_> = held.iter_mut().map(|admit| admit.poll()).collect();
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (ended, contracts) = (&ended, &contracts);
            scope.spawn(move || {
                for number in 0..2_000 {
                    call(contracts, number + caller);
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        while ended.load(Ordering::SeqCst) < CALLERS {
            let seen = runtime.snapshot();
            let of = &seen.budgets[2];
            assert_eq!(
                (of.in_use, of.waiting, of.unattributed),
                (2, 1, 0),
                "\n{seen}"
            );
            assert_eq!(
                (of.holders[0].units, of.holders[0].calls),
                (2, 2),
                "\n{seen}"
            );
            let of = &seen.operations[3];
            assert_eq!((of.executing, of.waiting), (2, 1), "\n{seen}");
        }
    });
    drop((held, permits));
    assert_idle(&runtime);
}

#[test]
fn e2_a_snapshot_taken_in_wakers_on_many_threads_ends() {
    let (runtime, _) = runtime(&[("a", 2), ("b", 2)]);
    let contracts = Arc::new(contracts(&runtime));
    let looking = {
        let runtime = runtime.clone();
        common::room::on_wake(move || assert_sound(&runtime.snapshot()))
    };
    watched(&runtime, || {
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                let (contracts, looking) = (Arc::clone(&contracts), &looking);
                scope.spawn(move || hand_over(&contracts[2], looking));
            }
        });
    });
    assert_idle(&runtime);
}

/// Takes turns with whoever else asks: each release wakes another, whose waker looks.
fn hand_over(contract: &Contract, looking: &Waker) {
    let mut cx = std::task::Context::from_waker(looking);
    for _ in 0..500 {
        let mut admit = Box::pin(contract.admit());
        loop {
            if let std::task::Poll::Ready(permit) = admit.as_mut().poll(&mut cx) {
                drop(permit);
                break;
            }
            thread::yield_now();
        }
    }
}
