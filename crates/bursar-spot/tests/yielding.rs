//! Giving the gate back while waiting.

#![allow(
    clippy::disallowed_methods,
    reason = "a test takes a turn to another task"
)]

mod common;

use std::future::{pending, ready};

use bursar_spot::{PerActor, SpotErrorKind, Turn};
use common::{Door, Log, Says, Shared, host, log, settle, step};

#[tokio::test]
async fn f3_the_gate_is_free_while_a_turn_yields_and_it_resumes_behind_what_waits() {
    let (_host, spot, _) = log("s");
    let door = Door::new();
    let inner = door.clone();
    let mut yields = step(spot.request(move |mut turn| async move {
        turn.state().push("before");
        let (mut turn, ()) = turn.yield_on(async move { inner.pass().await }).await;
        turn.state().push("after");
    }));
    yields.pending();
    spot.request(|mut turn| async move { turn.state().push("meanwhile") })
        .await
        .unwrap();
    // What it waits for comes while the gate is held and somebody waits already.
    let held = spot.enter().await.unwrap();
    let mut waits = step(spot.request(|mut turn| async move { turn.state().push("waited") }));
    waits.pending();
    door.open();
    settle().await;
    let mut late = step(spot.request(|mut turn| async move { turn.state().push("late") }));
    late.pending();
    drop(held);
    settle().await;
    for ended in [&mut waits.ready(), &mut yields.ready(), &mut late.ready()] {
        assert!(ended.is_ok());
    }
    assert_eq!(
        *spot.enter().await.unwrap().state(),
        ["before", "meanwhile", "waited", "after", "late"]
    );
}

#[tokio::test]
async fn f3_the_future_is_polled_once_before_the_gate_is_free() {
    let (_host, spot, _) = log("s");
    let seen = Shared::default();
    let log = seen.clone();
    let held = spot.enter().await.unwrap();
    let mut yields = step(spot.request(move |turn: Turn<Log>| async move {
        let inner = log.clone();
        let mut polls = 0;
        let under_way = std::future::poll_fn(move |cx| {
            polls += 1;
            inner.push(if polls == 1 { "first poll" } else { "again" });
            if polls > 1 {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        });
        turn.yield_on(under_way).await
    }));
    yields.pending();
    let log = seen.clone();
    let mut other = step(spot.request(move |_turn| async move { log.push("other") }));
    other.pending();
    drop(held);
    settle().await;
    assert_eq!(seen.read()[..2], ["first poll", "other"]);
    drop((yields, other));
}

#[tokio::test]
async fn f3_what_waits_goes_first_although_the_future_was_ready_at_once() {
    let (_host, spot, _) = log("s");
    let held = spot.enter().await.unwrap();
    let mut yields = step(spot.request(|mut turn| async move {
        turn.state().push("before");
        let (mut turn, seven) = turn.yield_on(ready(7)).await;
        turn.state().push("after");
        seven
    }));
    yields.pending();
    let mut other = step(spot.request(|mut turn| async move { turn.state().push("other") }));
    other.pending();
    drop(held);
    settle().await;
    assert_eq!(yields.ready().unwrap(), 7);
    assert_eq!(
        *spot.enter().await.unwrap().state(),
        ["before", "other", "after"]
    );
    // With nobody waiting it simply goes on.
    let mut alone =
        step(spot.request(|turn: Turn<Log>| async move { turn.yield_on(ready(8)).await.1 }));
    assert_eq!(alone.ready().unwrap(), 8);
}

#[tokio::test]
async fn f3_a_dropped_yield_ends_the_turn_and_the_body_goes_on_without_it() {
    let (_host, spot, _) = log("s");
    let door = Door::new();
    let inner = door.clone();
    let again = spot.clone();
    let mut body = step(spot.request(move |turn: Turn<Log>| async move {
        let mut yields = step(turn.yield_on(pending::<()>()));
        yields.pending();
        drop(yields);
        inner.pass().await;
        // The body's chain holds the gate no more, so it may ask its own Spot.
        again
            .request(|mut turn| async move { turn.state().push("asked") })
            .await
            .unwrap();
        "went on"
    }));
    body.pending();
    settle().await;
    spot.request(|mut turn| async move { turn.state().push("meanwhile") })
        .await
        .unwrap();
    door.open();
    settle().await;
    assert_eq!(body.ready().unwrap(), "went on");
    assert_eq!(*spot.enter().await.unwrap().state(), ["meanwhile", "asked"]);
}

#[tokio::test]
async fn f4_where_the_kind_is_known_at_run_time_alone_a_yield_may_be_an_invalid_operation() {
    async fn yields<K: bursar_spot::Kind>(turn: Turn<u32, K>) -> (bool, bool) {
        let mut polled = false;
        let future = std::future::poll_fn(|_| {
            polled = true;
            std::task::Poll::Ready(())
        });
        match turn.try_yield_on(future).await {
            Ok((mut turn, ())) => {
                *turn.state() += 1;
                (true, polled)
            }
            Err((mut turn, error)) => {
                // It has its turn still.
                *turn.state() += 1;
                assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
                (false, polled)
            }
        }
    }
    let (host, ..) = host();
    let wide = host.create("wide", 0).unwrap();
    let apart = host.spot("apart").kind::<PerActor>().create(0).unwrap();
    assert_eq!(wide.request(yields).await.unwrap(), (true, true));
    assert_eq!(apart.request(yields).await.unwrap(), (false, false));
    assert_eq!(*apart.enter().await.unwrap().state(), 1);
}

/// What the yielding body waits for goes before its claim passes on.
#[tokio::test]
async fn f3_what_is_waited_for_is_dropped_before_the_claim_is_free() {
    let (_host, spot, _) = log("s");
    let actor = spot.actor(0_u32);
    let seen = Shared::default();
    let (log, word) = (seen.clone(), seen.clone());
    let (give, take) = tokio::sync::oneshot::channel();
    actor
        .send(move |turn| async move {
            let says = Says(log, "dropped");
            let yields = turn.yield_on(async move {
                pending::<()>().await;
                drop(says);
            });
            let mut yields = step(yields);
            yields.pending();
            drop(give.send(yields));
        })
        .await
        .unwrap();
    let yields = take.await.unwrap();
    let mut next = step(actor.request(move |_turn| async move { word.push("next") }));
    next.pending();
    drop(yields);
    settle().await;
    next.ready().unwrap();
    assert_eq!(seen.read(), ["dropped", "next"]);
}

/// There is no body to drop it with.
#[tokio::test]
async fn f11_a_yield_outside_of_its_body_panics_when_its_spot_closes() {
    let (host, spot, _) = log("s");
    let moved = spot.request(|turn: Turn<Log>| async move {
        let elsewhere = tokio::spawn(async move {
            turn.yield_on(pending::<()>()).await;
        });
        (elsewhere,)
    });
    let (elsewhere,) = moved.await.unwrap();
    settle().await;
    host.close("s").await.unwrap();
    let said = elsewhere.await.unwrap_err().into_panic();
    let said = said.downcast::<String>().unwrap();
    assert!(said.contains("Spot \"s\" closed"), "{said}");
}
