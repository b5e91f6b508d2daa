//! One attempt on its way to a blocking thread and back.
//!
//! One state, under one lock, settles who was first. `Queued`: no thread has taken the attempt up, so it can still be
//! called off and never ran; a thread that comes past its deadline leaves it so. `Running`: the thread owns handler, units and key. `Done`: the answer lies ready.
//! `Answered`: the caller has its answer, or has gone; what the thread still holds it gives back when it ends, and
//! what it returns is discarded.
//!
//! The lock is a leaf: handlers, wakers and drops of user values come after it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::attempt::Attempt;
use crate::call::Holding;
use crate::chain::links::Chain;
use crate::engine::Plan;
use crate::outcome::Failure;
use crate::sync::lock_plain;
use crate::trace;
use crate::wake::{Kept, wake};

pub(super) type Answer<T, E> = std::thread::Result<Result<T, Failure<E>>>;

/// What moves to the thread and back.
pub(super) struct Work<F> {
    pub(super) handler: F,
    pub(super) holding: Holding<Arc<Plan>>,
}

pub(super) enum State<F, T, E> {
    Idle,
    Queued(Work<F>),
    Running,
    Done(Work<F>, Answer<T, E>),
    /// The executor dropped the attempt without running it, or it was called off.
    Lost(Work<F>),
    Answered,
}

pub(super) struct Job<F, T, E> {
    pub(super) attempt: Attempt,
    /// What its requester stood in.
    above: Chain,
    shared: Mutex<Shared<F, T, E>>,
}

struct Shared<F, T, E> {
    state: State<F, T, E>,
    waker: Kept,
}

impl<F, T, E> Job<F, T, E>
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    fn lock(&self) -> MutexGuard<'_, Shared<F, T, E>> {
        lock_plain(&self.shared)
    }

    /// On the blocking thread.
    fn perform(&self) {
        if self.attempt.remaining() == Some(Duration::ZERO) {
            // Too late to begin: left to the caller, who calls it off.
            return;
        }
        let mut shared = self.lock();
        let mut work = match std::mem::replace(&mut shared.state, State::Running) {
            State::Queued(work) => work,
            other => {
                shared.state = other;
                return;
            }
        };
        drop(shared);
        if self.attempt.number() > 1 {
            work.holding.retries();
        }
        let frame = work.holding.frame();
        let handler = || self.above.call(frame, || (work.handler)(&self.attempt));
        let answer = catch_unwind(AssertUnwindSafe(handler));
        let mut shared = self.lock();
        if matches!(shared.state, State::Answered) {
            // Nobody is there to take the answer. Units and key go back here, when the work has really ended.
            drop(shared);
            // What it returned goes first, as a value would that its caller lets go of.
            work.holding.plan().counters.adrift(true);
            drop(answer);
            drop(work);
            return;
        }
        shared.state = State::Done(work, answer);
        let waker = shared.waker.take();
        drop(shared);
        wake(waker);
    }

    /// The executor will not run it.
    fn lose(&self) {
        let mut shared = self.lock();
        let waker = match std::mem::replace(&mut shared.state, State::Answered) {
            State::Queued(work) => {
                shared.state = State::Lost(work);
                shared.waker.take()
            }
            other => {
                shared.state = other;
                None
            }
        };
        drop(shared);
        wake(waker);
    }

    pub(super) fn new(attempt: Attempt, above: Chain) -> Self {
        Self {
            attempt,
            above,
            shared: Mutex::new(Shared {
                state: State::Idle,
                waker: Kept::default(),
            }),
        }
    }

    /// An attempt is to be made.
    pub(super) fn queue(&self, work: Work<F>) {
        self.lock().state = State::Queued(work);
    }

    /// Calls the attempt off, if no thread has taken it up.
    pub(super) fn call_off(&self) -> bool {
        let mut shared = self.lock();
        match std::mem::replace(&mut shared.state, State::Answered) {
            State::Queued(work) => {
                shared.state = State::Lost(work);
                true
            }
            other => {
                shared.state = other;
                false
            }
        }
    }

    /// Takes what is there; a running attempt is left to its thread.
    pub(super) fn settle(&self) -> State<F, T, E> {
        let mut shared = self.lock();
        let waker = std::mem::take(&mut shared.waker);
        let state = std::mem::replace(&mut shared.state, State::Answered);
        drop(shared);
        drop(waker);
        state
    }

    /// Ready when there is an answer, or none will come.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<State<F, T, E>> {
        let waker = Kept::of(cx);
        let mut shared = self.lock();
        if matches!(shared.state, State::Queued(_) | State::Running) {
            let old = std::mem::replace(&mut shared.waker, waker);
            drop(shared);
            drop(old);
            return Poll::Pending;
        }
        let state = std::mem::replace(&mut shared.state, State::Idle);
        drop(shared);
        Poll::Ready(state)
    }
}

/// An attempt on its way to a thread: lost if the executor drops it unrun.
struct Submitted<F, T, E>
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    /// `None` once a thread has taken it up: the job may be on its way again by the time this is dropped.
    job: Option<Arc<Job<F, T, E>>>,
}

impl<F, T, E> Submitted<F, T, E>
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    fn run(mut self) {
        if let Some(job) = self.job.take() {
            job.perform();
        }
    }
}

impl<F, T, E> Drop for Submitted<F, T, E>
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            job.lose();
        }
    }
}

/// Hands the job to a blocking thread, on which calls made from inside it are nested.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that takes a blocking thread"
)]
pub(super) fn spawn<F, T, E>(job: &Arc<Job<F, T, E>>)
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let submitted = Submitted {
        job: Some(Arc::clone(job)),
    };
    let here = trace::Here::now();
    drop(tokio::task::spawn_blocking(move || {
        here.enter(|| submitted.run())
    }));
}
