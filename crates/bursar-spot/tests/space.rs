//! A full queue: what waits for space begins when its gate and claim are free, whatever else waits.

#![allow(clippy::disallowed_methods, reason = "tests start tasks that ask")]

mod common;

use bursar_spot::{Actor, Kind, PerActor, Spot};
use common::{Door, Shared, host, settle, step};

/// A send to the actor that says its name and then waits at the door.
macro_rules! sent {
    ($to:expr, $log:expr, $name:literal, $door:expr) => {{
        let (log, door) = ($log.clone(), $door.clone());
        step($to.send(move |turn| async move {
            log.push($name);
            door.pass().await;
            drop(turn);
        }))
    }};
}

fn actors<K: Kind>(spot: &Spot<(), K>) -> [Actor<(), (), K>; 2] {
    [spot.actor(()), spot.actor(())]
}

#[tokio::test]
async fn f6_what_waits_for_space_begins_when_its_own_gate_is_free() {
    let (host, ..) = host();
    let spot = host
        .spot("s")
        .kind::<PerActor>()
        .queue(1)
        .create(())
        .unwrap();
    let [a, b] = actors(&spot);
    let (log, [first, second, shut]) = (Shared::default(), [(); 3].map(|()| Door::new()));
    sent!(a, log, "a1", first).ready().unwrap();
    sent!(b, log, "b1", second).ready().unwrap();
    settle().await;
    sent!(a, log, "a2", shut).ready().unwrap();
    let mut b2 = sent!(b, log, "b2", shut);
    b2.pending();
    settle().await;
    b2.pending();
    assert_eq!(log.read(), ["a1", "b1"]);
    second.open();
    settle().await;
    b2.ready().unwrap();
    assert_eq!(log.read(), ["a1", "b1", "b2"]);
    let mut b3 = sent!(b, log, "b3", shut);
    b3.pending();
    first.open();
    settle().await;
    b3.ready().unwrap();
    assert_eq!(log.read(), ["a1", "b1", "b2", "a2"]);
    shut.open();
    settle().await;
    assert_eq!(log.read(), ["a1", "b1", "b2", "a2", "b3"]);
}

#[tokio::test]
async fn f6_work_set_aside_for_its_claim_keeps_nobody_from_a_free_gate() {
    let (host, ..) = host();
    let spot = host.spot("s").queue(1).create(()).unwrap();
    let [a, b] = actors(&spot);
    let (log, [away, busy, open]) = (Shared::default(), [(); 3].map(|()| Door::new()));
    open.open();
    let (log_a, door) = (log.clone(), away.clone());
    step(a.send(move |turn| async move {
        let (_turn, ()) = turn.yield_on(door.pass()).await;
        log_a.push("a1");
    }))
    .ready()
    .unwrap();
    settle().await;
    sent!(spot, log, "s1", busy).ready().unwrap();
    settle().await;
    // It fills the queue, and is set aside when the gate is free: its claim is not.
    sent!(a, log, "a2", open).ready().unwrap();
    let mut b1 = sent!(b, log, "b1", open);
    b1.pending();
    busy.open();
    settle().await;
    b1.ready().unwrap();
    assert_eq!(log.read(), ["s1", "b1"]);
    away.open();
    settle().await;
    assert_eq!(log.read(), ["s1", "b1", "a1", "a2"]);
}

#[tokio::test]
async fn f6_without_a_queue_work_waits_for_space_until_the_gate_is_free() {
    let (host, ..) = host();
    let spot = host.spot("s").queue(0).create(()).unwrap();
    let (log, [first, open]) = (Shared::default(), [(); 2].map(|()| Door::new()));
    open.open();
    sent!(spot, log, "1", first).ready().unwrap();
    settle().await;
    let mut second = sent!(spot, log, "2", open);
    let mut third = sent!(spot, log, "3", open);
    second.pending();
    third.pending();
    first.open();
    settle().await;
    second.ready().unwrap();
    third.ready().unwrap();
    assert_eq!(log.read(), ["1", "2", "3"]);
}
