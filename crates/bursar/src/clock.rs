//! Time: what a clock is, the one that tokio keeps, and one that a test turns by hand.

#[cfg(feature = "tokio")]
mod sleeper;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::sync::lock_plain;
#[cfg(feature = "tokio")]
use sleeper::Sleeper;

/// Completes at a moment of its clock. Made by [`Clock::sleep_until`].
pub type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What time it is, and how to wait.
///
/// A runtime reads its clock once for each attempt that has a timeout; where a caller has set a deadline also at each poll
/// of what waits, and when an attempt fails. It arms a timer only when the handler first suspends. The default follows tokio's clock, its paused one in tests included; [`ManualClock`] is turned by hand.
pub trait Clock: Send + Sync + 'static {
    /// The present moment. It never goes back.
    fn now(&self) -> Instant;

    /// A future that completes once [`now`](Clock::now) has reached `deadline`, at once if it has already.
    fn sleep_until(&self, deadline: Instant) -> Timer;
}

/// Beyond this a bound is none: about a thousand years.
const FAR: Duration = Duration::from_secs(34_359_738_368);

/// The clock of one runtime, without an indirection for the usual one.
#[derive(Clone)]
pub(crate) enum ClockHandle {
    #[cfg(feature = "tokio")]
    Tokio,
    Custom(Arc<dyn Clock>),
}

impl ClockHandle {
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio => tokio_now(),
            Self::Custom(clock) => clock.now(),
        }
    }

    /// The moment `span` from now. `None` is further than any clock tells: no bound at all.
    #[inline]
    pub(crate) fn after(&self, span: Duration) -> Option<Instant> {
        if span > FAR {
            return None;
        }
        self.now().checked_add(span)
    }

    pub(crate) fn sleep_until(&self, deadline: Instant) -> Timer {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio => Box::pin(sleeper::sleep_until(deadline)),
            Self::Custom(clock) => clock.sleep_until(deadline),
        }
    }

    fn arm(&self, deadline: Instant) -> Armed {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio => Armed::Tokio(Sleeper::until(deadline)),
            Self::Custom(clock) => Armed::Custom(deadline, clock.sleep_until(deadline)),
        }
    }
}

/// A timer, and the moment it was made for.
enum Armed {
    #[cfg(feature = "tokio")]
    Tokio(Sleeper),
    Custom(Instant, Timer),
}

impl Armed {
    fn is_for(&self, moment: Instant) -> bool {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio(sleeper) => sleeper.is_for(moment),
            Self::Custom(made_for, _) => *made_for == moment,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio(sleeper) => Pin::new(sleeper).poll(cx),
            Self::Custom(_, timer) => timer.as_mut().poll(cx),
        }
    }
}

#[cfg(feature = "tokio")]
#[inline]
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the ambient clock"
)]
fn tokio_now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Clock for ClockHandle {
    fn now(&self) -> Instant {
        Self::now(self)
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        Self::sleep_until(self, deadline)
    }
}

impl fmt::Debug for ClockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio => f.write_str("tokio"),
            Self::Custom(_) => f.write_str("custom"),
        }
    }
}

/// The earlier of two moments, either of which may be missing.
#[inline]
pub(crate) fn earlier<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A timer made when first needed and made anew when its moment changes.
pub(crate) struct Alarm {
    armed: Option<Armed>,
}

impl Alarm {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { armed: None }
    }

    /// It wakes nobody until it is polled again.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        self.armed = None;
    }

    /// Ready once the clock has reached `moment`.
    pub(crate) fn poll(
        &mut self,
        clock: &ClockHandle,
        moment: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !self
            .armed
            .as_ref()
            .is_some_and(|armed| armed.is_for(moment))
        {
            self.armed = None;
        }
        let timer = self.armed.get_or_insert_with(|| clock.arm(moment));
        ready!(timer.poll(cx));
        // What has completed must not be polled again, and its moment may be asked for again.
        self.armed = None;
        Poll::Ready(())
    }
}

/// A clock that stands still until it is turned, for tests that no real time decides.
///
/// Clones share one time.
///
/// ```
/// use bursar::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now() - before, Duration::from_secs(1));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<std::sync::Mutex<Manual>>);

#[derive(Debug)]
struct Manual {
    now: Instant,
    timers: slab::Slab<(Instant, Waker)>,
}

impl ManualClock {
    /// A clock that starts at the present moment.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "an Instant can be had in no other way"
    )]
    pub fn new() -> Self {
        Self(Arc::new(std::sync::Mutex::new(Manual {
            now: Instant::now(),
            timers: slab::Slab::new(),
        })))
    }

    /// Moves time forward and wakes the timers that have come due, the earliest first.
    pub fn advance(&self, by: Duration) {
        let mut manual = self.lock();
        manual.now += by;
        let now = manual.now;
        let mut due: Vec<usize> = Vec::new();
        for (index, (at, _)) in &manual.timers {
            if *at <= now {
                due.push(index);
            }
        }
        due.sort_by_key(|index| (manual.timers[*index].0, *index));
        let wakers: Vec<Waker> = due
            .into_iter()
            .map(|index| std::mem::replace(&mut manual.timers[index].1, Waker::noop().clone()))
            .collect();
        drop(manual);
        for waker in wakers {
            waker.wake();
        }
    }

    /// How many timers wait for this clock.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.lock().timers.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Manual> {
        lock_plain(&self.0)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.lock().now
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        Box::pin(ManualTimer {
            clock: self.clone(),
            deadline,
            index: None,
        })
    }
}

struct ManualTimer {
    clock: ManualClock,
    deadline: Instant,
    index: Option<usize>,
}

impl Future for ManualTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let this = &mut *self;
        let mut manual = this.clock.lock();
        if manual.now >= this.deadline {
            return Poll::Ready(());
        }
        let entry = (this.deadline, waker);
        let old = match this.index {
            Some(index) => Some(std::mem::replace(&mut manual.timers[index], entry)),
            None => {
                this.index = Some(manual.timers.insert(entry));
                None
            }
        };
        drop(manual);
        drop(old);
        Poll::Pending
    }
}

impl Drop for ManualTimer {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            let entry = self.clock.lock().timers.remove(index);
            drop(entry);
        }
    }
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn c5_a_span_that_no_clock_can_tell_is_no_bound() {
        let clock = ManualClock::new();
        let handle = ClockHandle::Custom(Arc::new(clock.clone()));
        assert_eq!(handle.after(FAR), clock.now().checked_add(FAR));
        assert_eq!(handle.after(FAR + Duration::from_nanos(1)), None);
    }
}
