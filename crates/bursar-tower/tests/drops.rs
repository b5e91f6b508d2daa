//! Every public future, dropped at every poll: nothing is held, nobody waiting is lost, nothing runs on.

mod common;

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bursar::{Contract, Permit, Policy, Retry, Runtime};
use bursar_tower::{ContractLayer, Graceful, OperationService};
use common::{Puppet, assert_idle, lock, ms, runtime, usage};
use http_body::{Body, Frame};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Layer, Service};

type Subject = Pin<Box<dyn Future<Output = ()>>>;

/// Where the subjects are: key "k" and budget "a" are held by others at first, and the service is a puppet.
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

    /// Drops the subject while others wait behind it for key and unit.
    fn drop_it(&self, subject: &mut Option<task::Spawn<Subject>>) {
        let mut builders = [0, 1].map(|thing| self.waiter(thing));
        let mut behind = builders.each_mut().map(|call| task::spawn(call.admit()));
        let mut got = behind.each_mut().map(|waiter| match waiter.poll() {
            Poll::Ready(permit) => Some(permit.unwrap()),
            Poll::Pending => None,
        });
        subject.take();
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
        assert_eq!(self.clock.timers(), 0);
        assert_idle(&self.runtime);
    }
}

/// For each n: n half-steps (a poll, a change, a poll, …), then the drop.
fn at_every_poll(subject: impl Fn(&World) -> Subject, changes: &[fn(&World)]) {
    for half_steps in 0..=2 * changes.len() + 1 {
        let world = World::new();
        let mut future = Some(task::spawn(subject(&world)));
        for half_step in 0..half_steps {
            let running = future.as_mut().unwrap();
            if half_step % 2 == 0 {
                let last = half_step / 2 == changes.len();
                assert_eq!(
                    running.poll().is_ready(),
                    last,
                    "poll {}",
                    half_step / 2 + 1
                );
            } else {
                changes[half_step / 2](&world);
                assert!(running.is_woken(), "change {}", half_step / 2 + 1);
            }
        }
        world.drop_it(&mut future);
    }
}

const CALL: [fn(&World); 6] = [
    |world| drop(world.held[0].take()),
    |world| drop(world.held[1].take()),
    |world| world.puppet.ready(Ok(())),
    |world| world.puppet.answer(Err("again")),
    |world| world.puppet.ready(Ok(())),
    |world| world.puppet.answer(Ok(7)),
];

#[test]
fn b8_a_service_call_dropped_at_every_poll_leaves_nothing_behind() {
    let subject = |world: &World| -> Subject {
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
    };
    at_every_poll(subject, &CALL_WITH_YIELD);
}

/// The same where the answer keeps what its call holds, which is another form of call.
#[test]
fn b8_b13_a_call_whose_answer_keeps_its_permit_dropped_at_every_poll_leaves_nothing_behind() {
    type Response = http::Response<http_body_util::Empty<bytes::Bytes>>;
    fn transient(answer: Result<&Response, &&'static str>) -> Option<bursar::Failure<()>> {
        answer.err().map(|_| bursar::Failure::transient(()))
    }
    let subject = |world: &World| -> Subject {
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
    };
    at_every_poll(subject, &CALL_WITH_YIELD);
}

/// Between the attempts lies one yield, at which nothing happens.
const CALL_WITH_YIELD: [fn(&World); 7] =
    [CALL[0], CALL[1], CALL[2], CALL[3], |_| {}, CALL[4], CALL[5]];

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
        std::future::poll_fn(|cx| puppet.poll_ready(cx))
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
    let subject = |world: &World| -> Subject {
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
    };
    at_every_poll(subject, &CALL_WITH_YIELD);
}

/// One frame, then the end; each when the test says so.
struct Frames(tokio::sync::mpsc::UnboundedReceiver<&'static str>);

impl Body for Frames {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece.into()))))
    }
}

#[test]
fn b13_a_body_dropped_at_every_poll_gives_back_what_it_held() {
    for polls in 0..4 {
        let (runtime, _) = runtime(&[("a", 1)]);
        let contract = runtime
            .contract("work", Policy::pure().claim("a", 1))
            .unwrap();
        let (frames, received) = tokio::sync::mpsc::unbounded_channel();
        let received = Arc::new(Mutex::new(Some(received)));
        let inner = tower::service_fn(move |_: http::Request<()>| {
            let response = http::Response::new(Frames(lock(&received).take().unwrap()));
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        let mut service = ContractLayer::http_server(&contract)
            .hold_body()
            .layer(inner);
        let response = assert_ready_ok!(task::spawn(service.call(http::Request::new(()))).poll());
        let mut frames = Some(frames);
        let mut waits = task::spawn(contract.admit());
        assert_pending!(waits.poll());
        let mut body = Box::pin(response.into_body());
        for poll in 0..polls {
            let mut frame = task::spawn(std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)));
            match poll {
                0 => {
                    assert_pending!(frame.poll());
                    frames.as_ref().unwrap().send("piece").unwrap();
                }
                1 => {
                    assert!(assert_ready!(frame.poll()).is_some());
                    frames.take();
                }
                _ => assert!(assert_ready!(frame.poll()).is_none()),
            }
            assert_eq!(usage(&runtime, "a").0, 1);
            assert_eq!(waits.is_woken(), poll == 2);
        }
        drop(body);
        assert!(waits.is_woken());
        drop(assert_ready_ok!(waits.poll()));
        drop(waits);
        assert_idle(&runtime);
    }
}

#[tokio::test(start_paused = true)]
async fn d1_a_graceful_server_dropped_at_every_poll_leaves_the_runtime_as_it_is() {
    for polls in 0..5 {
        let runtime = Runtime::builder().resource("a", 1).build().unwrap();
        let contract = runtime
            .contract("work", Policy::pure().claim("a", 1))
            .unwrap();
        let permit = contract.admit().await.unwrap();
        let (signal, fired) = tokio::sync::oneshot::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (mut signal, mut end, mut permit) = (Some(signal), Some(end), Some(permit));
        let server = Graceful::new(&runtime, fired)
            .within(ms(1_000))
            .serve(|stop| async move {
                stop.await;
                ended.await
            });
        let mut server = Some(Box::pin(server));
        for poll in 0..polls {
            let running = server.as_mut().unwrap();
            let mut running = task::spawn(running.as_mut());
            match poll {
                0 => {
                    assert_pending!(running.poll());
                    drop(signal.take());
                }
                1 => {
                    assert_pending!(running.poll());
                    end.take().unwrap().send(()).unwrap();
                }
                2 => {
                    assert_pending!(running.poll());
                    permit.take();
                }
                _ => {
                    assert_ready_ok!(running.poll());
                    break;
                }
            }
        }
        drop(server);
        // The runtime is closed from the third poll on, and its drain can be awaited.
        let mut other = pin!(contract.admit());
        let open = polls < 3;
        match task::spawn(other.as_mut()).poll() {
            Poll::Ready(Err(error)) => assert!(!open && error.is_stopping()),
            Poll::Ready(Ok(_)) => panic!("the unit is held"),
            Poll::Pending => assert!(open),
        }
        permit.take();
        if open {
            drop(other.await.unwrap());
        }
        runtime.shutdown().await.unwrap();
        assert_idle(&runtime);
    }
}
