//! Waiting for Spots and hosts to end: to make a Spot anew, to close one, to shut all down.

use std::cell::{Cell, RefCell};

use bursar::testkit::{Stepped, Subject};
use bursar::{Permit, ShutdownError};
use bursar_spot::{Spot, SpotErrorKind, Work};

use crate::common::ms;
use crate::harness::{Base, Behind, Step, drop_everywhere, nothing};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Turns run that were there before.
    Turns,
    /// The last turn runs.
    Last,
    /// The last turn of the next Spot of that name runs.
    LastAgain,
    /// Work beside the turns runs.
    Working,
    /// The rest of the runtime drains.
    Drains,
    Done,
}

use Point::{Done, Drains, Last, LastAgain, Turns, Working};

/// A Spot with a turn that runs, one that has yielded, and one that is queued, beside a call that holds the unit and work on
/// the executor.
struct World {
    base: Base,
    permit: RefCell<Option<Permit>>,
    work: RefCell<Option<Stepped<Work<()>>>>,
    /// How many Spots of the name "s" were made.
    made: Cell<u32>,
}

impl AsRef<Base> for World {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl World {
    fn idle(base: Base) -> Self {
        let world = Self {
            permit: RefCell::default(),
            work: RefCell::default(),
            made: Cell::new(0),
            base,
        };
        world.make(&world.base.doors.last);
        world
    }

    fn make(&self, last: &crate::common::Door) -> Spot<()> {
        let (log, last) = (self.base.log.clone(), last.clone());
        let builder = self.base.host.spot("s").on_closing(move |turn, _| {
            let (log, last) = (log.clone(), last.clone());
            async move {
                log.push("last");
                last.pass().await;
                log.push("closed");
                drop(turn);
            }
        });
        self.made.set(self.made.get() + 1);
        builder.create(()).expect("the name is free")
    }

    fn spot(&self) -> Spot<()> {
        self.base.host.find("s").expect("it was made")
    }

    fn busy(base: Base) -> Self {
        let world = Self::idle(base);
        let spot = world.spot();
        let send = |word, yields: bool, door: &crate::common::Door| {
            let (log, door) = (world.base.log.clone(), door.clone());
            let sent = spot.send(move |turn| async move {
                let turn = match yields {
                    true => turn.yield_on(door.pass()).await.0,
                    false => {
                        door.pass().await;
                        turn
                    }
                };
                log.push(word);
                drop(turn);
            });
            Stepped::new(sent).ready().expect("there is room");
            world.base.settle();
        };
        send("yielded", true, &world.base.doors.away);
        send("holder", false, &world.base.doors.holder);
        send("queued", false, &world.base.doors.before);
        let door = world.base.doors.body.clone();
        let mut work = Stepped::new(
            world
                .base
                .host
                .workers()
                .io(|_| async move { door.pass().await }),
        );
        assert!(work.poll().is_pending());
        world.work.replace(Some(work));
        let permit = Stepped::new(world.base.unit().admit()).ready();
        world.permit.replace(Some(permit.expect("free")));
        world.base.settle();
        world
    }

    fn closing(base: Base) -> Self {
        let world = Self::idle(base);
        world.close();
        world
    }

    /// Somebody else closes the Spot.
    fn close(&self) {
        assert!(Stepped::new(self.base.host.close("s")).poll().is_pending());
        self.base.settle();
    }

    fn end_turns(&self) {
        for door in [
            &self.base.doors.holder,
            &self.base.doors.before,
            &self.base.doors.away,
        ] {
            self.base.open(door);
        }
    }

    fn end_holder(&self) {
        self.base.open(&self.base.doors.holder);
    }

    fn end_last(&self) {
        self.base.open(&self.base.doors.last);
    }

    /// The Spot has ended, another is made, and closes as well.
    fn end_last_and_close_the_next(&self) {
        self.end_last();
        self.make(&self.base.doors.claim);
        self.close();
    }

    fn end_last_again(&self) {
        self.base.open(&self.base.doors.claim);
    }

    fn end_work(&self) {
        self.base.open(&self.base.doors.body);
        self.work.take();
    }

    fn end_call(&self) {
        self.permit.take();
    }

    fn time_out(&self) {
        self.base.clock.advance(ms(1_000));
    }

    fn point(&self, ready: bool) -> Point {
        // What the subject began goes on in the executor.
        self.base.settle();
        let closed = self.base.times("closed");
        match self.base.times("last") {
            _ if ready => Done,
            0 => Turns,
            1 if closed == 0 => Last,
            2 if closed == 1 => LastAgain,
            _ if self.work.borrow().is_some() => Working,
            _ => Drains,
        }
    }

    fn end_all(&self) {
        self.end_work();
        self.end_call();
        self.base.open_all();
    }
}

#[test]
fn f11_getting_or_making_a_spot_dropped_at_every_poll_makes_nothing() {
    fn made(world: &World) {
        world.made.set(world.made.get() + 1);
    }
    let script: [Step<World, Point>; 5] = [
        (Last, nothing),
        (Last, World::end_last_and_close_the_next),
        (LastAgain, nothing),
        (LastAgain, World::end_last_again),
        (Done, nothing),
    ];
    drop_everywhere(
        World::closing,
        |world| {
            Box::pin(async {
                let spot = world.base.host.get_or_create("s", || made(world));
                assert!(spot.await.expect("it is made").is_open());
            })
        },
        &script,
        World::point,
        |world, drop_subject| {
            // What is made before is closing; the subject's own, or that of who waits behind it, is the last.
            let before = world.made.get();
            let by_subject = world
                .base
                .host
                .find::<()>("s")
                .is_some_and(|spot| spot.is_open());
            let behind = Behind::new(world.base.host.get_or_create("s", || made(world)));
            let made = world.made.get();
            drop_subject();
            world.base.open_all();
            assert_eq!(world.made.get(), made, "whoever left makes nothing");
            behind.comes_through();
            assert_eq!(world.made.get(), before + u32::from(!by_subject));
            world.base.next_ones_run(&world.spot());
        },
    );
}

#[test]
fn f11_a_close_dropped_at_every_poll_goes_on_by_itself() {
    let script: [Step<World, Point>; 5] = [
        (Turns, nothing),
        (Turns, World::end_holder),
        (Last, nothing),
        (Last, World::end_last),
        (Done, nothing),
    ];
    drop_everywhere(
        World::busy,
        |world| Box::pin(async { world.base.host.close("s").await.expect("from outside") }),
        &script,
        World::point,
        |world, drop_subject| {
            let began = world.base.polled.get();
            let spot = world.base.host.find::<()>("s");
            let again = spot
                .is_some()
                .then(|| Stepped::new(world.base.host.close("s")));
            let again = again.map(|mut again| {
                // Were it first, it would be the one that closes.
                let waits = began.then(|| again.poll().is_pending());
                (again, waits)
            });
            drop_subject();
            world.end_all();
            if let Some((mut again, waits)) = again {
                assert_ne!(waits, Some(false), "it has not ended");
                assert!(waits.is_none() || again.is_woken(), "who waits too is lost");
                again
                    .poll()
                    .map(|closed| closed.expect("from outside"))
                    .is_ready();
                drop(again);
                world.base.settle();
            }
            let mut log = world.base.log.read();
            let right: &[&str] = match began {
                true => &["holder", "last", "closed"],
                false => &["yielded", "holder", "queued", "last", "closed"],
            };
            let mut right = right.to_vec();
            log.sort_unstable();
            right.sort_unstable();
            assert_eq!(
                log, right,
                "the turn that ran has ended, what waited is gone"
            );
            assert!(world.base.host.find::<()>("s").is_none());
            world.base.assert_idle();
            // The name is free.
            let spot = world.make(&world.base.doors.last);
            world.base.next_ones_run(&spot);
        },
    );
}

/// After a shutdown that was left: the intake stays closed, and it can be awaited again.
fn after_shutdown(world: &World, drop_subject: &mut dyn FnMut()) {
    let began = world.base.polled.get();
    drop_subject();
    assert_eq!(
        world.base.clock.timers(),
        0,
        "a bound that was left counts on"
    );
    let spot = world.base.host.find::<()>("s");
    if let (true, Some(spot)) = (began, &spot) {
        let refused = Stepped::new(spot.send(|_turn| async {})).ready();
        let kind = refused.expect_err("it takes nothing in").kind();
        assert!([SpotErrorKind::ShuttingDown, SpotErrorKind::Closed].contains(&kind));
    }
    drop(spot);
    let mut again = Stepped::new(world.base.host.shutdown_within(ms(1_000)));
    let ended = again.poll();
    world.end_all();
    // It waits for one thing after the other.
    let mut ended = ended.is_ready();
    for _ in 0..4 {
        if !ended && again.is_woken() {
            ended = again
                .poll()
                .map(|report| report.expect("all ended"))
                .is_ready();
            world.base.settle();
        }
    }
    assert!(ended, "who awaits it again is lost");
    drop(again);
    assert_eq!(world.base.times("closed"), 1);
    world.base.assert_idle();
    assert!(world.base.host.create("other", ()).is_err());
}

#[test]
fn f11_a_host_shutdown_dropped_at_every_poll_can_be_awaited_again() {
    fn all_ends(world: &World) -> Subject<'_> {
        Box::pin(async {
            let report = world.base.host.shutdown_within(ms(1_000)).await;
            let report = report.expect("all ended");
            assert_eq!((report.closed, report.cut_short, report.working), (1, 0, 0));
        })
    }
    let script: [Step<World, Point>; 9] = [
        (Turns, nothing),
        (Turns, World::end_turns),
        (Last, nothing),
        (Last, World::end_last),
        (Working, nothing),
        (Working, World::end_work),
        (Drains, nothing),
        (Drains, World::end_call),
        (Done, nothing),
    ];
    drop_everywhere(World::busy, all_ends, &script, World::point, after_shutdown);
    let runs_out: [Step<World, Point>; 3] =
        [(Turns, nothing), (Turns, World::time_out), (Done, nothing)];
    drop_everywhere(
        World::busy,
        |world| {
            Box::pin(async {
                let report = world.base.host.shutdown_within(ms(1_000)).await;
                assert!(matches!(report, Err(ShutdownError::StillRunning(_))));
            })
        },
        &runs_out,
        World::point,
        after_shutdown,
    );
}

#[test]
fn f11_a_runtime_shutdown_dropped_at_every_poll_waits_for_the_hosts_turns_again() {
    let script: [Step<World, Point>; 5] = [
        (Turns, nothing),
        (Turns, World::end_turns),
        (Turns, nothing),
        (Turns, World::end_call),
        (Done, nothing),
    ];
    drop_everywhere(
        World::busy,
        |world| {
            Box::pin(async {
                world.base.runtime.shutdown().await.expect("from outside");
            })
        },
        &script,
        World::point,
        after_shutdown,
    );
}
