//! What a handler is lent: which attempt this is, how long it may take, whether it should stop.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::clock::ClockHandle;
use crate::sync::lock_plain;
use crate::wake::WakeList;

/// The attempt is to stop.
const STOP: u32 = 1;
/// No other attempt follows it.
const LAST: u32 = 2;

/// Made when somebody first waits: every call has room for it, and few use it.
type Wakers = Option<Box<Slab<Option<Waker>>>>;

/// One run of a handler inside a call, as the handler sees it.
///
/// It lives in the call's builder, so that a handler may keep the reference across its awaits.
pub struct Attempt {
    clock: ClockHandle,
    /// What the deadline is counted from.
    epoch: Instant,
    /// Nanoseconds from the epoch; `u64::MAX` for none.
    deadline: AtomicU64,
    number: AtomicU32,
    /// [`STOP`] and [`LAST`]. A word as wide as its neighbour: zeros of odd sizes are written in stores that overlap.
    flags: AtomicU32,
    /// Stated by the call, the same for each attempt.
    pub(crate) idempotency_key: Option<Arc<str>>,
    /// Who waits for the cancellation. A leaf lock; wakers are woken and dropped after it.
    wakers: Mutex<Wakers>,
}

impl Attempt {
    #[inline(always)]
    pub(crate) fn new(clock: ClockHandle, epoch: Instant) -> Self {
        Self {
            clock,
            epoch,
            deadline: AtomicU64::new(u64::MAX),
            number: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            idempotency_key: None,
            wakers: Mutex::new(None),
        }
    }

    /// Which attempt of its call this is; the first is 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// When this attempt's time is up: the earlier of its own timeout and the caller's deadline. `None` if neither
    /// was set.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Ordering::Relaxed) {
            u64::MAX => None,
            nanos => self.epoch.checked_add(Duration::from_nanos(nanos)),
        }
    }

    /// How long is left until [`deadline`](Self::deadline); zero past it. `None` if there is no deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline()
            .map(|deadline| deadline.saturating_duration_since(self.clock.now()))
    }

    /// The idempotency key that the call states, the same for each of its attempts: send it along, so that the receiver
    /// can tell a repetition.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// Whether the attempt is to stop: its deadline has passed, or the caller has left.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.flags.load(Ordering::Acquire) & STOP != 0
    }

    /// Completes when the attempt is to stop.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; a new one completes at once if the attempt is to stop already.
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled {
            attempt: self,
            index: None,
        }
    }

    /// No other attempt follows this one, whatever the policy says and however this one ends: its input is spent, a
    /// body that was streamed, say.
    ///
    /// ```
    /// use bursar::{Classify, Policy, Retry, Runtime};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().resource("uplink", 4).build()?;
    /// let policy = Policy::idempotent().claim("uplink", 1).retry(Retry::up_to(3).on_transient());
    /// let upload = runtime.contract("upload", policy)?;
    ///
    /// let mut call = upload.with();
    /// let result = call
    ///     .run(|attempt| {
    ///         attempt.forbid_retry();
    ///         async { Err::<(), _>("connection refused").transient() }
    ///     })
    ///     .await;
    /// assert_eq!(result.unwrap_err().attempts(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn forbid_retry(&self) {
        self.flags.fetch_or(LAST, Ordering::Relaxed);
    }

    pub(crate) fn is_last(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & LAST != 0
    }

    pub(crate) fn begin(&self, number: u32, deadline: Option<Instant>) {
        let nanos = deadline.map_or(u64::MAX, |deadline| {
            let nanos = deadline.saturating_duration_since(self.epoch).as_nanos();
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        self.deadline.store(nanos, Ordering::Relaxed);
        self.flags.store(0, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
    }

    /// Sets the flag, then wakes who waits for it.
    pub(crate) fn cancel(&self) {
        // Release: a handler on another thread that sees the flag sees what led to it.
        self.flags.fetch_or(STOP, Ordering::Release);
        let mut wakes = WakeList::new();
        let mut wakers = self.wakers();
        for (_, waker) in wakers.iter_mut().flat_map(|wakers| wakers.iter_mut()) {
            if let Some(waker) = waker.take() {
                wakes.push(waker);
            }
        }
        drop(wakers);
        drop(wakes);
    }

    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        lock_plain(&self.wakers)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("number", &self.number())
            .field("deadline", &self.deadline())
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Completes when an attempt is to stop; see [`Attempt::cancelled`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Cancelled<'a> {
    attempt: &'a Attempt,
    index: Option<usize>,
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let attempt = self.attempt;
        if attempt.is_cancelled() {
            return Poll::Ready(());
        }
        let waker = Some(cx.waker().clone());
        let mut guard = attempt.wakers();
        let wakers = guard.get_or_insert_default();
        let old = match self.index {
            Some(index) => std::mem::replace(&mut wakers[index], waker),
            None => {
                self.index = Some(wakers.insert(waker));
                None
            }
        };
        drop(guard);
        drop(old);
        // Set before the lock was taken, the flag has found no waker to wake.
        if attempt.is_cancelled() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            let mut wakers = self.attempt.wakers();
            let waker = wakers.as_mut().map(|wakers| wakers.remove(index));
            drop(wakers);
            drop(waker);
        }
    }
}

/// How the path of a call tells an attempt to its handler. The short forms lend nothing and pay nothing.
pub(crate) trait Lend {
    fn begin(&self, number: u32, deadline: Option<Instant>);
    fn cancel(&self);
    fn is_last(&self) -> bool;
}

impl Lend for () {
    fn begin(&self, _: u32, _: Option<Instant>) {}
    fn cancel(&self) {}
    fn is_last(&self) -> bool {
        false
    }
}

impl Lend for &Attempt {
    fn begin(&self, number: u32, deadline: Option<Instant>) {
        Attempt::begin(self, number, deadline);
    }

    fn cancel(&self) {
        Attempt::cancel(self);
    }

    fn is_last(&self) -> bool {
        Attempt::is_last(self)
    }
}
