//! A call that failed, as an HTTP answer: status, `Retry-After`, and a body of problem details (RFC 9457).

use std::fmt;
use std::time::Duration;

use bursar::{CallError, Failure, Outcome};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value};

use crate::pace;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Full, and the operation does not wait.
    Overloaded,
    /// Another call of this key was running, and the operation does not wait.
    KeyHeld,
    /// It could not start in time.
    NotInTime,
    /// Its caller left before it started.
    Withdrawn,
    Stopping,
    KeyRequired,
    /// It would have had to wait for what its own caller holds.
    WouldDeadlock,
    /// It could never have started.
    Impossible,
    TimedOut,
    Cancelled,
    Failed(Outcome),
}

impl Kind {
    fn of<E>(error: &CallError<E>) -> Self {
        match error {
            CallError::Overloaded(refusal) if refusal.is_key() => Self::KeyHeld,
            CallError::Overloaded(_) => Self::Overloaded,
            CallError::AdmissionTimedOut(_) => Self::NotInTime,
            CallError::Withdrawn(_) => Self::Withdrawn,
            CallError::Stopping(_) => Self::Stopping,
            CallError::KeyRequired(_) => Self::KeyRequired,
            CallError::WouldDeadlock(_) => Self::WouldDeadlock,
            CallError::TimedOut(_) => Self::TimedOut,
            CallError::Cancelled(_) => Self::Cancelled,
            other if other.never_ran() => Self::Impossible,
            other => Self::Failed(other.outcome()),
        }
    }

    /// Refused here for want of capacity.
    fn is_throttled(self) -> bool {
        matches!(self, Self::Overloaded | Self::KeyHeld | Self::NotInTime)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::KeyHeld => StatusCode::TOO_MANY_REQUESTS,
            Self::KeyRequired => StatusCode::BAD_REQUEST,
            Self::TimedOut | Self::Cancelled => StatusCode::GATEWAY_TIMEOUT,
            Self::Overloaded
            | Self::NotInTime
            | Self::Withdrawn
            | Self::Stopping
            | Self::Failed(Outcome::Transient | Outcome::Throttled) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::WouldDeadlock | Self::Impossible | Self::Failed(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// For programs.
    fn code(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::KeyHeld => "key-held",
            Self::NotInTime => "not-in-time",
            Self::Withdrawn => "withdrawn",
            Self::Stopping => "stopping",
            Self::KeyRequired => "key-required",
            Self::WouldDeadlock => "would-deadlock",
            Self::Impossible => "impossible",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// For people. It names nothing of the inside.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::Overloaded => "The service is at capacity; the request was not begun.",
            Self::KeyHeld => {
                "An earlier request of the same kind is still running; this one was not begun."
            }
            Self::NotInTime => "The service could not begin the request in time.",
            Self::Withdrawn => "The request was withdrawn before it was begun.",
            Self::Stopping => "The service is shutting down; the request was not begun.",
            Self::KeyRequired => "The request lacks the key by which such requests are told apart.",
            Self::WouldDeadlock | Self::Impossible => "The request could never have begun.",
            Self::TimedOut => "The request ran out of time; it may have taken effect.",
            Self::Cancelled => "The request was cancelled while it ran; it may have taken effect.",
            Self::Failed(Outcome::Transient) => {
                "The request failed and took no effect; it may be repeated."
            }
            Self::Failed(Outcome::Throttled) => {
                "A provider refused the request for want of capacity; it took no effect."
            }
            Self::Failed(Outcome::Uncertain) => "The request failed; it may have taken effect.",
            Self::Failed(_) => "The request failed.",
        }
    }
}

/// A call that failed, as an HTTP answer. A handler's `?` makes it of a [`CallError`]; with the feature `axum` it is a
/// response, with the feature `tonic` a `Status`.
///
/// | the call | status | `Retry-After`, at the earliest |
/// |---|---|---|
/// | met a full budget and does not wait, could not start in time | 503 | when there is likely to be room |
/// | met its key held and does not wait | 429 | when the key is likely to be free |
/// | met a runtime that shuts down, was withdrawn | 503 | 1 s |
/// | lacks a key that is required | 400 | |
/// | would have waited for what its own caller holds | 500 | |
/// | was cut off by a deadline or a token while it ran | 504 | |
/// | failed, Transient or Throttled | 503 | what the provider said, if it did |
/// | failed, Permanent or Uncertain | 500 | |
///
/// `Retry-After` is [spread](Self::retry_after): a thousand callers that are refused in one moment are not told to come back in one
/// moment.
///
/// The body is `application/problem+json`: `title`, `status` and `detail` of RFC 9457 (the `type` is left out, which
/// means `about:blank`), and
///
/// | member | tells |
/// |---|---|
/// | `code` | the row: `overloaded`, `not-in-time`, `key-held`, `stopping`, `withdrawn`, `key-required`, `would-deadlock`, `impossible`, `timed-out`, `cancelled`, `failed` |
/// | `outcome` | `transient`, `permanent`, `throttled` or `uncertain` |
/// | `attempts` | how many were made; 0: it never ran |
///
/// It says nothing of the inside, the handler's error included, unless [`detailed`](Self::detailed) is asked for.
///
/// ```
/// use bursar::{Classify, Contract, Policy, Runtime};
/// use bursar_tower::Problem;
///
/// async fn handler(contract: &Contract) -> Result<String, Problem> {
///     let page = contract.run(|| async { render().await.transient() }).await?;
///     Ok(page)
/// }
/// # async fn render() -> Result<String, std::io::Error> { Err(std::io::ErrorKind::ConnectionRefused.into()) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::builder().resource("renderer", 8).build()?;
/// # let contract = runtime.contract("render", Policy::pure().claim("renderer", 1))?;
/// let problem = handler(&contract).await.unwrap_err();
/// assert_eq!(problem.status(), 503);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Problem(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    status: StatusCode,
    outcome: Outcome,
    attempts: u32,
    retry_after: Option<Duration>,
    /// Where this one is told to come back, between that and twice it.
    random: u64,
    /// What may be said to those who may know.
    evidence: Evidence,
    detailed: bool,
}

#[derive(Clone)]
struct Evidence {
    operation: String,
    budget: Option<String>,
    units: Option<u32>,
    usage: Option<bursar::Usage>,
    message: String,
}

impl Problem {
    /// `mean`: how long calls of the operation hold what they hold.
    pub(crate) fn of<E>(error: &CallError<E>, mean: Duration) -> Self {
        let kind = Kind::of(error);
        let refusal = error.refusal();
        let retry_after = match kind {
            Kind::Overloaded | Kind::KeyHeld | Kind::NotInTime => {
                refusal.map(|refusal| pace::until_room(refusal, mean))
            }
            Kind::Stopping | Kind::Withdrawn => Some(pace::ELSEWHERE),
            Kind::Failed(Outcome::Transient | Outcome::Throttled) => {
                error.failure().and_then(Failure::pushback)
            }
            _ => None,
        };
        Self(Box::new(Inner {
            kind,
            status: kind.status(),
            outcome: error.outcome(),
            attempts: error.attempts(),
            retry_after,
            random: retry_after.map_or(0, |_| pace::random()),
            evidence: Evidence {
                operation: error.operation().to_owned(),
                budget: refusal.and_then(|of| of.budget()).map(str::to_owned),
                units: refusal.and_then(|of| of.units()),
                usage: refusal.and_then(|of| of.usage()),
                message: error.to_string(),
            },
            detailed: false,
        }))
    }

    /// The handler's own error, if that is the whole truth about the call: a caller who is answered in the handler's
    /// words learns what became of the request. Otherwise the problem: it never ran, or was cut off, or an earlier attempt
    /// may have taken effect.
    ///
    /// ```
    /// use bursar::CallError;
    /// use bursar_tower::Problem;
    ///
    /// enum AppError { OutOfStock, Call(Problem) }
    ///
    /// impl From<CallError<AppError>> for AppError {
    ///     fn from(error: CallError<AppError>) -> Self {
    ///         Problem::or_own(error).unwrap_or_else(AppError::Call)
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The problem, where the handler's error is not the whole truth.
    pub fn or_own<E>(error: CallError<E>) -> Result<E, Self> {
        let problem = Self::from(&error);
        let whole = match &error {
            CallError::Failed(failed) => failed.outcome() == failed.failure().outcome(),
            _ => false,
        };
        match error.into_error() {
            Some(own) if whole => Ok(own),
            _ => Err(problem),
        }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// What became of the call.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// How many attempts were made; 0 if it never ran.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// When the caller may come back at the earliest, if that is known.
    ///
    /// The response says it in whole seconds, rounded up, at least one; and adds up to as much again, at random and at most a
    /// minute, so that callers who were refused together do not come back together. It says the same each time it is made.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// What is told of it, in a unit of which `of` makes a whole number.
    pub(crate) fn told(&self, of: fn(Duration) -> u64) -> Option<u64> {
        let wait = self.0.retry_after?;
        Some(pace::spread(of(wait), of(pace::LONGEST), self.0.random))
    }

    /// Another status for what was refused for want of capacity: 429 or 503, as the callers expect it. Other problems keep
    /// theirs.
    #[must_use]
    pub fn throttled_as(mut self, status: StatusCode) -> Self {
        if self.0.kind.is_throttled() {
            self.0.status = status;
        }
        self
    }

    /// Says what is known inside too: the operation, the budget with its capacity, use and queue, and the error's text.
    /// For callers who may know.
    #[must_use]
    pub fn detailed(mut self) -> Self {
        self.0.detailed = true;
        self
    }

    /// The response, whole.
    #[must_use]
    pub fn to_http(&self) -> Response<Bytes> {
        let body = Value::Object(self.members()).to_string();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.0.status;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.told(pace::seconds) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }

    fn members(&self) -> Map<String, Value> {
        let inner = &*self.0;
        let mut members = Map::new();
        let mut say = |name: &str, value: Value| members.insert(name.to_owned(), value);
        // The title of `about:blank` is the status's own.
        say(
            "title",
            inner.status.canonical_reason().unwrap_or("Error").into(),
        );
        say("status", inner.status.as_u16().into());
        let detail = if inner.detailed {
            inner.evidence.message.as_str()
        } else {
            inner.kind.detail()
        };
        say("detail", detail.into());
        say("code", inner.kind.code().into());
        say("outcome", inner.outcome.to_string().to_lowercase().into());
        say("attempts", inner.attempts.into());
        if inner.detailed {
            let evidence = &inner.evidence;
            say("operation", evidence.operation.as_str().into());
            if let Some(budget) = &evidence.budget {
                say("budget", budget.as_str().into());
            }
            if let Some(units) = evidence.units {
                say("units", units.into());
            }
            if let Some(usage) = evidence.usage {
                say("capacity", usage.capacity.into());
                say("in_use", usage.in_use.into());
                say("waiting", usage.waiting.into());
            }
        }
        members
    }

    #[cfg(feature = "tonic")]
    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What the caller is told in words.
    #[cfg(feature = "tonic")]
    pub(crate) fn detail(&self) -> &str {
        if self.0.detailed {
            &self.0.evidence.message
        } else {
            self.0.kind.detail()
        }
    }
}

impl<E> From<&CallError<E>> for Problem {
    fn from(error: &CallError<E>) -> Self {
        Self::of(error, pace::ASSUMED)
    }
}

impl<E> From<CallError<E>> for Problem {
    fn from(error: CallError<E>) -> Self {
        Self::from(&error)
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem")
            .field("status", &self.0.status)
            .field("code", &self.0.kind.code())
            .field("outcome", &self.0.outcome)
            .field("error", &self.0.evidence.message)
            .finish_non_exhaustive()
    }
}

/// What was known, the inside included: for logs, not for callers.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.evidence.message)
    }
}

impl std::error::Error for Problem {}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Problem {
    fn into_response(self) -> axum_core::response::Response {
        self.to_http().map(Into::into)
    }
}
