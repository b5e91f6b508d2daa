//! Every form of a call, dropped at every poll.

use crate::common::{Error, ms};
use crate::harness::{Point, Step, THINGS, World};
use bursar::testkit::{Subject, at_every_poll};

use Point::{Between, Done, First, Grace, Held, Key, Refused, Second, Suspended, Timer};

fn drop_everywhere(subject: impl for<'w> Fn(&'w World) -> Subject<'w>, script: &[Step<World>]) {
    at_every_poll(World::new, subject, script, World::point, World::afterwards);
}

fn nothing(_: &World) {}

fn timeout(world: &World) {
    world.clock.advance(ms(10));
}

/// From the first budget on.
const WAITS: [Step<World>; 3] = [
    (First, nothing),
    (First, World::release_a),
    (Second, World::release_b),
];

/// Two attempts, the first of which goes through its timeout and answers in its grace.
const ATTEMPTS: [Step<World>; 7] = [
    (Timer, nothing),
    (Timer, timeout),
    (Grace, nothing),
    (Grace, World::fail),
    (Between, nothing),
    (Timer, World::succeed),
    (Done, nothing),
];

const KEY: [Step<World>; 2] = [(Key, nothing), (Key, World::release_key)];

fn script(parts: &[&[Step<World>]]) -> Vec<Step<World>> {
    parts.concat()
}

#[test]
fn b8_run_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let _ = world.work.run(|| world.inside.handle()).await;
            })
        },
        &script(&[&WAITS, &ATTEMPTS]),
    );
}

#[test]
fn b8_run_without_a_timer_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let _ = world.plain.run(|| world.inside.handle()).await;
            })
        },
        &script(&[
            &WAITS,
            &[
                (Suspended, nothing),
                (Suspended, World::fail),
                (Between, nothing),
                (Suspended, World::succeed),
                (Done, nothing),
            ],
        ]),
    );
}

#[test]
fn b8_a_call_with_key_deadline_and_token_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let call = world.work.with().key("k").within(ms(1_000));
                let mut call = call.until(world.token.wait());
                let _ = call.run(|_| world.inside.handle()).await;
            })
        },
        &script(&[&KEY, &WAITS, &ATTEMPTS]),
    );
}

#[test]
fn b8_a_typed_call_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let _ = world.typed.call("k").await;
            })
        },
        &script(&[&KEY, &WAITS, &ATTEMPTS]),
    );
    drop_everywhere(
        |world| {
            let call = world.typed.with().until(world.token.wait());
            Box::pin(async {
                let _ = call.within(ms(1_000)).call("k").await;
            })
        },
        &script(&[&KEY, &WAITS, &ATTEMPTS]),
    );
}

#[test]
fn b13_admit_dropped_at_every_poll_leaves_nothing_behind() {
    let held: [Step<World>; 3] = [
        (Held, nothing),
        (Held, |world| world.linger.open()),
        (Done, nothing),
    ];
    drop_everywhere(
        |world| {
            Box::pin(async {
                let permit = world.work.admit().await.expect("nothing ends it");
                world.linger(permit).await;
            })
        },
        &script(&[&WAITS, &held]),
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let mut call = world.work.with().key("k").within(ms(1_000));
                let permit = call.admit().await.expect("nothing ends it");
                world.linger(permit).await;
            })
        },
        &script(&[&KEY, &WAITS, &held]),
    );
}

#[test]
fn b13_run_held_dropped_at_every_poll_leaves_nothing_behind() {
    let [attempts @ .., _done] = ATTEMPTS;
    let held: [Step<World>; 3] = [
        (Held, nothing),
        (Held, |world| world.linger.open()),
        (Done, nothing),
    ];
    drop_everywhere(
        |world| {
            Box::pin(async {
                let (_, permit) = world
                    .work
                    .run_held(|| world.inside.handle())
                    .await
                    .expect("it succeeds");
                world.linger(permit).await;
            })
        },
        &script(&[&WAITS, &attempts, &held]),
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let mut call = world.work.with().key("k");
                let (_, permit) = call
                    .run_held(|_| world.inside.handle())
                    .await
                    .expect("it succeeds");
                world.linger(permit).await;
            })
        },
        &script(&[&KEY, &WAITS, &attempts, &held]),
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let (_, permit) = world.typed.call_held("k").await.expect("it succeeds");
                world.linger(permit).await;
            })
        },
        &script(&[&KEY, &WAITS, &attempts, &held]),
    );
    drop_everywhere(
        |world| {
            let call = world.typed.with().until(world.token.wait());
            Box::pin(async {
                let call = call.within(ms(1_000)).call_held("k");
                let (_, permit) = call.await.expect("it succeeds");
                world.linger(permit).await;
            })
        },
        &script(&[&KEY, &WAITS, &attempts, &held]),
    );
}

#[test]
fn c5_cancelled_dropped_at_every_poll_leaves_nothing_behind() {
    // Let go of by a handler that goes on, and then again by one that is told.
    fn call(world: &World) -> Subject<'_> {
        Box::pin(async {
            let mut call = world.work.with();
            let run = call.run(|attempt| async {
                tokio::select! {
                    () = attempt.cancelled() => {}
                    () = world.token.wait() => {}
                }
                world.inside.handle().await
            });
            let _ = run.await;
        })
    }
    // Not in the handler proper yet, which is what tells a running attempt from one that waits.
    let begins: [Step<World>; 2] = [(Between, nothing), (Between, |world| world.token.open())];
    drop_everywhere(call, &script(&[&WAITS, &begins, &ATTEMPTS]));
    let told: [Step<World>; 4] = [
        (Between, nothing),
        (Between, timeout),
        (Timer, World::succeed),
        (Done, nothing),
    ];
    drop_everywhere(call, &script(&[&WAITS, &told]));
}

#[test]
fn b4_a_refused_call_dropped_before_and_after_its_yield_leaves_nothing_behind() {
    // Turned away at its key, at its first budget holding the key, at its second holding both.
    for thing in 0..THINGS {
        let mut held = [false; THINGS];
        held[thing] = true;
        let refused: [Step<World>; 2] = [(Refused, nothing), (Done, nothing)];
        let at_every_poll = |subject: fn(&World) -> Subject<'_>| {
            at_every_poll(
                || World::holding(held),
                subject,
                &refused,
                World::point,
                World::afterwards,
            );
        };
        at_every_poll(|world| {
            Box::pin(async {
                let mut call = world.reject.with().key("k").within(ms(1_000));
                let answer = call.run(|_| world.inside.handle()).await;
                assert!(answer.is_err_and(|error| error.is_overloaded()));
            })
        });
        at_every_poll(|world| {
            Box::pin(async {
                let answer = world.typed_reject.call("k").await;
                assert!(answer.is_err_and(|error| error.is_overloaded()));
            })
        });
        at_every_poll(|world| {
            Box::pin(async {
                let call = world.typed_reject.with().within(ms(1_000));
                let answer = call.call_held("k").await;
                assert!(answer.is_err_and(|error| error.is_overloaded()));
            })
        });
        at_every_poll(|world| {
            Box::pin(async {
                let mut call = world.reject.with().key("k");
                let answer = call.admit().await;
                assert!(answer.is_err_and(|error| error.is_overloaded()));
            })
        });
        at_every_poll(|world| {
            Box::pin(async {
                let mut call = world.reject.with().key("k");
                let answer = call.run_held(|_| async { Err::<(), _>(never()) }).await;
                assert!(answer.is_err_and(|error| error.is_overloaded()));
            })
        });
    }
}

fn never() -> bursar::Failure<Error> {
    panic!("a refused call runs nothing")
}
