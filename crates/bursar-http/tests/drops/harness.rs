//! The world in which requests are dropped, and the points at which they are met.
//!
//! The server runs in the executor of the test, which runs when a step says so. Before each thing that it says it stands at a
//! door, so that the client waits at each of its await points; the next step opens it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar::testkit::{Stepped, Subject, Wakes, assert_idle, at_every_wake};
use bursar::{Backoff, Contract, ManualClock, Permit, Policy, Retry, Runtime};
use bursar_http::{Client, Clients, Registered};
use tokio::sync::{Notify, Semaphore};

use crate::common::{Peer, Server, ok, response};

pub type Executor = tokio::runtime::Runtime;

/// What a whole answer decodes to.
pub const ANSWER: &str = "what was asked for";

/// How much a slow upload sends: more than the buffers of both ends hold.
pub const UPLOAD: usize = 16 << 20;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Waits for its unit.
    Waits,
    /// Its connection is being opened, or it is on its way.
    Opens,
    /// The server has it, or the head of it, and says nothing yet.
    Sent,
    /// Its first attempt failed, and it pauses before the second.
    Pause,
    /// The server has the second attempt.
    Again,
    /// It was sent elsewhere, and the server has it there.
    Moved,
    /// The server has said half of its answer.
    Body,
    /// It has all; what it was made through goes on.
    Done,
}

use Point::{Again, Body, Done, Moved, Opens, Pause, Sent, Waits};

/// What the server and the test know of each other.
#[derive(Default)]
struct Scene {
    /// The paths that were asked for.
    heard: Mutex<Vec<String>>,
    stands: AtomicBool,
    stood: Notify,
    half: AtomicBool,
    open: AtomicUsize,
    closed: Notify,
}

impl Scene {
    fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("nobody panics").clone()
    }

    fn hears(&self, path: &str) -> usize {
        let mut heard = self.heard.lock().expect("nobody panics");
        heard.push(path.to_owned());
        heard.iter().filter(|before| *before == path).count()
    }

    async fn stand_at(&self, door: &Semaphore) {
        self.stands.store(true, Ordering::SeqCst);
        self.stood.notify_one();
        door.acquire().await.expect("it stays").forget();
        self.stands.store(false, Ordering::SeqCst);
    }

    async fn serve(&self, mut peer: Peer, door: &Semaphore) {
        self.open.fetch_add(1, Ordering::SeqCst);
        while let Some(path) = path_of_next(&mut peer, self, door).await {
            let times = self.hears(&path);
            match path.as_str() {
                "/next" => peer.say(&ok("7")).await,
                "/fails" if times == 1 => {
                    self.stand_at(door).await;
                    peer.say(&response("503 Unavailable", "", "not now")).await;
                }
                "/fails" | "/moved" => {
                    self.stand_at(door).await;
                    let moved = response("303 Elsewhere", "location: /there\r\n", "");
                    peer.say(&moved).await;
                }
                _ => {
                    self.stand_at(door).await;
                    let answer = ok(&format!("{ANSWER:?}"));
                    let (first, rest) = answer.split_at(answer.len() - 5);
                    peer.say(first).await;
                    self.half.store(true, Ordering::SeqCst);
                    self.stand_at(door).await;
                    peer.say(rest).await;
                }
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.closed.notify_one();
    }
}

/// The path of the next request, once all of it is here.
async fn path_of_next(peer: &mut Peer, scene: &Scene, door: &Semaphore) -> Option<String> {
    let mut first = [0; 12];
    if peer.stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first.starts_with(b"POST /slowly") {
        // It has begun to come, and nobody reads it.
        scene.stand_at(door).await;
    }
    let heard = peer.hear().await?;
    heard.line().split(' ').nth(1).map(str::to_owned)
}

/// A server, a client of it under a contract whose only unit is held, and a host of that client.
pub struct World {
    pub runtime: Runtime,
    pub clock: ManualClock,
    pub contract: Contract,
    clients: RefCell<Option<Clients>>,
    client: RefCell<Option<Client>>,
    /// Whether a turn is there that the subject has.
    turn: Arc<AtomicBool>,
    /// Whether the subject has ended.
    ended: Cell<bool>,
    held: RefCell<Option<Permit>>,
    scene: Arc<Scene>,
    door: Arc<Semaphore>,
    pub server: Server,
    pub executor: Rc<Executor>,
}

impl World {
    pub fn new(executor: &Rc<Executor>) -> Self {
        let clock = ManualClock::new();
        let builder = Runtime::builder().resource("uplink", 1);
        let runtime = builder.clock(clock.clone()).build().expect("right");
        let backoff = Backoff::exponential(Duration::from_millis(100));
        let retry = Retry::up_to(2)
            .on_transient()
            .on_uncertain()
            .backoff(backoff);
        let policy = Policy::effect_per_call().claim("uplink", 1).retry(retry);
        let contract = runtime.contract("ask", policy).expect("right");
        let (scene, door) = (Arc::new(Scene::default()), Arc::new(Semaphore::new(0)));
        let (serves, at) = (Arc::clone(&scene), Arc::clone(&door));
        let server = executor.block_on(Server::start(move |peer, _| {
            let (scene, door) = (Arc::clone(&serves), Arc::clone(&at));
            async move { scene.serve(peer, &door).await }
        }));
        let client = server.client().redirects(3).clock(clock.clone());
        let client = client.contract(contract.clone()).build().expect("right");
        let clients = Clients::builder().register("log", client.clone()).build();
        let held = Stepped::new(contract.admit()).ready().expect("free");
        Self {
            clients: RefCell::new(Some(clients.expect("one name"))),
            client: RefCell::new(Some(client)),
            turn: Arc::default(),
            ended: Cell::new(false),
            held: RefCell::new(Some(held)),
            runtime,
            clock,
            contract,
            scene,
            door,
            server,
            executor: Rc::clone(executor),
        }
    }

    pub fn client(&self) -> Client {
        self.client
            .borrow()
            .clone()
            .expect("it is there until the end")
    }

    /// The same with a connection that is idle.
    fn warm(executor: &Rc<Executor>) -> Self {
        let world = Self::new(executor);
        let held = world.held.take();
        drop(held);
        let next = world.client().get("/next").fetch::<u8>();
        assert_eq!(world.within_patience(next).expect("it is served"), 7);
        world.scene.heard.lock().expect("nobody panics").clear();
        let held = Stepped::new(world.contract.admit()).ready().expect("free");
        world.held.replace(Some(held));
        world
    }

    pub fn clients(&self) -> Clients {
        self.clients
            .borrow()
            .clone()
            .expect("they are there until the end")
    }

    pub fn turn(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.turn)
    }

    /// The client as its host hands it out.
    pub fn registered(&self) -> Registered {
        self.clients().get("log").expect("it is registered")
    }

    fn point(&self, ready: bool) -> Point {
        self.ended.set(ready);
        let stats = self.runtime.stats();
        let (held, waits) = (stats.budgets[0].in_use, stats.budgets[0].waiting);
        let heard = self.scene.heard();
        let ask = stats.operations.iter().find(|of| &*of.name == "ask");
        let retried = ask.is_some_and(|ask| ask.retried > 0);
        match heard.last().map(String::as_str) {
            _ if ready => Done,
            _ if waits > 0 => Waits,
            None if self.stands() => Sent,
            None => Opens,
            Some(_) if held == 0 => Pause,
            Some("/fails") if retried => Again,
            Some("/there") if self.scene.half.load(Ordering::SeqCst) => Body,
            Some("/there") => Moved,
            Some(_) if self.scene.half.load(Ordering::SeqCst) => Body,
            Some(_) => Sent,
        }
    }

    fn stands(&self) -> bool {
        self.scene.stands.load(Ordering::SeqCst)
    }

    /// Lets the world go on, until the subject is woken or the server stands at its door.
    pub fn go_on(&self, at: Point, wakes: Wakes<'_>) {
        let slowly = self.stands() && self.scene.heard().is_empty();
        match at {
            Waits => drop(self.held.take()),
            Pause => self.clock.advance(Duration::from_secs(1)),
            _ if self.stands() => {
                self.scene.stands.store(false, Ordering::SeqCst);
                self.door.add_permits(1);
            }
            _ => {}
        }
        let stood = self.scene.stood.notified();
        self.within_patience(async {
            if slowly {
                // What has left is heard, so that no more is than was before the drop.
                tokio::join!(wakes, stood);
                return;
            }
            tokio::select! {
                biased;
                () = wakes => {}
                () = stood => {}
            }
        });
    }

    /// Fails instead of waiting for ever.
    #[allow(
        clippy::disallowed_methods,
        reason = "sockets know no clock but the real one"
    )]
    pub fn within_patience<T>(&self, future: impl Future<Output = T>) -> T {
        let patience = Duration::from_secs(60);
        let ended = async { tokio::time::timeout(patience, future).await };
        self.executor.block_on(ended).expect("it was lost")
    }

    /// Drops the subject while another waits behind it, and looks at what is left. A submission that has ended keeps what
    /// it holds until it was answered (`keeps`).
    fn afterwards(&self, drop_subject: &mut dyn FnMut(), keeps: bool) {
        let mut behind = Stepped::new(self.contract.admit());
        let came = behind.poll().map(|permit| drop(permit.expect("a unit")));
        let heard = self.scene.heard().len();
        drop_subject();
        drop(self.held.take());
        if keeps {
            self.door.add_permits(1 << 20);
            self.within_patience(behind.wakes());
        }
        if came.is_pending() {
            assert!(behind.is_woken(), "who waited behind the subject is lost");
            drop(behind.ready().expect("a unit"));
        }
        drop(behind);
        assert_eq!(self.clock.timers(), 0, "no timer is left behind");
        assert_idle(&self.runtime);
        if !keeps {
            self.door.add_permits(1 << 20);
        }
        let next = self.client().get("/next").fetch::<u8>();
        assert_eq!(self.within_patience(next).expect("it is served"), 7);
        // The host counts nothing any more, and every connection is closed with its client.
        let report = self.within_patience(self.clients().shutdown());
        report.expect("from outside");
        assert_idle(&self.runtime);
        drop((self.client.take(), self.clients.take()));
        self.within_patience(async {
            while self.scene.open.load(Ordering::SeqCst) > 0 {
                self.scene.closed.notified().await;
            }
        });
        // Nothing more was sent than what the server had heard before.
        let all = self.scene.heard();
        assert_eq!(all.len(), heard + 1, "{all:?}");
        assert_eq!(all.last().map(String::as_str), Some("/next"));
    }
}

/// Drops a request at every await point of its way through these points.
#[track_caller]
pub fn drop_everywhere(subject: impl for<'w> Fn(&'w World) -> Subject<'w>, points: &[Point]) {
    drop_and_look(subject, points, |_| {});
}

/// The same, and looks at what else it may have left.
#[track_caller]
pub fn drop_and_look(
    subject: impl for<'w> Fn(&'w World) -> Subject<'w>,
    points: &[Point],
    look: impl Fn(&World),
) {
    drop_in(World::new, subject, points, look);
}

/// The same, on a connection that is to be opened, and on one that is idle.
#[track_caller]
pub fn drop_cold_and_warm(
    subject: impl for<'w> Fn(&'w World) -> Subject<'w>,
    points: &[Point],
    look: impl Fn(&World),
) {
    for build in [World::new, World::warm] {
        drop_in(build, &subject, points, &look);
    }
}

fn drop_in(
    build: fn(&Rc<Executor>) -> World,
    subject: impl for<'w> Fn(&'w World) -> Subject<'w>,
    points: &[Point],
    look: impl Fn(&World),
) {
    let executor = Rc::new(executor());
    let _inside = executor.enter();
    at_every_wake(
        || build(&executor),
        subject,
        points,
        World::go_on,
        World::point,
        |world, drop_subject| {
            world.afterwards(drop_subject, points == SUBMITTED && world.ended.get());
            look(world);
        },
    );
}

pub fn executor() -> Executor {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("an executor")
}

/// An exchange that fails, pauses, is tried again and sent elsewhere.
pub const RETRIED: [Point; 8] = [Waits, Opens, Sent, Pause, Again, Moved, Body, Done];

/// An exchange that is sent elsewhere.
pub const REDIRECTED: [Point; 6] = [Waits, Opens, Sent, Moved, Body, Done];

/// A one-way request whose server reads slowly.
pub const SUBMITTED: [Point; 4] = [Waits, Opens, Sent, Done];
