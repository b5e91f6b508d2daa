//! F13, E3: work is polled in the span of whoever asked for it, and of nobody else.

#![cfg(feature = "tracing")]

mod common;

use bursar_spot::{Schedule, SpotError, Turn};
use common::{Door, Shared, host, ms, settle, step};
use tracing::{Instrument, Span, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

fn here() -> &'static str {
    Span::current().metadata().map_or("nobody", |of| of.name())
}

/// Says in whose span it is, before it suspends, after it, and after a yield.
async fn says(log: Shared, turn: Turn<()>) {
    log.push(here());
    tokio::task::yield_now().await;
    log.push(here());
    let (_turn, ()) = turn.yield_on(tokio::task::yield_now()).await;
    log.push(here());
}

#[tokio::test]
async fn f13_work_is_polled_in_the_span_of_its_requester_wherever_it_runs() {
    let _default = tracing::subscriber::set_default(
        registry().with(tracing_subscriber::layer::Identity::new()),
    );
    let (host, _, clock) = host();
    let spot = host.create("s", ()).unwrap();
    let log = Shared::default();
    // At once, in the requester's own poll, and then in a task.
    let asked = says_in(&spot, &log).instrument(info_span!("inline"));
    asked.await.unwrap();
    assert_eq!(log.read(), ["inline"; 3]);
    // Queued, and started by whoever ended the turn before it.
    let door = Door::new();
    let inner = door.clone();
    let holds = spot.request(move |turn: Turn<()>| async move {
        inner.pass().await;
        drop(turn);
    });
    let mut holds = step(holds.instrument(info_span!("holder")));
    holds.pending();
    let log = Shared::default();
    let mut queued = step(says_in(&spot, &log).instrument(info_span!("queued")));
    queued.pending();
    let second = log.clone();
    let sent = spot.send(move |turn| says(second, turn));
    sent.instrument(info_span!("sent")).await.unwrap();
    let third = log.clone();
    spot.send(move |_turn| async move { third.push(here()) })
        .await
        .unwrap();
    door.open();
    settle().await;
    queued.ready().unwrap();
    let mut seen = log.read();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "nobody", "queued", "queued", "queued", "sent", "sent", "sent"
        ]
    );
    // A completion belongs to the turn that asked, a tick to nobody.
    let log = Shared::default();
    let (first, second) = (log.clone(), log.clone());
    let asks = spot.request(|turn| async move {
        turn.on_complete(async move { first.push(here()) }, |_turn, ()| async move {
            second.push(here());
        });
    });
    asks.instrument(info_span!("asks")).await.unwrap();
    settle().await;
    assert_eq!(log.read(), ["asks", "asks"]);
    let log = Shared::default();
    let inner = log.clone();
    info_span!("registers").in_scope(|| {
        let once = Schedule::once(ms(1));
        let handler = move |_turn, _tick| {
            inner.push(here());
            async {}
        };
        spot.timer("t", once, handler).unwrap();
    });
    settle().await;
    clock.advance(ms(1));
    settle().await;
    assert_eq!(log.read(), ["nobody"]);
}

async fn says_in(spot: &bursar_spot::Spot<()>, log: &Shared) -> Result<(), SpotError> {
    let log = log.clone();
    spot.request(move |turn| says(log, turn)).await
}
