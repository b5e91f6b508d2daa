//! Who asks from inside of whom: refused at once where it could never end, bounded where it might not.

mod common;

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bursar::{Classify, Policy};
use bursar_spot::{Spot, SpotError, SpotErrorKind, Turn};
use common::{Door, Log, host, log, settle, step};

fn kind<T>(result: &Result<T, SpotError>) -> SpotErrorKind {
    match result {
        Ok(_) => panic!("it was to fail"),
        Err(error) => error.kind(),
    }
}

#[tokio::test]
async fn f7_a_turn_that_awaits_a_request_to_its_own_spot_is_refused_at_once() {
    let (_host, spot, _) = log("s");
    let own = spot.clone();
    for suspends in [false, true] {
        let own = own.clone();
        let (asked, entered) = spot
            .request(move |mut turn| async move {
                if suspends {
                    tokio::task::yield_now().await;
                }
                let asked = own.request(|mut turn| async move { turn.state().push("never") });
                let asked = step(asked).ready();
                let entered = step(own.enter()).ready().map(|_| ());
                turn.state().push("went on");
                (asked, entered)
            })
            .await
            .unwrap();
        assert_eq!(kind(&asked), SpotErrorKind::InvalidOperation);
        assert!(asked.unwrap_err().never_ran());
        assert_eq!(kind(&entered), SpotErrorKind::InvalidOperation);
    }
    settle().await;
    assert_eq!(*spot.enter().await.unwrap().state(), ["went on", "went on"]);
}

#[tokio::test]
async fn f7_a_yielding_turn_may_ask_its_own_spot_and_a_send_to_itself_runs_afterwards() {
    let (_host, spot, _) = log("s");
    let own = spot.clone();
    spot.request(move |mut turn| async move {
        turn.state().push("before");
        own.send(|mut turn| async move { turn.state().push("sent") })
            .await
            .unwrap();
        let asked = own.request(|mut turn| async move { turn.state().push("asked") });
        let (mut turn, asked) = turn.yield_on(asked).await;
        asked.unwrap();
        turn.state().push("after");
        // It holds the gate again.
        let refused = own.request(|_turn| async {}).await;
        assert_eq!(kind(&refused), SpotErrorKind::InvalidOperation);
    })
    .await
    .unwrap();
    assert_eq!(
        *spot.enter().await.unwrap().state(),
        ["before", "sent", "asked", "after"]
    );
}

/// The turn ends, and the body goes on.
#[tokio::test]
async fn f7_a_body_whose_turn_has_ended_may_ask_its_own_spot() {
    let (_host, spot, _) = log("s");
    let actor = spot.actor(());
    for (way, suspends) in (0..3).flat_map(|way| [false, true].map(|suspends| (way, suspends))) {
        let (own, same) = (spot.clone(), actor.clone());
        let asked = actor.request(move |turn| async move {
            if suspends {
                tokio::task::yield_now().await;
            }
            match way {
                0 => drop(turn),
                1 => drop(turn.yield_on(async {})),
                _ => step(turn.yield_on(std::future::pending::<()>())).pending(),
            }
            same.request(|_turn| async {}).await?;
            own.request(|mut turn| async move { turn.state().push("asked") })
                .await
        });
        asked.await.unwrap().unwrap();
    }
    assert_eq!(*spot.enter().await.unwrap().state(), ["asked"; 6]);
}

/// A asks B, which asks A.
async fn round(yields: bool) -> (Result<(), SpotError>, Log) {
    let (host, a, _) = log("a");
    let b = host.create("b", Log::default()).unwrap();
    let back = a.clone();
    let inner = move |turn: Turn<Log>| async move {
        let asked = back.request(|mut turn| async move { turn.state().push("from b") });
        let (turn, result) = if yields {
            turn.yield_on(asked).await
        } else {
            (turn, asked.await)
        };
        drop(turn);
        result
    };
    let outer = move |mut turn: Turn<Log>| async move {
        turn.state().push("a");
        let asked = b.request(inner);
        let (mut turn, result) = if yields {
            turn.yield_on(asked).await
        } else {
            (turn, asked.await)
        };
        turn.state().push("a again");
        result.and_then(|result| result)
    };
    let result = a.request(outer).await.unwrap();
    let state = a.enter().await.unwrap().state().clone();
    (result, state)
}

#[tokio::test]
async fn f7_a_circle_of_awaited_requests_is_refused_at_once() {
    let (result, state) = round(false).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
    assert_eq!(error.spot(), "a");
    assert_eq!(state, ["a", "a again"]);
}

#[tokio::test]
async fn f7_the_same_circle_of_yielded_requests_comes_to_its_end() {
    let (result, state) = round(true).await;
    result.unwrap();
    assert_eq!(state, ["a", "from b", "a again"]);
}

#[tokio::test]
async fn f7_a_yield_keeps_the_claim_of_its_actor_in_the_chain() {
    let (_host, spot, _) = log("s");
    let actor = spot.actor(());
    let (own, wide) = (actor.clone(), spot.clone());
    actor
        .request(move |turn| async move {
            let asked = own.request(|_turn| async {});
            let (turn, refused) = turn.yield_on(asked).await;
            assert_eq!(kind(&refused), SpotErrorKind::InvalidOperation);
            // The gate it has returned.
            let (_turn, asked) = turn.yield_on(wide.request(|_turn| async {})).await;
            asked.unwrap();
        })
        .await
        .unwrap();
}

/// Two chains cross: each holds a gate and waits for the other's.
#[tokio::test]
async fn f7_a_wait_of_a_chain_that_holds_something_is_bounded_and_the_work_withdrawn() {
    let (host, _, clock) = host();
    let a = host.create("a", Log::default()).unwrap();
    let b = host.create("b", Log::default()).unwrap();
    let door = Door::new();
    let crosses = |to: Spot<Log>, door: Door| {
        move |turn: Turn<Log>| async move {
            door.pass().await;
            let asked = to.request(|mut turn| async move { turn.state().push("asked") });
            let result = asked.await;
            drop(turn);
            result
        }
    };
    let mut one = step(a.request(crosses(b.clone(), door.clone())));
    one.pending();
    let mut other = step(b.request(crosses(a.clone(), door.clone())));
    other.pending();
    door.open();
    settle().await;
    clock.advance(Duration::from_secs(10) - Duration::from_nanos(1));
    settle().await;
    one.pending();
    other.pending();
    clock.advance(Duration::from_nanos(1));
    settle().await;
    let results = [one.ready().unwrap(), other.ready().unwrap()];
    let targets = [&b, &a];
    // The first to be withdrawn may make way for the other.
    assert!(results.iter().any(Result::is_err));
    for (result, target) in results.iter().zip(&targets) {
        let ran = !target.enter().await.unwrap().state().is_empty();
        assert_eq!(ran, result.is_ok());
        if let Err(error) = result {
            assert_eq!(error.kind(), SpotErrorKind::DeadlineExceeded);
            assert!(error.never_ran());
        }
    }
}

/// Units count as well as gates.
#[tokio::test]
async fn f7_a_wait_inside_of_a_call_that_holds_a_unit_is_bounded() {
    let (host, runtime, clock) = host();
    let call = runtime
        .contract("call", Policy::pure().claim("unit", 1))
        .unwrap();
    let spot = host.create("s", ()).unwrap();
    let held = spot.enter().await.unwrap();
    let mut outer = step(call.run(|| async {
        let asked = spot.request(|_turn| async {}).await;
        let entered = spot.enter().await.map(|_| ());
        Ok::<_, std::io::Error>((asked, entered)).transient()
    }));
    outer.pending();
    clock.advance(Duration::from_secs(10));
    outer.pending();
    clock.advance(Duration::from_secs(10));
    let (asked, entered) = outer.ready().unwrap();
    assert_eq!(kind(&asked), SpotErrorKind::DeadlineExceeded);
    assert_eq!(kind(&entered), SpotErrorKind::DeadlineExceeded);
    drop(held);
    settle().await;
    spot.request(|_turn| async {}).await.unwrap();
}

/// Begun in time it has as long as it needs.
#[tokio::test]
async fn f7_what_has_begun_in_time_is_not_withdrawn() {
    let (host, _, clock) = host();
    let a = host.create("a", ()).unwrap();
    let b = host.create("b", ()).unwrap();
    let door = Door::new();
    let inner = door.clone();
    let mut outer = step(a.request(move |turn| async move {
        let asked = b.request(move |turn| async move {
            inner.pass().await;
            drop(turn);
            7
        });
        let result = asked.await;
        drop(turn);
        result
    }));
    outer.pending();
    settle().await;
    outer.pending();
    clock.advance(Duration::from_secs(60));
    settle().await;
    outer.pending();
    door.open();
    settle().await;
    assert_eq!(outer.ready().unwrap().unwrap(), 7);
}

/// What a requester left running may ask for what the requester held.
#[tokio::test]
async fn f7_a_requester_that_has_gone_is_no_holder_in_what_it_left_running() {
    let (host, a, _) = log("a");
    let b = host.create("b", ()).unwrap();
    let door = Door::new();
    let (inner, back) = (door.clone(), a.clone());
    let (give, take) = tokio::sync::oneshot::channel();
    let mut outer = step(a.request(move |mut turn| async move {
        let mut asked = step(b.request(move |turn| async move {
            inner.pass().await;
            let asked = back.request(|mut turn| async move { turn.state().push("from b") });
            drop(give.send(asked.await));
            drop(turn);
        }));
        asked.pending();
        settle().await;
        drop(asked);
        turn.state().push("left");
        turn.yield_on(std::future::pending::<()>()).await;
    }));
    outer.pending();
    settle().await;
    door.open();
    take.await.unwrap().unwrap();
    assert_eq!(*a.enter().await.unwrap().state(), ["left", "from b"]);
}

/// And while it is there it is one, also through a task of another.
#[tokio::test]
async fn f7_the_chain_reaches_through_tasks_and_calls() {
    let (host, runtime, _) = host();
    let call = runtime.contract("call", Policy::pure()).unwrap();
    let a = host.create("a", ()).unwrap();
    let b = host.create("b", ()).unwrap();
    let back = a.clone();
    let result = a
        .request(move |turn| async move {
            let asked = b.request(move |turn| async move {
                tokio::task::yield_now().await;
                let nested = call.run(|| async {
                    Ok::<_, std::io::Error>(back.request(|_turn| async {}).await).transient()
                });
                let result = nested.await.unwrap();
                drop(turn);
                result
            });
            let result = asked.await.unwrap();
            drop(turn);
            result
        })
        .await
        .unwrap();
    assert_eq!(kind(&result), SpotErrorKind::InvalidOperation);
}

type Asking = std::pin::Pin<Box<dyn Future<Output = usize> + Send>>;

/// Each Spot asks the next, having yielded.
fn descend(spots: Arc<[Spot<()>]>, at: usize, deepest: Arc<AtomicUsize>) -> Asking {
    thread_local! {
        static DEPTH: Cell<usize> = const { Cell::new(0) };
    }
    Box::pin(async move {
        let Some(spot) = spots.get(at).cloned() else {
            return 0;
        };
        let asked = spot.request(move |turn| async move {
            let mut next = descend(spots, at + 1, Arc::clone(&deepest));
            let next = poll_fn(|cx| {
                let depth = DEPTH.with(|depth| depth.replace(depth.get() + 1)) + 1;
                deepest.fetch_max(depth, Ordering::Relaxed);
                let polled = next.as_mut().poll(cx);
                DEPTH.with(|depth| depth.set(depth.get() - 1));
                polled
            });
            turn.yield_on(next).await.1 + 1
        });
        asked.await.unwrap()
    })
}

#[tokio::test]
async fn f13_yielding_turns_that_ask_one_another_nest_no_deeper_than_bounded() {
    const SPOTS: usize = 500;
    let (host, ..) = host();
    let spots: Arc<[_]> = (0..SPOTS)
        .map(|number| host.create(&number.to_string(), ()).unwrap())
        .collect();
    let deepest = Arc::new(AtomicUsize::new(0));
    let asked = descend(spots, 0, Arc::clone(&deepest)).await;
    assert_eq!(asked, SPOTS);
    assert!(
        (2..=32).contains(&deepest.load(Ordering::Relaxed)),
        "{deepest:?}"
    );
}
