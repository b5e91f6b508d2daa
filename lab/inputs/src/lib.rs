//! What is done with bytes from strangers that the crates beside the core read: one function for each of the fuzzer's
//! targets (lab/fuzz). They panic at what must not be; the corpus that is kept is replayed in every test run.
//!
//! [`answers`] lets a server answer with them, [`addresses`] are what an HTTP client is given, [`core`] is what the core
//! itself reads; [`deadlines`] and [`codes`] are told of here.

#![forbid(unsafe_code)]

pub mod addresses;
pub mod answers;
pub mod core;
mod loopback;

use std::time::Duration;

use bursar::{Effect, Outcome};
use bursar_classify::postgres::{self, Severity};
use bursar_classify::{Answer, Phase, http as status, redis, sqlite, tonic as grpc};
use bursar_tower::{grpc_timeout, header_millis};
use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

/// The value of a header that states how much time there is.
///
/// # Panics
/// If what is read is not what the value says, digit by digit.
pub fn deadlines(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else {
        return;
    };
    let headers =
        |name: &'static str| HeaderMap::from_iter([(name.parse().unwrap(), value.clone())]);
    // In the widest type there is, and by hand.
    let digits = |bytes: &[u8]| {
        let digit = |all: Option<u128>, byte: &u8| {
            let digit = byte.is_ascii_digit().then(|| u128::from(byte - b'0'))?;
            all?.checked_mul(10)?.checked_add(digit)
        };
        (!bytes.is_empty()).then(|| bytes.iter().fold(Some(0), digit))?
    };

    let read = header_millis("x-timeout")(&headers("x-timeout"));
    let right = digits(bytes).filter(|number| *number <= u128::from(u64::MAX));
    assert_eq!(read.map(|read| read.as_millis()), right, "{value:?}");

    let read = grpc_timeout(&headers("grpc-timeout"));
    let right = match bytes {
        [number @ .., unit] if number.len() <= 8 => {
            let nanoseconds: Option<u128> = match unit {
                b'H' => Some(3_600_000_000_000),
                b'M' => Some(60_000_000_000),
                b'S' => Some(1_000_000_000),
                b'm' => Some(1_000_000),
                b'u' => Some(1_000),
                b'n' => Some(1),
                _ => None,
            };
            nanoseconds.and_then(|unit| Some(digits(number)? * unit))
        }
        _ => None,
    };
    assert_eq!(
        read.map(|read: Duration| read.as_nanos()),
        right,
        "{value:?}"
    );
}

/// Codes that providers send, in every phase.
///
/// # Panics
/// If an error is taken for a success, or something that nobody asked to commit may have happened.
pub fn codes(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut four = [0; 4];
    for (to, from) in four.iter_mut().zip(bytes) {
        *to = *from;
    }
    let number = i32::from_le_bytes(four);
    for phase in [
        Phase::Acquire,
        Phase::InTransaction,
        Phase::Autocommit,
        Phase::Commit,
    ] {
        let held = |outcome: Outcome, answer: Answer| {
            assert_ne!(outcome, Outcome::Success, "{text:?} {number} {phase:?}");
            assert!(
                phase.may_commit() || outcome != Outcome::Uncertain,
                "{text:?} {number} {phase:?}: nothing was to be committed"
            );
            assert!(
                !phase.may_commit() || outcome == Outcome::Uncertain || answer != Answer::Open,
                "{text:?} {number} {phase:?}: nobody knows what was committed"
            );
        };
        for severity in [Severity::Error, Severity::Fatal] {
            let outcome = postgres::sqlstate(&text, severity, phase);
            held(outcome, postgres::row(&text).answer);
        }
        held(
            sqlite::result_code(number, phase),
            sqlite::row(number).answer,
        );
        held(redis::code(&text, phase), Answer::Settles);
    }
    pushback(number, bytes.get(4..).unwrap_or_default());
    for effect in [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent] {
        for retry_after in [false, true] {
            let code = number as u16;
            let outcome = status::status(code, retry_after, effect);
            assert_eq!(outcome.is_some(), code >= 400, "{code}");
            assert_ne!(outcome, Some(Outcome::Success), "{code}");
        }
    }
}

/// What a gRPC server asks for: to be left alone for so many milliseconds, and whatever is no such number, for good.
fn pushback(code: i32, asked: &[u8]) {
    let Ok(value) = asked.try_into() else {
        return;
    };
    let mut status = Status::new(Code::from(code), "");
    let means = grpc::outcome(&status);
    status
        .metadata_mut()
        .insert("grpc-retry-pushback-ms", value);
    let failure = grpc::failure(status);
    assert_ne!(failure.outcome(), Outcome::Success, "{failure:?}");
    let number = asked.iter().try_fold(0_u64, |all, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        all.checked_mul(10)?.checked_add(digit)
    });
    match number.filter(|_| !asked.is_empty()) {
        Some(millis) => {
            let pause = Duration::from_millis(millis);
            assert_eq!(failure.pushback(), Some(pause), "{failure:?}");
            assert_eq!(failure.outcome(), means, "{failure:?}");
        }
        None => {
            assert_eq!(failure.pushback(), None, "{failure:?}");
            let again = [Outcome::Transient, Outcome::Throttled];
            assert!(!again.contains(&failure.outcome()), "{failure:?}");
        }
    }
}
