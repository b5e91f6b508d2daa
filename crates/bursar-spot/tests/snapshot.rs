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
