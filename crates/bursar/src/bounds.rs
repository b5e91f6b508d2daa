//! How a caller bounds a call: a deadline, a token, both or nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::{Duration, Instant};

use crate::clock::{ClockHandle, earlier};

/// A caller's bounds, as the path of a call asks for them. A call without bounds pays nothing for them.
pub(crate) trait Bounds {
    /// False when nothing is bounded.
    fn any(&self) -> bool;

    /// Fixes what counts from the call's first poll; later calls change nothing.
    fn begin(&mut self, clock: &ClockHandle);

    /// Whether the caller's token has fired; if not, the task is woken when it does.
    fn left(&mut self, cx: &mut Context<'_>) -> bool;

    fn deadline(&self) -> Option<Instant>;
}

/// No bounds.
#[derive(Debug)]
pub(crate) struct Unbounded;

impl Bounds for Unbounded {
    #[inline]
    fn any(&self) -> bool {
        false
    }

    fn begin(&mut self, _: &ClockHandle) {}

    fn left(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// The bounds stated on a call's builder.
#[derive(Default)]
pub(crate) struct Bounded<'c> {
    /// Counted anew from the first poll of each run.
    pub(crate) within: Option<Duration>,
    /// Stated as a moment.
    pub(crate) until: Option<Instant>,
    pub(crate) token: Option<Token<'c>>,
    /// The earlier of the two, fixed at the first poll.
    deadline: Option<Instant>,
    begun: bool,
}

impl Bounded<'_> {
    /// For a new run.
    pub(crate) fn anew(&mut self) -> &mut Self {
        self.begun = false;
        // One that was stated for the run before may have been taken back.
        self.deadline = None;
        self
    }
}

/// A future that stands for the caller's presence. Boxed, so that it may be of any type and outlast a run.
pub(crate) struct Token<'c> {
    future: Option<Pin<Box<dyn Future<Output = ()> + Send + 'c>>>,
}

impl<'c> Token<'c> {
    pub(crate) fn new(future: impl Future + Send + 'c) -> Self {
        Self {
            future: Some(Box::pin(unconstrained(async move {
                future.await;
            }))),
        }
    }
}

/// A token that has fired is seen at once: tokio's own futures say so only while their task's cooperation budget lasts.
#[cfg(feature = "tokio")]
fn unconstrained<F: Future>(token: F) -> impl Future<Output = F::Output> {
    tokio::task::unconstrained(token)
}

#[cfg(not(feature = "tokio"))]
fn unconstrained<F: Future>(token: F) -> impl Future<Output = F::Output> {
    token
}

impl Bounds for &mut Bounded<'_> {
    #[inline]
    fn any(&self) -> bool {
        self.within.is_some() || self.until.is_some() || self.token.is_some()
    }

    fn begin(&mut self, clock: &ClockHandle) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let within = self.within.and_then(|within| clock.after(within));
        self.deadline = earlier(within, self.until);
    }

    #[inline]
    fn left(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(token) = &mut self.token else {
            return false;
        };
        if let Some(future) = &mut token.future {
            if future.as_mut().poll(cx).is_pending() {
                return false;
            }
            // Fired once, it stays fired: for the next run of the same builder too.
            token.future = None;
        }
        true
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

impl<B: Bounds> Bounds for Option<B> {
    #[inline]
    fn any(&self) -> bool {
        self.as_ref().is_some_and(B::any)
    }

    fn begin(&mut self, clock: &ClockHandle) {
        if let Some(bounds) = self {
            bounds.begin(clock);
        }
    }

    #[inline]
    fn left(&mut self, cx: &mut Context<'_>) -> bool {
        self.as_mut().is_some_and(|bounds| bounds.left(cx))
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.as_ref().and_then(B::deadline)
    }
}

impl fmt::Debug for Bounded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded")
            .field("within", &self.within)
            .field("until", &self.until)
            .field("token", &self.token.is_some())
            .finish()
    }
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    #[test]
    fn who_states_no_bound_goes_the_short_way() {
        let stated = |state: fn(&mut Bounded<'_>)| {
            let mut bounds = Bounded::default();
            state(&mut bounds);
            Some(&mut bounds).any()
        };
        assert!(!Unbounded.any() && !None::<Unbounded>.any() && !Some(Unbounded).any());
        assert!(!stated(|_| {}));
        assert!(stated(|of| of.within = Some(Duration::ZERO)));
        assert!(stated(|of| of.until = Some(ManualClock::new().now())));
        assert!(stated(|of| of.token = Some(Token::new(async {}))));
    }
}
