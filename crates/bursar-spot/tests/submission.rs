//! How work is accepted: sends, requests, a full queue, and who may leave when.

mod common;

use std::time::Duration;

use bursar::Outcome;
use bursar_spot::{Host, SpotErrorKind, Turn};
use common::{Door, Log, Shared, host, log, ms, runtime, settle, step};

#[tokio::test]
async fn f6_a_send_completes_when_the_work_is_accepted_and_a_request_with_its_result() {
    let (_host, spot, _) = log("s");
    let held = spot.enter().await.unwrap();
    let mut send = step(spot.send(|mut turn| async move { turn.state().push("sent") }));
    send.ready().unwrap();
    let mut request = step(spot.request(|mut turn| async move {
        turn.state().push("asked");
        turn.state().len()
    }));
    request.pending();
    drop(held);
    settle().await;
    assert_eq!(request.ready().unwrap(), 2);
    // Nothing begins before the first poll.
    drop(spot.send(|mut turn| async move { turn.state().push("never") }));
    drop(spot.request(|mut turn| async move { turn.state().push("never") }));
    settle().await;
    assert_eq!(*spot.enter().await.unwrap().state(), ["sent", "asked"]);
}

#[tokio::test]
async fn f6_accepted_work_runs_whether_or_not_its_requester_stays() {
    for suspends in [false, true] {
        for queued in [false, true] {
            for polls in 1..4 {
                let (_host, spot, _) = log("s");
                let held = queued.then(|| step(spot.enter()).ready().unwrap());
                let mut request = step(spot.request(move |mut turn| async move {
                    if suspends {
                        tokio::task::yield_now().await;
                    }
                    turn.state().push("ran");
                }));
                let mut done = request.poll().is_ready();
                for _ in 1..polls {
                    if !done {
                        done = request.poll().is_ready();
                    }
                }
                drop(request);
                drop(held);
                settle().await;
                assert_eq!(*spot.enter().await.unwrap().state(), ["ran"]);
            }
        }
    }
}

fn small(queue: u32) -> (Host, bursar_spot::Spot<Log>, bursar::ManualClock) {
    let (host, _, clock) = host();
    let spot = host
        .spot("s")
        .queue(queue)
        .send_timeout(ms(100))
        .create(Log::default())
        .unwrap();
    (host, spot, clock)
}

#[tokio::test]
async fn f6_a_full_queue_is_waited_for_in_order_and_not_beyond_the_send_timeout() {
    let (_host, spot, clock) = small(1);
    let held = spot.enter().await.unwrap();
    let say = |word| move |mut turn: Turn<Log>| async move { turn.state().push(word) };
    spot.send(say("accepted")).await.unwrap();
    let mut first = step(spot.send(say("first")));
    first.pending();
    let mut second = step(spot.request(say("second")));
    second.pending();
    let mut late = step(spot.send(say("late")));
    clock.advance(ms(60));
    late.pending();
    let mut leaves = step(spot.send(say("leaves")));
    leaves.pending();
    drop(leaves);
    clock.advance(ms(40));
    for error in [first.ready().unwrap_err(), second.ready().unwrap_err()] {
        assert_eq!(error.kind(), SpotErrorKind::DeadlineExceeded);
        assert_eq!(error.outcome(), Outcome::Throttled);
        assert!(error.never_ran());
    }
    late.pending();
    drop(held);
    settle().await;
    late.ready().unwrap();
    settle().await;
    assert_eq!(*spot.enter().await.unwrap().state(), ["accepted", "late"]);
    assert_eq!(clock.timers(), 0);
}

#[tokio::test]
async fn f6_the_queue_holds_1024_and_the_send_timeout_is_one_second_unless_said_otherwise() {
    let (_host, spot, clock) = log("s");
    let held = spot.enter().await.unwrap();
    for _ in 0..1024 {
        spot.send(|mut turn| async move { turn.state().push("ran") })
            .await
            .unwrap();
    }
    let mut one_more = step(spot.send(|_turn| async {}));
    one_more.pending();
    clock.advance(ms(999));
    one_more.pending();
    clock.advance(ms(1));
    let error = one_more.ready().unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::DeadlineExceeded);
    drop(held);
    settle().await;
    spot.request(|_turn| async {}).await.unwrap();
    assert_eq!(spot.enter().await.unwrap().state().len(), 1024);
}

#[tokio::test]
async fn f6_a_request_has_no_deadline_of_its_own() {
    let (_host, spot, clock) = log("s");
    let held = spot.enter().await.unwrap();
    let mut request = step(spot.request(|_turn| async { 7 }));
    request.pending();
    clock.advance(Duration::from_secs(100_000));
    request.pending();
    drop(held);
    settle().await;
    assert_eq!(request.ready().unwrap(), 7);
}

#[tokio::test]
async fn f6_a_send_to_ones_own_full_queue_is_capacity_exceeded_at_once() {
    let (_host, spot, _) = small(2);
    let own = spot.clone();
    let errors = spot
        .request(move |mut turn| async move {
            let mut results = Vec::new();
            for _ in 0..3 {
                let sent = own.send(|mut turn| async move { turn.state().push("sent") });
                results.push(step(sent).ready());
            }
            turn.state().push("own");
            results
        })
        .await
        .unwrap();
    assert!(errors[0].is_ok() && errors[1].is_ok());
    let error = errors[2].as_ref().unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::CapacityExceeded);
    assert!(error.never_ran());
    settle().await;
    assert_eq!(
        *spot.enter().await.unwrap().state(),
        ["own", "sent", "sent"]
    );
}

#[tokio::test]
async fn f6_continuations_callbacks_and_entered_turns_count_against_no_limit() {
    let (_host, spot, _) = small(1);
    let door = Door::new();
    for _ in 0..3 {
        let inner = door.clone();
        let mut request = step(spot.request(move |turn: Turn<Log>| async move {
            turn.on_complete(async {}, |mut turn, ()| async move {
                turn.state().push("callback");
            });
            let (mut turn, ()) = turn.yield_on(async move { inner.pass().await }).await;
            turn.state().push("continued");
        }));
        request.pending();
        drop(request);
    }
    let held = spot.enter().await.unwrap();
    door.open();
    settle().await;
    let mut entered = step(spot.enter());
    entered.pending();
    // Six wait already; the queue has room all the same.
    let mut send = step(spot.send(|mut turn| async move { turn.state().push("sent") }));
    send.ready().unwrap();
    drop(held);
    settle().await;
    drop(entered);
    settle().await;
    let state = spot.enter().await.unwrap().state().clone();
    assert_eq!(state.iter().filter(|word| **word == "continued").count(), 3);
    assert_eq!(state.iter().filter(|word| **word == "callback").count(), 3);
    assert_eq!(state.last(), Some(&"sent"));
}

/// Its own executor is gone: accepted work never ran, or may have; nothing hangs and nothing leaks.
#[test]
fn f6_work_whose_executor_is_gone_is_told_apart_and_nothing_leaks() {
    let (runtime, _) = runtime();
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let seen = Shared::default();
    let (host, spot) = {
        let _entered = executor.enter();
        let host = Host::new(&runtime);
        let says = common::Says(seen.clone(), "state gone");
        let spot = host.spot("s").queue(100_000).create(says).unwrap();
        (host, spot)
    };
    // From outside of the executor: dispatched, never inline.
    let (begins, began) = std::sync::mpsc::channel();
    let mut running = step(spot.request(move |turn| async move {
        begins.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(turn);
    }));
    running.pending();
    began.recv().unwrap();
    let mut queued = step(spot.request(|_turn| async {}));
    queued.pending();
    for _ in 0..50_000 {
        step(spot.send(|_turn| async {})).ready().unwrap();
    }
    drop(executor);
    let error = running.ready().unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::Closed);
    let error = queued.ready().unwrap_err();
    assert!(error.never_ran(), "{error}");
    drop((running, queued, host));
    drop(spot);
    assert_eq!(seen.read(), ["state gone"]);
}
