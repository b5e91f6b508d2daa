//! tokio's timer, in a place that is kept for the thread's next one.
//!
//! A timer is armed each time a handler with a timeout suspends, and seldom rings. Of 333 ns that such a call takes, making and
//! freeing a box for it were 13.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

use super::{FAR, tokio_now};

type Place = Pin<Box<Option<Sleep>>>;

thread_local! {
    /// An empty place. One is enough: where many timers are armed at once, a box more or less is not what counts.
    static SPARE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Completes at a moment of tokio's clock.
pub(super) struct Sleeper {
    /// `None` only while it is being dropped.
    place: Option<Place>,
}

impl Sleeper {
    pub(super) fn until(deadline: Instant) -> Self {
        // While a thread ends, its spare place may be gone.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let mut place = spare.unwrap_or_else(|| Box::pin(None));
        place.as_mut().set(Some(sleep_until(deadline)));
        Self { place: Some(place) }
    }

    pub(super) fn is_for(&self, deadline: Instant) -> bool {
        let place = self.place.as_ref().map(|place| place.as_ref());
        match place.and_then(Option::as_pin_ref) {
            Some(sleep) => sleep.deadline().into_std() == clamped(deadline),
            None => false,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that arms a timer")]
pub(super) fn sleep_until(deadline: Instant) -> Sleep {
    tokio::time::sleep_until(clamped(deadline).into())
}

/// Tokio rounds up, and must have room to.
fn clamped(deadline: Instant) -> Instant {
    // Kept, since reading the clock for it costs more than the rest.
    static FARTHEST: OnceLock<Instant> = OnceLock::new();
    deadline.min(*FARTHEST.get_or_init(|| tokio_now() + FAR))
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let place = self.place.as_mut().map(Pin::as_mut);
        match place.and_then(Option::as_pin_mut) {
            Some(sleep) => sleep.poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(mut place) = self.place.take() {
            place.as_mut().set(None);
            // Gone while the thread ends: then the place goes too.
            let _gone = SPARE.try_with(|spare| spare.set(Some(place)));
        }
    }
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_armed_once_for_a_moment_however_far_away() {
        let now = tokio_now();
        for moment in [now, now + Duration::from_secs(1), now + FAR + FAR] {
            assert!(Sleeper::until(moment).is_for(moment));
        }
        assert!(!Sleeper::until(now).is_for(now + Duration::from_millis(1)));
    }
}
