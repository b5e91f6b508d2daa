//! The transport: hyper's connections, which know what left them. Where HTTP/1 alone is spoken they are pooled here
//! ([`http1`]); where HTTP/2 may be, hyper-util's pool has them.
//!
//! Everything hyper says is turned here into what the rest of the crate speaks of: an answer, or an [`Error`] whose
//! outcome is known.

mod connect;
mod exchange;
mod failure;
mod http1;
mod tls;
mod tunnel;
mod wire;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bursar::Attempt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{self, ResponseFuture};
use hyper_util::rt::TokioTimer;

use crate::ambient::{Deadline, Elapsed};
use crate::body::{RequestBody, Source};
use crate::error::{BoxError, Error, ErrorKind};
use crate::verdict::Sent;
use connect::Connector;
pub(crate) use connect::Proxy;
use exchange::{Chosen, Exchange, SentBody};
use failure::{elapsed, failed, lost_its_place};
use http1::{Exchanging, Http1, Lease};
pub(crate) use tls::{Protocols, TlsOptions};
use wire::Tracking;

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);

/// How often a request that lost its place in the pool, unsent, asks for another one within one attempt.
const PLACES: u32 = 8;

type Pool = legacy::Client<Connector, SentBody>;

/// The connections of one client.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    ways: Ways,
    proxy: Option<Arc<Proxy>>,
}

/// Who keeps the connections, by what they may speak.
#[derive(Clone, Debug)]
enum Ways {
    Http1(Http1),
    Http2(Pool),
    /// Plain connections speak HTTP/1, and TLS negotiates.
    Either(Http1, Pool),
}

/// How one request goes.
enum Way<'a> {
    Http1(&'a Http1),
    Http2(&'a Pool),
    Negotiated(&'a Pool),
}

impl Ways {
    fn to(&self, uri: &Uri) -> Way<'_> {
        match self {
            Self::Http2(pool) => Way::Http2(pool),
            Self::Either(_, pool) if is_https(uri) => Way::Negotiated(pool),
            Self::Http1(http1) | Self::Either(http1, _) => Way::Http1(http1),
        }
    }
}

/// One request as it goes to one peer.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a RequestBody,
}

impl Transport {
    pub(crate) fn new(
        tls: &TlsOptions,
        protocols: Protocols,
        proxy: Option<Proxy>,
    ) -> Result<Self, Error> {
        let proxy = proxy.map(Arc::new);
        let tls = tls::config(tls)?;
        let http2_only = protocols == Protocols::Http2;
        let connector = |protocols: Protocols| {
            Connector::new(protocols.offered_by(&tls), proxy.clone(), http2_only)
        };
        let pool = || {
            legacy::Client::builder(Tracking)
                .pool_idle_timeout(IDLE)
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .http2_only(http2_only)
                .build(connector(protocols))
        };
        let http1 = || Http1::new(connector(Protocols::Http1));
        let ways = match protocols {
            Protocols::Http1 => Ways::Http1(http1()),
            Protocols::Http2 => Ways::Http2(pool()),
            Protocols::Either => Ways::Either(http1(), pool()),
        };
        Ok(Self { ways, proxy })
    }

    /// Sends one request and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the exchange: an HTTP/1 connection is closed with nothing more sent, an HTTP/2 stream
    /// is reset.
    pub(crate) async fn send(
        &self,
        outgoing: Outgoing<'_>,
        deadline: &mut Deadline,
        attempt: Option<&Attempt>,
    ) -> Result<(Response<Incoming>, Flight), Error> {
        let mut places = PLACES;
        loop {
            places -= 1;
            let source = opened(&outgoing, deadline, attempt).await?;
            let mut sending = match self.ways.to(outgoing.uri) {
                Way::Http1(http1) => self.direct(http1, &outgoing, source),
                Way::Http2(pool) => self.pooled(pool, Chosen::Http2, &outgoing, source),
                Way::Negotiated(pool) => self.pooled(pool, Chosen::Either, &outgoing, source),
            };
            match sending.answered(deadline, attempt).await {
                Err(Missed::Place(_)) if places > 0 => {}
                Err(missed) => return Err(missed.into_error().to(outgoing.method, outgoing.uri)),
                Ok(response) => return Ok((response, sending.into_flight())),
            }
        }
    }

    /// Begins to send one request on HTTP/1, where it is known when the last byte has left.
    pub(crate) async fn submit(
        &self,
        outgoing: Outgoing<'_>,
        deadline: &mut Deadline,
        attempt: Option<&Attempt>,
    ) -> Result<Sending, Error> {
        let (Ways::Http1(http1) | Ways::Either(http1, _)) = &self.ways else {
            let what = "`submit` needs HTTP/1, and the client speaks HTTP/2 alone";
            return Err(Error::invalid(what).to(outgoing.method, outgoing.uri));
        };
        let source = opened(&outgoing, deadline, attempt).await?;
        Ok(self.direct(http1, &outgoing, source))
    }

    fn direct(&self, http1: &Http1, outgoing: &Outgoing<'_>, source: Source) -> Sending {
        let mut request = self.request(outgoing, &source);
        let uri = outgoing.uri;
        let proxied = self.proxy.is_some() && !is_https(uri);
        *request.uri_mut() = if proxied {
            uri.clone()
        } else {
            uri.path_and_query()
                .cloned()
                .map(Uri::from)
                .unwrap_or_default()
        };
        let host = request.headers_mut().entry(header::HOST);
        if let (header::Entry::Vacant(place), Some(host)) = (host, host_of(uri)) {
            place.insert(host);
        }
        let exchange = Exchange::new(Chosen::Http1);
        let body = SentBody::new(source, Arc::clone(&exchange));
        let answer = http1.exchange(uri, request.map(|()| body));
        Sending::new(exchange, Answer::Direct(answer))
    }

    fn pooled(
        &self,
        pool: &Pool,
        chosen: impl FnOnce(CaptureConnection) -> Chosen,
        outgoing: &Outgoing<'_>,
        source: Source,
    ) -> Sending {
        let mut request = self.request(outgoing, &source);
        *request.uri_mut() = outgoing.uri.clone();
        let capture = capture_connection(&mut request);
        let exchange = Exchange::new(chosen(capture));
        let body = SentBody::new(source, Arc::clone(&exchange));
        let answer = pool.request(request.map(|()| body));
        Sending::new(exchange, Answer::Pooled(answer))
    }

    /// The request, without its address and its body.
    fn request(&self, outgoing: &Outgoing<'_>, source: &Source) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = outgoing.method.clone();
        *request.headers_mut() = outgoing.headers.clone();
        if source.is_ended()
            && matches!(*outgoing.method, Method::POST | Method::PUT | Method::PATCH)
        {
            // hyper says nothing of a body that is not there; servers are told that none comes (RFC 9110, 8.6).
            let none = HeaderValue::from_static("0");
            request.headers_mut().insert(header::CONTENT_LENGTH, none);
        }
        if source.length().is_none() && matches!(*outgoing.method, Method::GET | Method::HEAD) {
            // Without it hyper sends no stream with these, and says nothing. It leaves the header out over HTTP/2.
            let chunked = HeaderValue::from_static("chunked");
            request
                .headers_mut()
                .insert(header::TRANSFER_ENCODING, chunked);
        }
        let proxy = self.proxy.as_ref().filter(|_| !is_https(outgoing.uri));
        if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.clone()) {
            request
                .headers_mut()
                .insert(header::PROXY_AUTHORIZATION, authorization);
        }
        request
    }
}

/// The body's bytes. Files are opened within the deadline: that may take as long as it likes.
async fn opened(
    outgoing: &Outgoing<'_>,
    deadline: &mut Deadline,
    attempt: Option<&Attempt>,
) -> Result<Source, Error> {
    if let Some(source) = outgoing.body.at_hand() {
        return Ok(source);
    }
    let opened = Box::pin(outgoing.body.source());
    match deadline.bound(attempt, opened).await {
        Ok(source) => source.map_err(|error| error.to(outgoing.method, outgoing.uri)),
        Err(Elapsed) => Err(elapsed(Sent::Nothing).to(outgoing.method, outgoing.uri)),
    }
}

/// What HTTP/1 calls the host: without the scheme's own port.
fn host_of(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    let own_port = if is_https(uri) { ":443" } else { ":80" };
    let host = authority.strip_suffix(own_port).unwrap_or(authority);
    HeaderValue::from_str(host).ok()
}

pub(crate) fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&http::uri::Scheme::HTTPS)
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Dropped first: it finds the connection still ours.
    flight: Flight,
    answer: Answer,
}

enum Answer {
    Pooled(ResponseFuture),
    Direct(Exchanging),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pooled(_) => "Pooled",
            Self::Direct(_) => "Direct",
        })
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Missed {
    /// The request waited, unsent, for a connection that somebody else was opening, who has left: ask again.
    Place(Error),
    Answer(Error),
}

impl Missed {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Place(error) | Self::Answer(error) => error,
        }
    }
}

impl Sending {
    fn new(exchange: Arc<Exchange>, answer: Answer) -> Self {
        Self {
            flight: Flight {
                exchange,
                stage: Stage::Waiting,
                lease: None,
            },
            answer,
        }
    }

    /// Waits for the head of the answer.
    pub(crate) async fn answered(
        &mut self,
        deadline: &mut Deadline,
        attempt: Option<&Attempt>,
    ) -> Result<Response<Incoming>, Missed> {
        match deadline
            .bound(attempt, poll_fn(|cx| self.poll_answer(cx)))
            .await
        {
            Ok(answered) => answered,
            Err(Elapsed) => Err(Missed::Answer(self.late(deadline))),
        }
    }

    /// Waits until the request's last byte has left, or its answer has come before that.
    pub(crate) async fn submitted(
        &mut self,
        deadline: &mut Deadline,
        attempt: Option<&Attempt>,
    ) -> Result<Option<Response<Incoming>>, Error> {
        let submitted = poll_fn(|cx| match self.poll_answer(cx) {
            Poll::Ready(answer) => Poll::Ready(answer.map(Some)),
            Poll::Pending => self.flight.exchange.poll_submitted(cx).map(|()| Ok(None)),
        });
        match deadline.bound(attempt, submitted).await {
            Ok(submitted) => submitted.map_err(Missed::into_error),
            Err(Elapsed) => Err(self.late(deadline)),
        }
    }

    /// Once an answer has come, what is left to guard.
    pub(crate) fn into_flight(self) -> Flight {
        self.flight
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Incoming>, Missed>> {
        let answer = match &mut self.answer {
            Answer::Pooled(answer) => ready!(Pin::new(answer).poll(cx))
                .map(|response| (response, None))
                .map_err(|error| (lost_its_place(&error), BoxError::from(error))),
            Answer::Direct(answer) => ready!(answer.as_mut().poll(cx))
                .map(|(response, lease)| (response, Some(lease)))
                .map_err(|error| (false, error)),
        };
        Poll::Ready(match answer {
            Ok((response, _)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.flight.stage = Stage::Over;
                // It was sent whole; the connection is closed.
                let sent = self.flight.exchange.failed();
                let what = "the server switches to a protocol that nobody asked for";
                let error = Error::new(ErrorKind::ProtocolError, sent.outcome(), what);
                Err(Missed::Answer(error))
            }
            Ok((response, lease)) => {
                self.flight.stage = Stage::Answered;
                self.flight.lease = lease;
                Ok(response)
            }
            Err((misplaced, error)) => {
                self.flight.stage = Stage::Over;
                let sent = self.flight.exchange.failed();
                let error = failed(error, sent, self.flight.exchange.body_failed());
                Err(if misplaced && sent == Sent::Nothing {
                    Missed::Place(error)
                } else {
                    Missed::Answer(error)
                })
            }
        })
    }

    /// The time is up: stops what can be stopped.
    fn late(&mut self, deadline: &Deadline) -> Error {
        self.flight.stage = Stage::Over;
        if deadline.is_past() {
            self.flight.distrust();
        }
        elapsed(self.flight.exchange.abandon())
    }
}

/// Guards an exchange: dropped before its end it stops whatever of the request is still on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    exchange: Arc<Exchange>,
    stage: Stage,
    /// The connection that the answer's body comes on, unless it is hyper-util's.
    lease: Option<Lease>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Answered,
    Over,
}

impl Flight {
    /// The peer was not heard in time: its connection is given to nobody else.
    pub(crate) fn distrust(&self) {
        self.exchange.distrust();
    }

    /// The answer's body has ended.
    pub(crate) fn land(&mut self) {
        if self.stage == Stage::Over {
            return;
        }
        let sealed = self.exchange.abandon_rest();
        self.stage = Stage::Over;
        // A connection that still has this request to send is no use to the next.
        if let Some(lease) = self.lease.take().filter(|_| !sealed) {
            lease.give_back();
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        match self.stage {
            Stage::Waiting => {
                self.exchange.abandon();
            }
            Stage::Answered => {
                self.exchange.abandon_rest();
            }
            Stage::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g1_a_host_is_named_without_the_schemes_own_port() {
        for (uri, right) in [
            ("http://a.test/x", "a.test"),
            ("http://a.test:80/x", "a.test"),
            ("http://a.test:443/", "a.test:443"),
            ("http://a.test:8080/", "a.test:8080"),
            ("https://a.test:443/", "a.test"),
            ("https://a.test:80/", "a.test:80"),
            ("http://[::1]/", "[::1]"),
            ("http://[::80]:80/", "[::80]"),
        ] {
            assert_eq!(host_of(&Uri::from_static(uri)).unwrap(), right, "{uri}");
        }
    }
}
