//! What the test files share: a service driven by hand, and short readings of a runtime.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod net;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{ManualClock, Runtime};
use tower::Service;

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

/// Units of a budget that calls hold, and calls that wait for it.
pub fn usage(runtime: &Runtime, budget: &str) -> (u32, u32) {
    let stats = runtime.stats();
    let of = stats.budgets.iter().find(|of| &*of.name == budget);
    of.map(|of| (of.in_use, of.waiting))
        .expect("the budget exists")
}

/// Asserts that nothing is held, nobody waits and every call that began has ended.
#[track_caller]
pub fn assert_idle(runtime: &Runtime) {
    let stats = runtime.stats();
    let balanced = stats.operations.iter().all(|of| of.admitted == of.finished);
    let free = stats
        .budgets
        .iter()
        .all(|of| of.in_use == 0 && of.waiting == 0);
    assert!(balanced && free && stats.keys == 0, "not idle:\n{stats}");
}

/// Whether a refused caller was told this number of seconds, or up to twice as many: they are spread at random.
pub fn told(said: Option<&str>, least: u64) -> bool {
    said.and_then(|said| said.parse().ok())
        .is_some_and(|said| (least..=2 * least).contains(&said))
}

pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A service that is ready, and answers, when the test says so. Clones are the same service, and each must be made
/// ready before it is called.
#[derive(Debug, Default)]
pub struct Puppet {
    strings: Arc<Mutex<Strings>>,
    ready: bool,
}

#[derive(Debug, Default)]
struct Strings {
    /// How many more clones become ready; an error in between makes one fail.
    readiness: VecDeque<Result<(), &'static str>>,
    answers: VecDeque<Result<u32, &'static str>>,
    requests: Vec<u32>,
    alive: u32,
    wakers: Vec<Waker>,
}

impl Clone for Puppet {
    fn clone(&self) -> Self {
        Self {
            strings: Arc::clone(&self.strings),
            ready: false,
        }
    }
}

impl Puppet {
    pub fn new() -> Self {
        Self::default()
    }

    fn pull(&self, change: impl FnOnce(&mut Strings)) {
        let wakers = {
            let mut strings = lock(&self.strings);
            change(&mut strings);
            std::mem::take(&mut strings.wakers)
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// One more clone becomes ready, or fails to.
    pub fn ready(&self, how: Result<(), &'static str>) {
        self.pull(|strings| strings.readiness.push_back(how));
    }

    /// The call that waits for an answer, or the next, is answered so.
    pub fn answer(&self, answer: Result<u32, &'static str>) {
        self.pull(|strings| strings.answers.push_back(answer));
    }

    /// The requests of the calls that were made.
    pub fn requests(&self) -> Vec<u32> {
        lock(&self.strings).requests.clone()
    }

    /// Whether somebody waits for it to become ready, or to answer.
    pub fn is_awaited(&self) -> bool {
        !lock(&self.strings).wakers.is_empty()
    }

    /// How many calls are under way.
    pub fn alive(&self) -> u32 {
        lock(&self.strings).alive
    }
}

impl Service<u32> for Puppet {
    type Response = u32;
    type Error = &'static str;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        let mut strings = lock(&self.strings);
        match strings.readiness.pop_front() {
            Some(how) => {
                self.ready = how.is_ok();
                Poll::Ready(how)
            }
            None => {
                strings.wakers.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn call(&mut self, request: u32) -> Answer {
        assert!(
            std::mem::take(&mut self.ready),
            "called before it was ready"
        );
        let mut strings = lock(&self.strings);
        strings.requests.push(request);
        strings.alive += 1;
        Answer(Arc::clone(&self.strings))
    }
}

/// A call of a [`Puppet`].
pub struct Answer(Arc<Mutex<Strings>>);

impl Future for Answer {
    type Output = Result<u32, &'static str>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut strings = lock(&self.0);
        match strings.answers.pop_front() {
            Some(answer) => Poll::Ready(answer),
            None => {
                strings.wakers.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        lock(&self.0).alive -= 1;
    }
}
