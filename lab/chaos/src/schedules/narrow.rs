//! Small scenarios around one promise each, so that a schedule meets the narrow place often.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use shuttle::future::block_on;
use shuttle::thread;

use super::world::{Fails, World, choose, judge, pause, turn};
use crate::ledger::Line;

pub(super) type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The first poll, which fixes the place in the queue. No waker: whoever goes on polls again before it waits.
pub(super) fn arrive(waiting: &mut Waiting) {
    let poll = waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(poll, Poll::Pending, "the budget is held");
}

/// Tickets drawn while the budget is held, some of them torn up, the rest called up in order.
pub fn tickets() {
    let world = World::new();
    let light = Arc::new(world.operation("light", &[(0, 1)], false));
    let heavy = Arc::new(world.operation("heavy", &[(0, 2)], false));
    let line = Arc::new(Line::new(2));
    let held = block_on(heavy.contract.admit()).expect("free");
    let mut waiting: Vec<Waiting> = Vec::new();
    for _ in 0..3 {
        let (operation, units) = match choose(2) {
            0 => (Arc::clone(&light), 1),
            _ => (Arc::clone(&heavy), 2),
        };
        let ticket = line.draw(units);
        let (line, world) = (Arc::clone(&line), Arc::clone(&world));
        let mut caller: Waiting = Box::pin(async move {
            let ran = operation
                .contract
                .run(|| async {
                    line.start(ticket);
                    let inside = world.ledger.enter(operation.claims, None);
                    turn().await;
                    drop(inside);
                    line.done(ticket);
                    Ok::<_, Fails>(())
                })
                .await;
            assert!(ran.is_ok(), "{ran:?}");
        });
        arrive(&mut caller);
        waiting.push(caller);
    }
    let leaver = choose(4) as usize;
    let threads: Vec<_> = waiting
        .into_iter()
        .enumerate()
        .map(|(ticket, caller)| {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                if ticket == leaver {
                    line.done(ticket);
                    drop(caller);
                } else {
                    block_on(caller);
                }
            })
        })
        .collect();
    drop(held);
    for thread in threads {
        thread.join().expect("no caller fails");
    }
    assert_eq!(line.kept(), Ok(()));
    world.assert_idle();
}

/// A handler leaves a permit behind that it took from inside, on a budget a scan may have passed already (D1).
pub fn late_permit() {
    let world = World::new();
    let outer = world.operation("outer", &[(2, 1)], false);
    let inner = world.operation("inner", &[(0, 1)], false);
    let shared = Arc::clone(&world);
    let caller = thread::spawn(move || {
        let left = block_on(outer.contract.run(|| async {
            let permit = inner.contract.admit().await.expect("nested work goes on");
            let inside = shared.ledger.enter(inner.claims, None);
            Ok::<_, Fails>((permit, inside))
        }));
        if let Ok((permit, inside)) = left {
            // Long enough for the scan to end, should it have passed this budget by.
            for _ in 0..4 {
                pause();
            }
            drop(inside);
            drop(permit);
        }
    });
    block_on(world.drain_and_count());
    caller.join().expect("no caller fails");
    world.assert_idle();
}

/// The head is too heavy and leaves; who waits behind it fits, and the holder stays (B8).
pub fn leaving_head() {
    let world = World::new();
    let light = world.operation("light", &[(0, 1)], false);
    let heavy = world.operation("heavy", &[(0, 2)], false);
    let held = block_on(light.contract.admit()).expect("free");
    let heavy = Arc::new(heavy);
    let mut head: Waiting = {
        let heavy = Arc::clone(&heavy);
        Box::pin(async move { drop(heavy.contract.admit().await) })
    };
    arrive(&mut head);
    let leaver = thread::spawn(move || drop(head));
    let shared = Arc::clone(&world);
    let next = thread::spawn(move || {
        let ran = block_on(light.contract.run(|| async {
            drop(shared.ledger.enter(light.claims, None));
            Ok::<_, Fails>(())
        }));
        assert!(ran.is_ok(), "{ran:?}");
    });
    leaver.join().expect("no caller fails");
    next.join().expect("no caller fails");
    drop(held);
    world.assert_idle();
}

/// Whoever sees the drain end sees every call counted (B1, E1).
pub fn finished_before_drained() {
    let world = World::new();
    let operation = world.operation("operation", &[(0, 1)], false);
    let shared = Arc::clone(&world);
    let caller = thread::spawn(move || {
        let key = choose(2);
        let mut call = operation.contract.with();
        if key == 1 {
            call = call.key(key);
        }
        // Refused when the drain came first.
        let _either = block_on(call.run(|_| async {
            drop(shared.ledger.enter(operation.claims, None));
            Ok::<_, Fails>(())
        }));
    });
    block_on(world.drain_and_count());
    caller.join().expect("no caller fails");
    world.assert_idle();
}

/// A call that is turned away for want of capacity is counted before the drain ends, or refused at the gate (E1).
pub fn refused_at_the_gate() {
    let world = World::new();
    let operation = world.operation("operation", &[(1, 1)], true);
    let held = block_on(operation.contract.admit()).expect("free");
    let shared = Arc::clone(&world);
    let caller = thread::spawn(move || {
        let ran = block_on(operation.contract.run(|| async {
            drop(shared.ledger.enter(operation.claims, None));
            Ok::<_, Fails>(())
        }));
        judge(&ran);
    });
    drop(held);
    block_on(world.drain_and_count());
    let admitted = world.runtime.stats().total().admitted;
    caller.join().expect("no caller fails");
    let after = world.runtime.stats().total().admitted;
    assert_eq!(admitted, after, "admitted after the drain has ended");
    world.assert_idle();
}

/// A call that joins a queue while it is being closed is withdrawn: the holder stays until it is (D1).
pub fn joining_a_closing_queue() {
    let world = World::new();
    let light = world.operation("light", &[(1, 1)], false);
    let held = block_on(light.contract.admit()).expect("free");
    let caller = thread::spawn(move || {
        let refused = block_on(light.contract.run(|| async { Ok::<_, Fails>(()) }));
        assert!(
            refused.is_err_and(|error| error.is_stopping()),
            "it cannot have run"
        );
    });
    let mut drain = Box::pin(world.runtime.shutdown());
    let poll = drain.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_pending(), "a permit is held");
    caller.join().expect("no caller fails");
    drop(held);
    drop(drain);
    block_on(world.drain_and_count());
    world.assert_idle();
}
