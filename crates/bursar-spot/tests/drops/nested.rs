//! Askers that hold something while they wait: what they held is free when they have left.

use bursar::testkit::{Stepped, Subject};
use bursar_spot::SpotErrorKind;

use crate::asking::Point::{self, Done, Runs};
use crate::asking::{SENDS, TURN, WAITS, World, refused, requests, sends};
use crate::common::ms;
use crate::harness::{Step, drop_everywhere, nothing};

/// The asker holds a unit: that is free when it has left, and what it left running holds nothing.
#[test]
fn f7_an_asker_that_holds_a_unit_dropped_at_every_poll_gives_it_back_at_once() {
    fn afterwards(world: &World, drop_subject: &mut dyn FnMut()) {
        world.afterwards(&mut || {
            drop_subject();
            bursar::testkit::assert_idle(&world.base.runtime);
            drop(
                Stepped::new(world.base.unit().admit())
                    .ready()
                    .expect("free"),
            );
        });
    }
    fn within_a_call(world: &World, asks: fn(&World) -> Subject<'_>) -> Subject<'_> {
        Box::pin(async move {
            let unit = world.base.unit();
            let call = unit.run(|| async {
                asks(world).await;
                Ok::<_, bursar::Failure<()>>(())
            });
            call.await.expect("it succeeds");
        })
    }
    let script = [&WAITS[..], &TURN].concat();
    drop_everywhere(
        World::full,
        |world| within_a_call(world, requests),
        &script,
        World::point,
        afterwards,
    );
    drop_everywhere(
        World::full,
        |world| within_a_call(world, sends),
        &SENDS,
        World::point,
        afterwards,
    );
}

/// While its asker is there, what the work needs is held above it; once that has left, it is outside of that chain.
#[test]
fn f7_work_whose_asker_left_at_any_poll_may_wait_for_what_that_held() {
    fn asks(world: &World) -> Subject<'_> {
        Box::pin(async {
            let (outer, inner) = (world.base.unit(), world.base.unit());
            let call = outer.run(|| async {
                let (log, doors, unit) = (&world.base.log, &world.base.doors, &inner);
                let (log, doors, unit) = (log.clone(), doors.clone(), unit.clone());
                let asked = world.spot.request(move |turn| async move {
                    log.push("began");
                    doors.body.pass().await;
                    let nested = unit.run(|| async { Ok::<_, bursar::Failure<()>>(()) });
                    let ran = nested.await.is_ok();
                    log.push(if ran { "ran" } else { "refused" });
                    drop(turn);
                });
                asked.await.expect("it runs");
                Ok::<_, bursar::Failure<()>>(())
            });
            call.await.expect("it succeeds");
        })
    }
    let turn: [Step<World, Point>; 3] = [(Runs, nothing), (Runs, World::end_body), (Done, nothing)];
    drop_everywhere(
        World::full,
        asks,
        &[&WAITS[..], &turn].concat(),
        World::point,
        |world, drop_subject| {
            let accepted = world.base.polled.get() && world.base.said("before");
            let refused = world.base.said("refused");
            world.leave(true, drop_subject);
            let mut right = vec!["holder", "before"];
            if accepted {
                right.extend(["began", if refused { "refused" } else { "ran" }]);
            }
            assert_eq!(world.base.without("behind"), right);
            world.ends(true);
        },
    );
}

/// Others may wait for what the asker holds, so it waits no longer than the runtime's nested wait.
#[test]
fn f7_a_wait_that_is_withdrawn_dropped_at_every_poll_leaves_no_timer() {
    fn nested_wait_passes(world: &World) {
        world.base.clock.advance(ms(10_000));
    }
    fn afterwards(world: &World, drop_subject: &mut dyn FnMut()) {
        world.leave(true, drop_subject);
        assert_eq!(world.base.without("behind"), ["holder", "before"]);
        world.ends(true);
    }
    drop_everywhere(
        World::full,
        |world| {
            Box::pin(async {
                let unit = world.base.unit();
                let call = unit.run(|| async {
                    let refused = world.spot.enter().await.expect_err("it takes too long");
                    assert_eq!(refused.kind(), SpotErrorKind::DeadlineExceeded);
                    Ok::<_, bursar::Failure<()>>(())
                });
                call.await.expect("it succeeds");
            })
        },
        &refused(nested_wait_passes),
        World::point,
        afterwards,
    );
}
