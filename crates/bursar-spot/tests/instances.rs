//! Instance Spots: made by the first message, evicted when idle, made again.

#![allow(clippy::disallowed_methods, reason = "tests start tasks that ask")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar_spot::{CloseReason, Host, Instances, Schedule, SpotErrorKind};
use common::{Door, Shared, host, ms, settle, step};

/// A family that counts its activations and tells what its last turns see.
fn family(host: &Host, seen: &Shared, door: &Door) -> (Instances<u32>, Arc<AtomicU32>) {
    let made = Arc::new(AtomicU32::new(0));
    let (count, log, wait) = (Arc::clone(&made), seen.clone(), door.clone());
    let family = host
        .instances("stock")
        .on_closing(move |_turn, reason| {
            let log = log.clone();
            async move {
                log.push(match reason {
                    CloseReason::IdleEvicted => "evicted",
                    CloseReason::ExplicitClose => "closed",
                    _ => "otherwise",
                });
                tokio::task::yield_now().await;
                log.push("gone");
            }
        })
        .activate(move |id| {
            let (number, wait) = (count.fetch_add(1, Ordering::Relaxed), wait.clone());
            let fails = id == "bad";
            async move {
                wait.pass().await;
                if fails {
                    Err("no such brand")
                } else {
                    Ok(100 * number)
                }
            }
        })
        .unwrap();
    (family, made)
}

#[tokio::test]
async fn f11_the_first_message_makes_an_instance_once_and_the_others_wait() {
    let (host, ..) = host();
    let (seen, door) = (Shared::default(), Door::new());
    let (family, made) = family(&host, &seen, &door);
    let spot = family.at("seven");
    assert!(!spot.is_active());
    let add = || {
        step(spot.request(|mut turn| async move {
            *turn.state() += 1;
            *turn.state()
        }))
    };
    let mut first = add();
    assert_eq!(made.load(Ordering::Relaxed), 0);
    first.pending();
    let mut second = add();
    second.pending();
    spot.send(|mut turn| async move { *turn.state() += 10 })
        .await
        .unwrap();
    settle().await;
    first.pending();
    door.open();
    settle().await;
    assert_eq!((first.ready().unwrap(), second.ready().unwrap()), (1, 2));
    assert_eq!(add().ready().unwrap(), 13);
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert_eq!(family.len(), 1);
    // Another id is another Spot.
    family.at("eight").send(|_turn| async {}).await.unwrap();
    settle().await;
    assert_eq!((family.len(), made.load(Ordering::Relaxed)), (2, 2));
}

#[tokio::test]
async fn f11_an_idle_instance_is_evicted_and_newcomers_meet_a_new_incarnation() {
    let (host, ..) = host();
    let (seen, door) = (Shared::default(), Door::new());
    let (family, made) = family(&host, &seen, &door);
    door.open();
    let spot = family.at("seven");
    spot.request(|_turn| async {}).await.unwrap();
    // Used since the last sweep, which there was none of.
    assert_eq!(family.sweep(), 0);
    assert_eq!(family.sweep(), 1);
    // It closes: a newcomer waits for the last turn and meets the next incarnation.
    let mut newcomer = step(spot.request(|mut turn| async move { *turn.state() }));
    newcomer.pending();
    let mut sender = step(spot.send(|mut turn| async move { *turn.state() += 1 }));
    sender.pending();
    assert_eq!(made.load(Ordering::Relaxed), 1);
    for _ in 0..8 {
        settle().await;
        if sender.poll().is_ready() {
            break;
        }
    }
    assert_eq!(seen.read(), ["evicted", "gone"]);
    newcomer.pending();
    settle().await;
    assert!(newcomer.ready().unwrap() >= 100);
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn f11_only_an_idle_instance_is_evicted() {
    let (host, ..) = host();
    let (seen, door) = (Shared::default(), Door::new());
    let (family, _) = family(&host, &seen, &door);
    let spot = family.at("seven");
    assert!(!spot.evict());
    // Activating.
    let mut first = step(spot.request(|_turn| async {}));
    first.pending();
    assert!(!spot.evict());
    door.open();
    settle().await;
    first.ready().unwrap();
    // Running, yielded, or owing a completion.
    let door = Door::new();
    let inner = door.clone();
    let mut running = step(spot.request(move |turn| async move {
        inner.pass().await;
        drop(turn);
    }));
    running.pending();
    assert!(!spot.evict());
    door.open();
    settle().await;
    running.ready().unwrap();
    let door = Door::new();
    let inner = door.clone();
    spot.send(move |turn| async move {
        turn.yield_on(async move { inner.pass().await }).await;
    })
    .await
    .unwrap();
    settle().await;
    assert!(!spot.evict());
    door.open();
    settle().await;
    let door = Door::new();
    let inner = door.clone();
    spot.send(move |turn| async move {
        turn.on_complete(async move { inner.pass().await }, |_turn, ()| async {});
    })
    .await
    .unwrap();
    settle().await;
    assert!(!spot.evict());
    door.open();
    settle().await;
    assert!(spot.evict());
    assert!(!spot.evict());
    settle().await;
    assert_eq!(seen.read(), ["evicted", "gone"]);
}

#[tokio::test]
async fn f11_a_failed_activation_is_told_to_all_who_wait_and_the_next_message_tries_again() {
    let (host, ..) = host();
    let (seen, door) = (Shared::default(), Door::new());
    let (family, made) = family(&host, &seen, &door);
    let spot = family.at("bad");
    let mut first = step(spot.request(|_turn| async {}));
    first.pending();
    let mut second = step(spot.request(|_turn| async {}));
    second.pending();
    door.open();
    settle().await;
    for error in [first.ready().unwrap_err(), second.ready().unwrap_err()] {
        assert_eq!(error.kind(), SpotErrorKind::ActivationFailed);
        assert!(error.to_string().contains("no such brand"), "{error}");
        assert!(error.never_ran());
    }
    assert!(family.is_empty());
    let error = spot.request(|_turn| async {}).await.unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::ActivationFailed);
    assert_eq!(made.load(Ordering::Relaxed), 2);
    // There was no state to take leave of.
    assert!(seen.read().is_empty());
}

#[tokio::test]
async fn f11_an_activation_that_panics_fails() {
    let (host, ..) = host();
    let family = host
        .instances::<u32>("panics")
        .activate(|id| {
            let at_once = id == "at once";
            assert!(!at_once, "before there is a future");
            async { panic!("while it runs") as Result<u32, String> }
        })
        .unwrap();
    for id in ["at once", "later"] {
        let error = family.at(id).request(|_turn| async {}).await.unwrap_err();
        assert_eq!(error.kind(), SpotErrorKind::ActivationFailed, "{error}");
    }
    assert!(family.is_empty());
    let error = host
        .instances::<u32>("panics")
        .activate(|_| async { Ok::<_, String>(1) });
    assert_eq!(error.unwrap_err().kind(), SpotErrorKind::InvalidOperation);
}

#[tokio::test]
async fn f11_an_instance_closes_when_asked_and_with_its_host() {
    let (host, ..) = host();
    let (seen, door) = (Shared::default(), Door::new());
    let (family, _) = family(&host, &seen, &door);
    door.open();
    let spot = family.at("seven");
    spot.close().await.unwrap();
    spot.request(|_turn| async {}).await.unwrap();
    spot.close().await.unwrap();
    assert_eq!(seen.read(), ["closed", "gone"]);
    spot.request(|_turn| async {}).await.unwrap();
    let report = host.shutdown_within(common::ms(100)).await.unwrap();
    assert_eq!((report.closed, report.cut_short), (1, 0));
    assert_eq!(seen.read(), ["closed", "gone", "otherwise", "gone"]);
    let error = spot.request(|_turn| async {}).await.unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::ShuttingDown);
}

/// Messages, sweeps and closes race; every message is served exactly once, by one incarnation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_no_message_is_lost_to_an_eviction() {
    let (runtime, _) = common::runtime();
    let host = Host::new(&runtime);
    let total = Arc::new(AtomicU32::new(0));
    let sum = Arc::clone(&total);
    let family = host
        .instances::<u32>("stock")
        .on_closing(move |mut turn, _reason| {
            sum.fetch_add(*turn.state(), Ordering::Relaxed);
            async {}
        })
        .activate(|_| async { Ok::<_, String>(0) })
        .unwrap();
    let askers: Vec<_> = (0..4_u32)
        .map(|asker| {
            let family = family.clone();
            tokio::spawn(async move {
                for round in 0..1_000_u32 {
                    let spot = family.at(if (asker + round) % 3 == 0 { "a" } else { "b" });
                    if round % 16 == 0 {
                        spot.evict();
                    }
                    spot.request(|mut turn| async move { *turn.state() += 1 })
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.unwrap();
    }
    let report = host.shutdown_within(common::ms(10_000)).await.unwrap();
    assert_eq!(report.cut_short, 0);
    assert_eq!(total.load(Ordering::Relaxed), 4_000);
}

/// Its next incarnation begins when this one has ended.
#[tokio::test]
async fn f11_a_turn_of_a_closing_instance_does_not_wait_for_the_next_one() {
    let (host, ..) = host();
    let (seen, door) = (Shared::default(), Door::new());
    door.open();
    let (family, made) = family(&host, &seen, &door);
    let spot = family.at("seven");
    let (begin, own) = (Door::new(), spot.clone());
    let inner = begin.clone();
    let mut asks = step(spot.request(move |turn| async move {
        inner.pass().await;
        let requested = step(own.request(|_turn| async {})).ready();
        let sent = step(own.send(|_turn| async {})).ready();
        let closed = step(own.close()).ready();
        drop(turn);
        [requested, sent, closed].map(Result::unwrap_err)
    }));
    asks.pending();
    settle().await;
    let mut close = step(spot.close());
    close.pending();
    begin.open();
    settle().await;
    for refused in asks.ready().unwrap() {
        assert_eq!(refused.kind(), SpotErrorKind::InvalidOperation);
    }
    close.ready().unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn f8_an_instance_has_timers_from_its_turns_until_it_closes() {
    let (host, _, clock) = host();
    let family = host
        .instances("family")
        .activate(|_| async { Ok::<_, String>(0_u64) })
        .unwrap();
    let spot = family.at("seven");
    let registered = spot.request(|turn| async move {
        turn.timer("t", Schedule::every(ms(10)), |mut turn, tick| async move {
            *turn.state() += tick.scheduled;
        })
    });
    registered.await.unwrap().unwrap();
    settle().await;
    for _ in 0..2 {
        clock.advance(ms(10));
        settle().await;
    }
    // Ticks are uses: only a sweep with none since the last one evicts.
    assert_eq!(family.sweep(), 0);
    let seen = spot.request(|mut turn| async move { *turn.state() });
    assert_eq!(seen.await.unwrap(), 1 + 2);
    assert_eq!((family.sweep(), family.sweep()), (0, 1));
    settle().await;
    clock.advance(ms(100));
    settle().await;
    assert!(family.is_empty(), "its timers have gone with it");
    let seen = spot.request(|mut turn| async move { (*turn.state(), turn.cancel_timer("t")) });
    assert_eq!(seen.await.unwrap(), (0, false));
}
