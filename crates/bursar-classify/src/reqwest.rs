//! What a `reqwest::Error` means, and a response that is a failure.
//!
//! 1. What never had a connection did not take effect; see [`hyper`](crate::hyper) for what else is known to.
//! 2. A failed status is decided by [`http`](crate::http). `error_for_status` loses the headers: [`answer`] takes its place.
//! 3. An answer that came and cannot be read comes from a request that was carried out.

use ::reqwest::{Error, Response};
use bursar::Outcome::{self, Permanent};
use bursar::{Effect, Failure, retry_after};

use crate::Phase;
use crate::http::status;
use crate::hyper::{connect, of_chain};
use crate::table::{Row, find};

/// By what the error shows; what is not here is decided by the tables of hyper and of HTTP's statuses.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["builder"], "the request could not be built", Permanent,
        "Refused before anything was sent."),
    Row::settled(&["redirect"], "too many redirects, or none to follow", Permanent,
        "The servers answered, and would send it in the same circle again."),
    Row::open(&["timeout"], "no answer in time", Outcome::Uncertain,
        "Unless it was the connection that came about too late."),
    Row::open(&["decode"], "the body makes no sense", Outcome::Uncertain,
        "The server had answered: what was asked for was carried out."),
    Row::open(&["*"], "anything else", Outcome::Uncertain,
        "Bytes may have left."),
];

/// What an error of reqwest means.
///
/// The status of an error that `error_for_status` made counts as one of a request that must not be repeated, and without
/// `Retry-After`: the error holds neither. [`answer`] knows both.
#[must_use]
pub fn outcome(error: &Error) -> Outcome {
    if let Some(failed) = error.status() {
        if let Some(outcome) = status(failed.as_u16(), false, Effect::NonIdempotent) {
            return outcome;
        }
    }
    if error.is_connect() {
        return connect(error);
    }
    let seen = if error.is_builder() {
        "builder"
    } else if error.is_redirect() {
        "redirect"
    } else if error.is_timeout() {
        "timeout"
    } else if error.is_decode() {
        "decode"
    } else {
        return of_chain(error).unwrap_or_else(|| decided("*"));
    };
    decided(seen)
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: Error) -> Failure<Error> {
    let outcome = outcome(&error);
    Failure::classified(error, outcome)
}

/// The response, or, if its status is a failure, that failure; with the server's `Retry-After` as its pushback.
///
/// ```no_run
/// # async fn ask() -> Result<String, bursar::Failure<reqwest::Error>> {
/// use bursar::Effect;
/// use bursar_classify::reqwest::{answer, failure};
///
/// let response = reqwest::get("http://localhost/rates").await.map_err(failure)?;
/// let rates = answer(response, Effect::Pure)?.text().await.map_err(failure)?;
/// # Ok(rates) }
/// ```
///
/// # Errors
/// The failed status, classified.
pub fn answer(response: Response, effect: Effect) -> Result<Response, Failure<Error>> {
    let headers = response.headers();
    let pause = headers
        .get(http::header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| retry_after(value, std::time::SystemTime::now()));
    let outcome = status(response.status().as_u16(), pause.is_some(), effect);
    response.error_for_status().map_err(|error| {
        let failure = Failure::classified(error, outcome);
        match pause {
            Some(pause) => failure.after(pause),
            None => failure,
        }
    })
}

fn decided(seen: &str) -> Outcome {
    find(TABLE, seen).outcome(Phase::Autocommit)
}
