//! Turns that return their gate: each form of a yield, away, on its way back, and with its gate again.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bursar::testkit::{Stepped, Subject};
use bursar_spot::{Actor, ActorTurn, Kind, PerActor, Spot, SpotErrorKind, SpotWide, Turn};

use crate::common::Shared;
use crate::harness::{Base, Behind, Doors, Step, drop_everywhere, nothing};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// What it waits for has not come; the gate is free.
    Away,
    /// It came, and the body waits for the gate.
    Back,
    /// It has its gate again, and waits with it.
    Held,
    Done,
}

use Point::{Away, Back, Done, Held};

type Yields = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A turn whose yield was taken out of its body, to be polled by hand.
struct World {
    base: Base,
    spot: Spot<()>,
    actor: Actor<(), ()>,
    yields: RefCell<Option<Yields>>,
}

impl AsRef<Base> for World {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

/// Keeps its turn until the body's door is opened.
async fn comes_back<T>(turn: T, log: Shared, doors: Doors) {
    log.push("held");
    doors.body.pass().await;
    log.push("back");
    drop(turn);
}

async fn yield_on(turn: Turn<()>, log: Shared, doors: Doors) {
    let (turn, ()) = turn.yield_on(doors.away.clone().pass()).await;
    comes_back(turn, log, doors).await;
}

async fn try_yield_on<K: Kind>(turn: Turn<(), K>, log: Shared, doors: Doors) {
    match turn.try_yield_on(doors.away.clone().pass()).await {
        Ok((turn, ())) => comes_back(turn, log, doors).await,
        Err((turn, error)) => {
            assert_eq!(error.kind(), SpotErrorKind::InvalidOperation);
            comes_back(turn, log, doors).await;
        }
    }
}

async fn actors_yield_on(turn: ActorTurn<(), ()>, log: Shared, doors: Doors) {
    let (turn, ()) = turn.yield_on(doors.away.clone().pass()).await;
    comes_back(turn, log, doors).await;
}

/// Has a turn begin, and comes back with what its body made of it.
fn taken_out<K: Kind, F, W>(base: &Base, spot: &Spot<(), K>, yields: F) -> Yields
where
    F: FnOnce(Turn<(), K>, Shared, Doors) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let (log, doors) = (base.log.clone(), base.doors.clone());
    let slot: Arc<Mutex<Option<Yields>>> = Arc::default();
    let out = Arc::clone(&slot);
    let sent = spot.send(move |turn| async move {
        let made: Yields = Box::pin(yields(turn, log, doors));
        *out.lock().expect("nobody panics") = Some(made);
    });
    Stepped::new(sent).ready().expect("there is room");
    base.settle();
    let made = slot.lock().expect("nobody panics").take();
    made.expect("its turn began")
}

impl World {
    fn new(base: Base, of: impl FnOnce(&Base, &Spot<()>, &Actor<(), ()>) -> Yields) -> Self {
        let spot = base.host.create("s", ()).expect("the name is free");
        let actor = spot.actor(());
        let yields = of(&base, &spot, &actor);
        Self {
            spot,
            actor,
            yields: RefCell::new(Some(yields)),
            base,
        }
    }

    fn of_spot(base: Base) -> Self {
        Self::new(base, |base, spot, _| taken_out(base, spot, yield_on))
    }

    fn of_any_kind(base: Base) -> Self {
        Self::new(base, |base, spot, _| {
            taken_out(base, spot, try_yield_on::<SpotWide>)
        })
    }

    fn of_actor(base: Base) -> Self {
        Self::new(base, |base, _, actor| {
            let (log, doors) = (base.log.clone(), base.doors.clone());
            let slot: Arc<Mutex<Option<Yields>>> = Arc::default();
            let out = Arc::clone(&slot);
            let sent = actor.send(move |turn| async move {
                let made: Yields = Box::pin(actors_yield_on(turn, log, doors));
                *out.lock().expect("nobody panics") = Some(made);
            });
            Stepped::new(sent).ready().expect("there is room");
            base.settle();
            let made = slot.lock().expect("nobody panics").take();
            made.expect("its turn began")
        })
    }

    fn subject(&self) -> Subject<'_> {
        self.yields.take().expect("one subject a world")
    }

    /// Another turn is asked for, which holds the gate once it has it.
    fn asks_for_the_gate(&self) {
        let (log, door) = (self.base.log.clone(), self.base.doors.holder.clone());
        let sent = self.spot.send(|turn| async move {
            log.push("holder");
            door.pass().await;
            drop(turn);
        });
        Stepped::new(sent).ready().expect("there is room");
        self.base.settle();
    }

    /// What it waits for comes while another turn holds the gate.
    fn comes(&self) {
        self.asks_for_the_gate();
        self.base.open(&self.base.doors.away);
    }

    fn end_holder(&self) {
        self.base.open(&self.base.doors.holder);
    }

    fn end_body(&self) {
        self.base.open(&self.base.doors.body);
    }

    fn point(&self, ready: bool) -> Point {
        let busy = self.base.busy("s");
        match () {
            () if ready => Done,
            () if self.base.said("held") => Held,
            () if busy.waiting > 0 => Back,
            () => {
                assert_eq!((busy.yielded, busy.waiting), (1, 0));
                Away
            }
        }
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let ended = self.base.said("back");
        let had_it_again = self.base.said("held");
        let log = self.base.log.clone();
        let behind = Behind::new(self.spot.request(|_turn| async move { log.push("behind") }));
        let log = self.base.log.clone();
        let for_its_claim = Behind::new(
            self.actor
                .request(|_turn| async move { log.push("behind") }),
        );
        drop_subject();
        self.base.open_all();
        behind.comes_through();
        for_its_claim.comes_through();
        // The body is gone with its yield: nothing of it came after that.
        assert_eq!(self.base.said("back"), ended);
        assert_eq!(self.base.said("held"), had_it_again);
        assert_eq!(self.base.times("behind"), 2);
        self.base.next_ones_run(&self.spot);
    }
}

const RETURNS: [Step<World, Point>; 5] = [
    (Back, nothing),
    (Back, World::end_holder),
    (Held, nothing),
    (Held, World::end_body),
    (Done, nothing),
];

#[test]
fn f3_a_yield_dropped_at_every_poll_ends_turn_and_claim() {
    let away: [Step<World, Point>; 2] = [(Away, nothing), (Away, World::comes)];
    for build in [World::of_spot, World::of_any_kind, World::of_actor] {
        drop_everywhere(
            build,
            World::subject,
            &[&away[..], &RETURNS].concat(),
            World::point,
            World::afterwards,
        );
        // The gate is free when it comes.
        let finds_the_gate_free: [Step<World, Point>; 5] = [
            (Away, nothing),
            (Away, |world| world.base.open(&world.base.doors.away)),
            (Held, nothing),
            (Held, World::end_body),
            (Done, nothing),
        ];
        drop_everywhere(
            build,
            World::subject,
            &finds_the_gate_free,
            World::point,
            World::afterwards,
        );
        // It was there at once, and somebody else waits.
        drop_everywhere(
            |base| {
                let world = build(base);
                world.comes();
                world
            },
            World::subject,
            &RETURNS,
            World::point,
            World::afterwards,
        );
    }
}

/// A turn that has no shared gate to return.
struct Apart {
    base: Base,
    spot: Spot<(), PerActor>,
    yields: RefCell<Option<Yields>>,
}

impl AsRef<Base> for Apart {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

#[test]
fn f4_a_yield_that_is_refused_dropped_at_every_poll_has_its_turn_till_then() {
    let script: [Step<Apart, Point>; 3] = [
        (Held, nothing),
        (Held, |world| world.base.open(&world.base.doors.body)),
        (Done, nothing),
    ];
    drop_everywhere(
        |base| {
            let builder = base.host.spot("s").kind::<PerActor>();
            let spot = builder.create(()).expect("the name is free");
            let yields = taken_out(&base, &spot, try_yield_on::<PerActor>);
            Apart {
                spot,
                yields: RefCell::new(Some(yields)),
                base,
            }
        },
        |world| -> Subject<'_> { world.yields.take().expect("one subject a world") },
        &script,
        |world, ready| match ready {
            true => Done,
            false => {
                assert!(world.base.said("held"));
                Held
            }
        },
        |world, drop_subject| {
            let log = world.base.log.clone();
            let behind = Behind::new(
                world
                    .spot
                    .request(|_turn| async move { log.push("behind") }),
            );
            let waits = world.base.busy("s").waiting;
            assert_eq!(waits == 0, world.base.said("back"));
            drop_subject();
            world.base.settle();
            behind.comes_through();
            assert_eq!(world.base.times("behind"), 1);
            world.base.assert_idle();
        },
    );
}
