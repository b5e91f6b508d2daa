//! Requests, sends and entered turns of a Spot whose gate is held and whose queue is full, and of an idle one.

use std::future::Future;

use bursar::testkit::{Stepped, Subject};
use bursar_spot::{Actor, ActorTurn, Spot, SpotErrorKind, Turn};

use crate::common::ms;
use crate::harness::{Base, Behind, Step, drop_everywhere, lingers, nothing};

/// Where a subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Waits for space in the queue, or for the gate without a place in the queue.
    Waits,
    /// The turn before it runs.
    Queued,
    /// Its work is set aside for its claim.
    Aside,
    /// Its work, or its entered turn, runs.
    Runs,
    /// Its work has yielded.
    Away,
    Done,
}

use Point::{Away, Done, Queued, Runs, Waits};

/// A Spot with an actor. Its queue has room for one.
pub struct World {
    pub base: Base,
    pub spot: Spot<()>,
    pub actor: Actor<(), ()>,
}

impl AsRef<Base> for World {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl World {
    /// Nothing runs.
    pub fn idle(base: Base) -> Self {
        let builder = base.host.spot("s").queue(1).send_timeout(ms(100));
        let spot = builder.create(()).expect("the name is free");
        let actor = spot.actor(());
        Self { base, spot, actor }
    }

    /// One turn holds the gate, and one piece of work fills the queue.
    pub fn full(base: Base) -> Self {
        let world = Self::idle(base);
        for (word, door) in [
            ("holder", &world.base.doors.holder),
            ("before", &world.base.doors.before),
        ] {
            let (log, door) = (world.base.log.clone(), door.clone());
            let sent = world.spot.send(move |turn| async move {
                log.push(word);
                door.pass().await;
                drop(turn);
            });
            Stepped::new(sent).ready().expect("there is room");
            world.base.settle();
        }
        assert_eq!(world.base.log.read(), ["holder"]);
        world
    }

    pub fn end_holder(&self) {
        self.base.open(&self.base.doors.holder);
    }

    pub fn end_before(&self) {
        self.base.open(&self.base.doors.before);
    }

    pub fn end_body(&self) {
        self.base.open(&self.base.doors.body);
    }

    pub fn end_away(&self) {
        self.base.open(&self.base.doors.away);
    }

    /// The send timeout passes.
    pub fn time_out(&self) {
        self.base.clock.advance(ms(100));
    }

    /// Somebody closes the Spot.
    pub fn close(&self) {
        assert!(Stepped::new(self.base.host.close("s")).poll().is_pending());
        self.base.settle();
    }

    /// The subject's work: it runs, and yields.
    pub fn work(&self) -> impl FnOnce(Turn<()>) -> BoxWork + Send + use<> {
        let (log, doors) = (self.base.log.clone(), self.base.doors.clone());
        move |turn| {
            Box::pin(async move {
                log.push("began");
                doors.body.pass().await;
                let (turn, ()) = turn.yield_on(doors.away.pass()).await;
                log.push("back");
                drop(turn);
            })
        }
    }

    /// The same for the actor.
    pub fn actors_work(&self) -> impl FnOnce(ActorTurn<(), ()>) -> BoxWork + Send + use<> {
        let (log, doors) = (self.base.log.clone(), self.base.doors.clone());
        move |turn| {
            Box::pin(async move {
                log.push("began");
                doors.body.pass().await;
                let (turn, ()) = turn.yield_on(doors.away.pass()).await;
                log.push("back");
                drop(turn);
            })
        }
    }

    pub fn point(&self, ready: bool) -> Point {
        match () {
            () if ready => Done,
            () if self.base.said("has it") => Runs,
            () if self.base.said("began") && self.base.busy("s").yielded > 0 => Away,
            () if self.base.said("began") => Runs,
            () if self.base.said("before") => Queued,
            () => Waits,
        }
    }

    /// For what becomes accepted work: that runs exactly if there was room for it before its asker left, and then once.
    pub fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        // What it waits for is room, which comes with the first turn's end; an idle Spot has it.
        let was_full = self.base.said("holder");
        let accepted = self.base.polled.get() && (!was_full || self.base.said("before"));
        let open = self.spot.is_open();
        self.leave(open, drop_subject);
        let mut right = Vec::new();
        if was_full {
            right.extend(["holder", "before"]);
        }
        if accepted {
            right.extend(["began", "back"]);
        }
        if !open {
            // What was queued was told so.
            right.retain(|word| *word == "holder");
        }
        assert_eq!(self.base.without("behind"), right);
        self.ends(open);
    }

    /// For entered turns, which leave nothing.
    fn afterwards_entered(&self, drop_subject: &mut dyn FnMut()) {
        let open = self.spot.is_open();
        self.leave(open, drop_subject);
        let mut log = self.base.without("behind");
        log.retain(|word| *word != "has it");
        assert_eq!(
            log,
            if open {
                &["holder", "before"][..]
            } else {
                &["holder"]
            }
        );
        self.ends(open);
    }

    /// Drops the subject while others wait behind it for space, gate and claim, and lets them through.
    pub fn leave(&self, open: bool, drop_subject: &mut dyn FnMut()) {
        if !open {
            drop_subject();
            self.base.assert_nothing_is_bounded();
            self.base.open_all();
            return;
        }
        let asks = || {
            let log = self.base.log.clone();
            move || async move { log.push("behind") }
        };
        let (first, second) = (asks(), asks());
        let behind = Behind::new(self.spot.request(move |_turn| first()));
        let for_its_claim = Behind::new(self.actor.request(move |_turn| second()));
        let entered = Behind::new(self.spot.enter());
        drop_subject();
        self.base.open_all();
        // The entered turn holds the gate until it is taken up, and may stand before the others.
        entered.comes_through();
        self.base.settle();
        behind.comes_through();
        for_its_claim.comes_through();
        self.base.settle();
        assert_eq!(self.base.times("behind"), 2);
    }

    pub fn ends(&self, open: bool) {
        self.base.assert_idle();
        assert_eq!(self.spot.is_open(), open);
        if open {
            self.base.next_ones_run(&self.spot);
        } else {
            assert!(self.base.host.find::<()>("s").is_none());
        }
    }
}

pub type BoxWork = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Base {
    fn assert_nothing_is_bounded(&self) {
        assert_eq!(self.clock.timers(), 0, "whoever waited left a timer behind");
    }
}

/// From a full queue to its own turn.
pub const WAITS: [Step<World, Point>; 4] = [
    (Waits, nothing),
    (Waits, World::end_holder),
    (Queued, nothing),
    (Queued, World::end_before),
];

/// A turn that is under way, until its result is there.
pub const TURN: [Step<World, Point>; 5] = [
    (Runs, nothing),
    (Runs, World::end_body),
    (Away, nothing),
    (Away, World::end_away),
    (Done, nothing),
];

/// A send is done once there is room.
pub const SENDS: [Step<World, Point>; 3] = [
    (Waits, nothing),
    (Waits, World::end_holder),
    (Done, nothing),
];

/// It is told why it was not accepted.
pub fn refused(why: fn(&World)) -> [Step<World, Point>; 3] {
    [(Waits, nothing), (Waits, why), (Done, nothing)]
}

pub fn requests(world: &World) -> Subject<'_> {
    Box::pin(async { world.spot.request(world.work()).await.expect("it runs") })
}

pub fn sends(world: &World) -> Subject<'_> {
    Box::pin(async { world.spot.send(world.work()).await.expect("accepted") })
}

fn actor_requests(world: &World) -> Subject<'_> {
    Box::pin(async {
        let asked = world.actor.request(world.actors_work());
        asked.await.expect("it runs");
    })
}

fn actor_sends(world: &World) -> Subject<'_> {
    Box::pin(async {
        let sent = world.actor.send(world.actors_work());
        sent.await.expect("accepted");
    })
}

#[test]
fn f6_a_request_dropped_at_every_poll_takes_its_work_back_or_leaves_it_to_run_once() {
    let script = [&WAITS[..], &TURN].concat();
    for subject in [requests, actor_requests] {
        drop_everywhere(
            World::full,
            subject,
            &script,
            World::point,
            World::afterwards,
        );
        // Polled in the requester's own poll, and handed over when it suspends.
        drop_everywhere(World::idle, subject, &TURN, World::point, World::afterwards);
    }
}

#[test]
fn f6_a_send_dropped_at_every_poll_takes_its_work_back_or_leaves_it_to_run_once() {
    for subject in [sends, actor_sends] {
        drop_everywhere(
            World::full,
            subject,
            &SENDS,
            World::point,
            World::afterwards,
        );
        let at_once = [(Done, nothing as fn(&World))];
        drop_everywhere(
            World::idle,
            subject,
            &at_once,
            World::point,
            World::afterwards,
        );
    }
}

#[test]
fn f6_whoever_is_refused_for_want_of_space_dropped_at_every_poll_leaves_nothing_behind() {
    fn requests_in_vain(world: &World) -> Subject<'_> {
        Box::pin(async {
            let refused = world.spot.request(world.work()).await;
            is_told(world, refused.expect_err("there is no room").kind());
        })
    }
    fn sends_in_vain(world: &World) -> Subject<'_> {
        Box::pin(async {
            let refused = world.spot.send(world.work()).await;
            is_told(world, refused.expect_err("there is no room").kind());
        })
    }
    fn actor_requests_in_vain(world: &World) -> Subject<'_> {
        Box::pin(async {
            let refused = world.actor.request(world.actors_work()).await;
            is_told(world, refused.expect_err("there is no room").kind());
        })
    }
    fn actor_sends_in_vain(world: &World) -> Subject<'_> {
        Box::pin(async {
            let refused = world.actor.send(world.actors_work()).await;
            is_told(world, refused.expect_err("there is no room").kind());
        })
    }
    fn is_told(world: &World, kind: SpotErrorKind) {
        let right = match world.spot.is_open() {
            true => SpotErrorKind::DeadlineExceeded,
            false => SpotErrorKind::Closed,
        };
        assert_eq!(kind, right);
    }
    for subject in [
        requests_in_vain,
        sends_in_vain,
        actor_requests_in_vain,
        actor_sends_in_vain,
    ] {
        for why in [World::time_out, World::close] {
            drop_everywhere(
                World::full,
                subject,
                &refused(why),
                World::point,
                World::afterwards,
            );
        }
    }
}

#[test]
fn f1_an_entered_turn_dropped_at_every_poll_passes_the_gate_on() {
    let held = [
        (Runs, nothing as fn(&World)),
        (Runs, World::end_body),
        (Done, nothing),
    ];
    drop_everywhere(
        World::full,
        |world| {
            Box::pin(async {
                let turn = world.spot.enter().await.expect("a turn");
                lingers(&world.base, turn).await;
            })
        },
        &[&WAITS[..], &held].concat(),
        World::point,
        World::afterwards_entered,
    );
    drop_everywhere(
        World::full,
        |world| {
            Box::pin(async {
                let refused = world.spot.enter().await.expect_err("it closes");
                assert_eq!(refused.kind(), SpotErrorKind::Closed);
            })
        },
        &refused(World::close),
        World::point,
        World::afterwards_entered,
    );
}
