//! A response's body on its way in: decoded, limited, in time.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bursar::{Attempt, Effect, Outcome};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, Uri, header};
use http_body::Body;
use hyper::body::Incoming;
use tower_http::decompression::{Decompression, DecompressionBody};
use tower_service::Service;

use crate::ambient::{Deadline, Elapsed};
use crate::error::{BoxError, Error, ErrorKind};
use crate::transport::Flight;
use crate::verdict;

/// What compression offers to servers. Other codings let the sender choose how much memory a window takes.
pub(crate) const ACCEPT_ENCODING: &str = "gzip, deflate";

/// A body that is still arriving. Dropping it cancels what is left of the exchange.
pub(crate) struct Payload {
    body: Decoded,
    flight: Flight,
    pub(crate) deadline: Deadline,
    limit: u64,
    seen: u64,
    /// Where redirects led. Errors are otherwise told by whoever asked whom they asked.
    moved: Option<(Method, Uri)>,
    /// What failures mean at least after the redirects, and what those of the body do.
    floor: Option<Outcome>,
    body_floor: Option<Outcome>,
}

enum Decoded {
    Plain(Incoming),
    Inflated(Box<DecompressionBody<Incoming>>),
}

/// Where a payload comes from, for its errors and bounds.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Where redirects led.
    pub(crate) moved: Option<(Method, Uri)>,
    pub(crate) limit: u64,
    /// Failures mean at least this.
    pub(crate) floor: Option<Outcome>,
    pub(crate) effect: Effect,
    pub(crate) decompress: bool,
}

impl Payload {
    /// Splits a response; a body that is to be decompressed loses the headers that describe its coding.
    pub(crate) fn open(
        response: Response<Incoming>,
        flight: Flight,
        deadline: Deadline,
        origin: Origin,
    ) -> Result<(http::response::Parts, Self), Error> {
        let answered = verdict::once_answered(response.status(), origin.effect);
        // What answers a HEAD names a coding of a body that does not come.
        let coded = origin.decompress
            && !response.body().is_end_stream()
            && response.headers().contains_key(header::CONTENT_ENCODING);
        let (parts, body) = if coded {
            let (parts, body) = inflated(response)?;
            (parts, Decoded::Inflated(Box::new(body)))
        } else {
            let (parts, body) = response.into_parts();
            (parts, Decoded::Plain(body))
        };
        let payload = Self {
            body,
            flight,
            deadline,
            limit: origin.limit,
            seen: 0,
            moved: origin.moved,
            floor: origin.floor,
            body_floor: origin.floor.or(answered),
        };
        Ok((parts, payload))
    }

    /// The next bytes. `None` is the end; after an error there is nothing more.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            if self.seen == 0 && self.body.least() > self.limit {
                return Poll::Ready(Some(Err(self.too_large())));
            }
            let Poll::Ready(next) = self.body.poll_data(cx) else {
                let Elapsed = ready!(self.deadline.poll(cx));
                return Poll::Ready(Some(Err(self.late())));
            };
            return Poll::Ready(match next {
                None => {
                    self.flight.land();
                    None
                }
                Some(Ok(chunk)) if chunk.is_empty() => continue,
                Some(Ok(chunk)) => {
                    self.seen += chunk.len() as u64;
                    if self.seen > self.limit {
                        Some(Err(self.too_large()))
                    } else {
                        if self.body.is_over() {
                            // Nobody need ask for the end of what has a length.
                            self.flight.land();
                        }
                        Some(Ok(chunk))
                    }
                }
                Some(Err(error)) => Some(Err(self.broken(error))),
            });
        }
    }

    /// The next bytes, unless `attempt` is told to stop.
    pub(crate) async fn next(&mut self, attempt: Option<&Attempt>) -> Option<Result<Bytes, Error>> {
        poll_fn(|cx| {
            let next = self.poll_chunk(cx);
            if next.is_pending() && attempt.is_some_and(Attempt::is_cancelled) {
                return Poll::Ready(Some(Err(self.late())));
            }
            next
        })
        .await
    }

    /// What a reader gets that may be slow itself: what is here after the deadline is late too.
    pub(crate) fn in_time(
        &self,
        next: Option<Result<Bytes, Error>>,
    ) -> Option<Result<Bytes, Error>> {
        match next {
            Some(Ok(_)) if self.deadline.is_past() => {
                let what = "the answer's body was not read in time";
                let kind = ErrorKind::DeadlineExceeded;
                Some(Err(self.error(kind, Outcome::Uncertain, what)))
            }
            next => next,
        }
    }

    /// Reads to the end and keeps nothing; false if that fails.
    pub(crate) async fn drain(&mut self) -> bool {
        loop {
            match self.next(None).await {
                None => return true,
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
            }
        }
    }

    /// All of it, and the error that ended it early, if one did.
    pub(crate) async fn collect(&mut self, attempt: Option<&Attempt>) -> (Bytes, Option<Error>) {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let ended_by = loop {
            match self.next(attempt).await {
                None => break None,
                Some(Err(error)) => break Some(error),
                // One chunk is the usual case, and is not copied.
                Some(Ok(chunk)) if first.is_empty() => first = chunk,
                Some(Ok(chunk)) => {
                    if rest.is_empty() {
                        rest.extend_from_slice(&first);
                    }
                    rest.extend_from_slice(&chunk);
                }
            }
        };
        let all = if rest.is_empty() {
            first
        } else {
            rest.freeze()
        };
        (all, ended_by)
    }

    /// What failures mean at least.
    pub(crate) fn floor(&self) -> Option<Outcome> {
        self.floor
    }

    /// A failure after the head of the answer.
    pub(crate) fn error(
        &self,
        kind: ErrorKind,
        outcome: Outcome,
        what: impl Into<Cow<'static, str>>,
    ) -> Error {
        let error = Error::new(kind, outcome, what).at_least(self.body_floor);
        match &self.moved {
            Some((method, uri)) => error.to(method, uri),
            None => error,
        }
    }

    fn late(&self) -> Error {
        if self.deadline.is_past() {
            self.flight.distrust();
        }
        self.error(
            ErrorKind::DeadlineExceeded,
            Outcome::Uncertain,
            "the answer's body did not arrive in time",
        )
    }

    fn too_large(&self) -> Error {
        let what = format!("the answer's body is larger than {} bytes", self.limit);
        self.error(ErrorKind::CapacityExceeded, Outcome::Permanent, what)
            .hopeless()
    }

    fn broken(&self, error: BoxError) -> Error {
        let (kind, outcome, what) = match error.downcast_ref::<hyper::Error>() {
            // Said by the decoder.
            None => (
                ErrorKind::ProtocolError,
                Outcome::Permanent,
                "the answer's body cannot be decompressed",
            ),
            Some(hyper) if is_malformed(hyper) => (
                ErrorKind::ProtocolError,
                Outcome::Uncertain,
                "the answer's body is malformed",
            ),
            Some(_) => (
                ErrorKind::Unavailable,
                Outcome::Uncertain,
                "the connection was lost before the answer's body had arrived",
            ),
        };
        let broken = self.error(kind, outcome, what).because(error);
        if outcome == Outcome::Permanent {
            broken.hopeless()
        } else {
            broken
        }
    }
}

/// Whether the bytes that arrived are no body, in distinction from bytes that did not arrive.
fn is_malformed(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let io = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
    matches!(
        io.map(std::io::Error::kind),
        Some(std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData)
    )
}

impl Decoded {
    /// At least this much is to come.
    fn least(&self) -> u64 {
        match self {
            Self::Plain(body) => body.size_hint().lower(),
            Self::Inflated(_) => 0,
        }
    }

    /// Nothing more is to come. What is inflated may have a checksum still.
    fn is_over(&self) -> bool {
        match self {
            Self::Plain(body) => body.is_end_stream(),
            Self::Inflated(_) => false,
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            let frame = match self {
                Self::Plain(body) => {
                    ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(Into::into))
                }
                Self::Inflated(body) => ready!(Pin::new(&mut **body).poll_frame(cx)),
            };
            match frame {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    // Trailers have no place in what is handed out.
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }
}

/// The response as tower-http's decoder hands it on: at once, since [`Given`] does.
fn inflated(
    response: Response<Incoming>,
) -> Result<(http::response::Parts, DecompressionBody<Incoming>), Error> {
    let mut decoder = Decompression::new(Given(Some(response)));
    let mut decoded = pin!(decoder.call(Request::new(())));
    let failed = |error: BoxError| {
        let what = "the decoder failed";
        Error::new(ErrorKind::InternalFailure, Outcome::Uncertain, what).because(error)
    };
    match decoded
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(decoded) => decoded.map(Response::into_parts).map_err(failed),
        Poll::Pending => Err(failed("it waits for what is here".into())),
    }
}

/// One response as the service that tower-http's decoder wraps.
struct Given(Option<Response<Incoming>>);

impl Service<Request<()>> for Given {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(self.0.take().ok_or_else(|| "asked twice".into()))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("limit", &self.limit)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
