//! What both databases have in common: the errors of sqlx itself, by the name of their variant.

use ::sqlx::Error;
use bursar::Outcome::{Permanent, Throttled, Transient};

use crate::table::{Row, find};
use crate::{Phase, io};

#[rustfmt::skip]
pub(crate) const TABLE: &[Row] = &[
    Row::settled(&["PoolTimedOut"], "", Throttled,
        "No connection came free, or came about, in time: nothing was sent."),
    Row::settled(&["PoolClosed"], "", Permanent,
        "The pool was closed, for good."),
    Row::settled(&["RowNotFound"], "", Permanent,
        "An answer: the statement ran to its end, and this is what it found."),
    Row::open(&["ColumnIndexOutOfBounds", "ColumnNotFound", "ColumnDecode", "Decode"], "", Permanent,
        "The statement ran, and its answer could not be read: what it wrote is written."),
    Row::settled(&["Configuration", "InvalidArgument", "TypeNotFound", "Encode", "InvalidSavePointStatement", "BeginFailed"], "", Permanent,
        "Refused before the statement was executed."),
    Row::open(&["WorkerCrashed"], "", Transient,
        "The thread that drives SQLite is gone, and with it the connection."),
    Row::settled(&["Io: NotFound"], "", Transient,
        "There is no socket file: the server does not run."),
    Row::open(&["Tls"], "", Permanent,
        "No trust in the other side, and none the next time. If the connection was lost, as Io."),
    Row::open(&["Protocol"], "", Permanent,
        "The other side said something unexpected: what it did is not known."),
    Row::open(&["*"], "any other variant", Permanent,
        "Nothing is known about it."),
];

/// What decides about an error that is not the database's own answer. Lost connections are `io`'s matter.
pub(crate) fn row(error: &Error) -> &'static Row {
    match error {
        Error::Io(lost) => connection(lost),
        Error::Tls(why) => match why.downcast_ref::<std::io::Error>() {
            // rustls says by this kind that it does not trust what it was shown.
            Some(lost) if lost.kind() != std::io::ErrorKind::InvalidData => connection(lost),
            _ => find(TABLE, "Tls"),
        },
        other => find(TABLE, named(other)),
    }
}

fn connection(lost: &std::io::Error) -> &'static Row {
    match lost.kind() {
        std::io::ErrorKind::NotFound => find(TABLE, "Io: NotFound"),
        _ => io::row(lost),
    }
}

pub(crate) fn named(error: &Error) -> &'static str {
    match error {
        Error::Configuration(_) => "Configuration",
        Error::InvalidArgument(_) => "InvalidArgument",
        Error::Protocol(_) => "Protocol",
        Error::RowNotFound => "RowNotFound",
        Error::TypeNotFound { .. } => "TypeNotFound",
        Error::ColumnIndexOutOfBounds { .. } => "ColumnIndexOutOfBounds",
        Error::ColumnNotFound(_) => "ColumnNotFound",
        Error::ColumnDecode { .. } => "ColumnDecode",
        Error::Encode(_) => "Encode",
        Error::Decode(_) => "Decode",
        Error::PoolTimedOut => "PoolTimedOut",
        Error::PoolClosed => "PoolClosed",
        Error::WorkerCrashed => "WorkerCrashed",
        Error::InvalidSavePointStatement => "InvalidSavePointStatement",
        Error::BeginFailed => "BeginFailed",
        _ => "*",
    }
}

/// What an error that is not the database's own answer means.
pub(crate) fn outcome(error: &Error, phase: Phase) -> bursar::Outcome {
    row(error).outcome(phase)
}
