//! Calls that pause between two attempts and queue again, dropped at every poll: in the pause the units are back and the
//! key is kept (C10).

use crate::common::ms;
use crate::harness::{Point, Step, World};
use bursar::testkit::{Subject, at_every_poll};

use Point::{Done, First, Held, Key, Pausing, Second, Timer};

fn nothing(_: &World) {}

fn drop_everywhere(subject: impl for<'w> Fn(&'w World) -> Subject<'w>, script: &[&[Step<World>]]) {
    let script = script.concat();
    at_every_poll(
        World::new,
        subject,
        &script,
        World::point,
        World::afterwards,
    );
}

const KEY: [Step<World>; 1] = [(Key, World::release_key)];

/// The first attempt, which fails.
const FIRST: [Step<World>; 3] = [
    (First, World::release_a),
    (Second, World::release_b),
    (Timer, World::fail_for_now),
];

const PAUSE: [Step<World>; 3] = [
    (Pausing, nothing),
    (Pausing, World::take_over),
    (Pausing, World::resume),
];

const PAUSE_WITH_KEY: [Step<World>; 3] = [
    (Pausing, nothing),
    (Pausing, World::take_over_all_but_the_key),
    (Pausing, World::resume),
];

/// In the queues once more, and then the attempt that succeeds.
const AGAIN: [Step<World>; 4] = [
    (First, nothing),
    (First, World::release_a),
    (Second, World::release_b),
    (Timer, World::succeed),
];

const DONE: [Step<World>; 1] = [(Done, nothing)];

const HELD: [Step<World>; 3] = [
    (Held, nothing),
    (Held, |world| world.linger.open()),
    (Done, nothing),
];

#[test]
fn c10_a_call_that_pauses_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let answer = world.paced.run(|| world.inside.handle()).await;
                assert_eq!(answer.unwrap(), 7);
            })
        },
        &[&FIRST, &PAUSE, &AGAIN, &DONE],
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let call = world.paced.with().key("k").within(ms(1_000));
                let mut call = call.until(world.token.wait());
                let answer = call.run(|_| world.inside.handle()).await;
                assert_eq!(answer.unwrap(), 7);
            })
        },
        &[&KEY, &FIRST, &PAUSE_WITH_KEY, &AGAIN, &DONE],
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let answer = world.typed_paced.call("k").await;
                assert_eq!(answer.unwrap(), 7);
            })
        },
        &[&KEY, &FIRST, &PAUSE_WITH_KEY, &AGAIN, &DONE],
    );
}

#[test]
fn c10_a_held_call_that_pauses_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let run = world.paced.run_held(|| world.inside.handle());
                let (_, permit) = run.await.expect("it succeeds");
                world.linger(permit).await;
            })
        },
        &[&FIRST, &PAUSE, &AGAIN, &HELD],
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let call = world.typed_paced.with().within(ms(1_000));
                let (_, permit) = call.call_held("k").await.expect("it succeeds");
                world.linger(permit).await;
            })
        },
        &[&KEY, &FIRST, &PAUSE_WITH_KEY, &AGAIN, &HELD],
    );
}

#[test]
fn c10_a_pause_that_its_caller_ends_leaves_nothing_behind() {
    let pause: [Step<World>; 2] = [(Pausing, nothing), (Pausing, |world| world.token.open())];
    drop_everywhere(
        |world| {
            Box::pin(async {
                let call = world.paced.with().key("k");
                let mut call = call.until(world.token.wait());
                let answer = call.run(|_| world.inside.handle()).await;
                assert!(answer.is_err(), "{answer:?}");
            })
        },
        &[&KEY, &FIRST, &pause, &DONE],
    );
}

#[test]
fn d1_a_pause_that_a_shutdown_ends_leaves_nothing_behind() {
    let pause: [Step<World>; 2] = [
        (Pausing, World::take_over_all_but_the_key),
        (Pausing, |world| {
            let polled = tokio_test::task::spawn(world.runtime.shutdown()).poll();
            assert!(polled.is_pending(), "others still hold");
        }),
    ];
    at_every_poll(
        World::new,
        |world| {
            Box::pin(async {
                let mut call = world.paced.with().key("k");
                let answer = call.run(|_| world.inside.handle()).await;
                assert!(answer.is_err(), "{answer:?}");
            })
        },
        &[&KEY[..], &FIRST, &pause, &DONE].concat(),
        World::point,
        World::afterwards_open_or_closed,
    );
}
