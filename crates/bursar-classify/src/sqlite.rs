//! What a result code of SQLite means, from whichever client it comes.
//!
//! 1. A statement that fails is undone. A `COMMIT` that is refused leaves the transaction open: whoever drops it rolls it back.
//! 2. Only a commit that fails because of the disk or of the file leaves open what is on the disk.

use bursar::Outcome::{self, Permanent, Throttled, Transient};

use crate::Phase;
use crate::table::{Row, exact};

/// Extended codes first, then primary ones: the lowest eight bits of a code.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["5"], "SQLITE_BUSY", Transient,
        "Another connection has the lock, or (BUSY_SNAPSHOT) wrote first. A COMMIT that finds the file busy did not commit."),
    Row::settled(&["6"], "SQLITE_LOCKED", Transient,
        "Another statement of this connection, or of its shared cache, has the table."),
    Row::settled(&["9"], "SQLITE_INTERRUPT", Transient,
        "Interrupted and undone; it may be faster another time."),
    Row::settled(&["15"], "SQLITE_PROTOCOL", Transient,
        "Lost the race for the write-ahead log's locks."),
    Row::settled(&["17"], "SQLITE_SCHEMA", Transient,
        "The schema changed meanwhile; prepared anew the statement may run."),
    Row::settled(&["7"], "SQLITE_NOMEM", Throttled,
        "No memory for now; undone."),
    Row::settled(&["13"], "SQLITE_FULL", Throttled,
        "The disk is full, or max_page_count reached; undone."),
    Row::open(&["10"], "SQLITE_IOERR", Permanent,
        "The disk failed. A commit may have reached it or not."),
    Row::open(&["11", "26"], "SQLITE_CORRUPT, SQLITE_NOTADB", Permanent,
        "The file is broken, or none of SQLite's: nothing is known about what it holds."),
    Row::open(&["2"], "SQLITE_INTERNAL", Permanent,
        "A fault inside SQLite."),
    Row::settled(&["19"], "SQLITE_CONSTRAINT", Permanent,
        "Unique, foreign key, not null, check, trigger: the same row would break it again. A deferred one refuses the COMMIT."),
    Row::settled(&["8"], "SQLITE_READONLY", Permanent,
        "The file or the connection takes no writes."),
    Row::settled(&["14"], "SQLITE_CANTOPEN", Permanent,
        "No such file or directory, or none that may be opened."),
    Row::settled(&["4"], "SQLITE_ABORT", Permanent,
        "The transaction was rolled back beneath the statement."),
    Row::settled(&["1", "3", "18", "20", "21", "22", "23", "25"],
        "SQLITE_ERROR, _PERM, _TOOBIG, _MISMATCH, _MISUSE, _NOLFS, _AUTH, _RANGE", Permanent,
        "The same statement would be refused again."),
    Row::open(&["*"], "any other code", Permanent,
        "Nothing is known about it."),
];

/// What a result code, primary or extended, means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, sqlite::result_code};
///
/// const BUSY_SNAPSHOT: i32 = 517;
/// assert_eq!(result_code(BUSY_SNAPSHOT, Phase::Commit), Outcome::Transient);
/// const IOERR_FSYNC: i32 = 1034;
/// assert_eq!(result_code(IOERR_FSYNC, Phase::Commit), Outcome::Uncertain);
/// ```
#[must_use]
pub fn result_code(code: i32, phase: Phase) -> Outcome {
    row(code).outcome(phase)
}

/// The row that decides about a result code.
#[must_use]
pub fn row(code: i32) -> &'static Row {
    exact(TABLE, &code.to_string())
        .or_else(|| exact(TABLE, &(code & 0xff).to_string()))
        .unwrap_or(&TABLE[TABLE.len() - 1])
}
