//! A host's shutdown, and what live work asks for meanwhile.

#![allow(clippy::disallowed_methods, reason = "tests start tasks that ask")]

mod common;

use std::sync::Arc;
use std::task::Poll;

use bursar_spot::{CloseReason, HostReport, SpotErrorKind};
use common::{Door, Shared, host, ms, settle, step};

/// Polls a shutdown to its end.
macro_rules! ended {
    ($shutdown:expr) => {{
        let report: HostReport = loop {
            if let Poll::Ready(report) = $shutdown.poll() {
                break report.unwrap();
            }
            settle().await;
        };
        report
    }};
}

#[tokio::test]
async fn f11_what_a_last_turn_makes_ends_its_work_and_is_closed_too() {
    let (host, ..) = host();
    let seen = Shared::default();
    let log = seen.clone();
    let family = host
        .instances("family")
        .on_closing(move |_turn, reason| {
            assert_eq!(reason, CloseReason::HostShutdown);
            log.push("instance");
            async {}
        })
        .activate(|_| async { Ok::<_, String>(()) })
        .unwrap();
    let (at, within, log) = (family.at("made late"), host.clone(), seen.clone());
    host.spot("s")
        .on_closing(move |turn, _reason| {
            let (at, within, log) = (at.clone(), within.clone(), log.clone());
            async move {
                for word in ["first", "second"] {
                    let log = log.clone();
                    let work = move |_turn| async move {
                        tokio::task::yield_now().await;
                        log.push(word);
                    };
                    at.send(work).await.unwrap();
                }
                within.create("and by hand", ()).unwrap();
                log.push("spot");
                drop(turn);
            }
        })
        .create(())
        .unwrap();
    let mut shutdown = step(host.shutdown_within(ms(1000)));
    let report = ended!(shutdown);
    assert_eq!((report.closed, report.cut_short), (3, 0));
    assert_eq!(seen.read(), ["spot", "first", "second", "instance"]);
    assert!(family.is_empty());
    assert!(host.find::<()>("and by hand").is_none());
}

#[tokio::test]
async fn f11_a_host_that_shuts_down_makes_no_spot_but_for_live_turns() {
    let (host, ..) = host();
    let door = Door::new();
    let spot = host.create("s", ()).unwrap();
    let (inner, within) = (door.clone(), host.clone());
    let mut running = step(spot.request(move |turn| async move {
        inner.pass().await;
        within.create("from a turn", ()).unwrap();
        drop(turn);
    }));
    running.pending();
    let mut shutdown = step(host.shutdown_within(ms(1000)));
    shutdown.pending();
    let refused = host.create("from outside", ()).unwrap_err();
    assert_eq!(refused.kind(), SpotErrorKind::ShuttingDown);
    let refused = host.get_or_create("from outside", || ()).await.unwrap_err();
    assert_eq!(refused.kind(), SpotErrorKind::ShuttingDown);
    door.open();
    settle().await;
    running.ready().unwrap();
    assert_eq!(ended!(shutdown).closed, 2);
}

/// Each turn hands its work on to another Spot and ends: no moment has all of them idle before the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f11_work_that_is_handed_on_during_a_shutdown_runs() {
    const SPOTS: usize = 64;
    for _ in 0..200 {
        let (host, ..) = host();
        let spots: Arc<[_]> = (0..SPOTS)
            .map(|n| host.create(&n.to_string(), ()).unwrap())
            .collect();
        let (ran, seen) = tokio::sync::oneshot::channel();
        fn hand_on(
            spots: Arc<[bursar_spot::Spot<()>]>,
            left: usize,
            ran: tokio::sync::oneshot::Sender<()>,
        ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async move {
                let Some(next) = left.checked_sub(1) else {
                    ran.send(()).unwrap();
                    return;
                };
                let to = spots[next * 37 % SPOTS].clone();
                let work = move |turn| async move {
                    hand_on(spots, next, ran).await;
                    drop(turn);
                };
                to.send(work).await.unwrap();
            })
        }
        hand_on(spots, SPOTS, ran).await;
        let report = host.shutdown_within(ms(60_000)).await.unwrap();
        assert_eq!(report.cut_short, 0);
        seen.await.expect("it came to its end");
    }
}
