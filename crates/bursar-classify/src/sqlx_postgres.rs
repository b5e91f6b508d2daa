//! What a `sqlx::Error` from Postgres means.
//!
//! 1. What the server answered is decided by its SQLSTATE and severity, see [`postgres`].
//! 2. What was lost on the way is decided by its kind, see [`io`](crate::io).
//! 3. The rest is sqlx's own, see [`TABLE`].
//!
//! A `COMMIT` in a transaction whose statement had failed is answered `ROLLBACK`, which is no error: `commit()` returns `Ok`
//! and nothing is there. Whoever goes on after an error, goes on to that.

use ::sqlx::Error;
use ::sqlx::postgres::{PgDatabaseError, PgSeverity};
use bursar::{Failure, Outcome};

use crate::postgres::{self, Severity, sqlstate};
use crate::{Phase, Row, sqlx};

/// The errors of sqlx itself, by the name of their variant.
pub const TABLE: &[Row] = sqlx::TABLE;

/// What an error from Postgres means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, sqlx_postgres::outcome};
///
/// let lost = sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into());
/// assert_eq!(outcome(&lost, Phase::InTransaction), Outcome::Transient);
/// assert_eq!(outcome(&lost, Phase::Commit), Outcome::Uncertain);
/// ```
#[must_use]
pub fn outcome(error: &Error, phase: Phase) -> Outcome {
    let Error::Database(answer) = error else {
        return sqlx::outcome(error, phase);
    };
    match answer.try_downcast_ref::<PgDatabaseError>() {
        Some(answer) => {
            let severity = match answer.severity() {
                PgSeverity::Fatal | PgSeverity::Panic => Severity::Fatal,
                _ => Severity::Error,
            };
            sqlstate(answer.code(), severity, phase)
        }
        // Another database's answer.
        None => postgres::row("*").outcome(phase),
    }
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: Error, phase: Phase) -> Failure<Error> {
    let outcome = outcome(&error, phase);
    Failure::classified(error, outcome)
}
