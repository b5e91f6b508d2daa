//! Actors: one gate for all, or one each.

#![allow(clippy::disallowed_methods, reason = "tests start tasks that ask")]

mod common;

use bursar_spot::{ActorTurn, PerActor, Schedule, SpotErrorKind};
use common::{Door, Log, Shared, host, log, ms, settle, step};

#[tokio::test]
async fn f5_all_of_a_spot_wide_spot_shares_one_gate_in_order_of_arrival() {
    let (_host, spot, _) = log("s");
    let (a, b) = (spot.actor(()), spot.actor(()));
    let held = spot.enter().await.unwrap();
    let say = |word| move |mut turn: ActorTurn<Log, ()>| async move { turn.state().push(word) };
    a.send(say("a1")).await.unwrap();
    a.send(say("a2")).await.unwrap();
    spot.send(|mut turn| async move { turn.state().push("spot") })
        .await
        .unwrap();
    b.send(say("b1")).await.unwrap();
    a.send(say("a3")).await.unwrap();
    drop(held);
    settle().await;
    let state = spot.enter().await.unwrap().state().clone();
    assert_eq!(state, ["a1", "a2", "spot", "b1", "a3"]);
}

#[tokio::test]
async fn f5_an_actor_keeps_its_claim_across_a_yield_and_others_go_on() {
    let (_host, spot, _) = log("s");
    let (a, b) = (spot.actor(10_u32), spot.actor(20_u32));
    let door = Door::new();
    let inner = door.clone();
    let mut first = step(a.request(move |mut turn| async move {
        turn.state().push("a1");
        let (mut turn, ()) = turn.yield_on(async move { inner.pass().await }).await;
        let (state, own) = turn.both();
        state.push("a1 again");
        *own += 1;
    }));
    first.pending();
    let mut second = step(a.request(|mut turn| async move {
        turn.state().push("a2");
        *turn.actor()
    }));
    second.pending();
    let mut third = step(a.request(|mut turn| async move { turn.state().push("a3") }));
    third.pending();
    b.request(|mut turn| async move { turn.state().push("b1") })
        .await
        .unwrap();
    spot.request(|mut turn| async move { turn.state().push("spot") })
        .await
        .unwrap();
    settle().await;
    second.pending();
    door.open();
    settle().await;
    first.ready().unwrap();
    assert_eq!(second.ready().unwrap(), 11);
    third.ready().unwrap();
    let state = spot.enter().await.unwrap().state().clone();
    assert_eq!(state, ["a1", "b1", "spot", "a1 again", "a2", "a3"]);
}

/// Set aside while its claim was held, it is ahead of all that was accepted later.
#[tokio::test]
async fn f5_work_set_aside_for_its_claim_finds_its_place_again() {
    let (_host, spot, _) = log("s");
    let a = spot.actor(());
    let door = Door::new();
    let inner = door.clone();
    a.send(move |turn| async move {
        turn.yield_on(async move { inner.pass().await }).await;
    })
    .await
    .unwrap();
    settle().await;
    a.send(|mut turn| async move { turn.state().push("aside") })
        .await
        .unwrap();
    let held = spot.enter().await.unwrap();
    door.open();
    settle().await;
    spot.send(|mut turn| async move { turn.state().push("later") })
        .await
        .unwrap();
    drop(held);
    settle().await;
    assert_eq!(*spot.enter().await.unwrap().state(), ["aside", "later"]);
}

#[tokio::test]
async fn f5_each_lane_of_a_per_actor_spot_has_its_own_gate() {
    let (host, ..) = host();
    let spot = host
        .spot("s")
        .kind::<PerActor>()
        .create(Log::default())
        .unwrap();
    let (a, b) = (spot.actor(Log::default()), spot.actor(Log::default()));
    let door = Door::new();
    let inner = door.clone();
    let mut slow = step(a.request(move |mut turn| async move {
        turn.actor().push("a1");
        inner.pass().await;
        turn.actor().push("a1 again");
    }));
    slow.pending();
    let mut next = step(a.request(|mut turn| async move {
        turn.actor().push("a2");
        turn.actor().clone()
    }));
    next.pending();
    // Neither the other actor nor the Spot itself waits for it.
    b.request(|mut turn| async move { turn.actor().push("b1") })
        .await
        .unwrap();
    spot.request(|mut turn| async move { turn.state().push("spot") })
        .await
        .unwrap();
    settle().await;
    next.pending();
    door.open();
    settle().await;
    slow.ready().unwrap();
    assert_eq!(next.ready().unwrap(), ["a1", "a1 again", "a2"]);
}

#[tokio::test]
async fn f5_an_actors_state_goes_with_its_last_handle_once_its_work_has_ended() {
    let (_host, spot, _) = log("s");
    let seen = Shared::default();
    let actor = spot.actor(common::Says(seen.clone(), "gone"));
    let door = Door::new();
    let inner = door.clone();
    actor
        .send(move |turn| async move {
            inner.pass().await;
            drop(turn);
        })
        .await
        .unwrap();
    settle().await;
    drop(actor);
    assert_eq!(seen.read(), Log::default());
    door.open();
    settle().await;
    assert_eq!(seen.read(), ["gone"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f5_lanes_hold_under_load() {
    let (host, ..) = host();
    let wide = host.create("wide", 0_u64).unwrap();
    let apart = host.spot("apart").kind::<PerActor>().create(0_u64).unwrap();
    let mut askers = Vec::new();
    for _ in 0..4 {
        let (wide, mine) = (wide.clone(), wide.actor(0_u64));
        let own = apart.actor(0_u64);
        askers.push(tokio::spawn(async move {
            for round in 0..1_000 {
                let counted = mine.request(move |mut turn| async move {
                    *turn.actor() += 1;
                    let (mut turn, ()) = turn.yield_on(tokio::task::yield_now()).await;
                    *turn.state() += 1;
                    *turn.actor()
                });
                assert_eq!(counted.await.unwrap(), round + 1);
                wide.send(|mut turn| async move { *turn.state() += 1 })
                    .await
                    .unwrap();
                own.request(|mut turn| async move {
                    let before = *turn.actor();
                    tokio::task::yield_now().await;
                    *turn.actor() = before + 1;
                })
                .await
                .unwrap();
            }
            own.request(|mut turn| async move { *turn.actor() })
                .await
                .unwrap()
        }));
    }
    for asker in askers {
        assert_eq!(asker.await.unwrap(), 1_000);
    }
    assert_eq!(*wide.enter().await.unwrap().state(), 8_000);
}

#[tokio::test]
async fn f11_no_turn_of_a_per_actor_spot_waits_for_its_own_spot_to_close() {
    let (host, _, clock) = host();
    let spot = host.spot("s").kind::<PerActor>().create(()).unwrap();
    let own = host.clone();
    let refused = spot
        .actor(())
        .request(move |turn| async move {
            let refused = step(own.close("s")).ready();
            drop(turn);
            refused
        })
        .await
        .unwrap();
    assert_eq!(refused.unwrap_err().kind(), SpotErrorKind::InvalidOperation);
    let (own, seen) = (host.clone(), Shared::default());
    let log = seen.clone();
    spot.timer("t", Schedule::once(ms(1)), move |turn, _tick| {
        let (own, log) = (own.clone(), log.clone());
        async move {
            let refused = step(own.close("s")).ready();
            assert_eq!(refused.unwrap_err().kind(), SpotErrorKind::InvalidOperation);
            log.push("refused");
            drop(turn);
        }
    })
    .unwrap();
    settle().await;
    clock.advance(ms(1));
    settle().await;
    assert_eq!(seen.read(), ["refused"]);
    // An actor may ask the Spot, which has another gate; and a body may wait once its turn has ended.
    let (own, other) = (host.clone(), spot.clone());
    let actor = spot.actor(());
    let closed = actor.request(move |turn| async move {
        other.request(|_turn| async {}).await?;
        drop(turn);
        own.close("s").await
    });
    assert!(spot.is_open());
    closed.await.unwrap().unwrap();
}
