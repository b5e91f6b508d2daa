//! Work beside the turns: computation on the host's own threads, I/O on its executor.
//!
//! [`Work`] is a future like any other: awaited, the turn keeps its gate; yielded on, it returns it. It is submitted when it
//! is first polled, and answered once.
//!
//! Invariants:
//! 1. What has been submitted runs without being polled; what the waiter does decides only whether anybody hears of it.
//! 2. Each piece of work has a cancellation of its own below that of its Spot, which lies below that of the host. It fires
//!    when the waiter leaves, its token fires, or the Spot or the host closes, whichever is first.
//! 3. The answer passes through one channel with one receiver: it is delivered at most once, and dropped if nobody waits.
//! 4. Work that has not begun when its cancellation fires never does.
//! 5. Work runs inside of its waiter for as long as that waits: what it asks for is judged by the waiter's chain. Once the
//!    waiter has left, it stands alone.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bursar::Outcome;
use bursar::seam::{Chain, Tie};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use crate::exec::Exec;
use crate::pool::{Accepted, Pool, Refused, Ticket};

/// Tells a piece of work that it is to stop: its waiter has left, its token has fired, or the Spot or the host closes.
///
/// Nothing is stopped by force. Work that does not look runs to its end, and what it returns then is dropped.
#[derive(Clone, Debug)]
pub struct Cancellation(CancellationToken);

impl Cancellation {
    /// Whether the work is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Completes when the work is to stop.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.cancelled()
    }
}

/// Where work beside the turns is handed in: the host's, or a turn's, whose work ends with its Spot.
///
/// CPU work runs on threads of the host's own, so many at a time, behind a bounded queue. I/O work runs on the host's executor
/// and takes none of these threads; neither waits for the other.
#[derive(Clone)]
pub struct Workers {
    shared: Arc<Shared>,
    scope: CancellationToken,
}

struct Shared {
    pool: Arc<Pool>,
    exec: Exec,
    live: TaskTracker,
}

impl Workers {
    /// Those of a host: `threads` for CPU work, and room for `queue` more pieces of it to wait.
    pub(crate) fn new(threads: usize, queue: usize, exec: Exec) -> Self {
        Self {
            shared: Arc::new(Shared {
                pool: Pool::new(threads, queue),
                exec,
                live: TaskTracker::new(),
            }),
            scope: CancellationToken::new(),
        }
    }

    /// The same threads, under a cancellation of their own that [`close`](Self::close) fires alone.
    pub(crate) fn within(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            scope: self.scope.child_token(),
        }
    }

    /// Fires the cancellation of all work handed in here or within, and refuses more.
    pub(crate) fn close(&self) {
        // It wakes: a panic of a waker has been reported by the hook, and whoever closes goes on.
        let _reported = catch_unwind(AssertUnwindSafe(|| self.scope.cancel()));
    }

    /// Completes once all work of the host has really ended; to be awaited once nothing hands in more.
    pub(crate) async fn ended(&self) {
        self.shared.live.close();
        self.shared.live.wait().await;
    }

    /// How many pieces of work have begun or wait.
    pub(crate) fn live(&self) -> usize {
        self.shared.live.len()
    }

    /// Computes on one of the host's threads.
    ///
    /// What it is lent says whether anybody still wants the result; work that takes long looks at it now and then. Parallel
    /// iterators inside it run on the same threads.
    ///
    /// ```
    /// # use bursar_spot::{WorkError, Workers};
    /// # async fn example(workers: Workers) -> Result<(), WorkError> {
    /// let sum = workers
    ///     .cpu(|cancelled| {
    ///         (0..1_000_u64).take_while(|_| !cancelled.is_cancelled()).sum::<u64>()
    ///     })
    ///     .await?;
    /// # let _ = sum;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cpu<T, F>(&self, compute: F) -> Work<T>
    where
        F: FnOnce(&Cancellation) -> T + Send + 'static,
        T: Send + 'static,
    {
        self.work(|workers, chain, cancel, answer| {
            let live = workers.live.token();
            let job = Box::new(move || {
                let answered = if cancel.is_cancelled() {
                    Answer::NeverBegan
                } else {
                    let compute = AssertUnwindSafe(|| chain.scope(|| compute(&cancel)));
                    Answer::Ended(catch_unwind(compute))
                };
                // If nobody waits any more, dropped here.
                drop(answer.send(answered));
                drop(live);
            });
            match workers.pool.submit(job) {
                Ok(Accepted::Started) => Ok(None),
                Ok(Accepted::Queued(ticket)) => Ok(Some(ticket)),
                Err(Refused::Full { waiting }) => Err(WorkError::CapacityExceeded {
                    threads: workers.pool.threads(),
                    waiting,
                }),
                Err(Refused::NoThreads) => Err(WorkError::Unavailable { began: false }),
            }
        })
    }

    /// Runs a future on the host's executor, beside whoever waits for it.
    ///
    /// ```
    /// # use bursar_spot::{WorkError, Workers};
    /// # async fn load(_: &str) -> String { String::new() }
    /// # async fn example(workers: Workers) -> Result<(), WorkError> {
    /// let page = workers
    ///     .io(|cancelled| async move {
    ///         tokio::select! {
    ///             page = load("/players/7") => Some(page),
    ///             () = cancelled.cancelled() => None,
    ///         }
    ///     })
    ///     .await?;
    /// # let _ = page;
    /// # Ok(())
    /// # }
    /// ```
    pub fn io<T, F, W>(&self, start: F) -> Work<T>
    where
        F: FnOnce(Cancellation) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.work(|workers, chain, cancel, answer| {
            let work = workers.live.track_future(async move {
                let answered = if cancel.is_cancelled() {
                    Answer::NeverBegan
                } else {
                    Answer::Ended(run(&chain, async move { start(cancel).await }).await)
                };
                // If nobody waits any more, dropped here.
                drop(answer.send(answered));
            });
            workers.exec.spawn(work);
            Ok(None)
        })
    }

    fn work<T, S>(&self, start: S) -> Work<T>
    where
        S: FnOnce(&Shared, Chain, Cancellation, Answering<T>) -> Submitted + Send + 'static,
    {
        Work {
            shared: Arc::clone(&self.shared),
            cancel: self.scope.child_token(),
            until: None,
            stage: Stage::New(Box::new(start)),
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("pool", &self.shared.pool)
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

/// Runs a future under a chain: its output, or what it panicked with.
async fn run<F: Future>(chain: &Chain, future: F) -> std::thread::Result<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let poll = AssertUnwindSafe(|| chain.scope(|| future.as_mut().poll(cx)));
        match catch_unwind(poll) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// What passes from the work to its waiter.
enum Answer<T> {
    /// Its output, or what it panicked with.
    Ended(std::thread::Result<T>),
    /// It found its cancellation fired.
    NeverBegan,
}

type Answering<T> = oneshot::Sender<Answer<T>>;
/// Where it waits, if it has to wait for a thread.
type Submitted = Result<Option<Ticket>, WorkError>;
type Start<T> = Box<dyn FnOnce(&Shared, Chain, Cancellation, Answering<T>) -> Submitted + Send>;

/// Work beside the turns, as a future: see [`Workers::cpu`] and [`Workers::io`].
///
/// It is submitted when first polled, and then runs whether it is polled or not.
///
/// # Cancel safety
/// Dropping it fires the cancellation that the work was lent. Work that has not begun never does; what has begun runs to its
/// end, and what it returns is dropped.
///
/// # Panics
/// A panic of the work goes on to whoever polls this.
#[must_use = "futures do nothing unless polled"]
pub struct Work<T> {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    until: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    stage: Stage<T>,
}

enum Stage<T> {
    New(Start<T>),
    Submitted {
        answer: oneshot::Receiver<Answer<T>>,
        /// Where it waits, if it has to wait for a thread.
        ticket: Option<Ticket>,
        closing: Pin<Box<WaitForCancellationFutureOwned>>,
        /// Cut when the waiter leaves.
        tie: Tie,
    },
    Ended,
}

impl<T> Work<T> {
    /// Ends the waiting when `token` completes: the work's cancellation fires, and the waiter is answered with
    /// [`WorkError::Cancelled`] at once. A result that was there before stands.
    pub fn until(mut self, token: impl Future<Output = ()> + Send + 'static) -> Self {
        self.until = Some(Box::pin(token));
        self
    }

    /// Fires the cancellation. True if the work never ran, and never will.
    fn leave(&mut self) -> bool {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        match stage {
            Stage::New(_) => true,
            Stage::Submitted { ticket, tie, .. } => {
                tie.cut();
                // Before the withdrawal: a thread that takes the work up meanwhile finds it cancelled.
                self.cancel.cancel();
                ticket.is_some_and(|ticket| self.shared.pool.withdraw(ticket))
            }
            Stage::Ended => false,
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, WorkError>> {
        let Stage::Submitted {
            answer,
            ticket,
            closing,
            tie: _,
        } = &mut self.stage
        else {
            return Poll::Pending;
        };
        if let Poll::Ready(answered) = Pin::new(answer).poll(cx) {
            self.stage = Stage::Ended;
            return match answered {
                Ok(Answer::Ended(Ok(value))) => Poll::Ready(Ok(value)),
                Ok(Answer::Ended(Err(panic))) => resume_unwind(panic),
                Ok(Answer::NeverBegan) => Poll::Ready(Err(WorkError::Closed)),
                Err(_) => Poll::Ready(Err(WorkError::Unavailable { began: true })),
            };
        }
        // Closing fires the cancellation. What has begun may still answer in its own words.
        let Some(waits) = *ticket else {
            return Poll::Pending;
        };
        ready!(closing.as_mut().poll(cx));
        *ticket = None;
        if !self.shared.pool.withdraw(waits) {
            return Poll::Pending;
        }
        self.stage = Stage::Ended;
        Poll::Ready(Err(WorkError::Closed))
    }
}

impl<T> Future for Work<T> {
    type Output = Result<T, WorkError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // An answer in hand stands, whatever else has happened.
        if let answered @ Poll::Ready(_) = this.poll_answer(cx) {
            return answered;
        }
        let until = this.until.as_mut();
        if until.is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
            this.until = None;
            let began = !this.leave();
            return Poll::Ready(Err(WorkError::Cancelled { began }));
        }
        match std::mem::replace(&mut this.stage, Stage::Ended) {
            Stage::New(_) if this.cancel.is_cancelled() => Poll::Ready(Err(WorkError::Closed)),
            Stage::New(start) => {
                let (sender, answer) = oneshot::channel();
                let (chain, tie) = Chain::tied();
                let cancel = Cancellation(this.cancel.clone());
                let ticket = start(&this.shared, chain, cancel, sender)?;
                this.stage = Stage::Submitted {
                    answer,
                    ticket,
                    closing: Box::pin(this.cancel.clone().cancelled_owned()),
                    tie,
                };
                this.poll_answer(cx)
            }
            stage => {
                this.stage = stage;
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        let _never_ran = self.leave();
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::New(_) => "Work(not submitted)",
            Stage::Submitted { .. } => "Work(submitted)",
            Stage::Ended => "Work(ended)",
        })
    }
}

/// Why there is no result of [`Work`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkError {
    /// Every thread is busy and the queue before them is full. The work never ran.
    CapacityExceeded {
        /// How many threads the host has for CPU work.
        threads: usize,
        /// How many pieces of work wait for one.
        waiting: usize,
    },
    /// Its token fired.
    Cancelled {
        /// Whether the work may have begun; if so it may have taken effect.
        began: bool,
    },
    /// The Spot or the host closed before the work had begun. It never ran.
    Closed,
    /// There is nothing to run it: the system gave no thread, or the executor is gone.
    Unavailable {
        /// Whether the work may have begun; if so it may have taken effect.
        began: bool,
    },
}

impl WorkError {
    /// [`Uncertain`](Outcome::Uncertain) if the work may have begun, [`Throttled`](Outcome::Throttled) if it never did.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Cancelled { began: true } | Self::Unavailable { began: true } => {
                Outcome::Uncertain
            }
            _ => Outcome::Throttled,
        }
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapacityExceeded { threads, waiting } => write!(
                f,
                "CPU work was refused: {threads} threads are busy and {waiting} pieces of work wait for them"
            ),
            Self::Cancelled { began: false } => {
                f.write_str("the work was cancelled before it began")
            }
            Self::Cancelled { began: true } => {
                f.write_str("the work was cancelled after it had begun: it may have taken effect")
            }
            Self::Closed => f.write_str("the Spot or its host closed before the work began"),
            Self::Unavailable { began: false } => {
                f.write_str("the work never began: the system gives no threads")
            }
            Self::Unavailable { began: true } => {
                f.write_str("the executor went away with the work: it may have taken effect")
            }
        }
    }
}

impl std::error::Error for WorkError {}

#[cfg(all(test, not(bursar_shuttle)))]
mod tests;
