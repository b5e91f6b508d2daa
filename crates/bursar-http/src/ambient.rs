//! The one file that reads the ambient clock, arms its timers and makes tasks.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bursar::{Attempt, Timer};

/// Beyond this a bound is none: about a thousand years.
const FAR: Duration = Duration::from_secs(1 << 35);

/// The clock of one client; tokio's unless it was given another.
#[derive(Clone, Default)]
pub(crate) struct Clock(pub(crate) Option<Arc<dyn bursar::Clock>>);

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the ambient clock"
    )]
    pub(crate) fn now(&self) -> Instant {
        match &self.0 {
            Some(clock) => clock.now(),
            None => tokio::time::Instant::now().into_std(),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that arms a timer")]
    fn sleep_until(&self, deadline: Instant) -> Timer {
        match &self.0 {
            Some(clock) => clock.sleep_until(deadline),
            None => Box::pin(tokio::time::sleep_until(deadline.into())),
        }
    }

    /// A deadline `span` from now, or `other` if that is earlier.
    pub(crate) fn deadline(&self, span: Duration, other: Option<Instant>) -> Deadline {
        let own = if span > FAR {
            None
        } else {
            self.now().checked_add(span)
        };
        let at = match (own, other) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        Deadline {
            at,
            timer: None,
            clock: self.clone(),
        }
    }
}

/// A clock is given as its type; there is nothing else to say of it.
impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "custom" } else { "tokio" })
    }
}

/// The wall clock, for dates in headers.
#[expect(
    clippy::disallowed_methods,
    reason = "Retry-After may be a date, which the wall clock tells"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Makes a task on the caller's runtime.
#[expect(clippy::disallowed_methods, reason = "the one place that makes a task")]
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}

/// Makes a task, unless there is no runtime here: what has no need of one may be polled anywhere.
#[expect(clippy::disallowed_methods, reason = "the one place that makes a task")]
pub(crate) fn spawn_within(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}

/// Runs blocking work on tokio's threads for it. Its value is dropped there if nobody waits any more.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Bounds the making of a connection, which may go on when no request awaits it any more. `None` is too late.
#[expect(
    clippy::disallowed_methods,
    reason = "the pool's connections outlive the requests, and so the client's clock"
)]
pub(crate) async fn at_most<F: Future>(span: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(span, work).await.ok()
}

/// The present moment of tokio's clock, by which idle connections are timed.
#[expect(
    clippy::disallowed_methods,
    reason = "the pool's connections outlive the requests, and so the client's clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Waits for a moment of tokio's clock; false if `gone` comes first.
#[expect(
    clippy::disallowed_methods,
    reason = "the pool's connections outlive the requests, and so the client's clock"
)]
pub(crate) async fn reached<F: Future + Unpin>(moment: Instant, gone: &mut F) -> bool {
    tokio::time::timeout_at(moment.into(), gone).await.is_err()
}

/// When an attempt's time is up; its timer is armed when something first has to wait.
pub(crate) struct Deadline {
    at: Option<Instant>,
    timer: Option<Timer>,
    clock: Clock,
}

/// The deadline passed, or the attempt was told to stop.
#[derive(Debug)]
pub(crate) struct Elapsed;

impl Deadline {
    /// Ready once the moment has come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Elapsed> {
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| self.clock.sleep_until(at));
        timer.as_mut().poll(cx).map(|()| Elapsed)
    }

    /// Whether the moment has come, by the clock.
    pub(crate) fn is_past(&self) -> bool {
        self.at.is_some_and(|at| self.clock.now() >= at)
    }

    /// Polls `work` until it ends, the moment comes or `attempt` is told to stop. What ends in the same poll counts.
    pub(crate) async fn bound<F: Future>(
        &mut self,
        attempt: Option<&Attempt>,
        work: F,
    ) -> Result<F::Output, Elapsed> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            // The attempt's own deadline polls this once more after setting its flag.
            if attempt.is_some_and(Attempt::is_cancelled) {
                return Poll::Ready(Err(Elapsed));
            }
            self.poll(cx).map(Err)
        })
        .await
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deadline").field(&self.at).finish()
    }
}
