//! What hyper and the connector say of a request that has no answer, in the crate's own words.

use std::error::Error as StdError;

use bursar::Outcome;
use hyper_util::client::legacy;

use super::connect::ConnectError;
use crate::error::{BoxError, Error, ErrorKind};
use crate::verdict::Sent;

/// What hyper's error means, given what is known to have left, and whether the request's own body failed: hyper calls it a
/// user's error, too, that a connection went with its runtime.
pub(super) fn failed(error: BoxError, sent: Sent, body_failed: bool) -> Error {
    let mut sent = sent;
    let mut kind = ErrorKind::Unavailable;
    let mut what = match sent {
        Sent::Perhaps => "the connection was lost after the request may have been sent",
        Sent::Nothing | Sent::Refused => "the connection was lost before anything was sent",
    };
    let mut permanent = false;
    for source in chain(&*error) {
        if let Some(connect) = source.downcast_ref::<ConnectError>() {
            what = connect.what();
            permanent = connect.permanent;
            break;
        }
        if source.downcast_ref::<h2::Error>().is_some_and(is_refusal) {
            what = "the server gave the request back unexecuted";
            if sent == Sent::Perhaps {
                sent = Sent::Refused;
            }
            break;
        }
        let Some(hyper) = source.downcast_ref::<hyper::Error>() else {
            continue;
        };
        if hyper.is_user() && body_failed {
            kind = ErrorKind::InternalFailure;
            what = "the request's own body failed";
        } else if hyper.is_parse() {
            kind = ErrorKind::ProtocolError;
            what = "the answer is no HTTP that can be read";
        }
    }
    let outcome = if permanent {
        Outcome::Permanent
    } else {
        sent.outcome()
    };
    Error::new(kind, outcome, what).because(error)
}

/// Whether an HTTP/2 peer said that it did not execute the request: it refused the stream, or it is going away and the
/// stream lies above the last one it took (h2 tells that of no other stream).
fn is_refusal(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Whether the request waited for a connection that somebody else was opening, who has left.
pub(super) fn lost_its_place(error: &legacy::Error) -> bool {
    chain(error).all(|source| {
        !source.is::<ConnectError>()
            && !source.is::<hyper::Error>()
            && !source.is::<std::io::Error>()
    })
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The attempt's time was up.
pub(super) fn elapsed(sent: Sent) -> Error {
    let what = match sent {
        Sent::Perhaps => "no answer came in time",
        Sent::Nothing | Sent::Refused => "the request could not be sent in time",
    };
    Error::new(ErrorKind::DeadlineExceeded, sent.outcome(), what)
}
