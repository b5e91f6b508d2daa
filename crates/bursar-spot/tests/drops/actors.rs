//! Work of an actor whose claim is held: set aside when its turn would come, and in its old place once the claim is free.

use bursar::testkit::{Stepped, Subject};
use bursar_spot::{Actor, PerActor, Spot};

use crate::asking::Point;
use crate::harness::{Base, Behind, Step, drop_everywhere, nothing};

use Point::{Aside, Away, Done, Runs, Waits};

/// An actor whose claim is held by a turn of its own that has yielded, while another turn holds the Spot's gate.
struct World {
    base: Base,
    spot: Spot<()>,
    actor: Actor<(), ()>,
}

impl AsRef<Base> for World {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl World {
    fn claimed(base: Base) -> Self {
        let spot = base.host.create("s", ()).expect("the name is free");
        let actor = spot.actor(());
        let (log, door) = (base.log.clone(), base.doors.claim.clone());
        let first = actor.send(move |turn| async move {
            let (turn, ()) = turn.yield_on(door.pass()).await;
            log.push("first");
            drop(turn);
        });
        Stepped::new(first).ready().expect("there is room");
        base.settle();
        let (log, door) = (base.log.clone(), base.doors.holder.clone());
        let holder = spot.send(move |turn| async move {
            door.pass().await;
            log.push("holder");
            drop(turn);
        });
        Stepped::new(holder).ready().expect("there is room");
        base.settle();
        Self { base, spot, actor }
    }

    fn end_holder(&self) {
        self.base.open(&self.base.doors.holder);
    }

    fn free_claim(&self) {
        self.base.open(&self.base.doors.claim);
    }

    fn end_body(&self) {
        self.base.open(&self.base.doors.body);
    }

    fn end_away(&self) {
        self.base.open(&self.base.doors.away);
    }

    fn point(&self, ready: bool) -> Point {
        let busy = self.base.busy("s");
        match () {
            () if ready => Done,
            () if self.base.said("began") && busy.yielded > 0 => Away,
            () if self.base.said("began") => Runs,
            // Its work waits, though the gate is free.
            () if busy.running == 0 && busy.waiting == 1 => Aside,
            () => Waits,
        }
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let accepted = self.base.polled.get();
        let log = self.base.log.clone();
        let behind = Behind::new(
            self.actor
                .request(|_turn| async move { log.push("behind") }),
        );
        drop_subject();
        self.base.open_all();
        behind.comes_through();
        let mut right = vec!["holder", "first", "began", "back", "behind"];
        if !accepted {
            right.retain(|word| !["began", "back"].contains(word));
        }
        assert_eq!(self.base.log.read(), right);
        self.base.next_ones_run(&self.spot);
    }
}

#[test]
fn f5_an_actors_request_dropped_at_every_poll_leaves_the_claim_to_the_next() {
    let script: [Step<World, Point>; 9] = [
        (Waits, nothing),
        (Waits, World::end_holder),
        (Aside, nothing),
        (Aside, World::free_claim),
        (Runs, nothing),
        (Runs, World::end_body),
        (Away, nothing),
        (Away, World::end_away),
        (Done, nothing),
    ];
    drop_everywhere(
        World::claimed,
        |world| -> Subject<'_> {
            let (log, doors) = (world.base.log.clone(), world.base.doors.clone());
            let asked = world.actor.request(move |turn| async move {
                log.push("began");
                doors.body.pass().await;
                let (turn, ()) = turn.yield_on(doors.away.pass()).await;
                log.push("back");
                drop(turn);
            });
            Box::pin(async { asked.await.expect("it runs") })
        },
        &script,
        World::point,
        World::afterwards,
    );
}

/// An actor with a gate of its own, which a turn of it holds.
struct Apart {
    base: Base,
    _spot: Spot<(), PerActor>,
    actor: Actor<(), (), PerActor>,
}

impl AsRef<Base> for Apart {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl Apart {
    fn busy(base: Base) -> Self {
        let builder = base.host.spot("s").kind::<PerActor>().queue(1);
        let spot = builder.create(()).expect("the name is free");
        let actor = spot.actor(());
        for (word, door) in [
            ("holder", &base.doors.holder),
            ("before", &base.doors.before),
        ] {
            let (log, door) = (base.log.clone(), door.clone());
            let sent = actor.send(move |turn| async move {
                log.push(word);
                door.pass().await;
                drop(turn);
            });
            Stepped::new(sent).ready().expect("there is room");
            base.settle();
        }
        Self {
            base,
            _spot: spot,
            actor,
        }
    }

    fn point(&self, ready: bool) -> Point {
        match () {
            () if ready => Done,
            () if self.base.said("began") => Runs,
            () if self.base.said("before") => Point::Queued,
            () => Waits,
        }
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let accepted = self.base.polled.get() && self.base.said("before");
        let log = self.base.log.clone();
        let behind = Behind::new(
            self.actor
                .request(|_turn| async move { log.push("behind") }),
        );
        drop_subject();
        self.base.open_all();
        behind.comes_through();
        let mut right = vec!["holder", "before", "began", "ended", "behind"];
        if !accepted {
            right.retain(|word| !["began", "ended"].contains(word));
        }
        assert_eq!(self.base.log.read(), right);
        self.base.assert_idle();
        let log = self.base.log.clone();
        let next = self.actor.request(|_turn| async move { log.push("next") });
        Stepped::new(next).ready().expect("its gate is free");
    }
}

#[test]
fn f5_work_of_an_actor_with_its_own_gate_dropped_at_every_poll_leaves_the_gate_to_the_next() {
    fn work(world: &Apart) -> impl Future<Output = ()> + Send + use<> {
        let (log, doors) = (world.base.log.clone(), world.base.doors.clone());
        async move {
            log.push("began");
            doors.body.pass().await;
            log.push("ended");
        }
    }
    let waits: [Step<Apart, Point>; 2] = [
        (Waits, nothing),
        (Waits, |world| world.base.open(&world.base.doors.holder)),
    ];
    let queued: [Step<Apart, Point>; 5] = [
        (Point::Queued, nothing),
        (Point::Queued, |world| {
            world.base.open(&world.base.doors.before)
        }),
        (Runs, nothing),
        (Runs, |world| world.base.open(&world.base.doors.body)),
        (Done, nothing),
    ];
    drop_everywhere(
        Apart::busy,
        |world| {
            let work = work(world);
            Box::pin(async { world.actor.request(|_turn| work).await.expect("it runs") })
        },
        &[&waits[..], &queued].concat(),
        Apart::point,
        Apart::afterwards,
    );
    drop_everywhere(
        Apart::busy,
        |world| {
            let work = work(world);
            Box::pin(async { world.actor.send(|_turn| work).await.expect("accepted") })
        },
        &[&waits[..], &[(Done, nothing)]].concat(),
        Apart::point,
        Apart::afterwards,
    );
}
