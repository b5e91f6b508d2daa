//! The world in which calls are dropped, and the points at which they are met.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bursar::testkit;
use bursar::{
    Attempt, Backoff, CallError, Clock, Contract, Failure, Handler, ManualClock, Operation, Permit,
    Policy, Retry, Runtime,
};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};

use crate::common::{Answer, Error, Gate, Script, assert_idle, lock, ms, runtime};

/// Where a poll may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Waits for its key.
    Key,
    /// Waits for its first budget.
    First,
    /// Waits for its second budget, holding the first.
    Second,
    /// Turned away, and yields once.
    Refused,
    /// The handler is suspended, and no timer is armed.
    Suspended,
    /// The handler is suspended under a timer.
    Timer,
    /// The handler has been told and goes on.
    Grace,
    /// One attempt failed, and the next is about to begin.
    Between,
    /// One attempt failed, and its units are back until the next.
    Pausing,
    /// A permit is held.
    Held,
    /// Waits for a thread.
    Queued,
    /// Runs on a thread.
    Running,
    /// A drain is awaited.
    Drain,
    Done,
}

/// One poll: where it must stop, and what happens in the world after it.
pub type Step<W> = testkit::Step<W, Point>;

/// The three things that a subject needs, in their order: key "k", budget "a", budget "b".
pub const THINGS: usize = 3;

/// What a handler does: it is counted while it is alive, and answers when the script says so.
pub struct Inside {
    pub script: Script,
    clock: ManualClock,
    alive: AtomicU32,
    begun: Mutex<Option<Instant>>,
}

impl Inside {
    pub async fn handle(&self) -> Answer {
        struct Alive<'i>(&'i AtomicU32);
        impl Drop for Alive<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.alive.fetch_add(1, Ordering::Relaxed);
        let _alive = Alive(&self.alive);
        *lock(&self.begun) = Some(self.clock.now());
        self.script.answer().await
    }
}

impl Handler<&'static str> for Inside {
    type Output = u32;
    type Error = Error;

    async fn handle(&self, _: &Attempt, _: &&'static str) -> Answer {
        Inside::handle(self).await
    }
}

/// A runtime in which key and both budgets are held by others.
pub struct World {
    pub runtime: Runtime,
    pub clock: ManualClock,
    /// Claims both budgets, with a timeout of 10 ms and a grace of 10 ms.
    pub work: Contract,
    /// The same without a timeout.
    pub plain: Contract,
    /// As `work`, and pauses between its attempts.
    pub paced: Contract,
    /// As `paced`, and waits for 30 ms at most.
    pub hurried: Contract,
    pub reject: Contract,
    /// Claims nothing: what is called from inside of it is nested.
    pub outer: Contract,
    /// As `work`, by its input as the key.
    pub typed: Operation<&'static str, Arc<Inside>>,
    pub typed_paced: Operation<&'static str, Arc<Inside>>,
    pub typed_reject: Operation<&'static str, Arc<Inside>>,
    pub inside: Arc<Inside>,
    pub token: Gate,
    /// Opened when a subject that holds a permit may end.
    pub linger: Gate,
    pub permit: Cell<bool>,
    /// Those who hold what the subject needs, until the world releases it.
    pub held: [RefCell<Option<Permit>>; THINGS],
    alone: [Contract; THINGS],
}

impl World {
    /// All three things are held.
    pub fn new() -> Self {
        Self::holding([true; THINGS])
    }

    /// Of the three things those are held that are told.
    pub fn holding(which: [bool; THINGS]) -> Self {
        let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
        let inside = Arc::new(Inside {
            script: Script::new(),
            clock: clock.clone(),
            alive: AtomicU32::new(0),
            begun: Mutex::default(),
        });
        let both = || {
            let retry = Retry::up_to(3).on_transient();
            Policy::non_idempotent()
                .claim("b", 1)
                .claim("a", 1)
                .retry(retry)
        };
        let timed = || both().timeout(ms(10)).grace(ms(10));
        let paced = || {
            let backoff = Backoff::exponential(ms(5)).cap(ms(5));
            timed().retry(Retry::up_to(3).on_transient().backoff(backoff))
        };
        let typed = |name, policy| {
            let operation = runtime.operation(name, policy, Arc::clone(&inside));
            operation.unwrap().serialize_by(|key: &&'static str| *key)
        };
        let alone = [
            Policy::pure(),
            Policy::pure().claim("a", 1),
            Policy::pure().claim("b", 1),
        ]
        .map(|policy| runtime.contract("alone", policy).unwrap());
        let world = Self {
            work: runtime.contract("work", timed()).unwrap(),
            plain: runtime.contract("plain", both()).unwrap(),
            paced: runtime.contract("paced", paced()).unwrap(),
            hurried: runtime
                .contract("hurried", paced().max_wait(ms(30)))
                .unwrap(),
            reject: runtime.contract("reject", both().reject()).unwrap(),
            outer: runtime.contract("outer", Policy::pure()).unwrap(),
            typed: typed("typed", timed()),
            typed_paced: typed("typed paced", paced()),
            typed_reject: typed("typed reject", both().reject()),
            inside,
            token: Gate::new(),
            linger: Gate::new(),
            permit: Cell::new(false),
            alone,
            held: Default::default(),
            runtime,
            clock,
        };
        for (thing, held) in which.into_iter().enumerate() {
            if held {
                world.hold(thing);
            }
        }
        world
    }

    /// Another takes this one thing, which must be free.
    fn hold(&self, thing: usize) {
        let permit = assert_ready_ok!(task::spawn(self.alone(thing).admit()).poll());
        self.held[thing].replace(Some(permit));
    }

    /// A call that needs this one thing.
    pub fn alone(&self, thing: usize) -> bursar::Call<'_> {
        let call = self.alone[thing].with();
        if thing == 0 { call.key("k") } else { call }
    }

    pub fn release_key(&self) {
        self.held[0].take();
    }

    pub fn release_a(&self) {
        self.held[1].take();
    }

    pub fn release_b(&self) {
        self.held[2].take();
    }

    pub fn say(&self, answer: Answer) {
        self.inside.script.say(answer);
    }

    pub fn fail(&self) {
        self.say(Err(Failure::transient("again")));
    }

    /// The attempt fails, and the next is to begin 5 ms later.
    pub fn fail_for_now(&self) {
        self.say(Err(Failure::transient("again").after(ms(5))));
    }

    /// While the subject pauses, others take its units.
    pub fn take_over(&self) {
        self.hold(1);
        self.hold(2);
    }

    /// As [`take_over`](Self::take_over): the subject's units are free, and its key is not.
    pub fn take_over_all_but_the_key(&self) {
        let mut key = self.alone(0);
        assert_pending!(task::spawn(key.admit()).poll(), "the key is kept");
        self.take_over();
    }

    /// The pause is over.
    pub fn resume(&self) {
        self.clock.advance(ms(5));
    }

    pub fn succeed(&self) {
        self.say(Ok(7));
    }

    /// Where the subject is. `ready`: its last poll ended it.
    pub fn point(&self, ready: bool) -> Point {
        let stats = self.runtime.stats();
        let (mut started, mut rejected) = (0, 0);
        let others = ["alone", "outer"];
        for of in &stats.operations {
            if others.contains(&&*of.name) {
                continue;
            }
            started += of.started;
            rejected += of.rejected;
        }
        let seen = self.runtime.snapshot();
        let paused = seen.operations.iter().any(|of| of.paused > 0);
        let alive = self.inside.alive.load(Ordering::Relaxed);
        let begun = *lock(&self.inside.begun);
        let late = |begun| self.clock.now() >= begun + Duration::from_millis(10);
        match () {
            () if ready => Point::Done,
            () if rejected > 0 => Point::Refused,
            () if stats.budgets[0].waiting > 0 => Point::First,
            () if stats.budgets[1].waiting > 0 => Point::Second,
            () if started == 0 => Point::Key,
            () if paused => Point::Pausing,
            () if self.permit.get() => Point::Held,
            () if alive == 0 => Point::Between,
            () if self.clock.timers() == 0 => Point::Suspended,
            () if begun.is_some_and(late) => Point::Grace,
            () => Point::Timer,
        }
    }

    /// Drops the subject while others wait behind it for each thing, and looks at what is left.
    pub fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let mut builders = [0, 1, 2].map(|thing| self.alone(thing));
        let mut behind = builders
            .each_mut()
            .map(|builder| task::spawn(builder.admit()));
        let mut got = behind.each_mut().map(|waiter| match waiter.poll() {
            std::task::Poll::Ready(permit) => Some(permit.unwrap()),
            std::task::Poll::Pending => None,
        });
        drop_subject();
        // What the world does not hold has passed on then and there.
        for thing in 0..THINGS {
            if got[thing].is_some() {
                continue;
            }
            if self.held[thing].borrow().is_some() {
                assert!(!behind[thing].is_woken());
                assert_pending!(behind[thing].poll());
                self.held[thing].take();
            }
            assert!(
                behind[thing].is_woken(),
                "whoever waited behind the subject is lost"
            );
            got[thing] = Some(assert_ready_ok!(behind[thing].poll()));
        }
        drop((got, behind));
        for held in &self.held {
            held.take();
        }
        assert_eq!(self.inside.alive.load(Ordering::Relaxed), 0);
        assert!(!self.permit.get());
        assert_eq!(self.clock.timers(), 0, "no timer is left behind");
        assert_idle(&self.runtime);
        self.next_call_starts(&self.work);
        self.next_call_starts(&self.reject);
        assert_idle(&self.runtime);
    }

    /// As [`afterwards`](Self::afterwards) in a world that may have been closed. Then whoever waited outside is
    /// withdrawn, the drain goes on without the subject, and nothing starts any more.
    pub fn afterwards_open_or_closed(&self, drop_subject: &mut dyn FnMut()) {
        let mut probe = task::spawn(self.alone[0].admit());
        let open = assert_ready!(probe.poll()).is_ok();
        drop(probe);
        if open {
            return self.afterwards(drop_subject);
        }
        drop_subject();
        let mut drain = task::spawn(self.runtime.shutdown());
        let held = self.held.iter().any(|held| held.borrow().is_some());
        assert_eq!(drain.poll().is_pending(), held);
        for held in &self.held {
            held.take();
        }
        assert!(drain.is_woken() || !held);
        if held {
            assert_ready_ok!(drain.poll());
        }
        drop(drain);
        assert_eq!(self.inside.alive.load(Ordering::Relaxed), 0);
        assert_eq!(self.clock.timers(), 0, "no timer is left behind");
        assert_idle(&self.runtime);
        let refused = assert_ready!(task::spawn(self.work.admit()).poll());
        assert!(refused.is_err_and(|error| error.is_stopping()));
    }

    fn next_call_starts(&self, contract: &Contract) {
        let mut builder = contract.with().key("k");
        let mut next = task::spawn(builder.run(|_| async { Answer::Ok(8) }));
        let answer: Result<u32, CallError<Error>> = assert_ready!(next.poll());
        assert_eq!(answer.unwrap(), 8);
    }

    /// Holds what came of a call until the world lets go.
    pub async fn linger(&self, permit: Permit) {
        struct Holding<'w>(&'w Cell<bool>);
        impl Drop for Holding<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.permit.set(true);
        let _holding = Holding(&self.permit);
        self.linger.wait().await;
        drop(permit);
    }
}
