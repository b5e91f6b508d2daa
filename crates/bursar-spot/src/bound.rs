//! How long something may wait: a send timeout, or what a chain that holds something allows.

use std::fmt;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bursar::{Timer, seam};

use crate::shared::Shared;

/// Stands for no bound: about a thousand years.
const FAR: Duration = Duration::from_secs(1 << 35);

/// A moment after which nobody waits any more; none is made until somebody waits.
pub(crate) struct Bound {
    span: Duration,
    timer: Option<Timer>,
    /// A timer that has completed must not be polled again.
    passed: bool,
}

impl Bound {
    pub(crate) const fn of(span: Duration) -> Self {
        Self {
            span,
            timer: None,
            passed: false,
        }
    }

    /// The bound of what waits here: others may wait for what its chain holds, and each for the other.
    pub(crate) fn of_chain(shared: &Shared) -> Option<Self> {
        seam::holds_something().then(|| Self::of(shared.nested_wait))
    }

    /// Whether it has been found passed.
    pub(crate) fn has_passed(&self) -> bool {
        self.passed
    }

    /// Ready once it has passed, counted from the first time this is asked.
    pub(crate) fn poll(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<()> {
        if self.passed {
            return Poll::Ready(());
        }
        let timer = match &mut self.timer {
            Some(timer) => timer,
            None if self.span > FAR => return Poll::Pending,
            none => {
                let now = shared.clock.now();
                let at = now.checked_add(self.span).unwrap_or(now + FAR);
                none.insert(shared.clock.sleep_until(at))
            }
        };
        ready!(timer.as_mut().poll(cx));
        self.passed = true;
        Poll::Ready(())
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bound").field(&self.span).finish()
    }
}
