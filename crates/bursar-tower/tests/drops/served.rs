//! Answers whose bodies hold what their calls took, and servers that end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bursar::testkit::{Step, Subject};
use bursar::{Contract, Permit, Policy, Runtime};
use bursar_tower::{ContractLayer, Graceful};
use http_body::{Body, Frame};
use tokio::sync::oneshot;
use tokio_test::{assert_ready_ok, task};
use tower::{Layer, Service};

use crate::common::{assert_idle, lock, ms, runtime, usage};
use crate::{drop_everywhere, nothing};

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

type FramesOf = tokio::sync::mpsc::UnboundedSender<&'static str>;
type Held = Pin<Box<dyn Body<Data = bytes::Bytes, Error = std::convert::Infallible>>>;

/// An answer whose body holds the unit until its end.
struct Answered {
    runtime: Runtime,
    contract: Contract,
    frames: RefCell<Option<FramesOf>>,
    body: RefCell<Option<Held>>,
    seen: Cell<u32>,
}

impl Answered {
    fn new() -> Self {
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
        Self {
            body: RefCell::new(Some(Box::pin(response.into_body()))),
            frames: RefCell::new(Some(frames)),
            seen: Cell::new(0),
            contract,
            runtime,
        }
    }

    fn send_piece(&self) {
        let frames = self.frames.borrow();
        frames.as_ref().unwrap().send("piece").unwrap();
    }

    fn end(&self) {
        self.frames.take();
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let mut waits = task::spawn(self.contract.admit());
        let held = waits.poll().is_pending();
        assert_eq!(held, usage(&self.runtime, "a").0 == 1);
        drop_subject();
        if held {
            assert!(waits.is_woken());
            drop(assert_ready_ok!(waits.poll()));
        }
        drop(waits);
        assert_idle(&self.runtime);
        drop(assert_ready_ok!(task::spawn(self.contract.admit()).poll()));
    }
}

#[test]
fn b13_a_body_dropped_at_every_poll_gives_back_what_it_held() {
    // The pieces seen, and the units held.
    let script: [Step<Answered, (u32, u32)>; 5] = [
        ((0, 1), nothing),
        ((0, 1), Answered::send_piece),
        ((1, 1), nothing),
        ((1, 1), Answered::end),
        ((1, 0), nothing),
    ];
    drop_everywhere(
        Answered::new,
        |world| {
            let mut body = world.body.take().expect("one subject a world");
            Box::pin(async move {
                while let Some(piece) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                    assert!(piece.is_ok());
                    world.seen.set(world.seen.get() + 1);
                }
                // The body is there still, and holds nothing any more.
                assert_eq!(usage(&world.runtime, "a").0, 0);
            })
        },
        &script,
        |world, _| (world.seen.get(), usage(&world.runtime, "a").0),
        Answered::afterwards,
    );
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Serving {
    /// Until the signal.
    Serves,
    /// The server has heard it, and ends.
    Stops,
    /// The runtime drains.
    Drains,
    Ended,
}

use Serving::{Drains, Ended, Serves, Stops};

/// A server that ends when it is told to, beside a call that is under way.
struct Served {
    runtime: Runtime,
    contract: Contract,
    heard: Cell<bool>,
    signal: RefCell<Option<oneshot::Sender<()>>>,
    fired: RefCell<Option<oneshot::Receiver<()>>>,
    end: RefCell<Option<oneshot::Sender<()>>>,
    ended: RefCell<Option<oneshot::Receiver<()>>>,
    permit: RefCell<Option<Permit>>,
}

impl Served {
    fn new() -> Self {
        let runtime = Runtime::builder().resource("a", 1).build().unwrap();
        let contract = runtime
            .contract("work", Policy::pure().claim("a", 1))
            .unwrap();
        let permit = assert_ready_ok!(task::spawn(contract.admit()).poll());
        let (signal, fired) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        Self {
            heard: Cell::new(false),
            signal: RefCell::new(Some(signal)),
            fired: RefCell::new(Some(fired)),
            end: RefCell::new(Some(end)),
            ended: RefCell::new(Some(ended)),
            permit: RefCell::new(Some(permit)),
            contract,
            runtime,
        }
    }

    fn subject(&self) -> Subject<'_> {
        let fired = self.fired.take().expect("one subject a world");
        let ended = self.ended.take().expect("one subject a world");
        let server = Graceful::new(&self.runtime, fired).within(ms(1_000));
        Box::pin(async move {
            let serves = server.serve(|stop| async move {
                stop.await;
                self.heard.set(true);
                ended.await
            });
            serves.await.expect("all ended");
        })
    }

    fn is_open(&self) -> bool {
        match task::spawn(self.contract.admit()).poll() {
            Poll::Ready(Err(error)) => {
                assert!(error.is_stopping());
                false
            }
            _ => true,
        }
    }

    fn point(&self, ready: bool) -> Serving {
        match () {
            () if ready => Ended,
            () if !self.is_open() => Drains,
            () if self.heard.get() => Stops,
            () => Serves,
        }
    }

    /// An open runtime stays open; a closed one stays closed, and its drain can be awaited.
    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let open = self.is_open();
        drop_subject();
        assert_eq!(self.is_open(), open);
        self.permit.take();
        if open {
            drop(assert_ready_ok!(task::spawn(self.contract.admit()).poll()));
        }
        assert_ready_ok!(task::spawn(self.runtime.shutdown()).poll());
        assert_idle(&self.runtime);
    }
}

#[test]
fn d1_a_graceful_server_dropped_at_every_poll_leaves_the_runtime_as_it_is() {
    let mut executor = tokio::runtime::Builder::new_current_thread();
    let executor = executor.enable_time().start_paused(true).build().unwrap();
    let _inside = executor.enter();
    let script: [Step<Served, Serving>; 7] = [
        (Serves, nothing),
        (Serves, |world| drop(world.signal.take())),
        (Stops, nothing),
        (Stops, |world| world.end.take().unwrap().send(()).unwrap()),
        (Drains, nothing),
        (Drains, |world| drop(world.permit.take())),
        (Ended, nothing),
    ];
    drop_everywhere(
        Served::new,
        Served::subject,
        &script,
        Served::point,
        Served::afterwards,
    );
}
