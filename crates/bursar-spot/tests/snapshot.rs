//! What a host's Spots do at one moment, asked of the host and of its runtime.

mod common;

use std::future::pending;

use bursar_spot::Turn;
use common::{host, settle, step};

#[tokio::test]
async fn e2_a_snapshot_says_what_every_spot_does_the_longest_line_first() {
    let (host, runtime, _) = host();
    let a = host.create("a", ()).unwrap();
    let b = host.create("b", ()).unwrap();
    host.create("idle", ()).unwrap();
    let mut yielded = step(a.request(|turn: Turn<()>| async move {
        turn.yield_on(pending::<()>()).await;
    }));
    yielded.pending();
    settle().await;
    let held = b.enter().await.unwrap();
    for _ in 0..3 {
        b.send(|_turn| async {}).await.unwrap();
    }
    let snapshot = host.snapshot();
    assert_eq!(snapshot.spots, 3);
    let seen: Vec<_> = snapshot
        .busy
        .iter()
        .map(|spot| (&*spot.name, spot.running, spot.waiting, spot.yielded))
        .collect();
    assert_eq!(seen, [("b", 1, 3, 0), ("a", 0, 0, 1)]);
    let all = runtime.snapshot();
    assert_eq!(all.hosts, [snapshot]);
    let shown = "\
open: 0 executing, 0 paused, 0 waiting
  3 pieces of work wait for Spot b, whose turn runs

budget  capacity  in use
unit           1       0

3 Spots, 2 of them busy

spot  running  waiting  yielded
b           1        3
a                             1";
    let text = all.to_string();
    assert!(text == shown, "\n{text}");
    drop(held);
    settle().await;
    let mut close = step(host.close("a"));
    close.pending();
    let closing = host.snapshot();
    assert!(!closing.busy[0].open);
    assert!(closing.to_string().ends_with("closes"), "\n{closing}");
    settle().await;
    close.ready().unwrap();
    assert!(host.snapshot().busy.is_empty());
}

/// Spots of a runtime that is not exact tell no ages.
#[cfg(feature = "exact")]
#[tokio::test]
async fn e2_an_exact_runtime_tells_how_long_turns_have_run() {
    use bursar::{ManualClock, Runtime};
    use bursar_spot::{Host, PerActor};
    use common::{Door, ms};

    let clock = ManualClock::new();
    let runtime = Runtime::builder().resource("unit", 1).clock(clock.clone());
    let host = Host::new(&runtime.exact().build().unwrap());
    let age = |name: &str| {
        let busy = host.snapshot().busy;
        busy.into_iter().find(|spot| spot.name == name)?.running_for
    };
    let spot = host.create("s", ()).unwrap();
    let entered = spot.enter().await.unwrap();
    clock.advance(ms(5));
    assert_eq!(age("s"), Some(ms(5)));
    drop(entered);
    assert_eq!(age("s"), None);
    let [first, second, third] = [(); 3].map(|()| Door::new());
    let inner = [&first, &second, &third].map(Door::clone);
    let mut yields = step(spot.request(move |turn: Turn<()>| async move {
        let [first, second, third] = inner;
        first.pass().await;
        let (turn, ()) = turn.yield_on(second.pass()).await;
        third.pass().await;
        drop(turn);
    }));
    yields.pending();
    clock.advance(ms(3));
    assert_eq!(age("s"), Some(ms(3)));
    first.open();
    settle().await;
    assert_eq!(age("s"), None, "it has yielded");
    second.open();
    settle().await;
    clock.advance(ms(2));
    assert_eq!(age("s"), Some(ms(2)), "since it came back");
    third.open();
    settle().await;
    yields.ready().unwrap();
    assert_eq!(age("s"), None);
    let apart = host.spot("a").kind::<PerActor>().create(()).unwrap();
    let doors = [Door::new(), Door::new()];
    for door in &doors {
        let inner = door.clone();
        let actor = apart.actor(());
        let sent = actor.send(move |_turn| async move { inner.pass().await });
        sent.await.unwrap();
        settle().await;
        clock.advance(ms(1));
    }
    assert_eq!(age("a"), Some(ms(2)), "the oldest");
    doors[0].open();
    settle().await;
    assert_eq!(age("a"), Some(ms(1)));
}
