//! A Spot's life: made, found, closed; what becomes of what runs, waits or has yielded; the host's shutdown.

mod common;

use std::future::pending;
use std::time::Duration;

use bursar::{Classify, Outcome, Policy, ShutdownError};
use bursar_spot::{CloseReason, Host, PerActor, Spot, SpotError, SpotErrorKind, Turn};
use common::{Door, Log, Says, Shared, host, ms, settle, step};

#[tokio::test]
async fn f11_spots_are_made_and_found_by_name_and_type() {
    let (host, ..) = host();
    let room = host.create("room", 7_u32).unwrap();
    let error = host.create("room", 8_u32).unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
    let error = host.create("", 8_u32).unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
    let found: Spot<u32> = host.find("room").unwrap();
    *found.enter().await.unwrap().state() += 1;
    assert_eq!(*room.enter().await.unwrap().state(), 8);
    assert!(host.find::<u64>("room").is_none());
    assert!(host.find_as::<u32, PerActor>("room").is_none());
    assert!(host.find::<u32>("other").is_none());
    let same = host.get_or_create("room", || 0_u32).await.unwrap();
    assert_eq!(*same.enter().await.unwrap().state(), 8);
    let made = host.get_or_create("new", || 3_u32).await.unwrap();
    assert_eq!(*made.enter().await.unwrap().state(), 3);
    let error = host.get_or_create("room", || 0_u64).await.unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
    assert_eq!(
        host.close("nothing").await.unwrap_err().kind(),
        SpotErrorKind::NotConfigured
    );
}

fn closing(host: &Host, name: &str, seen: &Shared) -> Spot<Log> {
    let log = seen.clone();
    host.spot(name)
        .on_closing(move |mut turn, reason| {
            let log = log.clone();
            async move {
                assert_eq!(reason, CloseReason::ExplicitClose);
                log.push("closing");
                tokio::task::yield_now().await;
                for word in std::mem::take(turn.state()) {
                    log.push(word);
                }
            }
        })
        .create(Log::default())
        .unwrap()
}

#[tokio::test]
async fn f11_a_close_ends_what_runs_dismisses_the_rest_and_runs_the_last_turn() {
    let (host, ..) = host();
    let seen = Shared::default();
    let spot = closing(&host, "s", &seen);
    let door = Door::new();
    // Yielded: dropped, and its requester told that it may have taken effect.
    let log = seen.clone();
    let mut yielded = step(spot.request(move |turn: Turn<Log>| async move {
        let _says = Says(log, "yielded dropped");
        turn.yield_on(pending::<()>()).await;
    }));
    yielded.pending();
    settle().await;
    // Running: ends in its own way.
    let inner = door.clone();
    let mut running = step(spot.request(move |mut turn| async move {
        inner.pass().await;
        turn.state().push("ended");
        7
    }));
    running.pending();
    // Queued: never ran.
    let log = seen.clone();
    let mut queued = step(spot.request(move |_turn| async move { log.push("never") }));
    queued.pending();
    let mut entering = step(spot.enter());
    entering.pending();
    let mut close = step(host.close("s"));
    close.pending();
    let mut other = step(host.close("s"));
    other.pending();
    let error = queued.ready().unwrap_err();
    assert_eq!(
        (error.kind(), error.never_ran()),
        (SpotErrorKind::Closed, true)
    );
    assert_eq!(error.outcome(), Outcome::Transient);
    assert_eq!(
        entering.ready().map(|_| ()).unwrap_err().kind(),
        SpotErrorKind::Closed
    );
    let error = spot.request(|_turn| async {}).await.unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::Closed);
    assert!(spot.send(|_turn| async {}).await.unwrap_err().never_ran());
    settle().await;
    let error = yielded.ready().unwrap_err();
    assert_eq!(
        (error.kind(), error.never_ran()),
        (SpotErrorKind::Closed, false)
    );
    assert_eq!(error.outcome(), Outcome::Uncertain);
    assert_eq!(seen.read(), ["yielded dropped"]);
    close.pending();
    // The name is taken until the last turn has ended.
    assert!(host.create("s", Log::default()).is_err());
    door.open();
    settle().await;
    assert_eq!(running.ready().unwrap(), 7);
    close.ready().unwrap();
    other.ready().unwrap();
    assert_eq!(seen.read(), ["yielded dropped", "closing", "ended"]);
    assert!(host.find::<Log>("s").is_none());
    host.create("s", Log::default()).unwrap();
}

#[tokio::test]
async fn f11_a_close_goes_on_when_nobody_waits_for_it() {
    let (host, ..) = host();
    let seen = Shared::default();
    let spot = closing(&host, "s", &seen);
    let held = spot.enter().await.unwrap();
    let mut close = step(host.close("s"));
    close.pending();
    drop(close);
    drop(held);
    settle().await;
    assert_eq!(seen.read(), ["closing"]);
    assert!(host.find::<Log>("s").is_none());
}

#[tokio::test]
async fn f11_a_turn_cannot_wait_for_its_own_spot_to_close_and_goes_with_it_if_it_yields() {
    let (host, ..) = host();
    let seen = Shared::default();
    let spot = closing(&host, "s", &seen);
    let own = host.clone();
    let error = spot
        .request(move |turn| async move {
            let error = own.close("s").await.unwrap_err();
            drop(turn);
            error
        })
        .await
        .unwrap();
    assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
    assert!(spot.is_open());
    let (own, log) = (host.clone(), seen.clone());
    let error = spot
        .request(move |turn: Turn<Log>| async move {
            let (_turn, closed) = turn.yield_on(async move { own.close("s").await }).await;
            log.push("never");
            closed
        })
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.never_ran()),
        (SpotErrorKind::Closed, false)
    );
    settle().await;
    assert_eq!(seen.read(), ["closing"]);
}

/// Each turn of two Spots waits for the other to close.
#[tokio::test]
async fn f11_turns_that_close_each_others_spots_are_bounded() {
    let (host, _, clock) = host();
    let a = host.create("a", ()).unwrap();
    let b = host.create("b", ()).unwrap();
    let closes = |host: Host, name: &'static str| {
        move |turn| async move {
            tokio::task::yield_now().await;
            let result = host.close(name).await;
            drop(turn);
            result
        }
    };
    let mut one = step(a.request(closes(host.clone(), "b")));
    one.pending();
    let mut other = step(b.request(closes(host.clone(), "a")));
    other.pending();
    settle().await;
    one.pending();
    clock.advance(Duration::from_secs(10));
    settle().await;
    let error = one.ready().unwrap().unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::DeadlineExceeded);
    drop(other);
    settle().await;
    assert!(host.find::<()>("a").is_none() && host.find::<()>("b").is_none());
}

#[tokio::test]
async fn f11_an_actors_yielded_work_is_dropped_with_its_claim_and_its_queue_is_told() {
    let (host, ..) = host();
    let spot = host.create("s", ()).unwrap();
    let actor = spot.actor(1_u32);
    let mut yielded = step(actor.request(|turn| async move {
        turn.yield_on(pending::<()>()).await;
    }));
    yielded.pending();
    settle().await;
    let mut aside = step(actor.request(|_turn| async {}));
    aside.pending();
    settle().await;
    host.close("s").await.unwrap();
    assert!(!yielded.ready().unwrap_err().never_ran());
    assert!(aside.ready().unwrap_err().never_ran());
    assert_eq!(
        actor.request(|_turn| async {}).await.unwrap_err().kind(),
        SpotErrorKind::Closed
    );
}

/// For each number of polls of each of them: a yield, a close and a request meet, and all come to an end.
#[tokio::test]
async fn f11_a_close_at_every_poll_of_a_yielding_body_ends_everything() {
    for opened in 0..4 {
        for closed in 0..4 {
            let (host, ..) = host();
            let seen = Shared::default();
            let log = seen.clone();
            let spot = host
                .spot("s")
                .on_closing(move |_turn, _reason| {
                    let log = log.clone();
                    async move { log.push("closing") }
                })
                .create(0_u32)
                .unwrap();
            let door = Door::new();
            let inner = door.clone();
            let mut body = step(spot.request(move |mut turn: Turn<u32>| async move {
                for _ in 0..2 {
                    let inner = inner.clone();
                    turn = turn.yield_on(async move { inner.pass().await }).await.0;
                    *turn.state() += 1;
                }
            }));
            body.pending();
            let mut close = None;
            for poll in 0..4 {
                if poll == opened {
                    door.open();
                }
                if poll == closed {
                    let mut begun = step(host.close("s"));
                    drop(begun.poll());
                    close = Some(begun);
                }
                tokio::task::yield_now().await;
            }
            settle().await;
            if let Some(mut close) = close {
                drop(close.poll());
            }
            drop(body.ready());
            assert!(host.find::<u32>("s").is_none());
            assert_eq!(seen.read(), ["closing"]);
        }
    }
}

#[tokio::test]
async fn f11_a_panic_in_the_last_turn_ends_it_and_the_spot() {
    let (host, ..) = host();
    host.spot("s")
        .on_closing(|_turn, _reason| async { panic!("at last") })
        .create(())
        .unwrap();
    host.spot("t")
        .on_closing(|_turn, _reason| -> std::future::Ready<()> { panic!("at once") })
        .create(())
        .unwrap();
    host.close("s").await.unwrap();
    host.close("t").await.unwrap();
    assert!(host.find::<()>("s").is_none() && host.find::<()>("t").is_none());
}

#[tokio::test]
async fn f11_services_are_found_by_name_and_type() {
    let (runtime, _) = common::runtime();
    let host = Host::builder(&runtime)
        .service("rates", 7_u32)
        .service("names", "seven".to_owned())
        .build()
        .unwrap();
    let spot = host.create("s", ()).unwrap();
    let actor = spot.actor(());
    let found = spot.request(|turn| async move {
        let rates = turn.service::<u32>("rates").unwrap();
        let names = turn.service::<String>("names").unwrap();
        let other = turn.service::<String>("rates").unwrap_err();
        let none = turn.service::<u32>("nothing").unwrap_err();
        (*rates, names, [other.kind(), none.kind()])
    });
    let (rates, names, kinds) = found.await.unwrap();
    assert_eq!((rates, names.as_str()), (7, "seven"));
    assert_eq!(kinds, [SpotErrorKind::NotConfigured; 2]);
    let rates = actor.request(|turn| async move { *turn.service::<u32>("rates").unwrap() });
    assert_eq!(rates.await.unwrap(), 7);
    let twice = Host::builder(&runtime)
        .service("rates", 1_u32)
        .service("rates", 2_u32)
        .build();
    assert_eq!(twice.unwrap_err().kind(), SpotErrorKind::InvalidOperation);
}

#[tokio::test]
async fn d1_a_runtimes_drain_closes_its_hosts_intake_and_counts_accepted_turns() {
    let (host, runtime, _) = host();
    let call = runtime
        .contract("call", Policy::pure().claim("unit", 1))
        .unwrap();
    let spot = host.create("s", Log::default()).unwrap();
    let other = host.create("t", Log::default()).unwrap();
    let door = Door::new();
    let (inner, to, nested) = (door.clone(), other.clone(), call.clone());
    let mut running = step(spot.request(move |mut turn| async move {
        inner.pass().await;
        turn.state().push("ran");
        // From inside of live work both are still open.
        let asked = to.request(|mut turn| async move {
            turn.state().push("asked");
            tokio::task::yield_now().await;
        });
        let (mut turn, asked) = turn.yield_on(asked).await;
        asked.unwrap();
        let called = nested.run(|| async { Ok::<_, std::io::Error>(()).transient() });
        called.await.unwrap();
        turn.state().push("nested");
    }));
    running.pending();
    let mut queued = step(spot.send(|mut turn| async move { turn.state().push("queued") }));
    queued.ready().unwrap();
    let mut drain = step(runtime.shutdown());
    drain.pending();
    for refused in [
        spot.request(|_turn| async {}).await,
        other.send(|_turn| async {}).await,
        other.enter().await.map(|_| ()),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), SpotErrorKind::ShuttingDown);
        assert_eq!(error.outcome(), Outcome::Throttled);
    }
    settle().await;
    drain.pending();
    door.open();
    settle().await;
    running.ready().unwrap();
    drain.ready().unwrap();
}

#[tokio::test]
async fn d4_a_shutdown_awaited_by_a_turn_is_refused_and_closes_nothing() {
    let (host, runtime, _) = host();
    let spot = host.create("s", ()).unwrap();
    let own = host.clone();
    let errors = spot
        .request(move |turn: Turn<()>| async move {
            let first = runtime.shutdown().await.unwrap_err();
            let second = own.shutdown_within(ms(1)).await.unwrap_err();
            let (_turn, third) = turn
                .yield_on(async move { own.shutdown_within(ms(1)).await })
                .await;
            [first, second, third.unwrap_err()]
        })
        .await
        .unwrap();
    assert!(
        errors
            .iter()
            .all(|error| *error == ShutdownError::InsideOwnCall)
    );
    spot.request(|_turn| async {}).await.unwrap();
}

#[tokio::test]
async fn f11_a_hosts_shutdown_lets_accepted_work_end_closes_its_spots_and_drains_its_runtime() {
    let (host, runtime, _) = host();
    let call = runtime.contract("call", Policy::pure()).unwrap();
    let seen = Shared::default();
    let log = seen.clone();
    let nested = call.clone();
    let spot = host
        .spot("s")
        .on_closing(move |_turn, reason| {
            let (log, nested) = (log.clone(), nested.clone());
            async move {
                assert_eq!(reason, CloseReason::HostShutdown);
                // The runtime drains after the Spots.
                let called = nested.run(|| async { Ok::<_, std::io::Error>(()).transient() });
                called.await.unwrap();
                log.push("closing");
            }
        })
        .create(())
        .unwrap();
    host.create("t", ()).unwrap();
    let door = Door::new();
    let (inner, log) = (door.clone(), seen.clone());
    let mut yields = step(spot.request(move |turn: Turn<()>| async move {
        let (_turn, ()) = turn.yield_on(async move { inner.pass().await }).await;
        log.push("ended");
    }));
    yields.pending();
    let mut shutdown = step(host.shutdown_within(ms(1000)));
    shutdown.pending();
    settle().await;
    shutdown.pending();
    assert_eq!(seen.read(), Log::default());
    door.open();
    settle().await;
    yields.ready().unwrap();
    shutdown.pending();
    settle().await;
    let report = loop {
        if let std::task::Poll::Ready(report) = shutdown.poll() {
            break report.unwrap();
        }
        settle().await;
    };
    assert_eq!((report.closed, report.cut_short), (2, 0));
    assert_eq!(seen.read(), ["ended", "closing"]);
    let late = call.run(|| async { Ok::<_, std::io::Error>(()).transient() });
    assert!(late.await.unwrap_err().never_ran());
    let again = host.shutdown_within(ms(1)).await.unwrap();
    assert_eq!(again.closed, 0);
}

#[tokio::test]
async fn f11_a_hosts_shutdown_beyond_its_bound_cuts_what_waits_and_names_what_runs() {
    let (host, _, clock) = host();
    let spot = host.create("s", ()).unwrap();
    let gone = host.create("t", ()).unwrap();
    let mut yielded = step(gone.request(|turn: Turn<()>| async move {
        turn.yield_on(pending::<()>()).await;
    }));
    yielded.pending();
    let held = spot.enter().await.unwrap();
    let mut queued = step(spot.request(|_turn| async {}));
    queued.pending();
    let mut shutdown = step(host.shutdown_within(ms(100)));
    shutdown.pending();
    clock.advance(ms(100));
    let error = shutdown.ready().unwrap_err();
    let ShutdownError::StillRunning(report) = error else {
        panic!("{error}");
    };
    assert!(report.to_string().contains("spot \"s\""), "{report}");
    settle().await;
    assert!(queued.ready().unwrap_err().never_ran());
    assert!(!yielded.ready().unwrap_err().never_ran());
    drop(held);
    settle().await;
    let report = host.shutdown_within(ms(100)).await.unwrap();
    assert_eq!(report.closed, 0);
}

#[tokio::test]
async fn f11_a_name_is_one_spots_whatever_the_type_of_its_state() {
    let (host, ..) = host();
    let numbers = host.create("a", 1_u64).unwrap();
    let kind = |error: SpotError| error.kind();
    let taken = host.create("a", String::new()).map_err(kind);
    assert_eq!(taken.err(), Some(SpotErrorKind::InvalidOperation));
    assert!(host.find::<String>("a").is_none());
    let other = host.get_or_create("a", String::new).await.map_err(kind);
    assert_eq!(other.err(), Some(SpotErrorKind::InvalidOperation));
    host.create("b", String::from("b")).unwrap();
    assert_eq!(host.snapshot().spots, 2);
    host.close("a").await.unwrap();
    assert!(numbers.enter().await.is_err());
    let text = host.create("a", String::from("text")).unwrap();
    assert_eq!(
        text.request(|mut turn| async move { turn.state().clone() })
            .await
            .unwrap(),
        "text"
    );
    assert!(host.find::<u64>("a").is_none());
    assert!(host.find::<String>("b").is_some());
}
