//! What a `redis::RedisError` means.
//!
//! 1. A command that is answered with an error was not carried out. Redis rolls nothing back: a script that fails halfway has done
//!    its first half, and its author alone can say so.
//! 2. A pipeline that failed in part was carried out in part.
//! 3. A lost connection leaves open whether the command was carried out, before `EXEC` was sent excepted.

use std::error::Error;
use std::io::ErrorKind::NotFound;
use std::sync::Arc;

use ::redis::{ErrorKind, RedisError, ServerError};
use bursar::Failure;
use bursar::Outcome::{self, Permanent, Throttled, Transient};

use crate::table::{Row, exact, find};
use crate::{Phase, io};

/// Codes of the server first, then the kinds of the client.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    Row::settled(&["LOADING"], "", Transient,
        "It reads its data back after a start, and carries nothing out meanwhile."),
    Row::settled(&["BUSY"], "", Transient,
        "A script runs longer than it should; nothing else is carried out meanwhile."),
    Row::settled(&["READONLY"], "", Transient,
        "Refused by a replica, as after a failover: another connection may find the primary. A client that is bound to a replica wastes the retries."),
    Row::settled(&["MASTERDOWN", "NOREPLICAS"], "", Transient,
        "Refused until primary and replicas see each other again."),
    Row::settled(&["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"], "", Transient,
        "The key is, or will be, at another node. A client that knows no clusters wastes the retries."),
    Row::settled(&["OOM"], "", Throttled,
        "Past maxmemory; nothing is written until memory is free."),
    Row::settled(&["UNBLOCKED"], "", Transient,
        "Somebody ended the wait of a blocking command, which took nothing."),
    Row::settled(&["ERR while connecting"], "", Transient,
        "The limit of clients has no code of its own; nothing was sent that has an effect."),
    Row::settled(&["MISCONF"], "", Permanent,
        "Writes are refused until a snapshot succeeds, for which somebody has to do something."),
    Row::settled(&["NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "NOPROTO"], "", Permanent,
        "Refused for who asks, or how."),
    Row::settled(&["NOSCRIPT"], "", Permanent,
        "The server does not know the script; it must be loaded first."),
    Row::settled(&["EXECABORT"], "", Permanent,
        "Nothing of the transaction was carried out. Where the client tells which command was refused, that one's row decides."),
    Row::settled(&["ERR", "WRONGTYPE", "CROSSSLOT", "BUSYGROUP", "BUSYKEY", "NOGROUP", "NOTBUSY", "NOSUB", "UNKILLABLE"], "", Permanent,
        "The same command would be refused again."),
    Row::open(&["*"], "any other code", Permanent,
        "A script's own, a module's, or that of a proxy which had passed the command on: nothing is known about it."),
    Row::open(&["Pipeline"], "some commands of a pipeline failed", Permanent,
        "The others were carried out. A pipeline is no transaction, and an atomic one is not rolled back either."),
    Row::settled(&["Io: NotFound"], "", Transient,
        "There is no socket file: the server does not run."),
    Row::open(&["Io"], "of a kind that is not told", Transient,
        "The connection is lost. Where the kind is told, the table of I/O decides."),
    Row::open(&["Parse"], "", Permanent,
        "What came is no answer of Redis: what was done is not known."),
    Row::open(&["UnexpectedReturnType"], "", Permanent,
        "The command was carried out, and its answer is of another type than was asked for."),
    Row::settled(&["MasterNameNotFoundBySentinel", "NoValidReplicasFoundBySentinel", "ClusterConnectionNotFound"], "", Transient,
        "No node was found to send it to, for now."),
    Row::settled(&["AuthenticationFailed", "InvalidClientConfig", "EmptySentinelList", "RESP3NotSupported", "Client"], "", Permanent,
        "Refused before anything was sent."),
    Row::open(&["any other kind"], "", Permanent,
        "Nothing is known about it."),
];

/// What an error from Redis means.
///
/// ```
/// use bursar::Outcome;
/// use bursar_classify::{Phase, redis::outcome};
///
/// let lost = redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
/// assert_eq!(outcome(&lost, Phase::Autocommit), Outcome::Uncertain);
/// assert_eq!(outcome(&lost, Phase::InTransaction), Outcome::Transient);
/// ```
#[must_use]
pub fn outcome(error: &RedisError, phase: Phase) -> Outcome {
    row(error, phase).outcome(phase)
}

/// The error as a failure that means what [`outcome`] says.
#[must_use]
pub fn failure(error: RedisError, phase: Phase) -> Failure<RedisError> {
    let outcome = outcome(&error, phase);
    Failure::classified(error, outcome)
}

/// What a code of the server means: the first word of its answer, without the dash.
#[must_use]
pub fn code(code: &str, phase: Phase) -> Outcome {
    by_code(code, phase).outcome(phase)
}

fn by_code(code: &str, phase: Phase) -> &'static Row {
    let code = match (code, phase) {
        ("ERR", Phase::Acquire) => "ERR while connecting",
        _ => code,
    };
    exact(TABLE, code)
        .or_else(|| exact(TABLE, "*"))
        .unwrap_or_else(|| find(TABLE, code))
}

fn row(error: &RedisError, phase: Phase) -> &'static Row {
    // One answer has itself as its source; a pipeline's, and a transaction's that was aborted, have none.
    if let Some(answer) = error.source().and_then(|e| e.downcast_ref::<ServerError>()) {
        return by_code(answer.code(), phase);
    }
    if let Some(refused) = error.clone().into_server_errors() {
        return match (error.kind(), refused.first()) {
            (ErrorKind::Server(::redis::ServerErrorKind::ExecAbort), Some((_, first))) => {
                by_code(first.code(), phase)
            }
            (ErrorKind::Server(::redis::ServerErrorKind::ExecAbort), None) => {
                by_code("EXECABORT", phase)
            }
            _ => find(TABLE, "Pipeline"),
        };
    }
    if let Some(lost) = lost(error) {
        return match lost.kind() {
            NotFound => find(TABLE, "Io: NotFound"),
            _ => io::row(lost),
        };
    }
    match error.kind() {
        ErrorKind::Server(kind) => by_code(
            error.code().unwrap_or(match kind {
                ::redis::ServerErrorKind::ExecAbort => "EXECABORT",
                _ => "*",
            }),
            phase,
        ),
        kind => find(TABLE, named(kind)),
    }
}

/// The I/O error that the client met. It is shared, so that the client's errors can be cloned.
fn lost(error: &RedisError) -> Option<&std::io::Error> {
    let source = error.source()?;
    match source.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
        Some(shared) => shared.downcast_ref(),
        None => source.downcast_ref(),
    }
}

fn named(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Parse => "Parse",
        ErrorKind::AuthenticationFailed => "AuthenticationFailed",
        ErrorKind::UnexpectedReturnType => "UnexpectedReturnType",
        ErrorKind::InvalidClientConfig => "InvalidClientConfig",
        ErrorKind::Io => "Io",
        ErrorKind::Client => "Client",
        ErrorKind::MasterNameNotFoundBySentinel => "MasterNameNotFoundBySentinel",
        ErrorKind::NoValidReplicasFoundBySentinel => "NoValidReplicasFoundBySentinel",
        ErrorKind::EmptySentinelList => "EmptySentinelList",
        ErrorKind::ClusterConnectionNotFound => "ClusterConnectionNotFound",
        ErrorKind::RESP3NotSupported => "RESP3NotSupported",
        _ => "any other kind",
    }
}
