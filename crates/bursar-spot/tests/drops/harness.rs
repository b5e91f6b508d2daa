//! The world in which futures of Spots are dropped, and the points at which they are met.
//!
//! Nothing runs in the executor but when a step says so ([`Base::settle`]): between a change and the poll that notices it the
//! world stands still.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::task::Poll;

use bursar::testkit::{self, Stepped, Subject, at_every_poll, when_woken};
use bursar::{Contract, ManualClock, Policy, Runtime, SpotSnapshot};
use bursar_spot::{Host, HostBuilder, Spot, SpotError};

use crate::common::{Door, Log, Shared, settle};

pub use bursar::testkit::Step;

type Executor = tokio::runtime::Runtime;

/// What every world has.
pub struct Base {
    pub runtime: Runtime,
    pub clock: ManualClock,
    pub host: Host,
    /// What turns did, in their order.
    pub log: Shared,
    /// What turns wait at.
    pub doors: Doors,
    /// Whether the subject was polled.
    pub polled: Cell<bool>,
    executor: Rc<Executor>,
}

/// One for each thing that a turn waits for, so that a step opens one.
#[derive(Clone)]
pub struct Doors {
    /// For the end of the turn that holds the gate at first.
    pub holder: Door,
    /// For the end of the turn behind that one.
    pub before: Door,
    /// For the subject's own turn.
    pub body: Door,
    /// For what the subject's turn yields on.
    pub away: Door,
    /// For a lane's claim.
    pub claim: Door,
    /// For the end of a last turn.
    pub last: Door,
    /// For an activation.
    pub activation: Door,
}

impl Doors {
    fn new() -> Self {
        let [holder, before, body, away, claim, last, activation] = [(); 7].map(|()| Door::new());
        Self {
            holder,
            before,
            body,
            away,
            claim,
            last,
            activation,
        }
    }

    fn open(&self) {
        let Self {
            holder,
            before,
            body,
            away,
            claim,
            last,
            activation,
        } = self;
        for door in [holder, before, body, away, claim, last, activation] {
            door.open();
        }
    }
}

impl Base {
    fn new(executor: &Rc<Executor>, configure: impl FnOnce(HostBuilder) -> HostBuilder) -> Self {
        let clock = ManualClock::new();
        let runtime = Runtime::builder()
            .resource("unit", 1)
            .clock(clock.clone())
            .build()
            .expect("the budget is right");
        let host = configure(Host::builder(&runtime)).build();
        Self {
            host: host.expect("inside of an executor"),
            runtime,
            clock,
            log: Shared::default(),
            doors: Doors::new(),
            polled: Cell::new(false),
            executor: Rc::clone(executor),
        }
    }

    /// A contract for the runtime's only unit.
    pub fn unit(&self) -> Contract {
        let policy = Policy::pure().claim("unit", 1);
        self.runtime.contract("unit", policy).expect("right")
    }

    /// Lets all go on that can.
    pub fn settle(&self) {
        self.executor.block_on(settle());
    }

    /// Opens a door, and lets all go on that can.
    pub fn open(&self, door: &Door) {
        door.open();
        self.settle();
    }

    pub fn open_all(&self) {
        self.doors.open();
        self.settle();
    }

    pub fn said(&self, word: &str) -> bool {
        self.log.read().contains(&word)
    }

    pub fn times(&self, word: &str) -> usize {
        self.log.read().iter().filter(|said| **said == word).count()
    }

    /// What was said but for that word.
    pub fn without(&self, word: &str) -> Log {
        let mut log = self.log.read();
        log.retain(|said| *said != word);
        log
    }

    /// What that Spot does; nothing if it is idle.
    pub fn busy(&self, name: &str) -> SpotSnapshot {
        let busy = self.host.snapshot().busy;
        let found = busy.into_iter().find(|spot| spot.name == name);
        found.unwrap_or_default()
    }

    /// Nothing is held, nobody waits, nothing is owed.
    #[track_caller]
    pub fn assert_idle(&self) {
        testkit::assert_idle(&self.runtime);
        let snapshot = self.host.snapshot();
        assert!(snapshot.busy.is_empty(), "not idle:\n{snapshot}");
        assert_eq!(self.clock.timers(), 0, "no timer is left behind");
    }

    /// Sends, requests and entered turns have their turn at once.
    #[track_caller]
    pub fn next_ones_run(&self, spot: &Spot<()>) {
        let log = self.log.clone();
        let next = spot.request(|_turn| async move { log.push("next") });
        Stepped::new(next).ready().expect("a turn");
        drop(Stepped::new(spot.enter()).ready().expect("a turn"));
        let log = self.log.clone();
        let sent = spot.send(|_turn| async move { log.push("next") });
        Stepped::new(sent).ready().expect("accepted");
        self.settle();
        assert_eq!(self.times("next"), 2);
        self.assert_idle();
    }
}

/// Whoever waits behind a subject; at once or in the end it comes through.
pub struct Behind<F> {
    future: Stepped<F>,
    came: bool,
}

impl<T, F: Future<Output = Result<T, SpotError>>> Behind<F> {
    /// Polled once: it has its place.
    pub fn new(future: F) -> Self {
        let mut future = Stepped::new(future);
        let came = match future.poll() {
            Poll::Ready(out) => {
                drop(out.expect("it comes through"));
                true
            }
            Poll::Pending => false,
        };
        Self { future, came }
    }

    /// It goes on when it is woken, and comes through after the change that follows.
    #[track_caller]
    pub fn comes_through_after(mut self, change: impl FnOnce()) {
        if !self.came {
            assert!(
                self.future.is_woken(),
                "who waited behind the subject is lost"
            );
            match self.future.poll() {
                Poll::Ready(out) => {
                    drop(out.expect("it comes through"));
                    self.came = true;
                }
                Poll::Pending => change(),
            }
        }
        self.comes_through();
    }

    /// It was woken, and comes through.
    #[track_caller]
    pub fn comes_through(mut self) {
        if !self.came {
            assert!(
                self.future.is_woken(),
                "who waited behind the subject is lost"
            );
            drop(self.future.ready().expect("it comes through"));
        }
    }
}

/// Drops the subject at every poll: polled when it need not be, and polled only once it was woken.
#[track_caller]
pub fn drop_everywhere<W, P>(
    build: impl Fn(Base) -> W,
    subject: impl for<'w> Fn(&'w W) -> Subject<'w>,
    script: &[Step<W, P>],
    point: impl Fn(&W, bool) -> P,
    afterwards: impl Fn(&W, &mut dyn FnMut()),
) where
    W: AsRef<Base>,
    P: Copy + fmt::Debug + PartialEq,
{
    drop_everywhere_on(|host| host, build, subject, script, point, afterwards);
}

/// The same on a host that is told more.
#[track_caller]
pub fn drop_everywhere_on<W, P>(
    configure: fn(HostBuilder) -> HostBuilder,
    build: impl Fn(Base) -> W,
    subject: impl for<'w> Fn(&'w W) -> Subject<'w>,
    script: &[Step<W, P>],
    point: impl Fn(&W, bool) -> P,
    afterwards: impl Fn(&W, &mut dyn FnMut()),
) where
    W: AsRef<Base>,
    P: Copy + fmt::Debug + PartialEq,
{
    let executor = tokio::runtime::Builder::new_current_thread().build();
    let executor = Rc::new(executor.expect("an executor"));
    let _inside = executor.enter();
    for only_when_woken in [false, true] {
        at_every_poll(
            || build(Base::new(&executor, configure)),
            |world| match only_when_woken {
                false => subject(world),
                true => Box::pin(when_woken(subject(world))),
            },
            script,
            |world, ready| {
                world.as_ref().polled.set(true);
                point(world, ready)
            },
            &afterwards,
        );
    }
}

/// Nothing changes.
pub fn nothing<W>(_: &W) {}

/// The subject has what it wanted, and keeps it: it waits at its door.
pub async fn lingers<T>(base: &Base, kept: T) {
    base.log.push("has it");
    base.doors.body.pass().await;
    drop(kept);
}
