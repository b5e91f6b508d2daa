//! What a `rusqlite::Error` means.
//!
//! 1. What SQLite answered is decided by its extended result code, see [`sqlite`](crate::sqlite).
//! 2. The rest is rusqlite's own. It reads rows while the statement runs, so an answer that cannot be read comes after the write.

use ::rusqlite::Error;
use bursar::Failure;
use bursar::Outcome::{self, Permanent};

use crate::Phase;
use crate::sqlite::result_code;
use crate::table::{Row, find};

/// The errors of rusqlite itself, by the name of their variant.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["QueryReturnedNoRows"], "", Permanent,
        "An answer: the statement ran to its end, and this is what it found."),
    Row::open(&["FromSqlConversionFailure", "IntegralValueOutOfRange", "Utf8Error", "InvalidColumnIndex", "InvalidColumnName", "InvalidColumnType"], "", Permanent,
        "The statement ran, and its answer could not be read: what it wrote is written."),
    Row::open(&["ExecuteReturnedResults", "QueryReturnedMoreThanOneRow", "StatementChangedRows"], "", Permanent,
        "The statement ran, and did something else than was expected."),
    Row::settled(&["ToSqlConversionFailure", "NulError", "InvalidParameterName", "InvalidParameterCount", "InvalidPath", "InvalidQuery", "MultipleStatement", "SqliteSingleThreadedMode"], "", Permanent,
        "Refused before the statement was executed."),
    Row::open(&["*"], "any other variant", Permanent,
        "Nothing is known about it."),
];

/// What an error from SQLite means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, rusqlite::outcome};
/// use rusqlite::{Error, ffi};
///
/// let busy = Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
/// assert_eq!(outcome(&busy, Phase::Commit), Outcome::Transient);
/// ```
#[must_use]
pub fn outcome(error: &Error, phase: Phase) -> Outcome {
    // Through this method also where a syntax error has a variant of its own.
    match error.sqlite_error() {
        Some(answer) => result_code(answer.extended_code, phase),
        None => find(TABLE, named(error)).outcome(phase),
    }
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: Error, phase: Phase) -> Failure<Error> {
    let outcome = outcome(&error, phase);
    Failure::classified(error, outcome)
}

fn named(error: &Error) -> &'static str {
    match error {
        Error::SqliteSingleThreadedMode => "SqliteSingleThreadedMode",
        Error::FromSqlConversionFailure(..) => "FromSqlConversionFailure",
        Error::IntegralValueOutOfRange(..) => "IntegralValueOutOfRange",
        Error::Utf8Error(..) => "Utf8Error",
        Error::NulError(_) => "NulError",
        Error::InvalidParameterName(_) => "InvalidParameterName",
        Error::InvalidPath(_) => "InvalidPath",
        Error::ExecuteReturnedResults => "ExecuteReturnedResults",
        Error::QueryReturnedNoRows => "QueryReturnedNoRows",
        Error::QueryReturnedMoreThanOneRow => "QueryReturnedMoreThanOneRow",
        Error::InvalidColumnIndex(_) => "InvalidColumnIndex",
        Error::InvalidColumnName(_) => "InvalidColumnName",
        Error::InvalidColumnType(..) => "InvalidColumnType",
        Error::StatementChangedRows(_) => "StatementChangedRows",
        Error::ToSqlConversionFailure(_) => "ToSqlConversionFailure",
        Error::InvalidQuery => "InvalidQuery",
        Error::MultipleStatement => "MultipleStatement",
        Error::InvalidParameterCount(..) => "InvalidParameterCount",
        _ => "*",
    }
}
