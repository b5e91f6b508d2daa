//! What a `tonic::Status` means.
//!
//! 1. A status that tonic made itself has a source: what lies in it decides first, see [`hyper`](crate::hyper).
//! 2. A status that the server sent is decided by its code. A code is the server's word: one that lies cannot be found out.
//! 3. A pushback that the server sent (`grpc-retry-pushback-ms`) becomes the failure's; one that asks for no retry makes a
//!    failure that would be repeated `Permanent`.

use std::error::Error as _;
use std::time::Duration;

use ::tonic::{Code, ConnectError, Status};
use bursar::Failure;
use bursar::Outcome::{self, Permanent, Throttled, Transient};

use crate::Phase;
use crate::hyper::{chain, connect, of_chain};
use crate::table::{Row, find};

/// By code. An exchange has no phases: what a code says holds for the whole call.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["RESOURCE_EXHAUSTED"], "", Throttled,
        "Refused for want of capacity, or past a quota. Where responses are compressed tonic says so too of one that unpacks past its limit: set that limit high."),
    Row::settled(&["ABORTED"], "", Transient,
        "Given up because of others, such as a transaction; it may be begun anew."),
    Row::open(&["UNAVAILABLE"], "", Outcome::Uncertain,
        "Said of a server that takes no calls, and of one that was lost in the middle of this one."),
    Row::open(&["DEADLINE_EXCEEDED", "CANCELLED"], "", Outcome::Uncertain,
        "The server may be at it still, or done."),
    Row::open(&["UNKNOWN", "INTERNAL", "DATA_LOSS"], "", Outcome::Uncertain,
        "The server failed, before the effect or after it."),
    Row::open(&["OUT_OF_RANGE"], "", Outcome::Uncertain,
        "tonic itself says so of an answer that is larger than its limit: what was asked for was carried out then."),
    Row::settled(&["INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION", "UNIMPLEMENTED", "UNAUTHENTICATED"], "", Permanent,
        "The server will not, and did not."),
    Row::open(&["*"], "any other code", Outcome::Uncertain,
        "Nothing is known about it."),
];

/// What a status means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::tonic::outcome;
/// use tonic::Status;
///
/// assert_eq!(outcome(&Status::aborted("conflict")), Outcome::Transient);
/// assert_eq!(outcome(&Status::unavailable("going down")), Outcome::Uncertain);
/// ```
#[must_use]
pub fn outcome(status: &Status) -> Outcome {
    if let Some(source) = status.source() {
        let unconnected = chain(source).any(|cause| cause.is::<ConnectError>());
        let known = match unconnected {
            true => Some(connect(source)),
            false => of_chain(source),
        };
        if let Some(outcome) = known {
            return outcome;
        }
    }
    find(TABLE, named(status.code())).outcome(Phase::Autocommit)
}

/// The status as a failure that means what [`outcome`] says, with the server's pushback.
#[must_use]
pub fn failure(status: Status) -> Failure<Status> {
    let outcome = outcome(&status);
    match pushback(&status) {
        None => Failure::classified(status, outcome),
        Some(Some(pause)) => Failure::classified(status, outcome).after(pause),
        // Uncertain stays so: it is no word about repeating.
        Some(None) => Failure::classified(
            status,
            match outcome {
                Transient | Throttled => Permanent,
                other => other,
            },
        ),
    }
}

/// How long the server asks to be left alone; `Some(None)` for good, which is how the protocol reads what is no number of
/// milliseconds.
fn pushback(status: &Status) -> Option<Option<Duration>> {
    let asked = status.metadata().get("grpc-retry-pushback-ms")?;
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let text = asked.to_str().ok().filter(digits);
    let millis = text.and_then(|text| text.parse().ok());
    Some(millis.map(Duration::from_millis))
}

fn named(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
