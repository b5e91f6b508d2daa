//! What HTTP says of a request's effect and of an answer's meaning.

use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;

use bursar::{Effect, Failure, retry_after};
use http::{HeaderMap, Method, Response, StatusCode, header};

use crate::clock;
use crate::judge::Judge;

/// What a method changes (RFC 9110, 9.2): GET, HEAD, OPTIONS and TRACE nothing; PUT and DELETE may be repeated; every
/// other counts each time.
#[must_use]
pub fn effect_of(method: &Method) -> Effect {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Effect::Pure,
        Method::PUT | Method::DELETE => Effect::Idempotent,
        _ => Effect::NonIdempotent,
    }
}

/// The `Idempotency-Key` that a request carries, if it says anything.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Option<Arc<str>> {
    let value = headers.get("idempotency-key")?.to_str().ok()?.trim();
    (!value.is_empty()).then(|| value.into())
}

/// What a response's status means for its attempt. `None`: it is an answer, refusals such as 404 included.
///
/// | status | means |
/// |---|---|
/// | 429, 425 | Throttled |
/// | 503 with `Retry-After` | Throttled if the effect is Pure or Idempotent, else Uncertain |
/// | 501, 505 | Permanent |
/// | 408, other 5xx | Uncertain |
/// | any other | an answer |
///
/// `Retry-After` is obeyed where it stands on a failure.
#[must_use]
pub fn judge_status(
    effect: Effect,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<Failure<()>> {
    let pushback = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| retry_after(value, clock::time_of_day()));
    let failure = match status.as_u16() {
        429 | 425 => Failure::throttled(()),
        503 if pushback.is_some() && effect != Effect::NonIdempotent => Failure::throttled(()),
        501 | 505 => Failure::permanent(()),
        408 | 500..=599 => Failure::uncertain(()),
        _ => return None,
    };
    Some(match pushback {
        Some(pause) => failure.after(pause),
        None => failure,
    })
}

/// What an error of an HTTP client means: Transient if a refused connection is among its causes, since then nothing was
/// sent; otherwise Uncertain, since the request may have left.
#[must_use]
pub fn judge_error(error: &(dyn Error + 'static)) -> Failure<()> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let refused = error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if refused {
            return Failure::transient(());
        }
        cause = error.source();
    }
    Failure::uncertain(())
}

/// The meaning of HTTP answers: [`judge_status`] and [`judge_error`].
///
/// Of errors it knows little, since it does not know the client. A [`Judge`] of one's own over the tables of `bursar-classify`, whose
/// features `hyper` and `reqwest` do, says `Transient` of more: names that do not resolve, connections that came about too late,
/// requests that were handed back, streams that the peer refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpAnswers;

impl<B, E: Error + 'static> Judge<Response<B>, E> for HttpAnswers {
    fn judge(&self, effect: Effect, answer: Result<&Response<B>, &E>) -> Option<Failure<()>> {
        match answer {
            Ok(response) => judge_status(effect, response.status(), response.headers()),
            Err(error) => Some(judge_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar::Outcome;
    use std::time::Duration;

    #[test]
    fn a_methods_effect_is_what_http_says() {
        for (methods, effect) in [
            ("GET HEAD OPTIONS TRACE", Effect::Pure),
            ("PUT DELETE", Effect::Idempotent),
            ("POST PATCH CONNECT PROPFIND get", Effect::NonIdempotent),
        ] {
            for method in methods.split(' ') {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                assert_eq!(effect_of(&method), effect, "{method}");
            }
        }
    }

    #[test]
    fn a_status_means_what_the_table_says() {
        use Effect::{Idempotent, NonIdempotent, Pure};
        let judge = |effect, status: u16, wait: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(wait) = wait {
                headers.insert(header::RETRY_AFTER, wait.parse().unwrap());
            }
            let judged = judge_status(effect, StatusCode::from_u16(status).unwrap(), &headers);
            judged.map(|failure| (failure.outcome(), failure.pushback()))
        };
        for effect in [Pure, Idempotent, NonIdempotent] {
            for answer in [200, 204, 301, 304, 400, 401, 403, 404, 409, 412, 422, 451] {
                assert_eq!(judge(effect, answer, Some("9")), None, "{answer}");
            }
            for throttled in [425, 429] {
                let wait = Some(Duration::from_secs(9));
                assert_eq!(
                    judge(effect, throttled, Some("9")),
                    Some((Outcome::Throttled, wait))
                );
                assert_eq!(
                    judge(effect, throttled, None),
                    Some((Outcome::Throttled, None))
                );
            }
            for permanent in [501, 505] {
                assert_eq!(
                    judge(effect, permanent, None),
                    Some((Outcome::Permanent, None))
                );
            }
            for uncertain in [408, 500, 502, 503, 504, 507, 599] {
                assert_eq!(
                    judge(effect, uncertain, None),
                    Some((Outcome::Uncertain, None))
                );
            }
            let outcome = match effect {
                NonIdempotent => Outcome::Uncertain,
                _ => Outcome::Throttled,
            };
            let wait = Some(Duration::from_secs(2));
            assert_eq!(
                judge(effect, 503, Some("2")),
                Some((outcome, wait)),
                "{effect}"
            );
            let past = judge(effect, 503, Some("Sun, 06 Nov 1994 08:49:37 GMT"));
            assert_eq!(past, Some((outcome, Some(Duration::ZERO))));
            assert_eq!(
                judge(effect, 503, Some("soon")),
                Some((Outcome::Uncertain, None))
            );
        }
    }

    #[test]
    fn a_refused_connection_is_transient_wherever_it_stands_among_the_causes() {
        #[derive(Debug)]
        struct Wrapped(std::io::Error);
        impl std::fmt::Display for Wrapped {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("no answer")
            }
        }
        impl Error for Wrapped {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let refused = || std::io::Error::from(ErrorKind::ConnectionRefused);
        assert_eq!(judge_error(&refused()).outcome(), Outcome::Transient);
        assert_eq!(
            judge_error(&Wrapped(refused())).outcome(),
            Outcome::Transient
        );
        for kind in [
            ErrorKind::ConnectionReset,
            ErrorKind::BrokenPipe,
            ErrorKind::TimedOut,
        ] {
            assert_eq!(
                judge_error(&Wrapped(kind.into())).outcome(),
                Outcome::Uncertain
            );
        }
    }

    #[test]
    fn an_idempotency_key_says_something_or_is_none() {
        let read = |value: &str| {
            let headers = HeaderMap::from_iter([(
                "idempotency-key".parse().unwrap(),
                value.parse().unwrap(),
            )]);
            idempotency_key(&headers)
        };
        assert_eq!(read("k-1").as_deref(), Some("k-1"));
        assert_eq!(read(" k-1 ").as_deref(), Some("k-1"));
        assert_eq!(read(""), None);
        assert_eq!(read("  "), None);
        assert_eq!(idempotency_key(&HeaderMap::new()), None);
    }
}
