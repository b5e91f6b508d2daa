//! Calls that are ended by their caller's bounds at every await point, and dropped before, meanwhile and after.

use crate::common::ms;
use crate::harness::{Point, Step, World};
use bursar::testkit::{Subject, at_every_poll};

use Point::{Between, Done, First, Grace, Key, Pausing, Second, Timer};

fn nothing(_: &World) {}

/// All the waits of a call, and what leads from each to the next.
const WAY: [Step<World>; 6] = [
    (Key, World::release_key),
    (First, World::release_a),
    (Second, World::release_b),
    (Timer, |world| world.clock.advance(ms(10))),
    (Grace, World::fail),
    (Between, nothing),
];

/// For each await point: a call that comes so far, and whose caller then leaves.
fn leave_everywhere(subject: impl for<'w> Fn(&'w World) -> Subject<'w>, leave: fn(&World)) {
    for length in 1..=WAY.len() {
        let mut script = WAY[..length].to_vec();
        script[length - 1].1 = leave;
        script.push((Done, nothing));
        at_every_poll(
            World::new,
            &subject,
            &script,
            World::point,
            World::afterwards,
        );
    }
}

#[test]
fn b9_a_token_that_fires_at_every_point_ends_the_call_and_leaves_nothing_behind() {
    leave_everywhere(
        |world| {
            Box::pin(async {
                let mut call = world.work.with().key("k").until(world.token.wait());
                let answer = call.run(|_| world.inside.handle()).await;
                assert!(answer.is_err(), "{answer:?}");
            })
        },
        |world| world.token.open(),
    );
}

#[test]
fn b9_a_deadline_that_passes_at_every_point_ends_the_call_and_leaves_nothing_behind() {
    leave_everywhere(
        |world| {
            Box::pin(async {
                let mut call = world.work.with().key("k").within(ms(15));
                let answer = call.run(|_| world.inside.handle()).await;
                assert!(answer.is_err(), "{answer:?}");
            })
        },
        |world| world.clock.advance(ms(15)),
    );
}

#[test]
fn b9_a_typed_call_ended_at_every_point_leaves_nothing_behind() {
    leave_everywhere(
        |world| {
            let call = world.typed.with().until(world.token.wait());
            Box::pin(async {
                let answer = call.call("k").await;
                assert!(answer.is_err(), "{answer:?}");
            })
        },
        |world| world.token.open(),
    );
}

#[test]
fn b10_a_longest_wait_that_passes_at_every_wait_ends_the_call_and_leaves_nothing_behind() {
    let again: [Step<World>; 5] = [
        (Timer, World::fail_for_now),
        (Pausing, World::take_over_all_but_the_key),
        (Pausing, World::resume),
        (First, World::release_a),
        (Second, nothing),
    ];
    let way = [&WAY[..3], &again].concat();
    let waits = |length: &usize| matches!(way[length - 1].0, Key | First | Second);
    for length in (1..=way.len()).filter(waits) {
        let mut script = way[..length].to_vec();
        script[length - 1].1 = |world| world.clock.advance(ms(30));
        script.push((Done, nothing));
        at_every_poll(
            World::new,
            |world| {
                Box::pin(async {
                    let mut call = world.hurried.with().key("k");
                    let answer = call.run(|_| world.inside.handle()).await;
                    assert!(answer.is_err(), "{answer:?}");
                })
            },
            &script,
            World::point,
            World::afterwards,
        );
    }
}

#[test]
fn d1_a_shutdown_at_every_wait_ends_the_call_and_leaves_nothing_behind() {
    // Only what waits is withdrawn; what executes goes on, and a world that is closed admits nobody afterwards.
    for length in 1..=3 {
        let mut script = WAY[..length].to_vec();
        script[length - 1].1 = |world| {
            let polled = tokio_test::task::spawn(world.runtime.shutdown()).poll();
            assert!(polled.is_pending(), "others still hold");
        };
        script.push((Done, nothing));
        at_every_poll(
            World::new,
            |world| {
                Box::pin(async {
                    let mut call = world.work.with().key("k");
                    let answer = call.run(|_| world.inside.handle()).await;
                    assert!(answer.is_err_and(|error| error.is_stopping()));
                })
            },
            &script,
            World::point,
            World::afterwards_open_or_closed,
        );
    }
}
