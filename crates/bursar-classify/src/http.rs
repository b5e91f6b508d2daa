//! What a status of HTTP means.
//!
//! 1. A request that was refused for load was not carried out: so say 429 and 425, and 503 that names a time to come back. The
//!    last is the word of a gateway as often as the server's, so it is trusted only for what may be repeated anyway.
//! 2. Any other failure of a server may have come after the effect.

use bursar::Effect;
use bursar::Outcome::{self, Permanent, Throttled};

use crate::Phase;
use crate::table::{Row, exact, find};

/// By status. A response knows no phases: what a status says holds for the whole request.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["429"], "Too Many Requests", Throttled,
        "Refused for load, before it was carried out."),
    Row::settled(&["425"], "Too Early", Throttled,
        "Refused because it might have been replayed; sent again it is taken."),
    Row::settled(&["503 with Retry-After, pure or idempotent"], "Service Unavailable", Throttled,
        "Refused for load, with a time to come back."),
    Row::open(&["503"], "Service Unavailable", Outcome::Uncertain,
        "A gateway says it also of a server that was lost in the middle."),
    Row::open(&["408"], "Request Timeout", Outcome::Uncertain,
        "An idle connection is closed with it too, and it can be taken for the answer to what was just sent."),
    Row::settled(&["501", "505"], "Not Implemented, HTTP Version Not Supported", Permanent,
        "The server cannot, and did not."),
    Row::settled(&["4xx"], "any other refusal", Permanent,
        "The server will not, and did not."),
    Row::open(&["5xx"], "any other failure", Outcome::Uncertain,
        "The server failed, before the effect or after it."),
    Row::open(&["*"], "what is no failure, or no status", Outcome::Uncertain,
        "It was not asked as a failure, so nothing is known."),
];

/// What a failed status means. `None` for one below 400, which is no failure.
///
/// `retry_after`: whether the answer has a `Retry-After` that can be read; [`bursar::retry_after`] reads it.
///
/// ```
/// use bursar::{Effect, Outcome};
/// use bursar_classify::http::status;
///
/// assert_eq!(status(429, false, Effect::NonIdempotent), Some(Outcome::Throttled));
/// assert_eq!(status(500, false, Effect::NonIdempotent), Some(Outcome::Uncertain));
/// assert_eq!(status(503, true, Effect::Idempotent), Some(Outcome::Throttled));
/// assert_eq!(status(204, false, Effect::Pure), None);
/// ```
#[must_use]
pub fn status(status: u16, retry_after: bool, effect: Effect) -> Option<Outcome> {
    let row = match status {
        ..400 => return None,
        503 if retry_after && effect != Effect::NonIdempotent => {
            find(TABLE, "503 with Retry-After, pure or idempotent")
        }
        400..500 => exact(TABLE, &status.to_string()).unwrap_or_else(|| find(TABLE, "4xx")),
        500..600 => exact(TABLE, &status.to_string()).unwrap_or_else(|| find(TABLE, "5xx")),
        _ => find(TABLE, "*"),
    };
    Some(row.outcome(Phase::Autocommit))
}
