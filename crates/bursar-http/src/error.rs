//! How a request failed: its kind, what became of it, and the evidence.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bursar::{Failure, Outcome};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Uri};

/// An error of any type, as a source.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// What kind of thing went wrong. What became of the request is another question: [`Error::outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Configuration, usage, an answer that is no HTTP, decoding, decompression, a redirect's form or bound.
    ProtocolError,
    /// Resolve, connect, TLS or proxy failed, or the connection was lost.
    Unavailable,
    /// A body is larger than the limit, or the contract had no capacity for the call.
    CapacityExceeded,
    /// The attempt's timeout passed, or the caller's bound.
    DeadlineExceeded,
    /// A typed terminator met a status of 400 or more; or what fits nowhere else.
    InternalFailure,
    /// What was asked for cannot be done here; nothing was sent.
    InvalidOperation,
    /// No client is registered under that name.
    NotConfigured,
    /// The client's host, or its contract's runtime, is shutting down.
    ShuttingDown,
    /// The caller's token fired.
    Cancelled,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How a request failed.
///
/// [`kind`](Self::kind) says what went wrong, [`outcome`](Self::outcome) what is known of its effect: whether repeating
/// the request could do it twice. One pointer in size.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    what: Cow<'static, str>,
    source: Option<BoxError>,
    target: Option<Target>,
    attempts: u32,
    retry_after: Option<Duration>,
    response: Option<Response<Bytes>>,
    hopeless: bool,
}

/// Whom the request was for. Without query, since queries carry secrets into logs.
struct Target {
    method: Method,
    uri: Uri,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method)?;
        if let (Some(scheme), Some(authority)) = (self.uri.scheme_str(), self.uri.authority()) {
            write!(f, "{scheme}://{authority}")?;
        }
        f.write_str(self.uri.path())
    }
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        outcome: Outcome,
        what: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self(Box::new(Inner {
            kind,
            outcome,
            what: what.into(),
            source: None,
            target: None,
            attempts: 0,
            retry_after: None,
            response: None,
            hopeless: false,
        }))
    }

    /// A use or a configuration that can never work.
    pub(crate) fn usage(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::ProtocolError, Outcome::Permanent, what)
    }

    pub(crate) fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidOperation, Outcome::Permanent, what)
    }

    pub(crate) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn to(mut self, method: &Method, uri: &Uri) -> Self {
        self.0.target.get_or_insert_with(|| Target {
            method: method.clone(),
            uri: uri.clone(),
        });
        self
    }

    /// The outcome is at least as uncertain as `floor` says.
    pub(crate) fn at_least(mut self, floor: Option<Outcome>) -> Self {
        if let Some(floor) = floor {
            self.0.outcome = floor;
        }
        self
    }

    /// Sent again, the request would be answered the same way.
    pub(crate) fn hopeless(mut self) -> Self {
        self.0.hopeless = true;
        self
    }

    pub(crate) fn is_hopeless(&self) -> bool {
        self.0.hopeless
    }

    pub(crate) fn with_response(
        mut self,
        response: Response<Bytes>,
        retry_after: Option<Duration>,
    ) -> Self {
        self.0.response = Some(response);
        self.0.retry_after = retry_after;
        self
    }

    /// What the call's contract says of it: the outcome of all its attempts.
    pub(crate) fn concluded(mut self, outcome: Outcome, attempts: u32) -> Self {
        self.0.outcome = outcome;
        self.0.attempts = attempts;
        self
    }

    pub(crate) fn attempted(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// The failure that a handler returns which made this request: it says the same of the effect, and passes a
    /// `Retry-After` on as its pushback.
    ///
    /// ```
    /// # async fn f(charge: bursar::Contract, client: bursar_http::Client) -> Result<(), bursar::CallError<bursar_http::Error>> {
    /// let answer = charge
    ///     .run(|| async { client.post("/charges").fetch::<u64>().await.map_err(bursar_http::Error::into_failure) })
    ///     .await?;
    /// # let _: u64 = answer;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn into_failure(self) -> Failure<Self> {
        let (outcome, pause) = (self.0.outcome, self.0.retry_after);
        let failure = Failure::classified(self, outcome);
        match pause {
            Some(pause) => failure.after(pause),
            None => failure,
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What became of the request, all its attempts together. Never [`Outcome::Success`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// How many attempts were made; 0 if nothing was tried.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The status that failed a typed terminator.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.0.response.as_ref().map(Response::status)
    }

    /// The headers that came with [`status`](Self::status).
    #[must_use]
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.0.response.as_ref().map(Response::headers)
    }

    /// The body that came with [`status`](Self::status): as much of it as arrived within limit and timeout.
    #[must_use]
    pub fn body(&self) -> Option<&Bytes> {
        self.0.response.as_ref().map(Response::body)
    }

    /// How long the server asked to be left alone (`Retry-After`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("outcome", &self.0.outcome)
            .field("what", &self.0.what)
            .field("target", &self.0.target.as_ref().map(Target::to_string))
            .field("status", &self.status())
            .field("attempts", &self.0.attempts)
            .field("source", &self.0.source)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(target) = &self.0.target {
            write!(f, "{target}: ")?;
        }
        write!(f, "{} ({}, {}", self.0.what, self.0.kind, self.0.outcome)?;
        if self.0.attempts > 1 {
            write!(f, ", {} attempts", self.0.attempts)?;
        }
        f.write_str(")")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_shows_no_query() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let error = Error::usage("it is wrong").to(
            &Method::GET,
            &Uri::from_static("http://example.com/a?token=secret"),
        );
        assert_eq!(
            error.to_string(),
            "GET http://example.com/a: it is wrong (ProtocolError, Permanent)"
        );
        assert!(!format!("{error:?}").contains("secret"));
    }
}
