//! What an error of `std::io` means: of a socket, a pipe, a file.
//!
//! 1. Only what is refused before a byte moves settles anything; whatever ends a conversation leaves open how far it came.
//! 2. A plain file has no transactions: what an error interrupted may be there in part. Write beside it and rename: the writing is
//!    [`Phase::InTransaction`] then, and the rename [`Phase::Commit`].

use std::io::{Error, ErrorKind};

use bursar::Failure;
use bursar::Outcome::{self, Permanent, Throttled, Transient};

use crate::Phase;
use crate::table::{Row, find};

/// By the kind's name; `EMFILE` and `ENFILE`, which have no kind, by their number.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["ConnectionRefused"], "nobody listens", Transient,
        "No connection came about, so nothing was sent."),
    Row::settled(&["AddrNotAvailable", "EMFILE", "ENFILE"], "no local port or descriptor left", Throttled,
        "This machine's own capacity is used up; nothing was sent."),
    Row::settled(&["ResourceBusy", "ExecutableFileBusy", "Deadlock"], "in use, or a lock that would deadlock", Transient,
        "Refused because of somebody else, for now."),
    Row::open(&["ConnectionReset", "ConnectionAborted", "BrokenPipe", "NotConnected", "UnexpectedEof", "WriteZero"], "the connection is lost", Transient,
        "The other side may have acted on what it had read."),
    Row::open(&["TimedOut", "WouldBlock", "Interrupted"], "no answer in time", Transient,
        "The other side may be acting on it still."),
    Row::open(&["HostUnreachable", "NetworkUnreachable", "NetworkDown"], "the network is gone", Transient,
        "In the middle of a conversation it cuts off the answer too."),
    Row::open(&["StorageFull", "QuotaExceeded", "FileTooLarge", "OutOfMemory"], "no room", Throttled,
        "Part of it may have been written."),
    Row::open(&["InvalidData"], "what came makes no sense", Permanent,
        "The other side answered, and had acted before it did."),
    Row::settled(&["NotFound", "PermissionDenied", "AlreadyExists", "InvalidInput", "Unsupported",
            "AddrInUse", "IsADirectory", "NotADirectory", "DirectoryNotEmpty", "ReadOnlyFilesystem", "CrossesDevices"],
        "refused as it was asked", Permanent,
        "Nothing was done, and the same request would be refused again."),
    Row::open(&["*"], "any other kind", Transient,
        "A name that could not be resolved is among them. Before anything was sent another try does no harm."),
];

/// What an I/O error means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, io::outcome};
/// use std::io::{Error, ErrorKind};
///
/// let refused = Error::from(ErrorKind::ConnectionRefused);
/// assert_eq!(outcome(&refused, Phase::Autocommit), Outcome::Transient);
///
/// let reset = Error::from(ErrorKind::ConnectionReset);
/// assert_eq!(outcome(&reset, Phase::Acquire), Outcome::Transient);
/// assert_eq!(outcome(&reset, Phase::Autocommit), Outcome::Uncertain);
/// ```
#[must_use]
pub fn outcome(error: &Error, phase: Phase) -> Outcome {
    row(error).outcome(phase)
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: Error, phase: Phase) -> Failure<Error> {
    let outcome = outcome(&error, phase);
    Failure::classified(error, outcome)
}

/// The row that decides about an error.
#[must_use]
pub fn row(error: &Error) -> &'static Row {
    find(TABLE, seen(error))
}

pub(crate) fn seen(error: &Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        // POSIX numbers them alike wherever Rust runs.
        (_, Some(24)) if cfg!(unix) => "EMFILE",
        (_, Some(23)) if cfg!(unix) => "ENFILE",
        (kind, _) => named(kind),
    }
}

macro_rules! names {
    ($($kind:ident)*) => {
        fn named(kind: ErrorKind) -> &'static str {
            match kind {
                $(ErrorKind::$kind => stringify!($kind),)*
                _ => "*",
            }
        }

        /// Every kind that the table names.
        #[cfg(test)]
        const NAMED: &[ErrorKind] = &[$(ErrorKind::$kind),*];
    };
}

names! {
    AddrInUse AddrNotAvailable AlreadyExists BrokenPipe ConnectionAborted ConnectionRefused ConnectionReset CrossesDevices Deadlock
    DirectoryNotEmpty ExecutableFileBusy FileTooLarge HostUnreachable Interrupted InvalidData InvalidInput
    IsADirectory NetworkDown NetworkUnreachable NotADirectory NotConnected NotFound OutOfMemory PermissionDenied QuotaExceeded
    ReadOnlyFilesystem ResourceBusy StorageFull TimedOut UnexpectedEof Unsupported WouldBlock WriteZero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_names_are_the_same() {
        for kind in NAMED {
            assert!(
                crate::table::exact(TABLE, named(*kind)).is_some(),
                "{kind:?} has no row"
            );
        }
        let names: Vec<_> = NAMED.iter().map(|kind| named(*kind)).collect();
        for seen in TABLE.iter().flat_map(|row| row.seen) {
            let by_number = ["EMFILE", "ENFILE", "*"].contains(seen);
            assert!(
                by_number || names.contains(seen),
                "nothing is ever called {seen}"
            );
        }
    }
}
