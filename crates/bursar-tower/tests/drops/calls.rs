//! Calls through layers and services.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use bursar::testkit::{self, Subject};
use bursar::{Contract, Permit, Policy, Retry, Runtime};
use bursar_tower::{ContractLayer, DeadlineLayer, OperationService};
use tokio_test::{assert_ready_ok, task};
use tower::{Layer, Service};

use crate::common::{Puppet, assert_idle, ms, runtime};
use crate::{drop_everywhere, nothing};

/// Where a subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// Waits for its key.
    Key,
    /// Waits for its unit.
    Unit,
    /// Waits for the service to become ready.
    Readiness,
    /// Its service was called.
    Called,
    /// One attempt failed, and the next is about to begin.
    Between,
    Done,
}

use Point::{Between, Called, Done, Key, Readiness, Unit};

type Step<W> = testkit::Step<W, Point>;

/// The world of the subjects: key "k" and budget "a" are held by others at first, and the service is a puppet.
struct World {
    runtime: Runtime,
    clock: bursar::ManualClock,
    contract: Contract,
    puppet: Puppet,
    held: [RefCell<Option<Permit>>; 2],
    alone: [Contract; 2],
}

impl World {
    fn new() -> Self {
        let (runtime, clock) = runtime(&[("a", 1)]);
        let retry = Retry::up_to(2).on_transient();
        let policy = Policy::non_idempotent()
            .claim("a", 1)
            .timeout(ms(10))
            .retry(retry);
        let alone = [Policy::pure(), Policy::pure().claim("a", 1)];
        let alone = alone.map(|policy| runtime.contract("alone", policy).unwrap());
        let world = Self {
            contract: runtime.contract("work", policy).unwrap(),
            puppet: Puppet::new(),
            held: Default::default(),
            alone,
            runtime,
            clock,
        };
        for thing in 0..2 {
            world.held[thing].replace(Some(world.take(thing)));
        }
        world
    }

    fn waiter(&self, thing: usize) -> bursar::Call<'_> {
        let call = self.alone[thing].with();
        if thing == 0 { call.key("k") } else { call }
    }

    fn take(&self, thing: usize) -> Permit {
        let mut call = self.waiter(thing);
        assert_ready_ok!(task::spawn(call.admit()).poll())
    }

    fn release_key(&self) {
        drop(self.held[0].take());
    }

    fn release_unit(&self) {
        drop(self.held[1].take());
    }

    fn become_ready(&self) {
        self.puppet.ready(Ok(()));
    }

    fn fail(&self) {
        self.puppet.answer(Err("again"));
    }

    fn succeed(&self) {
        self.puppet.answer(Ok(7));
    }

    fn point(&self, ready: bool) -> Point {
        let stats = self.runtime.stats();
        let works = stats.operations.iter().filter(|of| &*of.name != "alone");
        let started: u64 = works.map(|of| of.started).sum();
        match () {
            () if ready => Done,
            () if stats.budgets[0].waiting > 0 => Unit,
            () if started == 0 => Key,
            () if self.puppet.alive() > 0 => Called,
            () if self.puppet.is_awaited() => Readiness,
            () => Between,
        }
    }

    /// Drops the subject while others wait behind it for key and unit.
    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let mut builders = [0, 1].map(|thing| self.waiter(thing));
        let mut behind = builders.each_mut().map(|call| task::spawn(call.admit()));
        let mut got = behind.each_mut().map(|waiter| match waiter.poll() {
            Poll::Ready(permit) => Some(permit.unwrap()),
            Poll::Pending => None,
        });
        let asked = self.puppet.requests().len();
        drop_subject();
        for (thing, held) in self.held.iter().enumerate() {
            if got[thing].is_some() {
                continue;
            }
            if held.take().is_none() {
                assert!(
                    behind[thing].is_woken(),
                    "who waited behind the subject is lost"
                );
            }
            got[thing] = Some(assert_ready_ok!(behind[thing].poll()));
        }
        drop((got, behind));
        for held in &self.held {
            held.take();
        }
        assert_eq!(self.puppet.alive(), 0);
        assert_eq!(self.puppet.requests().len(), asked);
        assert_eq!(self.clock.timers(), 0);
        assert_idle(&self.runtime);
        // The next call has key and unit at once.
        let mut next = self.contract.with().key("k");
        drop(assert_ready_ok!(task::spawn(next.admit()).poll()));
    }
}

const WAITS: [Step<World>; 4] = [
    (Key, nothing),
    (Key, World::release_key),
    (Unit, nothing),
    (Unit, World::release_unit),
];

/// An attempt that fails, and one that succeeds. Between them lies one yield, at which nothing happens.
const ATTEMPTS: [Step<World>; 9] = [
    (Readiness, nothing),
    (Readiness, World::become_ready),
    (Called, nothing),
    (Called, World::fail),
    (Between, nothing),
    (Readiness, World::become_ready),
    (Called, nothing),
    (Called, World::succeed),
    (Done, nothing),
];

fn call_everywhere(subject: impl for<'w> Fn(&'w World) -> Subject<'w>) {
    let script = [&WAITS[..], &ATTEMPTS].concat();
    drop_everywhere(
        World::new,
        subject,
        &script,
        World::point,
        World::afterwards,
    );
}

#[test]
fn b8_a_service_call_dropped_at_every_poll_leaves_nothing_behind() {
    call_everywhere(|world| {
        let transient = |answer: Result<&u32, &&'static str>| {
            answer.err().map(|_| bursar::Failure::transient(()))
        };
        let layer = ContractLayer::new(&world.contract)
            .serialize_with(|_: &u32| "k")
            .judge(transient)
            .clone_requests();
        let call = layer.layer(world.puppet.clone()).call(1);
        Box::pin(async move {
            let _ = call.await;
        })
    });
}

/// The same where the answer keeps what its call holds, which is another form of call.
#[test]
fn b8_b13_a_call_whose_answer_keeps_its_permit_dropped_at_every_poll_leaves_nothing_behind() {
    type Response = http::Response<http_body_util::Empty<bytes::Bytes>>;
    fn transient(answer: Result<&Response, &&'static str>) -> Option<bursar::Failure<()>> {
        answer.err().map(|_| bursar::Failure::transient(()))
    }
    call_everywhere(|world| {
        let inner = tower::ServiceBuilder::new()
            .map_request(|_: http::Request<()>| 1)
            .map_response(|_: u32| Response::new(http_body_util::Empty::new()))
            .service(world.puppet.clone());
        let layer = ContractLayer::http_client(&world.contract)
            .serialize_with(|_: &http::Request<()>| "k")
            .judge(transient)
            .copy_requests(|_| Some(http::Request::new(())));
        let call = layer.layer(inner).call(http::Request::new(()));
        Box::pin(async move {
            let _ = call.await;
        })
    });
}

/// With a deadline, which the call obeys and the service itself does not watch.
#[test]
fn b8_b9_a_request_with_a_deadline_dropped_at_every_poll_leaves_no_timer() {
    fn subject(world: &World) -> Subject<'_> {
        let inner = tower::ServiceBuilder::new()
            .map_request(|_: http::Request<()>| 1)
            .map_response(
                |_: u32| http::Response::new(http_body_util::Empty::<bytes::Bytes>::new()),
            )
            .service(world.puppet.clone());
        let layer = ContractLayer::http_server(&world.contract);
        let layer = layer.serialize_with(|_: &http::Request<()>| "k");
        let hour = DeadlineLayer::within(ms(3_600_000));
        let call = hour.layer(layer.layer(inner)).call(http::Request::new(()));
        Box::pin(async move {
            let _ = call.await;
        })
    }
    let answered: [Step<World>; 5] = [
        (Readiness, nothing),
        (Readiness, World::become_ready),
        (Called, nothing),
        (Called, World::succeed),
        (Done, nothing),
    ];
    let passes = |world: &World| world.clock.advance(ms(7_200_000));
    let refused: [Step<World>; 3] = [(Unit, nothing), (Unit, passes), (Done, nothing)];
    for script in [
        [&WAITS[..], &answered].concat(),
        [&WAITS[..2], &refused].concat(),
    ] {
        drop_everywhere(
            World::new,
            subject,
            &script,
            World::point,
            World::afterwards,
        );
    }
}

struct Handling(Puppet);

impl bursar::Handler<u32> for Handling {
    type Output = u32;
    type Error = &'static str;

    async fn handle(
        &self,
        _: &bursar::Attempt,
        input: &u32,
    ) -> Result<u32, bursar::Failure<&'static str>> {
        let mut puppet = self.0.clone();
        poll_fn(|cx| puppet.poll_ready(cx))
            .await
            .map_err(bursar::Failure::transient)?;
        puppet
            .call(*input)
            .await
            .map_err(bursar::Failure::transient)
    }
}

#[test]
fn b8_an_operation_as_a_service_dropped_at_every_poll_leaves_nothing_behind() {
    call_everywhere(|world| {
        let retry = Retry::up_to(2).on_transient();
        let policy = Policy::non_idempotent()
            .claim("a", 1)
            .timeout(ms(10))
            .retry(retry);
        let operation = world
            .runtime
            .operation("typed", policy, Handling(world.puppet.clone()))
            .unwrap();
        let call = OperationService::new(operation.serialize_with(|_: &u32| "k")).call(1);
        Box::pin(async move {
            let _ = call.await;
        })
    });
}
