//! Completions that enter as new turns.

mod common;

use bursar::seam::{CompleteTurn, Services, YieldTurn};
use common::{Door, Log, Says, Shared, host, log, settle, step};

#[tokio::test]
async fn f10_a_completion_enters_as_a_new_turn_and_the_turn_that_asks_goes_on() {
    let (_host, spot, _) = log("s");
    let door = Door::new();
    let inner = door.clone();
    spot.request(move |mut turn| async move {
        turn.on_complete(
            async move {
                inner.pass().await;
                7
            },
            |mut turn, seven| async move {
                assert_eq!(seven, 7);
                turn.state().push("completed");
            },
        );
        turn.state().push("went on");
    })
    .await
    .unwrap();
    let held = spot.enter().await.unwrap();
    let mut waits = step(spot.request(|mut turn| async move { turn.state().push("waited") }));
    waits.pending();
    door.open();
    settle().await;
    drop(held);
    settle().await;
    waits.ready().unwrap();
    settle().await;
    let state = spot.enter().await.unwrap().state().clone();
    assert_eq!(state, ["went on", "waited", "completed"]);
}

#[tokio::test]
async fn f10_an_actors_completion_is_its_next_turn() {
    let (_host, spot, _) = log("s");
    let actor = spot.actor(1_u32);
    actor
        .request(|mut turn| async move {
            turn.on_complete(async { 6 }, |mut turn, six| async move {
                *turn.actor() += six;
            });
            *turn.actor() *= 10;
        })
        .await
        .unwrap();
    settle().await;
    let now = actor.request(|mut turn| async move { *turn.actor() });
    assert_eq!(now.await.unwrap(), 16);
}

#[tokio::test]
async fn f10_a_completion_whose_spot_has_closed_is_dropped_and_counted() {
    let (host, spot, _) = log("s");
    let seen = Shared::default();
    let door = Door::new();
    let (inner, log, word) = (door.clone(), seen.clone(), seen.clone());
    spot.request(move |turn| async move {
        let says = Says(log, "future dropped");
        turn.on_complete(
            async move {
                inner.pass().await;
                drop(says);
            },
            move |_turn, ()| async move { word.push("never") },
        );
    })
    .await
    .unwrap();
    settle().await;
    assert_eq!(host.lost_completions(), 0);
    host.close("s").await.unwrap();
    settle().await;
    assert_eq!(seen.read(), ["future dropped"]);
    assert_eq!(host.lost_completions(), 1);
    // Neither does it run on a new Spot of the same name.
    let again = host.create("s", Log::default()).unwrap();
    door.open();
    settle().await;
    assert!(again.enter().await.unwrap().state().is_empty());
    assert_eq!(seen.read(), ["future dropped"]);
}

#[tokio::test]
async fn f10_a_callback_that_a_close_finds_in_the_line_is_counted_as_lost() {
    let (host, spot, _) = log("s");
    let seen = Shared::default();
    let (door, word) = (Door::new(), seen.clone());
    let inner = door.clone();
    let mut running = step(spot.request(move |turn| async move {
        turn.on_complete(async {}, move |_turn, ()| async move { word.push("never") });
        inner.pass().await;
        drop(turn);
    }));
    running.pending();
    settle().await;
    let mut close = step(host.close("s"));
    close.pending();
    assert_eq!(host.lost_completions(), 1);
    door.open();
    settle().await;
    running.ready().unwrap();
    close.ready().unwrap();
    assert_eq!((host.lost_completions(), seen.read()), (1, Log::new()));
}

#[tokio::test]
async fn f10_a_completion_whose_future_panics_is_lost_alone() {
    let (host, spot, _) = log("s");
    spot.request(|turn| async move {
        turn.on_complete(async { panic!("on its own") }, |_turn, _: ()| async {});
    })
    .await
    .unwrap();
    settle().await;
    assert_eq!(host.lost_completions(), 1);
    spot.request(|_turn| async {}).await.unwrap();
}

/// What a client that knows no Spot does with a turn it is given.
async fn client<T: YieldTurn + CompleteTurn + Services>(turn: T) -> T {
    turn.on_complete(async { 1 }, |_next, _one| async {});
    assert_eq!(turn.service::<u32>("seven").as_deref(), Some(&7));
    let (turn, two) = turn.yield_on(async { 2 }).await;
    assert_eq!(two, 2);
    turn
}

#[tokio::test]
async fn f10_turns_meet_a_client_at_the_seam() {
    let (runtime, _) = common::runtime();
    let host = bursar_spot::Host::builder(&runtime)
        .service("seven", 7_u32)
        .build()
        .unwrap();
    let spot = host.create("s", 0).unwrap();
    let counted = spot.request(|turn| async move {
        let mut turn = client(turn).await;
        *turn.state() += 1;
        *turn.state()
    });
    assert_eq!(counted.await.unwrap(), 1);
    let actor = spot.actor(());
    actor
        .request(|turn| async move { drop(client(turn).await) })
        .await
        .unwrap();
}

#[tokio::test]
async fn f10_a_drain_waits_for_completions() {
    let (host, runtime, _) = host();
    let spot = host.create("s", Log::default()).unwrap();
    let seen = Shared::default();
    let door = Door::new();
    let (inner, log) = (door.clone(), seen.clone());
    spot.request(move |turn| async move {
        turn.on_complete(
            async move { inner.pass().await },
            move |_turn, ()| async move {
                log.push("completed");
            },
        );
    })
    .await
    .unwrap();
    let mut drain = step(runtime.shutdown());
    drain.pending();
    settle().await;
    drain.pending();
    door.open();
    settle().await;
    drain.ready().unwrap();
    assert_eq!(seen.read(), ["completed"]);
}
