//! F9 from inside of turns: kept or yielded is the waiter's choice.

#![allow(clippy::disallowed_methods, reason = "askers are tasks of their own")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bursar::Runtime;
use bursar_spot::{Host, Spot, SpotErrorKind, WorkError};
use tokio::sync::Notify;

fn spot() -> Spot<Vec<&'static str>> {
    let runtime = Runtime::builder().resource("unused", 1).build();
    let host = Host::new(&runtime.expect("a runtime"));
    host.create("spot", Vec::new())
        .expect("a name that is free")
}

/// Another turn, which notes that it ran.
async fn other(spot: &Spot<Vec<&'static str>>) {
    let other = spot.send(|mut turn| async move { turn.state().push("other") });
    other.await.expect("room in the queue");
}

async fn said(spot: &Spot<Vec<&'static str>>) -> Vec<&'static str> {
    let said = spot.request(|mut turn| async move { std::mem::take(turn.state()) });
    said.await.expect("a turn")
}

#[tokio::test]
async fn f9_awaited_work_keeps_the_gate_and_yielded_work_returns_it() {
    let spot = spot();
    for (yields, right) in [
        (false, ["computed", "other"]),
        (true, ["other", "computed"]),
    ] {
        let goes_on = Arc::new(Notify::new());
        let (go, begun) = std::sync::mpsc::channel::<()>();
        let (this, waits) = (spot.clone(), Arc::clone(&goes_on));
        let asked = tokio::spawn(async move {
            let work = this.request(move |turn| async move {
                let work = turn.workers().cpu(move |_| {
                    // Until the other turn is queued, or has run.
                    let _told = begun.recv();
                    7
                });
                waits.notify_one();
                let (mut turn, seven) = if yields {
                    turn.yield_on(work).await
                } else {
                    let seven = work.await;
                    (turn, seven)
                };
                turn.state().push("computed");
                seven
            });
            work.await
        });
        goes_on.notified().await;
        other(&spot).await;
        if yields {
            assert_eq!(said(&spot).await, ["other"], "while the work goes on");
        }
        drop(go);
        let answer = asked.await.expect("no panic").expect("a turn");
        assert_eq!(answer, Ok(7));
        let right = if yields { &right[1..] } else { &right[..] };
        assert_eq!(said(&spot).await, right);
    }
}

#[tokio::test]
async fn f9_a_turn_that_panics_or_ends_early_takes_its_waiting_with_it() {
    let spot = spot();
    let (says, hears) = tokio::sync::oneshot::channel();
    let panicked = spot.request(move |turn| async move {
        let work = turn.workers().io(|cancelled| async move {
            cancelled.cancelled().await;
            // Whoever listens has told the test already if this fails.
            let _heard = says.send("told to stop");
        });
        let mut work = Box::pin(work);
        std::future::poll_fn(|cx| {
            assert!(work.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        tokio::task::yield_now().await;
        panic!("before the answer");
    });
    assert!(panicked.await.is_err());
    assert_eq!(hears.await, Ok("told to stop"));
}

#[tokio::test]
async fn f9_work_is_inside_its_waiter_so_a_circle_is_refused_unless_the_waiter_yields() {
    let spot = spot();
    for (yields, right) in [
        (false, Err(SpotErrorKind::InvalidOperation)),
        (true, Ok(())),
    ] {
        let this = spot.clone();
        let asked = spot.request(move |turn| async move {
            let asks = turn.workers().io(move |_| async move {
                let back = this.request(|mut turn| async move { turn.state().push("back") });
                back.await.map_err(|refused| refused.kind())
            });
            if yields {
                let (_turn, answer) = turn.yield_on(asks).await;
                answer
            } else {
                let answer = asks.await;
                drop(turn);
                answer
            }
        });
        assert_eq!(asked.await.expect("a turn"), Ok(right));
    }
    assert_eq!(said(&spot).await, ["back"]);
}

#[tokio::test]
async fn f9_a_spot_that_closes_tells_the_work_of_its_turns() {
    let runtime = Runtime::builder().resource("unused", 1).build();
    let host = Host::new(&runtime.expect("a runtime"));
    let spot = host.create("spot", ()).expect("a name that is free");
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let asked = tokio::spawn(async move {
        let kept = spot.request(|turn| async move {
            let work = turn.workers().io(move |cancelled| async move {
                begins.notify_one();
                cancelled.cancelled().await;
                "told"
            });
            let said = work.await;
            let late = turn.workers().cpu(|_| "late").await;
            (said, late)
        });
        kept.await
    });
    begun.notified().await;
    host.close("spot").await.expect("a Spot");
    // The turn ended in its own words, and what it handed in while its Spot closed never ran.
    let answer = asked.await.expect("no panic").expect("a turn");
    assert_eq!(answer, (Ok("told"), Err(WorkError::Closed)));
    assert_eq!(host.workers().cpu(|_| 1).await, Ok(1), "others go on");
}

#[tokio::test]
async fn f9_a_host_that_shuts_down_tells_its_work_and_waits_for_it() {
    let runtime = Runtime::builder().resource("unused", 1).build();
    let host = Host::new(&runtime.expect("a runtime"));
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let work = tokio::spawn(host.workers().io(move |cancelled| async move {
        begins.notify_one();
        cancelled.cancelled().await;
        "told"
    }));
    begun.notified().await;
    let report = host.shutdown_within(Duration::from_secs(60)).await;
    assert_eq!(report.map(|report| report.working), Ok(0));
    assert_eq!(work.await.expect("no panic"), Ok("told"));
    let late = host.workers().cpu(|_| "late").await;
    assert_eq!(late, Err(WorkError::Closed));
}

#[tokio::test]
async fn f9_a_shutdown_says_what_does_not_stop() {
    let runtime = Runtime::builder().resource("unused", 1).build();
    let host = Host::new(&runtime.expect("a runtime"));
    let (says, runs) = std::sync::mpsc::channel();
    let (go, goes) = std::sync::mpsc::channel::<()>();
    let work = tokio::spawn(host.workers().cpu(move |_| {
        says.send(()).expect("somebody listens");
        let _deaf = goes.recv();
    }));
    tokio::task::yield_now().await;
    runs.recv().expect("it runs");
    let report = host.shutdown_within(Duration::ZERO).await.expect("drained");
    assert_eq!(report.working, 1);
    assert!(
        report.to_string().contains("1 pieces of work go on"),
        "{report}"
    );
    drop(go);
    assert_eq!(work.await.expect("no panic"), Ok(()));
}
