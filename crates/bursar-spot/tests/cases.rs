//! Faults that users of other software met, as they would show in turns.

#![allow(
    clippy::disallowed_methods,
    reason = "one scenario needs a thread of its own"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar::{Classify, Policy, ShutdownError};
use bursar_spot::{Host, Schedule, SpotErrorKind, Turn};
use common::{Door, Log, Shared, host, log, ms, settle, step};

/// Shutdown asked for inside a turn and inside a timer's tick; then twice from outside.
#[tokio::test]
async fn case_24_a_shutdown_inside_a_turn_or_a_tick_is_refused_and_outside_it_ends() {
    let (host, runtime, clock) = host();
    let spot = host.create("s", ()).unwrap();
    let refused = Arc::new(AtomicU32::new(0));
    let ask = |runtime: bursar::Runtime, host: Host, refused: Arc<AtomicU32>| async move {
        let inner = runtime.shutdown().await.map(drop);
        assert_eq!(inner, Err(ShutdownError::InsideOwnCall));
        let inner = host.shutdown_within(ms(1)).await.map(drop);
        assert_eq!(inner, Err(ShutdownError::InsideOwnCall));
        refused.fetch_add(1, Ordering::Relaxed);
    };
    let (inner, own, count) = (runtime.clone(), host.clone(), Arc::clone(&refused));
    spot.request(move |turn| async move {
        ask(inner, own, count).await;
        drop(turn);
    })
    .await
    .unwrap();
    let (inner, own, count) = (runtime.clone(), host.clone(), Arc::clone(&refused));
    spot.timer("t", Schedule::every(ms(10)), move |turn, _tick| {
        let (inner, own, count) = (inner.clone(), own.clone(), Arc::clone(&count));
        async move {
            ask(inner, own, count).await;
            drop(turn);
        }
    })
    .unwrap();
    settle().await;
    clock.advance(ms(10));
    settle().await;
    assert_eq!(refused.load(Ordering::Relaxed), 2);
    let mut first = step(host.shutdown_within(ms(1000)));
    let mut second = step(runtime.shutdown());
    for _ in 0..8 {
        if first.poll().is_ready() {
            break;
        }
        settle().await;
    }
    second.ready().unwrap();
}

/// A callback that panics, and ten thousand queued behind a turn when all is closed, on a small stack.
#[test]
fn case_27_callbacks_that_panic_and_a_mass_refusal_are_settled_one_by_one() {
    let work = || {
        let executor = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        executor.block_on(async {
            let (host, ..) = host();
            let spot = host.spot("s").queue(20_000).create(0_u32).unwrap();
            spot.request(|turn: Turn<u32>| async move {
                turn.on_complete(async {}, |_turn, ()| async { panic!("the callback") });
                turn.on_complete(async {}, |mut turn, ()| async move { *turn.state() += 1 });
            })
            .await
            .unwrap();
            settle().await;
            assert_eq!(*spot.enter().await.unwrap().state(), 1);

            let settled = Arc::new(AtomicU32::new(0));
            let held = spot.enter().await.unwrap();
            let mut asked: Vec<_> = (0..10_000)
                .map(|_| step(spot.request(|mut turn| async move { *turn.state() += 1 })))
                .collect();
            for request in &mut asked {
                request.pending();
            }
            let mut close = step(host.close("s"));
            close.pending();
            // Ten thousand answers in one poll are more than a task's cooperation budget.
            tokio::task::unconstrained(async {
                for request in &mut asked {
                    assert!(request.ready().unwrap_err().never_ran());
                    settled.fetch_add(1, Ordering::Relaxed);
                }
            })
            .await;
            drop(held);
            settle().await;
            close.ready().unwrap();
            assert_eq!(settled.load(Ordering::Relaxed), 10_000);
        });
    };
    let thread = std::thread::Builder::new().stack_size(256 * 1024);
    thread.spawn(work).unwrap().join().unwrap();
}

/// A asks B, which asks A; and A asks A: refused at once while waiting, done while yielding, both usable afterwards.
#[tokio::test]
async fn case_29_circles_are_refused_while_waiting_and_end_while_yielding() {
    for yields in [false, true] {
        let (host, a, _) = log("a");
        let b = host.create("b", Log::default()).unwrap();
        let (to, back) = (b.clone(), a.clone());
        let mut circle = step(a.request(move |turn: Turn<Log>| async move {
            let inner = move |turn: Turn<Log>| async move {
                let asked = back.request(|mut turn| async move { turn.state().push("third") });
                if yields {
                    turn.yield_on(asked).await.1
                } else {
                    let asked = asked.await;
                    drop(turn);
                    asked
                }
            };
            let asked = to.request(inner);
            if yields {
                turn.yield_on(asked).await.1
            } else {
                let asked = asked.await;
                drop(turn);
                asked
            }
        }));
        drop(circle.poll());
        settle().await;
        let third = circle.ready().unwrap().unwrap();
        match third {
            Ok(()) => assert!(yields),
            Err(error) => {
                assert!(!yields);
                assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
            }
        }
        for spot in [&a, &b] {
            spot.request(|_turn| async {}).await.unwrap();
        }
        assert_eq!(a.enter().await.unwrap().state().len(), usize::from(yields));
    }
}

/// A body yields on work of a call; its Spot is closed and opened again under the same name.
#[tokio::test]
async fn case_32_a_continuation_never_runs_on_another_incarnation() {
    let (host, runtime, _) = host();
    let call = runtime
        .contract("work", Policy::idempotent().claim("unit", 1))
        .unwrap();
    let seen = Shared::default();
    let old = host.create("s", Log::default()).unwrap();
    let door = Door::new();
    let (inner, log) = (door.clone(), seen.clone());
    let mut body = step(old.request(move |turn: Turn<Log>| async move {
        let work = async move {
            let works = call.run(|| async {
                inner.pass().await;
                Ok::<_, std::io::Error>(()).transient()
            });
            drop(works.await);
        };
        let (mut turn, ()) = turn.yield_on(work).await;
        log.push("continued");
        turn.state().push("on an old state");
    }));
    body.pending();
    settle().await;
    assert_eq!(runtime.stats().budgets[0].in_use, 1);
    host.close("s").await.unwrap();
    let new = host.create("s", Log::default()).unwrap();
    let error = body.ready().unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::Closed);
    assert!(!error.never_ran());
    assert_eq!(runtime.stats().budgets[0].in_use, 0);
    door.open();
    settle().await;
    assert!(seen.read().is_empty());
    assert!(new.enter().await.unwrap().state().is_empty());
}
