//! Wakers that panic when they wake or go: whoever they belong to may fail, and no gate, claim or close with them.

#![allow(clippy::disallowed_methods, reason = "tests start tasks that ask")]

mod common;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar_spot::{Schedule, SpotErrorKind, Turn};
use common::{Log, host, log, ms, settle, step};

/// Panics when it is woken, or when it goes.
struct Hostile {
    wakes: bool,
    goes: AtomicBool,
}

impl Wake for Hostile {
    fn wake(self: Arc<Self>) {
        if self.wakes {
            self.goes.store(false, Ordering::Relaxed);
            panic!("a hostile wake");
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        if *self.goes.get_mut() && !std::thread::panicking() {
            panic!("a hostile drop");
        }
    }
}

/// Polls once with a waker that panics when it is woken, or when its last clone goes.
fn poll<F: Future>(future: Pin<&mut F>, wakes: bool) -> Poll<F::Output> {
    let hostile = Arc::new(Hostile {
        wakes,
        goes: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&hostile));
    let polled = future.poll(&mut Context::from_waker(&waker));
    drop(waker);
    // From here on it is the clones that were kept.
    hostile.goes.store(!wakes, Ordering::Relaxed);
    let _reported = catch_unwind(AssertUnwindSafe(|| drop(hostile)));
    polled
}

#[tokio::test]
async fn f1_a_waker_that_panics_when_it_goes_loses_no_grant() {
    let (_host, spot, _) = log("s");
    let held = spot.enter().await.unwrap();
    let mut enters = pin!(spot.enter());
    assert!(poll(enters.as_mut(), false).is_pending());
    // It replaces the first.
    assert!(poll(enters.as_mut(), false).is_pending());
    drop(held);
    let Poll::Ready(turn) = poll(enters.as_mut(), false) else {
        panic!("the gate is free");
    };
    turn.unwrap().state().push("entered");
    let held = spot.enter().await.unwrap();
    {
        let mut leaves = Box::pin(spot.enter());
        assert!(poll(leaves.as_mut(), false).is_pending());
    }
    drop(held);
    assert_eq!(*spot.enter().await.unwrap().state(), ["entered"]);
}

#[tokio::test]
async fn f6_a_waker_that_panics_when_it_goes_loses_no_work_that_waits_for_space() {
    let (host, ..) = host();
    // For ever: no timer keeps the waker.
    let spot = host.spot("s").queue(0).send_timeout(Duration::MAX);
    let spot = spot.create(Log::new()).unwrap();
    let held = spot.enter().await.unwrap();
    let mut sends = pin!(spot.send(|mut turn| async move { turn.state().push("sent") }));
    for _ in 0..3 {
        assert!(poll(sends.as_mut(), false).is_pending());
    }
    {
        let taken_back = spot.send(|mut turn| async move { turn.state().push("never") });
        let mut taken_back = Box::pin(taken_back);
        assert!(poll(taken_back.as_mut(), false).is_pending());
    }
    drop(held);
    settle().await;
    assert!(matches!(poll(sends.as_mut(), false), Poll::Ready(Ok(()))));
    assert_eq!(*spot.enter().await.unwrap().state(), ["sent"]);
}

#[tokio::test]
async fn f3_a_yield_under_a_hostile_waker_comes_back() {
    let (_host, spot, _) = log("s");
    for wakes in [false, true] {
        let body = spot.request(move |turn: Turn<Log>| async move {
            let come = AtomicBool::new(false);
            // It keeps no waker.
            let waits = poll_fn(|_| match come.load(Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            let mut yields = pin!(turn.yield_on(waits));
            assert!(poll(yields.as_mut(), wakes).is_pending());
            assert!(poll(yields.as_mut(), wakes).is_pending());
            come.store(true, Ordering::Relaxed);
            let (mut turn, ()) = yields.await;
            turn.state().push("back");
        });
        body.await.unwrap();
    }
    assert_eq!(*spot.enter().await.unwrap().state(), ["back", "back"]);
}

#[tokio::test]
async fn f11_a_spot_closes_though_a_waker_of_its_work_panics() {
    let (host, spot, _) = log("s");
    let workers = spot
        .request(|turn| async move { turn.workers() })
        .await
        .unwrap();
    let work = tokio::spawn(workers.io(|cancelled| async move {
        let mut stops = pin!(cancelled.cancelled());
        assert!(poll(stops.as_mut(), true).is_pending());
        std::future::pending::<()>().await;
    }));
    settle().await;
    let held = spot.enter().await.unwrap();
    let mut queued = step(spot.request(|_turn| async {}));
    queued.pending();
    let mut close = step(host.close("s"));
    close.pending();
    assert!(queued.ready().unwrap_err().never_ran());
    drop(held);
    settle().await;
    close.ready().unwrap();
    assert!(host.find::<Log>("s").is_none());
    work.abort();
}

#[tokio::test]
async fn f8_a_handler_that_a_closed_spot_refuses_goes_after_its_lock() {
    let (host, spot, _) = log("s");
    let actor = spot.actor(());
    host.close("s").await.unwrap();
    // The last owner of a lane, whose end takes the Spot's lock.
    let refused = spot.timer("t", Schedule::every(ms(1)), move |_turn, _tick| {
        let _own = actor.clone();
        async {}
    });
    assert_eq!(refused.unwrap_err().kind(), SpotErrorKind::Closed);
}

/// Panics when it is woken, and so does what it panics with when that is dropped.
struct Twice;

impl Wake for Twice {
    fn wake(self: Arc<Self>) {
        struct Left;

        impl Drop for Left {
            fn drop(&mut self) {
                panic!("what a panic left behind");
            }
        }

        std::panic::panic_any(Left);
    }
}

#[tokio::test]
async fn f12_a_panic_that_leaves_a_panic_behind_stops_nothing() {
    let (_host, spot, _) = log("s");
    for _ in 0..3 {
        let held = spot.enter().await.unwrap();
        let mut first = pin!(spot.request(|_turn| async {}));
        let waker = Waker::from(Arc::new(Twice));
        let polled = first.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let mut second = step(spot.request(|_turn| async { 2 }));
        second.pending();
        drop(held);
        settle().await;
        first.await.unwrap();
        assert_eq!(second.ready().unwrap(), 2);
    }
}
