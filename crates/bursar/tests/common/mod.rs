//! What the test files share: gates opened by hand, handlers that answer when told, and short readings of a runtime.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod room;

#[allow(unused_imports, reason = "each test file uses a part")]
pub use bursar::testkit::assert_idle;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar::{Failure, ManualClock, OperationStats, Runtime};

/// What a test's handler fails with.
pub type Error = &'static str;

/// What a test's handler answers.
pub type Answer = Result<u32, Failure<Error>>;

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A runtime with these budgets, whose clock is turned by hand.
pub fn runtime(budgets: &[(&str, u32)]) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let mut builder = Runtime::builder().clock(clock.clone());
    for (name, capacity) in budgets {
        builder = builder.resource(*name, *capacity);
    }
    (builder.build().expect("the budgets are right"), clock)
}

/// The counters of one operation.
pub fn counts(runtime: &Runtime, operation: &str) -> OperationStats {
    runtime
        .stats()
        .operations
        .into_iter()
        .find(|of| &*of.name == operation)
        .expect("the operation exists")
}

/// Units of a budget that calls hold.
pub fn in_use(runtime: &Runtime, budget: &str) -> u32 {
    of_budget(runtime, budget).0
}

/// Calls that wait for a budget.
pub fn waiting(runtime: &Runtime, budget: &str) -> u32 {
    of_budget(runtime, budget).1
}

fn of_budget(runtime: &Runtime, budget: &str) -> (u32, u32) {
    runtime
        .stats()
        .budgets
        .iter()
        .find(|of| &*of.name == budget)
        .map(|of| (of.in_use, of.waiting))
        .expect("the budget exists")
}

/// A gate that stays open once it is opened. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        let wakers = {
            let mut gate = lock(&self.0);
            gate.0 = true;
            std::mem::take(&mut gate.1)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Ready once the gate is open.
    pub async fn wait(&self) {
        poll_fn(|cx| {
            let mut gate = lock(&self.0);
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A handler's answers, given by the test when it likes. Clones are the same script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    answers: Arc<Mutex<(VecDeque<Answer>, Vec<Waker>)>>,
    begun: Arc<AtomicU32>,
}

impl Script {
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the answer of the attempt that waits for one, or of the next that asks.
    pub fn say(&self, answer: Answer) {
        let wakers = {
            let mut answers = lock(&self.answers);
            answers.0.push_back(answer);
            std::mem::take(&mut answers.1)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// One attempt: counted at its first poll, ready once there is an answer.
    pub async fn answer(&self) -> Answer {
        self.begun.fetch_add(1, Ordering::Relaxed);
        poll_fn(|cx| {
            let mut answers = lock(&self.answers);
            if let Some(answer) = answers.0.pop_front() {
                return Poll::Ready(answer);
            }
            answers.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// How many attempts have begun.
    pub fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }
}

pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A future stepped by hand whose wake-ups may come from other threads.
pub struct Stepped<F> {
    future: Pin<Box<F>>,
    waker: Waker,
    rung: mpsc::Receiver<()>,
}

struct Bell(mpsc::Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Nobody listens once the future is gone.
        let _ = self.0.send(());
    }
}

/// A waker, and where its wake-ups arrive.
pub fn bell() -> (Waker, mpsc::Receiver<()>) {
    let (bell, rung) = mpsc::channel();
    (Waker::from(Arc::new(Bell(bell))), rung)
}

impl<F: Future> Stepped<F> {
    pub fn new(future: F) -> Self {
        let (waker, rung) = bell();
        Self {
            future: Box::pin(future),
            waker,
            rung,
        }
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let mut cx = Context::from_waker(&self.waker);
        self.future.as_mut().poll(&mut cx)
    }

    /// Waits for the next wake-up, from whichever thread.
    pub fn wait(&self) {
        receive(&self.rung);
    }
}

/// Waits for a message. The bound is for a broken build: no test's result depends on it.
#[track_caller]
pub fn receive<T>(from: &mpsc::Receiver<T>) -> T {
    from.recv_timeout(Duration::from_secs(20))
        .expect("it comes, and at once")
}
