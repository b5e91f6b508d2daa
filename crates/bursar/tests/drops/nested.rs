//! Calls made from inside another, dropped at every poll: within its handler, and in work that was started from there.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::common::{Answer, ms};
use crate::harness::{Point, Step, World};
use bursar::in_chain;
use bursar::testkit::{Subject, at_every_poll};

use Point::{Done, First, Key, Pausing, Second, Timer};

fn nothing(_: &World) {}

const NESTED: [Step<World>; 12] = [
    (Key, nothing),
    (Key, World::release_key),
    (First, World::release_a),
    (Second, World::release_b),
    (Timer, World::fail_for_now),
    (Pausing, World::take_over_all_but_the_key),
    (Pausing, World::resume),
    (First, World::release_a),
    (Second, World::release_b),
    (Timer, nothing),
    (Timer, World::succeed),
    (Done, nothing),
];

async fn nested(world: &World) -> Answer {
    let mut call = world.paced.with().key("k").within(ms(1_000));
    let answer = call.run(|_| world.inside.handle()).await;
    assert_eq!(answer.as_ref().ok(), Some(&7), "{answer:?}");
    Answer::Ok(8)
}

fn drop_everywhere(subject: impl for<'w> Fn(&'w World) -> Subject<'w>) {
    at_every_poll(
        World::new,
        subject,
        &NESTED,
        World::point,
        World::afterwards,
    );
}

#[test]
fn b11_a_nested_call_dropped_with_its_parent_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(|world| {
        Box::pin(async {
            let mut outer = world.outer.with().key("outer");
            let answer = outer.run(|_| nested(world)).await;
            assert_eq!(answer.unwrap(), 8);
        })
    });
}

#[test]
fn b11_work_in_a_chain_dropped_at_every_poll_leaves_nothing_behind() {
    // Polled by the handler that made it.
    drop_everywhere(|world| {
        Box::pin(async {
            let answer = world.outer.run(|| in_chain(nested(world))).await;
            assert_eq!(answer.unwrap(), 8);
        })
    });
    // Polled elsewhere, while its parent goes on, and dropped before it.
    drop_everywhere(|world| {
        Box::pin(async {
            let made = RefCell::new(None);
            let mut outer = world.outer.with().key("outer");
            let mut parent = pin!(outer.run(|_| {
                made.replace(Some(in_chain(nested(world))));
                async {
                    world.linger.wait().await;
                    Answer::Ok(9)
                }
            }));
            let begun = poll_fn(|cx| Poll::Ready(parent.as_mut().poll(cx).is_pending()));
            assert!(begun.await);
            let part = made.take().expect("made in the first poll");
            assert_eq!(part.await.unwrap(), 8);
        })
    });
}

#[test]
fn b11_work_in_a_chain_whose_parent_has_gone_leaves_nothing_behind() {
    // The parent is dropped before its part, which goes on outside.
    drop_everywhere(|world| {
        Box::pin(async {
            let made = RefCell::new(None);
            {
                let mut outer = world.outer.with().key("outer");
                let mut parent = pin!(outer.run(|_| {
                    made.replace(Some(in_chain(nested(world))));
                    std::future::pending::<Answer>()
                }));
                let begun = poll_fn(|cx| Poll::Ready(parent.as_mut().poll(cx).is_pending()));
                assert!(begun.await);
            }
            let part = made.take().expect("made in the first poll");
            assert_eq!(part.await.unwrap(), 8);
        })
    });
}
