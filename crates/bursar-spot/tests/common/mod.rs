//! What the test files share: a host on a clock turned by hand, and a log that turns write their order into.

#![allow(dead_code, reason = "each test file uses a part")]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{ManualClock, Runtime};
use bursar_spot::{Host, Spot};

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A runtime with one unit of "unit", and a clock turned by hand.
pub fn runtime() -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .resource("unit", 1)
        .clock(clock.clone())
        .build()
        .expect("the budget is right");
    (runtime, clock)
}

/// A host, its runtime and its clock.
pub fn host() -> (Host, Runtime, ManualClock) {
    let (runtime, clock) = runtime();
    (Host::new(&runtime), runtime, clock)
}

/// A host with one Spot whose state is a log.
pub fn log(name: &str) -> (Host, Spot<Log>, ManualClock) {
    let (host, _, clock) = host();
    let spot = host.create(name, Log::default()).expect("the name is free");
    (host, spot, clock)
}

/// What turns did, in their order.
pub type Log = Vec<&'static str>;

/// A log that is no Spot's state. Clones are the same log.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Log>>);

impl Shared {
    pub fn push(&self, what: &'static str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    pub fn read(&self) -> Log {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Pushes a word when it is dropped.
#[derive(Debug)]
pub struct Says(pub Shared, pub &'static str);

impl Drop for Says {
    fn drop(&mut self) {
        self.0.push(self.1);
    }
}

/// Lets every task that can run do so. On a current-thread executor each yield runs what was ready before it.
pub async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

/// A future stepped by hand, inside of the executor.
pub struct Stepped<F>(Pin<Box<F>>);

pub fn step<F: Future>(future: F) -> Stepped<F> {
    Stepped(Box::pin(future))
}

impl<F: Future> Stepped<F> {
    pub fn poll(&mut self) -> Poll<F::Output> {
        self.0
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    }

    #[track_caller]
    pub fn pending(&mut self) {
        assert!(self.poll().is_pending(), "it was not to be ready yet");
    }

    #[track_caller]
    pub fn ready(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(out) => out,
            Poll::Pending => panic!("it was to be ready"),
        }
    }
}

/// A gate that a future waits at until it is opened. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Door(Arc<tokio::sync::Semaphore>);

impl Door {
    pub fn new() -> Self {
        Self(Arc::new(tokio::sync::Semaphore::new(0)))
    }

    pub fn open(&self) {
        self.0.add_permits(1 << 20);
    }

    pub async fn pass(&self) {
        self.0
            .acquire()
            .await
            .expect("the door is never taken away")
            .forget();
    }
}
