//! F13, F2, F5: work runs in its own host's executor from its first poll; a tick keeps its turn whether or not its handler
//! takes notice of it; a lane whose first work is withdrawn goes on with the next.

#![allow(clippy::disallowed_methods, reason = "two executors are the subject")]

use std::sync::Arc;
use std::time::Duration;

use bursar::{ManualClock, Runtime};
use bursar_spot::{Host, Schedule};
use tokio::sync::Notify;
use tokio::task::yield_now;

#[test]
fn f13_work_sent_from_another_hosts_turn_is_polled_in_its_own_executor_alone() {
    let theirs = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("an executor with timers");
    let ours = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("an executor without");
    let runtime = |name: &str| {
        let builder = Runtime::builder().resource(name, 1);
        builder
            .clock(ManualClock::new())
            .build()
            .expect("a runtime")
    };
    let (here, there) = (runtime("here"), runtime("there"));
    let spot = {
        let _inside = theirs.enter();
        let host = Host::new(&there);
        host.create("theirs", 0_u32).expect("a name that is free")
    };
    let (slept, seen) = std::sync::mpsc::channel();
    ours.block_on(async {
        let host = Host::new(&here);
        let own = host.create("ours", ()).expect("a name that is free");
        let sent = own.request(move |turn| async move {
            // A task of ours from here on.
            yield_now().await;
            let sent = spot
                .send(move |turn| async move {
                    // Without its own executor's timers this panics.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    slept.send(()).expect("the test listens");
                    drop(turn);
                })
                .await;
            drop(turn);
            sent
        });
        sent.await.expect("a turn").expect("it is accepted");
    });
    seen.recv_timeout(Duration::from_secs(60))
        .expect("it slept to its end");
}

#[tokio::test]
async fn f2_a_tick_whose_handler_takes_no_notice_of_its_turn_keeps_it() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .resource("unused", 1)
        .clock(clock.clone())
        .build()
        .expect("a runtime");
    let host = Host::new(&runtime);
    let spot = host.create("spot", ()).expect("a name that is free");
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (Arc::clone(&begun), Arc::clone(&end));
    let once = Schedule::once(Duration::from_millis(1));
    spot.timer("t", once, move |_turn, _tick| {
        let (begun, end) = (Arc::clone(&begins), Arc::clone(&ends));
        async move {
            begun.notify_one();
            end.notified().await;
        }
    })
    .expect("a schedule");
    // The driver sleeps before the clock is turned.
    for _ in 0..64 {
        yield_now().await;
    }
    clock.advance(Duration::from_millis(1));
    begun.notified().await;
    let mut other = tokio_test::task::spawn(spot.request(|_turn| async {}));
    assert!(other.poll().is_pending(), "the tick has the gate");
    for _ in 0..64 {
        yield_now().await;
    }
    assert!(other.poll().is_pending(), "and keeps it while it waits");
    end.notify_one();
    other.await.expect("its turn comes");
}

async fn settle() {
    for _ in 0..64 {
        yield_now().await;
    }
}

#[tokio::test]
async fn f5_a_lane_whose_first_work_is_withdrawn_goes_on_with_the_next() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .resource("unused", 1)
        .clock(clock.clone())
        .build()
        .expect("a runtime");
    let host = Host::new(&runtime);
    let spot = host.create("spot", ()).expect("a name that is free");
    let other = host.create("other", ()).expect("a name that is free");
    let actor = spot.actor(());

    // The actor's first work yields and keeps its claim, until it drops its yield.
    let (leave, asker) = (Arc::new(Notify::new()), actor.clone());
    let leaves = Arc::clone(&leave);
    let first = tokio::spawn(async move {
        let body = asker.request(move |turn| async move {
            tokio::select! {
                biased;
                _ = turn.yield_on(std::future::pending::<()>()) => {}
                () = leaves.notified() => {}
            }
        });
        body.await
    });
    settle().await;
    // A request of the actor from inside another turn, whose wait is bounded; and a send behind it.
    let asker = actor.clone();
    let bounded = tokio::spawn(async move {
        other
            .request(move |turn| async move {
                let asked = asker.request(|_turn| async {}).await;
                drop(turn);
                asked
            })
            .await
    });
    settle().await;
    let ran = Arc::new(Notify::new());
    let runs = Arc::clone(&ran);
    let sent = actor
        .send(move |_turn| async move { runs.notify_one() })
        .await;
    sent.expect("it is accepted");
    // A short turn sets both aside, a long one takes the gate.
    spot.request(|_turn| async {}).await.expect("a turn");
    let (end, long) = (Arc::new(Notify::new()), spot.clone());
    let ends = Arc::clone(&end);
    let long = tokio::spawn(async move {
        long.request(move |turn| async move {
            ends.notified().await;
            drop(turn);
        })
        .await
    });
    settle().await;
    // The claim comes free: the bounded request is put forward, and its time passes there.
    leave.notify_one();
    settle().await;
    clock.advance(Duration::from_secs(10));
    settle().await;
    let refused = bounded.await.expect("no panic").expect("the other's turn");
    assert!(refused.is_err_and(|error| error.never_ran()));
    end.notify_one();
    ran.notified().await;
    long.await.expect("no panic").expect("a turn");
    first.await.expect("no panic").expect("a turn");
}

/// A turn drives another executor, in which another host's turn ends for somebody on a thread of its own.
#[test]
fn f13_a_requester_hears_of_a_turn_that_ran_inside_of_anothers() {
    let outer = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("an executor");
    let inner = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("an executor that its turn drives");
    let runtime = Runtime::builder().resource("unit", 1).build();
    let runtime = runtime.expect("a runtime");
    let made = |tokio: &tokio::runtime::Runtime, name: &str| {
        let _inside = tokio.enter();
        let spot = Host::new(&runtime).create(name, 0_u32);
        spot.expect("a name that is free")
    };
    let (drives, asked) = (made(&outer, "drives"), made(&inner, "asked"));
    let (begun, begins) = std::sync::mpsc::channel();
    let (end, ends) = tokio::sync::oneshot::channel();
    let (heard, hears) = std::sync::mpsc::channel();
    let asks = std::thread::spawn(move || {
        begins.recv().expect("the turn begins");
        let own = tokio::runtime::Builder::new_current_thread().build();
        let answer = own
            .expect("an executor")
            .block_on(asked.request(|_turn| async { 7 }));
        heard
            .send(answer.expect("a turn"))
            .expect("the test listens");
        end.send(()).expect("the turn waits");
    });
    outer.block_on(async {
        let held = drives.enter().await.expect("an open Spot");
        // Started by whoever ends the turn before it.
        let turn = drives.send(move |_turn| async move {
            tokio::task::block_in_place(|| {
                begun.send(()).expect("somebody waits");
                inner.block_on(ends).expect("an end");
            });
        });
        turn.await.expect("an open Spot");
        drop(held);
        drives.request(|_turn| async {}).await.expect("a turn");
    });
    assert_eq!(hears.recv_timeout(Duration::from_secs(60)), Ok(7));
    asks.join().expect("no panic");
}

/// An executor that is driven by one thread after another, each of which ends.
#[test]
fn f1_threads_that_end_leave_no_task_of_a_turn_behind() {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("an executor");
    let tokio = Arc::new(tokio);
    let runtime = Runtime::builder().resource("unit", 1).build();
    let host = {
        let _inside = tokio.enter();
        Host::new(&runtime.expect("a runtime"))
    };
    let spot = host.create("s", 0_u32).expect("a name that is free");
    let suspends = |spot: bursar_spot::Spot<u32>| async move {
        let turn = spot.request(|mut turn| async move {
            yield_now().await;
            *turn.state() += 1;
        });
        turn.await.expect("a turn");
    };
    for _ in 0..8 {
        let (tokio, turn) = (Arc::clone(&tokio), suspends(spot.clone()));
        std::thread::spawn(move || tokio.block_on(turn))
            .join()
            .expect("no panic");
    }
    // The last one's end is noticed when somebody drives the executor.
    tokio.block_on(async {
        for _ in 0..4 {
            yield_now().await;
        }
    });
    assert_eq!(tokio.metrics().num_alive_tasks(), 0);
}
