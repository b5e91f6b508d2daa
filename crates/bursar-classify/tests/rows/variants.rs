//! Errors of the clients themselves, by the variant or kind that they are.

use ::redis::{ErrorKind, RedisError};
use bursar::Outcome::{Permanent, Throttled, Transient, Uncertain};
use bursar_classify::{Phase, redis, rusqlite, sqlx_postgres, sqlx_sqlite};

use super::expect;

fn io_error(kind: std::io::ErrorKind) -> std::io::Error {
    kind.into()
}

fn of_sqlx(key: &str) -> sqlx::Error {
    use sqlx::Error;
    match key {
        "PoolTimedOut" => Error::PoolTimedOut,
        "PoolClosed" => Error::PoolClosed,
        "RowNotFound" => Error::RowNotFound,
        "ColumnIndexOutOfBounds" => Error::ColumnIndexOutOfBounds { index: 1, len: 1 },
        "ColumnNotFound" => Error::ColumnNotFound("id".into()),
        "ColumnDecode" => Error::ColumnDecode {
            index: "id".into(),
            source: "NULL".into(),
        },
        "Decode" => Error::Decode("NULL".into()),
        "Configuration" => Error::Configuration("no such option".into()),
        "InvalidArgument" => Error::InvalidArgument("too many".into()),
        "TypeNotFound" => Error::TypeNotFound {
            type_name: "money".into(),
        },
        "Encode" => Error::Encode("too long".into()),
        "InvalidSavePointStatement" => Error::InvalidSavePointStatement,
        "BeginFailed" => Error::BeginFailed,
        "WorkerCrashed" => Error::WorkerCrashed,
        "Io: NotFound" => Error::Io(io_error(std::io::ErrorKind::NotFound)),
        "Tls" => Error::Tls("unknown issuer".into()),
        "Protocol" => Error::Protocol("unexpected message".into()),
        "*" => Error::AnyDriverError("unknown".into()),
        other => panic!("sqlx knows no {other}"),
    }
}

#[test]
fn sqlx_says_how_far_a_statement_came() {
    let expected: &[super::Meaning<'_>] = &[
        (Throttled, Throttled, &["PoolTimedOut"]),
        (Permanent, Permanent, &["PoolClosed", "RowNotFound"]),
        (
            Permanent,
            Uncertain,
            &[
                "ColumnIndexOutOfBounds",
                "ColumnNotFound",
                "ColumnDecode",
                "Decode",
            ],
        ),
        (
            Permanent,
            Permanent,
            &[
                "Configuration",
                "InvalidArgument",
                "TypeNotFound",
                "Encode",
                "InvalidSavePointStatement",
                "BeginFailed",
            ],
        ),
        (Transient, Uncertain, &["WorkerCrashed"]),
        (Transient, Transient, &["Io: NotFound"]),
        (Permanent, Uncertain, &["Tls", "Protocol", "*"]),
    ];
    expect(
        sqlx_postgres::TABLE,
        |key, phase| sqlx_postgres::outcome(&of_sqlx(key), phase),
        expected,
    );
    expect(
        sqlx_sqlite::TABLE,
        |key, phase| sqlx_sqlite::outcome(&of_sqlx(key), phase),
        expected,
    );
}

#[test]
fn what_sqlx_lost_on_the_way_is_decided_by_its_kind() {
    use std::io::ErrorKind::{ConnectionRefused, InvalidData, UnexpectedEof};
    let of = |error: sqlx::Error| {
        [Phase::Acquire, Phase::InTransaction, Phase::Commit]
            .map(|phase| sqlx_postgres::outcome(&error, phase))
    };
    let io = |kind| of(sqlx::Error::Io(io_error(kind)));
    let tls = |kind| of(sqlx::Error::Tls(Box::new(io_error(kind))));
    assert_eq!(io(ConnectionRefused), [Transient, Transient, Transient]);
    assert_eq!(io(UnexpectedEof), [Transient, Transient, Uncertain]);
    // A handshake that was cut off may succeed the next time; one that found no trust will not.
    assert_eq!(tls(UnexpectedEof), [Transient, Transient, Uncertain]);
    assert_eq!(tls(InvalidData), [Permanent, Permanent, Uncertain]);
}

fn of_rusqlite(key: &str) -> ::rusqlite::Error {
    use ::rusqlite::{Error, types::Type};
    let not_utf8 = || String::from_utf8(vec![0xff]).unwrap_err().utf8_error();
    match key {
        "QueryReturnedNoRows" => Error::QueryReturnedNoRows,
        "FromSqlConversionFailure" => {
            Error::FromSqlConversionFailure(0, Type::Text, "no number".into())
        }
        "IntegralValueOutOfRange" => Error::IntegralValueOutOfRange(0, 300),
        "Utf8Error" => Error::Utf8Error(0, not_utf8()),
        "InvalidColumnIndex" => Error::InvalidColumnIndex(3),
        "InvalidColumnName" => Error::InvalidColumnName("id".into()),
        "InvalidColumnType" => Error::InvalidColumnType(0, "id".into(), Type::Null),
        "ExecuteReturnedResults" => Error::ExecuteReturnedResults,
        "QueryReturnedMoreThanOneRow" => Error::QueryReturnedMoreThanOneRow,
        "StatementChangedRows" => Error::StatementChangedRows(2),
        "ToSqlConversionFailure" => Error::ToSqlConversionFailure("too large".into()),
        "NulError" => Error::NulError(std::ffi::CString::new("\0").unwrap_err()),
        "InvalidParameterName" => Error::InvalidParameterName(":id".into()),
        "InvalidParameterCount" => Error::InvalidParameterCount(1, 2),
        "InvalidPath" => Error::InvalidPath("\u{fffd}".into()),
        "InvalidQuery" => Error::InvalidQuery,
        "MultipleStatement" => Error::MultipleStatement,
        "SqliteSingleThreadedMode" => Error::SqliteSingleThreadedMode,
        "*" => Error::UnwindingPanic,
        other => panic!("rusqlite knows no {other}"),
    }
}

#[test]
fn rusqlite_says_how_far_a_statement_came() {
    expect(
        rusqlite::TABLE,
        |key, phase| rusqlite::outcome(&of_rusqlite(key), phase),
        &[
            (Permanent, Permanent, &["QueryReturnedNoRows"]),
            (
                Permanent,
                Uncertain,
                &[
                    "FromSqlConversionFailure",
                    "IntegralValueOutOfRange",
                    "Utf8Error",
                    "InvalidColumnIndex",
                    "InvalidColumnName",
                    "InvalidColumnType",
                ],
            ),
            (
                Permanent,
                Uncertain,
                &[
                    "ExecuteReturnedResults",
                    "QueryReturnedMoreThanOneRow",
                    "StatementChangedRows",
                ],
            ),
            (
                Permanent,
                Permanent,
                &[
                    "ToSqlConversionFailure",
                    "NulError",
                    "InvalidParameterName",
                    "InvalidParameterCount",
                    "InvalidPath",
                    "InvalidQuery",
                    "MultipleStatement",
                    "SqliteSingleThreadedMode",
                ],
            ),
            (Permanent, Uncertain, &["*"]),
        ],
    );
}

/// An error as the client makes it: out of the server's answer where it comes from there.
fn of_redis(key: &str) -> RedisError {
    let kind = match key {
        "ERR while connecting" => return answered("ERR"),
        "Pipeline" => return pipeline("+OK\r\n-WRONGTYPE no list\r\n"),
        "Io: NotFound" => return io_error(std::io::ErrorKind::NotFound).into(),
        "*" => return answered("SOMETHING"),
        "Io" => ErrorKind::Io,
        "Parse" => ErrorKind::Parse,
        "UnexpectedReturnType" => ErrorKind::UnexpectedReturnType,
        "MasterNameNotFoundBySentinel" => ErrorKind::MasterNameNotFoundBySentinel,
        "NoValidReplicasFoundBySentinel" => ErrorKind::NoValidReplicasFoundBySentinel,
        "ClusterConnectionNotFound" => ErrorKind::ClusterConnectionNotFound,
        "AuthenticationFailed" => ErrorKind::AuthenticationFailed,
        "InvalidClientConfig" => ErrorKind::InvalidClientConfig,
        "EmptySentinelList" => ErrorKind::EmptySentinelList,
        "RESP3NotSupported" => ErrorKind::RESP3NotSupported,
        "Client" => ErrorKind::Client,
        "any other kind" => ErrorKind::Extension,
        code => return answered(code),
    };
    (kind, "as the client says it").into()
}

/// The error of a command that the server answers with this code.
fn answered(code: &str) -> RedisError {
    let answer =
        ::redis::parse_redis_value(format!("-{code} in its own words\r\n").as_bytes()).unwrap();
    answer.extract_error().unwrap_err()
}

/// The error of a pipeline to which the server gives these answers.
fn pipeline(answers: &str) -> RedisError {
    let (mut connection, answers) = super::sockets::redis_connection(answers);
    let result: Result<(), _> = ::redis::pipe()
        .cmd("SET")
        .arg("a")
        .arg(1)
        .cmd("LPUSH")
        .arg("a")
        .arg(1)
        .query(&mut connection);
    drop(answers);
    result.unwrap_err()
}

#[test]
fn redis_says_how_far_a_command_came() {
    // The one row that a phase chooses.
    let (connecting, rest): (Vec<_>, Vec<_>) = redis::TABLE
        .iter()
        .copied()
        .partition(|row| row.seen == ["ERR while connecting"]);
    assert_eq!(connecting.len(), 1);
    assert_eq!(redis::outcome(&answered("ERR"), Phase::Acquire), Transient);
    let outcome = |key: &str, phase| match (key, phase) {
        ("ERR", Phase::Acquire) => Permanent,
        _ => redis::outcome(&of_redis(key), phase),
    };
    expect(
        &rest,
        outcome,
        &[
            (
                Transient,
                Transient,
                &[
                    "LOADING",
                    "BUSY",
                    "READONLY",
                    "MASTERDOWN",
                    "NOREPLICAS",
                    "UNBLOCKED",
                ],
            ),
            (
                Transient,
                Transient,
                &["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"],
            ),
            (Throttled, Throttled, &["OOM"]),
            (
                Permanent,
                Permanent,
                &[
                    "MISCONF",
                    "NOAUTH",
                    "WRONGPASS",
                    "NOPERM",
                    "DENIED",
                    "NOPROTO",
                    "NOSCRIPT",
                    "EXECABORT",
                ],
            ),
            (
                Permanent,
                Permanent,
                &[
                    "ERR",
                    "WRONGTYPE",
                    "CROSSSLOT",
                    "BUSYGROUP",
                    "BUSYKEY",
                    "NOGROUP",
                    "NOTBUSY",
                    "NOSUB",
                    "UNKILLABLE",
                ],
            ),
            (
                Permanent,
                Uncertain,
                &[
                    "Pipeline",
                    "Parse",
                    "UnexpectedReturnType",
                    "any other kind",
                    "*",
                ],
            ),
            (Transient, Transient, &["Io: NotFound"]),
            (Transient, Uncertain, &["Io"]),
            (
                Transient,
                Transient,
                &[
                    "MasterNameNotFoundBySentinel",
                    "NoValidReplicasFoundBySentinel",
                    "ClusterConnectionNotFound",
                ],
            ),
            (
                Permanent,
                Permanent,
                &[
                    "AuthenticationFailed",
                    "InvalidClientConfig",
                    "EmptySentinelList",
                    "RESP3NotSupported",
                    "Client",
                ],
            ),
        ],
    );
}

#[test]
fn what_redis_lost_on_the_way_is_decided_by_its_kind() {
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
    let of = |kind| {
        let error = RedisError::from(io_error(kind));
        [Phase::Acquire, Phase::InTransaction, Phase::Commit]
            .map(|phase| redis::outcome(&error, phase))
    };
    assert_eq!(of(ConnectionRefused), [Transient, Transient, Transient]);
    assert_eq!(of(ConnectionReset), [Transient, Transient, Uncertain]);
    assert_eq!(of(TimedOut), [Transient, Transient, Uncertain]);
    assert_eq!(
        redis::failure(io_error(TimedOut).into(), Phase::Commit).outcome(),
        Uncertain
    );
}
