//! What a `hyper::Error` means, and an error of the pooled client in hyper-util.
//!
//! 1. Three things are known not to have taken effect: what never had a connection, what hyper gave back untouched, and what the
//!    peer refused as a stream of HTTP/2 (`REFUSED_STREAM`).
//! 2. Of everything else bytes may have left. `GOAWAY` too: the error does not tell whether the request came before it.

use std::error::Error as StdError;
use std::io::ErrorKind;

use ::hyper::Error;
use ::hyper_util::client::legacy;
use bursar::Failure;
use bursar::Outcome::{self, Permanent, Transient};

use crate::Phase;
use crate::table::{Row, find};

/// By what the error shows. An exchange has no phases: what the error shows holds for the whole of it.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["connect: InvalidData"], "no connection, for want of trust", Permanent,
        "TLS said so: the certificate, or the name in it. Nothing was sent."),
    Row::settled(&["connect"], "no connection", Transient,
        "Not resolved, refused, unreachable, too late: nothing was sent."),
    Row::settled(&["canceled"], "hyper gave the request back", Transient,
        "The connection closed before it took the request up: nothing was sent."),
    Row::settled(&["REFUSED_STREAM"], "refused by the peer", Transient,
        "The peer says that it did not carry it out."),
    Row::open(&["*"], "anything else", Outcome::Uncertain,
        "Bytes may have left: lost in the middle, unreadable, reset, GOAWAY, a body that failed."),
];

/// What an error of a connection means.
#[must_use]
pub fn outcome(error: &Error) -> Outcome {
    of_chain(error).unwrap_or(Outcome::Uncertain)
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: Error) -> Failure<Error> {
    let outcome = outcome(&error);
    Failure::classified(error, outcome)
}

/// What an error of hyper-util's pooled client means.
///
/// ```no_run
/// use bursar::Failure;
/// use bursar_classify::hyper::client_failure;
/// use http_body_util::Empty;
/// use hyper_util::client::legacy::{Client, Error, connect::HttpConnector};
///
/// type Pooled = Client<HttpConnector, Empty<bytes::Bytes>>;
///
/// async fn fetch(client: &Pooled, from: http::Uri) -> Result<http::StatusCode, Failure<Error>> {
///     Ok(client.get(from).await.map_err(client_failure)?.status())
/// }
/// ```
#[must_use]
pub fn client_outcome(error: &legacy::Error) -> Outcome {
    if error.is_connect() {
        return connect(error);
    }
    of_chain(error).unwrap_or(Outcome::Uncertain)
}

/// The error as a failure that means what [`client_outcome`] says.
#[must_use]
pub fn client_failure(error: legacy::Error) -> Failure<legacy::Error> {
    let outcome = client_outcome(&error);
    Failure::classified(error, outcome)
}

/// What it means that no connection came about.
pub(crate) fn connect(error: &(dyn StdError + 'static)) -> Outcome {
    let distrust = chain(error).any(|cause| {
        // rustls says by this kind that it does not trust what it was shown.
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|lost| lost.kind() == ErrorKind::InvalidData)
    });
    decided(if distrust {
        "connect: InvalidData"
    } else {
        "connect"
    })
}

/// What is known by the errors of hyper and HTTP/2 below this one. `None` if there are none.
pub(crate) fn of_chain(error: &(dyn StdError + 'static)) -> Option<Outcome> {
    let mut known = None;
    for cause in chain(error) {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            let refused =
                h2.is_reset() && h2.is_remote() && h2.reason() == Some(h2::Reason::REFUSED_STREAM);
            return Some(decided(if refused { "REFUSED_STREAM" } else { "*" }));
        }
        if let Some(hyper) = cause.downcast_ref::<Error>() {
            if hyper.is_canceled() {
                return Some(decided("canceled"));
            }
            known = Some(decided("*"));
        }
    }
    known
}

fn decided(seen: &str) -> Outcome {
    find(TABLE, seen).outcome(Phase::Autocommit)
}

/// The error and what lies below it.
pub(crate) fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| below(*error))
}

fn below<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    // An I/O error that wraps another passes that one over in its own chain.
    match error.downcast_ref::<std::io::Error>() {
        Some(lost) => lost.get_ref().map(|inner| inner as _),
        None => error.source(),
    }
}
