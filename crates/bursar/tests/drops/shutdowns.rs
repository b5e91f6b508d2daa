//! The drain's own futures, dropped at every poll.

use crate::common::ms;
use crate::harness::{Point, Step, World};
use bursar::testkit::{Subject, at_every_poll};

use Point::{Done, Drain};

fn nothing(_: &World) {}

const DRAIN: [Step<World>; 5] = [
    (Drain, nothing),
    (Drain, World::release_b),
    (Drain, World::release_key),
    (Drain, World::release_a),
    (Done, nothing),
];

fn point(_: &World, ready: bool) -> Point {
    if ready { Done } else { Drain }
}

#[test]
fn d1_shutdown_dropped_at_every_poll_stays_closed_and_can_be_awaited_again() {
    at_every_poll(
        World::new,
        |world| {
            Box::pin(async {
                world.runtime.shutdown().await.expect("from outside");
            })
        },
        &DRAIN,
        point,
        World::afterwards_open_or_closed,
    );
}

#[test]
fn d3_a_bounded_shutdown_dropped_at_every_poll_leaves_no_timer() {
    fn bounded(world: &World) -> Subject<'_> {
        Box::pin(async {
            let _ = world.runtime.shutdown_within(ms(10)).await;
        })
    }
    at_every_poll(
        World::new,
        bounded,
        &DRAIN,
        point,
        World::afterwards_open_or_closed,
    );
    let runs_out: [Step<World>; 3] = [
        (Drain, World::release_a),
        (Drain, |world| world.clock.advance(ms(10))),
        (Done, nothing),
    ];
    at_every_poll(
        World::new,
        bounded,
        &runs_out,
        point,
        World::afterwards_open_or_closed,
    );
}

#[test]
fn d2_one_of_two_shutdowns_dropped_at_every_poll_does_not_concern_the_other() {
    at_every_poll(
        World::new,
        |world| {
            Box::pin(async {
                let (first, second) = tokio::join!(
                    world.runtime.shutdown(),
                    world.runtime.shutdown_within(ms(1_000)),
                );
                assert!(first.is_ok() && second.is_ok());
            })
        },
        &DRAIN,
        point,
        World::afterwards_open_or_closed,
    );
}
