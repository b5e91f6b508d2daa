//! Requests through a turn, and the shutdown of those who host clients.

use std::any::Any;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar::seam::{Services, YieldTurn};
use bursar::testkit::{Stepped, Subject, at_every_wake};
use bursar_http::{BodyStream, Clients, ErrorKind, TurnHttp};
use bytes::Bytes;

use crate::common::{Server, ok};
use crate::harness::{
    ANSWER, Executor, RETRIED, SUBMITTED, UPLOAD, World, drop_and_look, executor,
};

/// A turn as this crate sees one, which says when it has ended.
struct Turn {
    clients: Arc<Clients>,
    alive: Arc<AtomicBool>,
}

impl Turn {
    fn of(world: &World) -> Self {
        let alive = world.turn();
        alive.store(true, Ordering::SeqCst);
        Self {
            clients: Arc::new(world.clients()),
            alive,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::SeqCst);
    }
}

impl Services for Turn {
    fn service<T: Any + Send + Sync>(&self, _: &str) -> Option<Arc<T>> {
        let clients: Arc<dyn Any + Send + Sync> = self.clients.clone();
        clients.downcast().ok()
    }
}

impl YieldTurn for Turn {
    async fn yield_on<F>(self, future: F) -> (Self, F::Output)
    where
        F: Future + Send,
        F::Output: Send,
    {
        let output = pin!(future).await;
        (self, output)
    }
}

/// The turn goes with the future that has it.
fn turn_has_ended(world: &World) {
    assert!(!world.turn().load(Ordering::SeqCst));
}

#[test]
fn g3_a_request_that_yields_dropped_at_every_poll_ends_its_turn() {
    drop_and_look(
        |world| -> Subject<'_> {
            Box::pin(async {
                let turn = Turn::of(world);
                let get = turn.http("log").expect("it is registered").get("/fails");
                let (turn, fetched) = get.yield_fetch::<String>(turn).await;
                assert_eq!(fetched.expect("it is answered"), ANSWER);
                drop(turn);
            })
        },
        &RETRIED,
        turn_has_ended,
    );
    drop_and_look(
        |world| -> Subject<'_> {
            Box::pin(async {
                let turn = Turn::of(world);
                let put = turn.http("log").expect("it is registered").put("/fails");
                let (turn, sent) = put.json(&1).yield_send::<String>(turn).await;
                assert_eq!(sent.expect("it is answered").body(), ANSWER);
                drop(turn);
            })
        },
        &RETRIED,
        turn_has_ended,
    );
}

#[test]
fn g10_a_submission_through_a_turn_dropped_at_every_poll_is_cut_and_an_ended_one_is_answered() {
    drop_and_look(
        |world| -> Subject<'_> {
            Box::pin(async {
                let turn = Turn::of(world);
                let body = Bytes::from(vec![b'x'; UPLOAD]);
                let post = turn.http("log").expect("it is registered").post("/slowly");
                post.raw("x/y", body).submit().await.expect("it has left");
                drop(turn);
            })
        },
        &SUBMITTED,
        turn_has_ended,
    );
}

/// Clients with an answer whose body nobody has read.
struct Hosting {
    clients: Clients,
    body: Cell<Option<BodyStream>>,
    polled: Cell<bool>,
    _server: Server,
    executor: Rc<Executor>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Drains,
    Done,
}

impl Hosting {
    fn new(executor: &Rc<Executor>) -> Self {
        executor.block_on(async {
            let server = Server::answering(|_| ok("7")).await;
            let client = server.client().build().expect("right");
            let clients = Clients::builder().register("log", client).build();
            let clients = clients.expect("one name");
            let get = clients.get("log").expect("registered").get("/");
            let body = get.stream().await.expect("it is answered").into_body();
            Self {
                clients,
                body: Cell::new(Some(body)),
                polled: Cell::new(false),
                _server: server,
                executor: Rc::clone(executor),
            }
        })
    }

    fn point(&self, ready: bool) -> Point {
        self.polled.set(true);
        if ready { Point::Done } else { Point::Drains }
    }

    /// Closed from the first poll on, and it can be awaited again.
    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let mut beside = Stepped::new(self.clients.shutdown());
        let beside_ended = self.polled.get().then(|| beside.poll().is_ready());
        drop_subject();
        let get = self.clients.get("log").expect("registered").get("/");
        let next = self.executor.block_on(get.fetch::<u8>());
        match self.polled.get() {
            true => assert_eq!(next.expect_err("closed").kind(), ErrorKind::ShuttingDown),
            false => assert_eq!(next.expect("open"), 7),
        }
        drop(self.body.take());
        if beside_ended != Some(true) {
            assert!(
                beside.is_woken() || beside_ended.is_none(),
                "who waits too is lost"
            );
            beside.ready().expect("from outside");
        }
    }
}

#[test]
fn g5_a_shutdown_of_clients_dropped_at_every_poll_can_be_awaited_again() {
    let executor = Rc::new(executor());
    let _inside = executor.enter();
    for bounded in [false, true] {
        at_every_wake(
            || Hosting::new(&executor),
            |world| -> Subject<'_> {
                Box::pin(async move {
                    let report = match bounded {
                        false => world.clients.shutdown().await,
                        true => {
                            world
                                .clients
                                .shutdown_within(Duration::from_secs(3_600))
                                .await
                        }
                    };
                    report.expect("all ended");
                })
            },
            &[Point::Drains, Point::Done],
            |world, _, wakes| {
                drop(world.body.take());
                world.executor.block_on(wakes);
            },
            Hosting::point,
            Hosting::afterwards,
        );
    }
}

/// The bound passes while a body is there still.
#[test]
fn g5_a_shutdown_whose_bound_passes_dropped_at_every_poll_can_be_awaited_again() {
    let executor = Rc::new(executor());
    let _inside = executor.enter();
    at_every_wake(
        || Hosting::new(&executor),
        |world| -> Subject<'_> {
            Box::pin(async {
                let bound = Duration::from_millis(1);
                let report = world.clients.shutdown_within(bound).await;
                assert!(report.is_err(), "a body is there still");
            })
        },
        &[Point::Drains, Point::Done],
        |world, _, wakes| world.executor.block_on(wakes),
        Hosting::point,
        Hosting::afterwards,
    );
}
