//! What a failure means: pure decisions, by method, status and what is known of the wire.

use bursar::{Effect, Outcome};
use http::{Method, StatusCode};

/// What is known of an exchange that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// No byte of the request left, and none will.
    Nothing,
    /// The peer said that it did not and will not execute the request.
    Refused,
    /// Some of it may have left.
    Perhaps,
}

impl Sent {
    /// What a failure of the exchange means.
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Nothing | Self::Refused => Outcome::Transient,
            Self::Perhaps => Outcome::Uncertain,
        }
    }
}

/// What a method changes (RFC 9110, 9.2). With an idempotency key the receiver can tell a repetition.
///
/// A method that is not known here counts as [`Effect::NonIdempotent`].
pub(crate) fn effect(method: &Method, idempotency_key: bool) -> Effect {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => Effect::Pure,
        Method::PUT | Method::DELETE => Effect::Idempotent,
        _ if idempotency_key => Effect::Idempotent,
        _ => Effect::NonIdempotent,
    }
}

/// Whether a typed terminator takes this status for a failure.
pub(crate) fn is_failure(status: StatusCode) -> bool {
    status.as_u16() >= 400
}

/// What a failing status means.
pub(crate) fn of_status(status: StatusCode, effect: Effect, retry_after: bool) -> Outcome {
    match status.as_u16() {
        // It may answer a connection that was idle, and so prove nothing.
        408 => Outcome::Uncertain,
        425 | 429 => Outcome::Throttled,
        // Said before the work as a rule, yet also by gateways whose backend has begun.
        503 if retry_after && effect != Effect::NonIdempotent => Outcome::Throttled,
        501 | 505 => Outcome::Permanent,
        400..=499 => Outcome::Permanent,
        _ => Outcome::Uncertain,
    }
}

/// What a failure means at least once the request was answered with `status`, be it in the answer's body, in decoding or
/// after a redirect: what it was to change is changed, unless the status says otherwise.
pub(crate) fn once_answered(status: StatusCode, effect: Effect) -> Option<Outcome> {
    let refused = is_failure(status) && of_status(status, effect, false) != Outcome::Uncertain;
    (effect != Effect::Pure && !refused).then_some(Outcome::Uncertain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{Idempotent, NonIdempotent, Pure};
    use Outcome::{Permanent, Throttled, Transient, Uncertain};

    #[test]
    fn g8_effect_follows_the_method() {
        for (method, without, with) in [
            (Method::GET, Pure, Pure),
            (Method::HEAD, Pure, Pure),
            (Method::OPTIONS, Pure, Pure),
            (Method::PUT, Idempotent, Idempotent),
            (Method::DELETE, Idempotent, Idempotent),
            (Method::POST, NonIdempotent, Idempotent),
            (Method::PATCH, NonIdempotent, Idempotent),
        ] {
            assert_eq!(effect(&method, false), without, "{method}");
            assert_eq!(effect(&method, true), with, "{method} with a key");
        }
        let other = Method::from_bytes(b"PURGE").unwrap();
        assert_eq!(effect(&other, false), NonIdempotent);
    }

    #[test]
    fn g7_outcome_by_status() {
        // Status, then: Pure or Idempotent, NonIdempotent; with Retry-After both again.
        for (status, repeatable, once, repeatable_after, once_after) in [
            (400, Permanent, Permanent, Permanent, Permanent),
            (401, Permanent, Permanent, Permanent, Permanent),
            (404, Permanent, Permanent, Permanent, Permanent),
            (408, Uncertain, Uncertain, Uncertain, Uncertain),
            (409, Permanent, Permanent, Permanent, Permanent),
            (425, Throttled, Throttled, Throttled, Throttled),
            (429, Throttled, Throttled, Throttled, Throttled),
            (499, Permanent, Permanent, Permanent, Permanent),
            (500, Uncertain, Uncertain, Uncertain, Uncertain),
            (501, Permanent, Permanent, Permanent, Permanent),
            (502, Uncertain, Uncertain, Uncertain, Uncertain),
            (503, Uncertain, Uncertain, Throttled, Uncertain),
            (504, Uncertain, Uncertain, Uncertain, Uncertain),
            (505, Permanent, Permanent, Permanent, Permanent),
            (599, Uncertain, Uncertain, Uncertain, Uncertain),
            (999, Uncertain, Uncertain, Uncertain, Uncertain),
        ] {
            let code = StatusCode::from_u16(status).unwrap();
            for effect in [Pure, Idempotent] {
                assert_eq!(of_status(code, effect, false), repeatable, "{status}");
                assert_eq!(of_status(code, effect, true), repeatable_after, "{status}");
            }
            assert_eq!(of_status(code, NonIdempotent, false), once, "{status}");
            assert_eq!(of_status(code, NonIdempotent, true), once_after, "{status}");
        }
    }

    #[test]
    fn g6_statuses_from_400_are_failures() {
        for (status, failure) in [
            (200, false),
            (304, false),
            (399, false),
            (400, true),
            (999, true),
        ] {
            assert_eq!(is_failure(StatusCode::from_u16(status).unwrap()), failure);
        }
    }

    #[test]
    fn g7_what_left_the_wire_decides() {
        assert_eq!(Sent::Nothing.outcome(), Transient);
        assert_eq!(Sent::Refused.outcome(), Transient);
        assert_eq!(Sent::Perhaps.outcome(), Uncertain);
    }

    #[test]
    fn g7_what_was_answered_may_have_been_done() {
        // Status, then: Pure, and the rest.
        for (status, pure, others) in [
            (200, None, Some(Uncertain)),
            (302, None, Some(Uncertain)),
            (404, None, None),
            (408, None, Some(Uncertain)),
            (429, None, None),
            (500, None, Some(Uncertain)),
            (501, None, None),
        ] {
            let code = StatusCode::from_u16(status).unwrap();
            assert_eq!(once_answered(code, Pure), pure, "{status}");
            for effect in [Idempotent, NonIdempotent] {
                assert_eq!(once_answered(code, effect), others, "{status}");
            }
        }
    }
}
