//! What an SQLSTATE of Postgres means, from whichever client it comes.
//!
//! 1. An `ERROR` undoes its statement and the transaction around it: what it means is known in every phase.
//! 2. `FATAL` and `PANIC` end the session. In the middle of a commit nobody learns what became of it, unless the answer is one
//!    that Postgres gives only to sessions in which nothing runs.
//! 3. What something between client and server may say in Postgres's name settles no commit.

use bursar::Outcome::{self, Permanent, Throttled, Transient};

use crate::Phase;
use crate::table::{Answer, Row, exact};

/// Whether the session lives on after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// `ERROR`: the statement and its transaction were undone; the session lives on.
    Error,
    /// `FATAL` or `PANIC`: the session ended with it.
    Fatal,
}

const fn undone(
    seen: &'static [&'static str],
    name: &'static str,
    before: Outcome,
    why: &'static str,
) -> Row {
    Row::new(seen, name, before, Answer::SettlesAlive, why)
}

/// Codes first, then classes: the first two characters of a code.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    // Concurrency.
    undone(&["40001"], "serialization_failure", Transient,
        "Rolled back because of what others committed; at COMMIT too. Begin the transaction anew."),
    undone(&["40P01"], "deadlock_detected", Transient,
        "Rolled back so that the others could go on."),
    Row::open(&["40003"], "statement_completion_unknown", Transient,
        "The code itself says that nobody knows."),
    undone(&["40002"], "transaction_integrity_constraint_violation", Permanent,
        "Rolled back, and the same rows would break the same constraint."),
    undone(&["55P03"], "lock_not_available", Transient,
        "lock_timeout, or NOWAIT: somebody else holds the lock for now."),
    undone(&["55006"], "object_in_use", Transient,
        "Somebody uses it for now."),
    undone(&["57014"], "query_canceled", Transient,
        "statement_timeout, or a cancel request: the statement was undone, and may be faster another time."),
    undone(&["72000"], "snapshot_too_old", Transient,
        "Another snapshot will do."),
    // Sessions that ended.
    Row::open(&["57P01", "57P02"], "admin_shutdown, crash_shutdown", Transient,
        "The session was ended: idle, in the middle of a statement, or of a commit. The code is the same."),
    Row::open(&["25P04"], "transaction_timeout", Transient,
        "The session was ended wherever it was."),
    Row::settled(&["25P03", "57P05"], "idle_in_transaction_session_timeout, idle_session_timeout", Transient,
        "Ended while nothing ran: what was sent afterwards, a COMMIT included, was never read."),
    Row::settled(&["57P03"], "cannot_connect_now", Transient,
        "The server starts, stops or recovers, and took no session."),
    Row::open(&["57P04"], "database_dropped", Permanent,
        "There is nothing left to connect to."),
    // Capacity.
    Row::settled(&["53300"], "too_many_connections", Throttled,
        "No session was given. Come back later."),
    undone(&["53400"], "configuration_limit_exceeded", Permanent,
        "Past a limit set for each statement, such as temp_file_limit: the same statement would pass it again."),
    undone(&["53"], "insufficient_resources", Throttled,
        "Memory, locks or disk are used up for now; the statement was undone."),
    // Connections, and what stands in between.
    Row::settled(&["08001", "08004"], "no connection was established", Transient,
        "Nothing was sent."),
    Row::open(&["08"], "connection_exception", Transient,
        "A lost connection, said by the server or by a pooler in between. A commit that was under way may have gone through."),
    Row::settled(&["28"], "invalid_authorization_specification", Permanent,
        "No session was given, and none would be."),
    Row::settled(&["3D000"], "invalid_catalog_name", Permanent,
        "There is no such database."),
    // Failover.
    undone(&["25006"], "read_only_sql_transaction", Transient,
        "Refused by a standby, as after a failover: another connection may find the primary. A transaction declared READ ONLY answers the same and wastes the retries."),
    // Everything that the same statement would meet again.
    undone(&["25P02"], "in_failed_sql_transaction", Permanent,
        "An earlier statement failed, and its error was the one to classify."),
    undone(&["23"], "integrity_constraint_violation", Permanent,
        "Unique, foreign key, not null, check, exclusion: the same row would break it again."),
    undone(&["22"], "data_exception", Permanent,
        "The same value would be wrong again."),
    undone(&["42"], "syntax_error_or_access_rule_violation", Permanent,
        "The same statement would be wrong again."),
    undone(&["P0"], "plpgsql_error", Permanent,
        "RAISE EXCEPTION: the database's own code refused."),
    undone(&["40"], "transaction_rollback", Transient,
        "Rolled back, for a reason that lies in the moment."),
    undone(&["09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "24", "25", "26", "27", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "44", "54", "55", "57", "F0"],
        "what a statement or its state refuses", Permanent,
        "The statement was undone, and the same one would be refused again."),
    // What is not known to be Postgres's own undoing.
    Row::open(&["58", "HV", "XX"], "system_error, fdw_error, internal_error", Permanent,
        "Something broke, here or on a foreign server: what a commit had reached is not said."),
    Row::open(&["*"], "any other code", Permanent,
        "Who speaks Postgres's protocol may have codes of its own: nothing is known about them."),
];

/// What an SQLSTATE means.
///
/// `code` is the five characters that Postgres sends; a client that cannot tell the severity says
/// [`Severity::Fatal`], the cautious one.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, postgres::{Severity, sqlstate}};
///
/// assert_eq!(sqlstate("40001", Severity::Error, Phase::Commit), Outcome::Transient);
/// assert_eq!(sqlstate("57P01", Severity::Fatal, Phase::InTransaction), Outcome::Transient);
/// assert_eq!(sqlstate("57P01", Severity::Fatal, Phase::Commit), Outcome::Uncertain);
/// ```
#[must_use]
pub fn sqlstate(code: &str, severity: Severity, phase: Phase) -> Outcome {
    let row = row(code);
    match (row.answer, severity) {
        (Answer::SettlesAlive, Severity::Fatal) if phase.may_commit() => Outcome::Uncertain,
        _ => row.outcome(phase),
    }
}

/// The row that decides about an SQLSTATE.
#[must_use]
pub fn row(code: &str) -> &'static Row {
    let class = code.get(..2).filter(|_| code.len() == 5);
    exact(TABLE, code)
        .or_else(|| exact(TABLE, class?))
        .unwrap_or(&TABLE[TABLE.len() - 1])
}
