//! What a `sqlx::Error` from SQLite means.
//!
//! 1. What SQLite answered is decided by its extended result code, see [`sqlite`].
//! 2. The rest is sqlx's own, see [`TABLE`].

use ::sqlx::Error;
use bursar::{Failure, Outcome};

use crate::sqlite::{self, result_code};
use crate::{Phase, Row, sqlx};

/// The errors of sqlx itself, by the name of their variant.
pub const TABLE: &[Row] = sqlx::TABLE;

/// What an error from SQLite means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, sqlx_sqlite::outcome};
///
/// let late = sqlx::Error::PoolTimedOut;
/// assert_eq!(outcome(&late, Phase::Acquire), Outcome::Throttled);
/// ```
#[must_use]
pub fn outcome(error: &Error, phase: Phase) -> Outcome {
    match error {
        // sqlx shows the extended result code as a decimal number.
        Error::Database(answer) => match answer.code().and_then(|code| code.parse().ok()) {
            Some(code) => result_code(code, phase),
            None => sqlite::row(-1).outcome(phase),
        },
        other => sqlx::outcome(other, phase),
    }
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: Error, phase: Phase) -> Failure<Error> {
    let outcome = outcome(&error, phase);
    Failure::classified(error, outcome)
}
