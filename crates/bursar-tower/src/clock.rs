//! Time: the one place that reads the ambient clock and arms a timer.
//!
//! It is tokio's, as is a runtime's by default, so that moments told here mean the same there, under a paused clock in
//! tests too.

use std::time::{Duration, Instant, SystemTime};

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time of day, for dates that servers send.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]
pub(crate) fn time_of_day() -> SystemTime {
    SystemTime::now()
}

/// The moment `span` from now; `None` if no clock tells it.
pub(crate) fn after(span: Duration) -> Option<Instant> {
    now().checked_add(span)
}

/// Completes at that moment, or never.
#[expect(clippy::disallowed_methods, reason = "the one place that arms a timer")]
pub(crate) async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
