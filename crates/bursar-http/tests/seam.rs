//! Where exchanges run, where callbacks resume, and clients inside turns (G3, G4, G5), with turns made for the test.

mod common;

use std::any::Any;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use bursar::Outcome;
use bursar::seam::{CompleteTurn, Execute, Resume, Services, Work, YieldTurn};
use bursar_http::{Clients, Error, ErrorKind, TurnHttp};
use common::{Server, ok};
use http::Response;
use tokio::sync::{Barrier, Notify, mpsc, oneshot};

/// One thread with a tokio runtime of its own, on which all work runs.
struct OneThread {
    work: mpsc::UnboundedSender<Work>,
    thread: ThreadId,
}

impl OneThread {
    #[allow(
        clippy::disallowed_methods,
        reason = "the scheduler under test is a thread"
    )]
    fn start() -> Arc<Self> {
        let (work, mut queue) = mpsc::unbounded_channel::<Work>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tell.send(std::thread::current().id()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                while let Some(work) = queue.recv().await {
                    tokio::spawn(work);
                }
            });
        });
        let thread = told.recv().unwrap();
        Arc::new(Self { work, thread })
    }
}

impl Execute for OneThread {
    fn execute(&self, work: Work) {
        self.work.send(work).unwrap();
    }
}

impl Resume for OneThread {
    fn resume(&self, continuation: Work) {
        self.work.send(continuation).unwrap();
    }
}

/// Answers only once twenty requests are there.
async fn twenty_at_once() -> Server {
    let barrier = Arc::new(Barrier::new(20));
    Server::start(move |mut peer, _| {
        let barrier = Arc::clone(&barrier);
        async move {
            while peer.hear().await.is_some() {
                barrier.wait().await;
                peer.say(&ok("7")).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn g4_twenty_requests_overlap_on_every_scheduler() {
    let one = OneThread::start();
    let forms: [fn(_, Arc<OneThread>) -> bursar_http::ClientBuilder; 3] = [
        |builder, _| builder,
        |builder: bursar_http::ClientBuilder, one| builder.resume_on(one),
        |builder: bursar_http::ClientBuilder, one| builder.execute_on(one.clone(), one),
    ];
    for form in forms {
        let server = twenty_at_once().await;
        let client = form(server.client(), Arc::clone(&one)).build().unwrap();
        let all = (0..20).map(|_| client.get("/").fetch::<u8>());
        let all = futures_util::future::join_all(all).await;
        assert!(all.into_iter().all(|answer| answer.unwrap() == 7));
    }
}

#[tokio::test]
async fn g4_callbacks_run_on_the_resume_scheduler_and_may_await_another_exchange_there() {
    let one = OneThread::start();
    let server = Server::answering(|_| ok("7")).await;
    for executes in [false, true] {
        let builder = server.client();
        let builder = if executes {
            builder.execute_on(one.clone(), one.clone())
        } else {
            builder.resume_on(one.clone())
        };
        let client = builder.build().unwrap();
        let again = client.clone();
        let (tell, told) = oneshot::channel();
        client
            .get("/")
            .on_complete(async move |first: Result<Response<u8>, Error>| {
                let second = again.get("/").fetch::<u8>().await.unwrap();
                let here = std::thread::current().id();
                tell.send((first.unwrap().into_body(), second, here))
                    .unwrap();
            });
        assert_eq!(told.await.unwrap(), (7, 7, one.thread));
    }
}

#[tokio::test]
async fn g4_dropping_an_awaited_request_cancels_it_on_the_execute_scheduler_too() {
    let one = OneThread::start();
    let (heard, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (hears, closes) = (Arc::clone(&heard), Arc::clone(&closed));
    let server = Server::start(move |mut peer, _| {
        let (heard, closed) = (Arc::clone(&hears), Arc::clone(&closes));
        async move {
            peer.hear().await.unwrap();
            heard.notify_one();
            peer.closed().await;
            closed.notify_one();
        }
    })
    .await;
    let client = server
        .client()
        .execute_on(one.clone(), one)
        .build()
        .unwrap();
    let mut request = Box::pin(client.get("/").send_raw());
    let mut heard = pin!(heard.notified());
    poll_fn(|cx| {
        assert!(request.as_mut().poll(cx).is_pending());
        heard.as_mut().poll(cx)
    })
    .await;
    drop(request);
    closed.notified().await;
}

/// Drops all work.
struct Closed;

impl Execute for Closed {
    fn execute(&self, work: Work) {
        drop(work);
    }
}

impl Resume for Closed {
    fn resume(&self, continuation: Work) {
        drop(continuation);
    }
}

#[tokio::test]
async fn g4_an_execute_scheduler_that_is_closed_is_told() {
    let server = Server::answering(|_| ok("7")).await;
    let closed = Arc::new(Closed);
    let client = server
        .client()
        .execute_on(closed.clone(), closed)
        .build()
        .unwrap();
    let error = client.get("/").send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::ShuttingDown, Outcome::Uncertain)
    );
}

/// A host of turns as this crate sees one: services, and a log of its gate.
#[derive(Clone, Default)]
struct Host {
    clients: Option<Arc<Clients>>,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl Host {
    fn with(clients: Clients) -> Self {
        Self {
            clients: Some(Arc::new(clients)),
            log: Arc::default(),
        }
    }

    fn say(&self, event: &'static str) {
        self.log.lock().unwrap().push(event);
    }
}

struct Turn(Host);

impl Services for Turn {
    fn service<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        assert_eq!(name, "http");
        let clients: Arc<dyn Any + Send + Sync> = self.0.clients.clone()?;
        clients.downcast().ok()
    }
}

impl YieldTurn for Turn {
    async fn yield_on<F>(self, future: F) -> (Self, F::Output)
    where
        F: Future + Send,
        F::Output: Send,
    {
        let mut future = pin!(future);
        let host = self.0;
        let mut away = false;
        let output = poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() && !away {
                away = true;
                host.say("gate returned");
            }
            polled
        })
        .await;
        host.say("gate taken");
        (Self(host), output)
    }
}

impl CompleteTurn for Turn {
    type Next = Self;

    #[allow(
        clippy::disallowed_methods,
        reason = "the host under test runs in tasks"
    )]
    fn on_complete<F, C, W>(&self, future: F, callback: C)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
        C: FnOnce(Self, F::Output) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let host = self.0.clone();
        tokio::spawn(async move {
            let output = future.await;
            host.say("new turn");
            callback(Turn(host), output).await;
        });
    }
}

async fn hosted(server: &Server) -> Host {
    let client = server.client().build().unwrap();
    Host::with(
        Clients::builder()
            .register("profiles", client)
            .build()
            .unwrap(),
    )
}

#[tokio::test]
async fn g3_a_request_made_through_a_turn_returns_its_gate_while_it_waits() {
    let server = Server::answering(|_| ok("7")).await;
    let host = hosted(&server).await;
    let turn = Turn(host.clone());
    let profiles = turn.http("profiles").unwrap();
    let kept = profiles.get("/").fetch::<u8>().await.unwrap();
    assert_eq!(kept, 7);
    assert!(
        host.log.lock().unwrap().is_empty(),
        "a plain await keeps the turn"
    );
    let (turn, fetched) = profiles.get("/").yield_fetch::<u8>(turn).await;
    assert_eq!(fetched.unwrap(), 7);
    let (turn, sent) = profiles.post("/").json(&1).yield_send::<u8>(turn).await;
    assert_eq!(*sent.unwrap().body(), 7);
    let events = ["gate returned", "gate taken"].repeat(2);
    assert_eq!(*turn.0.log.lock().unwrap(), events);
    profiles.post("/").json(&1).submit().await.unwrap();
}

#[tokio::test]
async fn g4_a_callback_through_a_turn_is_a_new_turn() {
    let server = Server::answering(|_| ok("7")).await;
    let host = hosted(&server).await;
    let turn = Turn(host.clone());
    let (tell, told) = oneshot::channel();
    let request = turn.http("profiles").unwrap().get("/");
    request.on_complete(
        &turn,
        async move |next: Turn, answer: Result<Response<u8>, Error>| {
            next.0.say("callback");
            tell.send(answer.unwrap().into_body()).unwrap();
        },
    );
    host.say("the turn goes on");
    assert_eq!(told.await.unwrap(), 7);
    assert_eq!(
        *host.log.lock().unwrap(),
        ["the turn goes on", "new turn", "callback"]
    );
}

#[tokio::test]
async fn g5_a_turn_finds_registered_clients_alone() {
    let server = Server::answering(|_| ok("7")).await;
    let turn = Turn(hosted(&server).await);
    let error = turn.http("profile").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert!(
        error
            .to_string()
            .contains("\"profile\"; there are [\"profiles\"]"),
        "{error}"
    );
    let error = Turn(Host::default()).http("profiles").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
}

#[test]
fn g4_requests_and_bodies_are_send() {
    fn send<T: Send>(_: T) {}
    let client = bursar_http::Client::builder().build().unwrap();
    send(client.get("/").fetch::<u8>());
    send(client.get("/").stream());
    send(client.post("/").json(&1).download("x"));
}

/// Panics when it is read.
#[derive(Debug)]
struct Bomb;

impl<'de> serde::Deserialize<'de> for Bomb {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("on purpose");
    }
}

#[tokio::test]
async fn g4_a_panic_in_a_decoder_goes_on_to_the_caller_from_every_scheduler() {
    let one = OneThread::start();
    let server = Server::answering(|_| ok("7")).await;
    let runtime = bursar::Runtime::builder().resource("uplink", 1);
    let runtime = runtime.build().unwrap();
    let policy = bursar::Policy::effect_per_call().claim("uplink", 1);
    let contract = runtime.contract("profiles", policy).unwrap();
    for executes in [false, true] {
        let builder = server.client().contract(contract.clone());
        let builder = if executes {
            builder.execute_on(one.clone(), one.clone())
        } else {
            builder
        };
        let client = builder.build().unwrap();
        let mut request = pin!(client.get("/").fetch::<Bomb>());
        let caught = poll_fn(|cx| {
            let poll = std::panic::AssertUnwindSafe(|| request.as_mut().poll(cx));
            match std::panic::catch_unwind(poll) {
                Ok(polled) => polled.map(|answer| panic!("{answer:?}")),
                Err(panic) => std::task::Poll::Ready(panic),
            }
        })
        .await;
        assert_eq!(caught.downcast_ref(), Some(&"on purpose"));
        assert_eq!(runtime.stats().budgets[0].in_use, 0);
        assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 7);
    }
}

#[tokio::test]
async fn case_27_a_decoder_that_panics_still_has_its_callback_called_once() {
    let server = Server::answering(|_| ok("7")).await;
    let host = hosted(&server).await;
    let turn = Turn(host.clone());
    let profiles = turn.http("profiles").unwrap();
    let (tell, told) = oneshot::channel();
    profiles.get("/").on_complete(
        &turn,
        async move |_: Turn, answer: Result<Response<Bomb>, Error>| {
            tell.send(answer.unwrap_err()).unwrap();
        },
    );
    let error = told.await.unwrap();
    let found = (error.kind(), error.outcome());
    assert_eq!(found, (ErrorKind::InternalFailure, Outcome::Uncertain));

    let clients = host.clients.clone().unwrap();
    let profiles = clients.get("profiles").unwrap();
    let (tell, told) = oneshot::channel();
    profiles
        .get("/")
        .on_complete(async move |answer: Result<Response<Bomb>, Error>| {
            tell.send(answer.unwrap_err()).unwrap();
            panic!("the callback itself");
        });
    assert_eq!(told.await.unwrap().kind(), ErrorKind::InternalFailure);
    // Nothing is left over, and the client goes on.
    assert_eq!(profiles.get("/").fetch::<u8>().await.unwrap(), 7);
    clients.shutdown().await.unwrap();
}
