//! One turn at a time, in order of arrival, a plain await included; panics; what is inherited from whom.

#![allow(clippy::disallowed_methods, reason = "tests start tasks that ask")]

mod common;

use std::pin::Pin;
use std::task::{Context, Poll};

use bursar::Classify;
use bursar_spot::{SpotErrorKind, Turn};
use common::{Door, Log, Shared, host, log, settle, step};

#[tokio::test]
async fn f1_turns_start_in_the_order_of_their_arrival() {
    let (_host, spot, _) = log("s");
    let first = spot.enter().await.unwrap();
    let mut a = step(spot.request(|mut turn| async move { turn.state().push("a") }));
    a.pending();
    let mut b = step(spot.send(|mut turn: Turn<Log>| async move { turn.state().push("b") }));
    b.ready().unwrap();
    let mut c = step(spot.enter());
    c.pending();
    let mut d = step(spot.request(|mut turn| async move { turn.state().push("d") }));
    d.pending();
    settle().await;
    a.pending();
    drop(first);
    settle().await;
    a.ready().unwrap();
    let mut turn = c.ready().unwrap();
    assert_eq!(*turn.state(), ["a", "b"]);
    turn.state().push("c");
    d.pending();
    drop(turn);
    settle().await;
    d.ready().unwrap();
    assert_eq!(*spot.enter().await.unwrap().state(), ["a", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f1_two_turns_never_run_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (host, ..) = host();
    let spot = host.create("s", 0_u64).unwrap();
    let inside = Arc::new(AtomicBool::new(false));
    let askers: Vec<_> = (0..8)
        .map(|asker| {
            let (spot, inside) = (spot.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                for round in 0..2_000 {
                    let inside = Arc::clone(&inside);
                    let suspends = (asker + round) % 7 == 0;
                    let work = move |mut turn: Turn<u64>| async move {
                        assert!(!inside.swap(true, Ordering::Relaxed), "two at once");
                        if suspends {
                            tokio::task::yield_now().await;
                        }
                        *turn.state() += 1;
                        inside.store(false, Ordering::Relaxed);
                    };
                    match round % 3 {
                        0 => spot.request(work).await.unwrap(),
                        1 => spot.send(work).await.unwrap(),
                        _ => *spot.enter().await.unwrap().state() += 1,
                    }
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.unwrap();
    }
    assert_eq!(*spot.enter().await.unwrap().state(), 16_000);
}

#[tokio::test]
async fn f2_a_plain_await_keeps_the_turn() {
    let (_host, spot, _) = log("s");
    let door = Door::new();
    let inner = door.clone();
    let mut long = step(spot.request(move |mut turn| async move {
        turn.state().push("before");
        inner.pass().await;
        turn.state().push("after");
    }));
    long.pending();
    let mut other = step(spot.request(|mut turn| async move { turn.state().push("other") }));
    other.pending();
    settle().await;
    other.pending();
    door.open();
    settle().await;
    long.ready().unwrap();
    other.ready().unwrap();
    assert_eq!(
        *spot.enter().await.unwrap().state(),
        ["before", "after", "other"]
    );
}

/// Its future does not hold the turn, which lasts as long all the same.
#[tokio::test]
async fn f1_a_closure_that_takes_no_notice_of_its_turn_has_it_all_the_same() {
    let (_host, spot, _) = log("s");
    let door = Door::new();
    let inner = door.clone();
    let mut long = step(spot.request(|_turn| async move { inner.pass().await }));
    long.pending();
    let mut other = step(spot.request(|_turn| async {}));
    other.pending();
    settle().await;
    other.pending();
    door.open();
    settle().await;
    long.ready().unwrap();
    other.ready().unwrap();
}

#[tokio::test]
async fn f12_a_panic_ends_its_turn_alone_and_its_requester_is_told() {
    let (_host, spot, _) = log("s");
    for suspends in [false, true] {
        for queued in [false, true] {
            let held = queued.then(|| step(spot.enter()).ready().unwrap());
            let mut panics = step(spot.request(move |mut turn| async move {
                turn.state().push("panics");
                if suspends {
                    tokio::task::yield_now().await;
                }
                panic!("said {}", 7);
            }));
            let polled = panics.poll();
            let mut next = step(spot.request(|mut turn| async move { turn.state().push("next") }));
            let after = next.poll();
            drop(held);
            settle().await;
            let result = match polled {
                std::task::Poll::Ready(result) => result,
                std::task::Poll::Pending => panics.ready(),
            };
            let error = result.unwrap_err();
            assert_eq!(error.kind(), SpotErrorKind::Panicked);
            assert!(error.to_string().contains("said 7"), "{error}");
            assert!(!error.never_ran());
            if after.is_pending() {
                next.ready().unwrap();
            }
        }
    }
    let state = spot.enter().await.unwrap().state().clone();
    assert_eq!(state.len(), 8);
    assert!(state.chunks(2).all(|pair| pair == ["panics", "next"]));
}

#[tokio::test]
async fn f12_a_panic_in_the_closure_in_a_drop_and_in_a_queue_ends_its_turn_alone() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let (_host, spot, _) = log("s");
    let error = spot
        .request(|turn: Turn<Log>| {
            let _turn = turn;
            assert!(std::hint::black_box(false), "in the closure");
            async {}
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::Panicked);
    let result = spot
        .request(|turn| async move {
            let _bomb = Bomb;
            drop(turn);
        })
        .await;
    assert_eq!(result.unwrap_err().kind(), SpotErrorKind::Panicked);
    spot.send(|_turn| async { panic!("with nobody waiting") })
        .await
        .unwrap();
    settle().await;
    spot.request(|_turn| async {}).await.unwrap();
}

#[tokio::test]
async fn f12_a_spot_that_says_so_closes_when_a_turn_panics() {
    let (host, ..) = host();
    let seen = Shared::default();
    let log = seen.clone();
    let spot = host
        .spot("s")
        .close_on_panic()
        .on_closing(move |_turn, reason| {
            let log = log.clone();
            async move {
                assert_eq!(reason, bursar_spot::CloseReason::Panicked);
                log.push("closing");
            }
        })
        .create(0_u32)
        .unwrap();
    let held = spot.enter().await.unwrap();
    let mut panics = step(spot.request(|_turn| async { panic!("half done") }));
    panics.pending();
    let mut queued = step(spot.request(|_turn| async {}));
    queued.pending();
    drop(held);
    settle().await;
    assert_eq!(panics.ready().unwrap_err().kind(), SpotErrorKind::Panicked);
    let error = queued.ready().unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::Closed);
    assert!(error.never_ran());
    assert_eq!(seen.read(), ["closing"]);
    assert!(!spot.is_open() && host.find::<u32>("s").is_none());
}

/// The call's unit is held by whoever ends the turn; what that starts must not be taken for nested work of it.
#[tokio::test]
async fn f13_work_started_by_whoever_ended_a_turn_inherits_nothing_of_it() {
    let (host, runtime, _) = host();
    let holder = runtime
        .contract("holder", bursar::Policy::pure().claim("unit", 1))
        .unwrap();
    let other = runtime
        .contract("other", bursar::Policy::pure().claim("unit", 1))
        .unwrap();
    let spot = host.create("s", Log::default()).unwrap();
    let seen = Shared::default();
    let result = holder
        .run(|| async {
            let entered = spot.enter().await.unwrap();
            let (other, log) = (other.clone(), seen.clone());
            let work = move |_turn| async move {
                // Not nested in the holder: it waits for the unit instead of being refused as a deadlock.
                let result = other.run(|| async { Ok::<_, bursar::Failure<()>>(()) });
                log.push(if result.await.is_ok() {
                    "ran"
                } else {
                    "refused"
                });
            };
            spot.send(work).await.unwrap();
            drop(entered);
            settle().await;
            seen.push("ended");
            Ok::<_, std::io::Error>(()).transient()
        })
        .await;
    result.unwrap();
    settle().await;
    assert_eq!(seen.read(), ["ended", "ran"]);
}

/// Dropped under a mutex, perhaps: the next turn is started by the executor, not here.
#[tokio::test]
async fn f13_a_turn_that_ends_with_nothing_of_ours_above_it_starts_nothing_inline() {
    let (_host, spot, _) = log("s");
    let entered = spot.enter().await.unwrap();
    let seen = Shared::default();
    for word in ["first", "second"] {
        let log = seen.clone();
        spot.send(move |_turn| async move { log.push(word) })
            .await
            .unwrap();
    }
    drop(entered);
    assert_eq!(seen.read(), Log::default());
    settle().await;
    assert_eq!(seen.read(), ["first", "second"]);
}

/// A send from inside of a turn runs after the poll that sends, also to another, idle Spot.
#[tokio::test]
async fn f13_a_send_never_runs_inside_of_its_caller() {
    let (host, spot, _) = log("s");
    let other = host.create("t", 0).unwrap();
    let seen = Shared::default();
    let log = seen.clone();
    spot.request(move |_turn| async move {
        let inner = log.clone();
        other
            .send(move |_turn| async move { inner.push("sent") })
            .await
            .unwrap();
        log.push("after the send");
    })
    .await
    .unwrap();
    settle().await;
    assert_eq!(seen.read(), ["after the send", "sent"]);
}

/// Nothing recurses, neither when each turn asks the next Spot nor when each ends before another.
#[tokio::test]
async fn f13_a_long_line_is_worked_off_without_recursion() {
    let (host, ..) = host();
    let spot = host.spot("s").queue(200_000).create(0_u32).unwrap();
    let entered = spot.enter().await.unwrap();
    for _ in 0..100_000 {
        spot.send(|mut turn| async move { *turn.state() += 1 })
            .await
            .unwrap();
    }
    drop(entered);
    let last = spot.request(|mut turn| async move { *turn.state() });
    assert_eq!(last.await.unwrap(), 100_000);
}

/// Polls one after the other, and keeps both until it is dropped itself.
struct Both<A, B>(A, B);

impl<A: Future + Unpin, B: Future + Unpin> Future for Both<A, B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let one = Pin::new(&mut self.0).poll(cx).is_ready();
        let other = Pin::new(&mut self.1).poll(cx).is_ready();
        if one && other {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

/// The turn stands beside the panic, not on the stack that it unwinds.
#[tokio::test]
async fn f12_a_turn_that_lies_beside_a_panic_has_panicked_as_well() {
    for suspends in [false, true] {
        let (host, ..) = host();
        let spot = host.spot("s").close_on_panic().create(0_u32).unwrap();
        let result = spot.request(move |turn| {
            let holds = Box::pin(async move {
                std::future::pending::<()>().await;
                drop(turn);
            });
            let panics = Box::pin(async move {
                if suspends {
                    tokio::task::yield_now().await;
                }
                panic!("beside the turn");
            });
            Both(holds, panics)
        });
        assert_eq!(result.await.unwrap_err().kind(), SpotErrorKind::Panicked);
        settle().await;
        assert!(!spot.is_open(), "suspends: {suspends}");
    }
}

/// Asks for a turn when it is dropped.
struct Asks<'s>(&'s bursar_spot::Spot<u32>, &'s std::cell::Cell<u32>);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let spot = self.0.clone();
        let adds = self.0.request(|mut turn| async move { *turn.state() += 1 });
        // Lets its turn go, and has it all the same: its own Spot refuses it another one.
        let ignores = self
            .0
            .request(move |_turn| async move { spot.enter().await.is_err() });
        let mut adds = step(adds);
        let mut ignores = step(ignores);
        let added = adds.ready().is_ok();
        let refused = ignores.ready().is_ok_and(|refused| refused);
        self.1.set(u32::from(added) + u32::from(refused));
    }
}

#[tokio::test]
async fn f12_a_turn_asked_for_while_another_panic_unwinds_has_not_panicked() {
    let (host, ..) = host();
    let spot = host.spot("s").close_on_panic().create(0_u32).unwrap();
    let went = std::cell::Cell::new(0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _asks = Asks(&spot, &went);
        panic!("of somebody else");
    }));
    assert!(panicked.is_err());
    assert_eq!(went.get(), 2);
    assert!(spot.is_open());
    assert_eq!(*spot.enter().await.unwrap().state(), 1);
}
