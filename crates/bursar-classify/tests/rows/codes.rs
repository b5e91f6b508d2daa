//! Codes that are numbers or words: SQLSTATE, SQLite's result codes, Redis's, HTTP's statuses, kinds of I/O errors.

use std::io::{Error, ErrorKind};

use bursar::Effect::{Idempotent, NonIdempotent, Pure};
use bursar::Outcome::{self, Permanent, Throttled, Transient, Uncertain};
use bursar_classify::postgres::{Severity, sqlstate};
use bursar_classify::{Phase, http, io, postgres, redis, sqlite};

use super::expect;

/// A code of a class, where the key is the class.
fn of_class(key: &str) -> String {
    match key {
        "*" => "ZZ000".to_owned(),
        class if class.len() == 2 => format!("{class}999"),
        code => code.to_owned(),
    }
}

const REFUSED: &[&str] = &[
    "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "24", "25", "26", "27", "2B", "2D", "2F",
    "34", "38", "39", "3B", "3D", "3F", "44", "54", "55", "57", "F0",
];

#[test]
fn an_error_of_postgres_undoes_its_statement() {
    let error = |key: &str, phase| sqlstate(&of_class(key), Severity::Error, phase);
    expect(
        postgres::TABLE,
        error,
        &[
            (
                Transient,
                Transient,
                &[
                    "40001", "40P01", "40", "55P03", "55006", "57014", "72000", "25006",
                ],
            ),
            (
                Transient,
                Transient,
                &["25P03", "57P05", "57P03", "08001", "08004"],
            ),
            (
                Transient,
                Uncertain,
                &["40003", "57P01", "57P02", "25P04", "08"],
            ),
            (Throttled, Throttled, &["53300", "53"]),
            (
                Permanent,
                Permanent,
                &[
                    "40002", "53400", "28", "3D000", "25P02", "23", "22", "42", "P0",
                ],
            ),
            (Permanent, Permanent, REFUSED),
            (Permanent, Uncertain, &["57P04", "58", "HV", "XX", "*"]),
        ],
    );
}

#[test]
fn postgres_ends_a_session_and_only_some_codes_say_what_became_of_a_commit() {
    let fatal = |key: &str, phase| sqlstate(&of_class(key), Severity::Fatal, phase);
    expect(
        postgres::TABLE,
        fatal,
        &[
            (
                Transient,
                Transient,
                &["25P03", "57P05", "57P03", "08001", "08004"],
            ),
            (Throttled, Throttled, &["53300"]),
            (Permanent, Permanent, &["28", "3D000"]),
            (
                Transient,
                Uncertain,
                &[
                    "40001", "40P01", "40", "55P03", "55006", "57014", "72000", "25006",
                ],
            ),
            (
                Transient,
                Uncertain,
                &["40003", "57P01", "57P02", "25P04", "08"],
            ),
            (Throttled, Uncertain, &["53"]),
            (
                Permanent,
                Uncertain,
                &["40002", "53400", "25P02", "23", "22", "42", "P0"],
            ),
            (Permanent, Uncertain, REFUSED),
            (Permanent, Uncertain, &["57P04", "58", "HV", "XX", "*"]),
        ],
    );
}

#[test]
fn a_code_that_is_none_is_any_other() {
    for odd in ["", "4", "4000", "400000", "ÄÖÜ", "é000", "not a code"] {
        assert_eq!(postgres::row(odd).seen, ["*"], "{odd:?}");
    }
}

#[test]
fn a_result_code_of_sqlite_is_decided_by_its_primary_code() {
    let code = |key: &str, phase| sqlite::result_code(key.parse().unwrap_or(99), phase);
    // An extended code has its primary one in the lowest eight bits.
    let extended =
        |key: &str, phase| sqlite::result_code(key.parse::<i32>().unwrap_or(99) | 9 << 8, phase);
    let expected: &[super::Meaning<'_>] = &[
        (Transient, Transient, &["5", "6", "9", "15", "17"]),
        (Throttled, Throttled, &["7", "13"]),
        (
            Permanent,
            Permanent,
            &[
                "19", "8", "14", "4", "1", "3", "18", "20", "21", "22", "23", "25",
            ],
        ),
        (Permanent, Uncertain, &["10", "11", "26", "2", "*"]),
    ];
    expect(sqlite::TABLE, code, expected);
    expect(sqlite::TABLE, extended, expected);
    assert_eq!(sqlite::row(-1).seen, ["*"]);
}

/// The codes of Redis's table; its kinds are in `variants.rs`.
#[test]
fn a_code_of_redis_says_that_nothing_was_done() {
    let transient = [
        "LOADING",
        "BUSY",
        "READONLY",
        "MASTERDOWN",
        "NOREPLICAS",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "UNBLOCKED",
    ];
    let permanent = [
        "MISCONF",
        "NOAUTH",
        "WRONGPASS",
        "NOPERM",
        "DENIED",
        "NOPROTO",
        "NOSCRIPT",
        "EXECABORT",
        "ERR",
        "WRONGTYPE",
        "CROSSSLOT",
        "BUSYGROUP",
        "BUSYKEY",
        "NOGROUP",
        "NOTBUSY",
        "NOSUB",
        "UNKILLABLE",
    ];
    for phase in [Phase::InTransaction, Phase::Autocommit, Phase::Commit] {
        for code in transient {
            assert_eq!(redis::code(code, phase), Transient, "{code}");
        }
        for code in permanent {
            assert_eq!(redis::code(code, phase), Permanent, "{code}");
        }
        assert_eq!(redis::code("OOM", phase), Throttled);
    }
    // A proxy may say so after it has passed the command on.
    assert_eq!(redis::code("upstream", Phase::InTransaction), Permanent);
    assert_eq!(redis::code("upstream", Phase::Autocommit), Uncertain);
    // Only while connecting may a general error be the limit of clients.
    assert_eq!(redis::code("ERR", Phase::Acquire), Transient);
}

#[test]
fn a_status_says_whether_the_request_was_refused() {
    let asked = |effect| {
        move |key: &str, _: Phase| -> Outcome {
            let (status, retry_after) = match key {
                "503 with Retry-After, pure or idempotent" => (503, true),
                "4xx" => (404, false),
                "5xx" => (502, false),
                "*" => (600, false),
                code => (code.parse().unwrap(), false),
            };
            http::status(status, retry_after, effect).expect("a failure")
        }
    };
    for effect in [Pure, Idempotent] {
        expect(
            http::TABLE,
            asked(effect),
            &[
                (
                    Throttled,
                    Throttled,
                    &["429", "425", "503 with Retry-After, pure or idempotent"],
                ),
                (Uncertain, Uncertain, &["503", "408", "5xx", "*"]),
                (Permanent, Permanent, &["501", "505", "4xx"]),
            ],
        );
    }
    // A gateway may say 503 of a request that it had passed on.
    assert_eq!(http::status(503, true, NonIdempotent), Some(Uncertain));
    for status in [100, 200, 204, 304, 399] {
        assert_eq!(http::status(status, true, Pure), None);
    }
}

fn kind(key: &str) -> Error {
    let kind = match key {
        "EMFILE" => return Error::from_raw_os_error(24),
        "ENFILE" => return Error::from_raw_os_error(23),
        "*" => ErrorKind::Other,
        "ConnectionRefused" => ErrorKind::ConnectionRefused,
        "AddrNotAvailable" => ErrorKind::AddrNotAvailable,
        "ResourceBusy" => ErrorKind::ResourceBusy,
        "ExecutableFileBusy" => ErrorKind::ExecutableFileBusy,
        "Deadlock" => ErrorKind::Deadlock,
        "ConnectionReset" => ErrorKind::ConnectionReset,
        "ConnectionAborted" => ErrorKind::ConnectionAborted,
        "BrokenPipe" => ErrorKind::BrokenPipe,
        "NotConnected" => ErrorKind::NotConnected,
        "UnexpectedEof" => ErrorKind::UnexpectedEof,
        "WriteZero" => ErrorKind::WriteZero,
        "TimedOut" => ErrorKind::TimedOut,
        "WouldBlock" => ErrorKind::WouldBlock,
        "Interrupted" => ErrorKind::Interrupted,
        "HostUnreachable" => ErrorKind::HostUnreachable,
        "NetworkUnreachable" => ErrorKind::NetworkUnreachable,
        "NetworkDown" => ErrorKind::NetworkDown,
        "StorageFull" => ErrorKind::StorageFull,
        "QuotaExceeded" => ErrorKind::QuotaExceeded,
        "FileTooLarge" => ErrorKind::FileTooLarge,
        "OutOfMemory" => ErrorKind::OutOfMemory,
        "InvalidData" => ErrorKind::InvalidData,
        "NotFound" => ErrorKind::NotFound,
        "PermissionDenied" => ErrorKind::PermissionDenied,
        "AlreadyExists" => ErrorKind::AlreadyExists,
        "InvalidInput" => ErrorKind::InvalidInput,
        "Unsupported" => ErrorKind::Unsupported,
        "AddrInUse" => ErrorKind::AddrInUse,
        "IsADirectory" => ErrorKind::IsADirectory,
        "NotADirectory" => ErrorKind::NotADirectory,
        "DirectoryNotEmpty" => ErrorKind::DirectoryNotEmpty,
        "ReadOnlyFilesystem" => ErrorKind::ReadOnlyFilesystem,
        "CrossesDevices" => ErrorKind::CrossesDevices,
        other => panic!("no kind is called {other}"),
    };
    kind.into()
}

#[test]
fn a_kind_of_io_error_says_whether_a_byte_moved() {
    expect(
        io::TABLE,
        |key, phase| io::outcome(&kind(key), phase),
        &[
            (
                Transient,
                Transient,
                &[
                    "ConnectionRefused",
                    "ResourceBusy",
                    "ExecutableFileBusy",
                    "Deadlock",
                ],
            ),
            (
                Throttled,
                Throttled,
                &["AddrNotAvailable", "EMFILE", "ENFILE"],
            ),
            (
                Transient,
                Uncertain,
                &[
                    "ConnectionReset",
                    "ConnectionAborted",
                    "BrokenPipe",
                    "NotConnected",
                    "UnexpectedEof",
                    "WriteZero",
                ],
            ),
            (
                Transient,
                Uncertain,
                &["TimedOut", "WouldBlock", "Interrupted"],
            ),
            (
                Transient,
                Uncertain,
                &["HostUnreachable", "NetworkUnreachable", "NetworkDown", "*"],
            ),
            (
                Throttled,
                Uncertain,
                &[
                    "StorageFull",
                    "QuotaExceeded",
                    "FileTooLarge",
                    "OutOfMemory",
                ],
            ),
            (Permanent, Uncertain, &["InvalidData"]),
            (
                Permanent,
                Permanent,
                &[
                    "NotFound",
                    "PermissionDenied",
                    "AlreadyExists",
                    "InvalidInput",
                    "Unsupported",
                    "AddrInUse",
                ],
            ),
            (
                Permanent,
                Permanent,
                &[
                    "IsADirectory",
                    "NotADirectory",
                    "DirectoryNotEmpty",
                    "ReadOnlyFilesystem",
                    "CrossesDevices",
                ],
            ),
        ],
    );
    let failure = io::failure(kind("EMFILE"), Phase::Acquire);
    assert_eq!(
        (failure.outcome(), failure.is_classified()),
        (Throttled, true)
    );
}
