//! Messages to an Instance that closes, is made anew, and is busy; and closing one.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bursar::testkit::{Stepped, Subject};
use bursar_spot::{InstanceSpot, Instances};

use crate::harness::{Base, Behind, Step, drop_everywhere, nothing};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// The incarnation before is in its last turn.
    Closing,
    /// The incarnation is being made, and its queue is full.
    Full,
    /// The incarnation is being made.
    Activating,
    /// The subject's turn runs.
    Runs,
    Done,
}

use Point::{Activating, Closing, Done, Full, Runs};

/// A family of which each queue has room for one.
struct World {
    base: Base,
    family: Instances<()>,
    at: InstanceSpot<()>,
    made: Arc<AtomicUsize>,
    filled: Cell<bool>,
}

impl AsRef<Base> for World {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl World {
    /// One incarnation, which is idle. Later ones are made when their door is open.
    fn idle(base: Base) -> Self {
        let made = Arc::new(AtomicUsize::new(0));
        let (count, door) = (Arc::clone(&made), base.doors.activation.clone());
        let (log, last) = (base.log.clone(), base.doors.last.clone());
        let family = base.host.instances("stock").queue(1);
        let family = family.on_closing(move |turn, _| {
            let (log, last) = (log.clone(), last.clone());
            async move {
                last.pass().await;
                log.push("closed");
                drop(turn);
            }
        });
        let family = family.activate(move |_| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let door = door.clone();
            async move {
                if number > 0 {
                    door.pass().await;
                }
                Ok::<_, &str>(())
            }
        });
        let family = family.expect("the name is free");
        let at = family.at("seven");
        Stepped::new(at.send(|_turn| async {}))
            .ready()
            .expect("it is made");
        base.settle();
        Self {
            at,
            family,
            made,
            filled: Cell::new(false),
            base,
        }
    }

    /// One incarnation, which is in its last turn.
    fn closing(base: Base) -> Self {
        let world = Self::idle(base);
        assert!(world.at.evict());
        world.base.settle();
        world
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    fn end_last(&self) {
        self.base.open(&self.base.doors.last);
    }

    /// The same, and somebody else makes the next incarnation and fills its queue.
    fn end_last_and_fill(&self) {
        self.end_last();
        let log = self.base.log.clone();
        let sent = self.at.send(|_turn| async move { log.push("filled") });
        Stepped::new(sent).ready().expect("it is made");
        self.filled.set(true);
    }

    fn activate(&self) {
        self.base.open(&self.base.doors.activation);
    }

    fn end_body(&self) {
        self.base.open(&self.base.doors.body);
    }

    fn work(&self) -> impl Future<Output = ()> + Send + use<> {
        let (log, door) = (self.base.log.clone(), self.base.doors.body.clone());
        async move {
            log.push("began");
            door.pass().await;
            log.push("ended");
        }
    }

    fn point(&self, ready: bool) -> Point {
        // What the subject began goes on in the executor.
        self.base.settle();
        match () {
            () if ready => Done,
            () if self.base.said("began") => Runs,
            () if self.made() == 1 => Closing,
            () if self.filled.get() && !self.base.said("filled") => Full,
            () => Activating,
        }
    }

    /// `accepted`: the subject has been taken in by an incarnation.
    fn leaves(&self, accepted: bool, drop_subject: &mut dyn FnMut()) {
        let log = self.base.log.clone();
        let behind = Behind::new(self.at.request(|_turn| async move { log.push("behind") }));
        drop_subject();
        self.base.open_all();
        // Where it waited for the last turn, it makes the next incarnation when it hears of its end.
        behind.comes_through_after(|| self.base.settle());
        let times = usize::from(accepted);
        assert_eq!(
            (self.base.times("began"), self.base.times("ended")),
            (times, times)
        );
        assert_eq!(self.base.times("filled"), usize::from(self.filled.get()));
        assert_eq!(self.base.times("behind"), 1);
        assert_eq!(self.made(), 2, "one incarnation for all of them");
        self.base.assert_idle();
        let log = self.base.log.clone();
        let next = self.at.request(|_turn| async move { log.push("next") });
        Stepped::new(next).ready().expect("it is idle");
        assert_eq!(self.family.len(), 1);
    }
}

fn requests(world: &World) -> Subject<'_> {
    let work = world.work();
    Box::pin(async { world.at.request(|_turn| work).await.expect("it runs") })
}

fn sends(world: &World) -> Subject<'_> {
    let work = world.work();
    Box::pin(async { world.at.send(|_turn| work).await.expect("accepted") })
}

const ACTIVATED: [Step<World, Point>; 5] = [
    (Activating, nothing),
    (Activating, World::activate),
    (Runs, nothing),
    (Runs, World::end_body),
    (Done, nothing),
];

#[test]
fn f11_a_request_to_an_instance_dropped_at_every_poll_makes_it_at_most_once() {
    let closing: [Step<World, Point>; 2] = [(Closing, nothing), (Closing, World::end_last)];
    drop_everywhere(
        World::closing,
        requests,
        &[&closing[..], &ACTIVATED].concat(),
        World::point,
        |world, drop_subject| world.leaves(world.made() == 2, drop_subject),
    );
    // Somebody else made the incarnation, and it is full: it waits for space there.
    let filled: [Step<World, Point>; 6] = [
        (Closing, nothing),
        (Closing, World::end_last_and_fill),
        (Full, nothing),
        (Full, World::activate),
        (Runs, World::end_body),
        (Done, nothing),
    ];
    drop_everywhere(
        World::closing,
        requests,
        &filled,
        World::point,
        |world, drop_subject| world.leaves(world.base.said("began"), drop_subject),
    );
}

#[test]
fn f11_a_send_to_an_instance_dropped_at_every_poll_makes_it_at_most_once() {
    let makes: [Step<World, Point>; 3] = [
        (Closing, nothing),
        (Closing, World::end_last),
        (Done, nothing),
    ];
    drop_everywhere(
        World::closing,
        sends,
        &makes,
        World::point,
        |world, drop_subject| world.leaves(world.made() == 2, drop_subject),
    );
    let waits: [Step<World, Point>; 5] = [
        (Closing, nothing),
        (Closing, World::end_last_and_fill),
        (Full, nothing),
        (Full, World::activate),
        (Done, nothing),
    ];
    drop_everywhere(
        World::closing,
        sends,
        &waits,
        World::point,
        |world, drop_subject| world.leaves(world.base.said("began"), drop_subject),
    );
}

#[test]
fn f11_a_close_of_an_instance_dropped_at_every_poll_goes_on_by_itself() {
    let script: [Step<World, Point>; 3] = [
        (Closing, nothing),
        (Closing, World::end_last),
        (Done, nothing),
    ];
    drop_everywhere(
        World::idle,
        |world| Box::pin(async { world.at.close().await.expect("from outside") }),
        &script,
        |world, ready| match ready {
            true => Done,
            false => {
                assert!(!world.base.busy("seven").open);
                Closing
            }
        },
        |world, drop_subject| {
            let began = world.base.polled.get();
            drop_subject();
            world.base.open_all();
            assert_eq!(world.base.times("closed"), usize::from(began));
            assert_eq!(world.at.is_active(), !began);
            world.base.assert_idle();
            // A newcomer meets the next incarnation, or the one that is still there.
            let log = world.base.log.clone();
            let behind = Behind::new(world.at.request(|_turn| async move { log.push("behind") }));
            world.base.settle();
            behind.comes_through();
            assert_eq!(world.made(), 1 + usize::from(began));
            world.base.assert_idle();
        },
    );
}
