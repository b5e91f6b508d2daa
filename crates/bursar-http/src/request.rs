//! One request, configured before it runs.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar::Key;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde::Serialize;

use crate::attempt::Plan;
use crate::body::RequestBody;
use crate::builder::header_pair;
use crate::client::Core;
use crate::config;
use crate::error::{BoxError, Error};
use crate::multipart::Multipart;
use crate::token::Token;
use crate::verdict;

/// The header by which a receiver can tell a repetition.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Marks a request that has no body yet.
#[derive(Debug)]
pub enum NoBody {}

/// Marks a request that has its body.
#[derive(Debug)]
pub enum WithBody {}

/// One request: an operation, its configuration, then a terminator that runs it.
///
/// A body may be given once; a second one does not compile. Nothing happens before a terminator's future is first
/// polled, mistakes in the configuration included: they come as its error.
///
/// ```compile_fail
/// # fn f(client: &bursar_http::Client) {
/// let twice = client.post("/orders").raw("text/plain", "a").json(&1);
/// # }
/// ```
#[must_use = "a request does nothing until a terminator's future is awaited"]
pub struct Request<S, B = NoBody> {
    surface: S,
    draft: Draft,
    body: PhantomData<fn() -> B>,
}

/// What was configured, unchecked.
pub(crate) struct Draft {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    /// What the body says of itself, unless a header says otherwise.
    content_type: Option<HeaderValue>,
    body: RequestBody,
    timeout: Option<Duration>,
    limit: Option<u64>,
    pub(crate) bounds: Bounds,
    fault: Option<Error>,
}

/// How the caller bounds the whole call, and what it serializes by.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) key: Option<Key>,
    pub(crate) within: Option<Duration>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) token: Option<Token>,
}

/// A request that was checked.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) plan: Plan,
    pub(crate) timeout: Duration,
    pub(crate) bounds: Bounds,
    /// The receiver can tell a repetition by it.
    pub(crate) idempotency_key: Option<Arc<str>>,
}

impl<S> Request<S> {
    pub(crate) fn new(surface: S, method: Method, path: String) -> Self {
        Self {
            surface,
            draft: Draft {
                method,
                path,
                query: String::new(),
                headers: HeaderMap::new(),
                content_type: None,
                body: RequestBody::Empty,
                timeout: None,
                limit: None,
                bounds: Bounds::default(),
                fault: None,
            },
            body: PhantomData,
        }
    }

    fn with_body(
        mut self,
        content_type: Option<&str>,
        body: Result<RequestBody, Error>,
    ) -> Request<S, WithBody> {
        match body {
            Ok(body) => self.draft.body = body,
            Err(error) => self.draft.fail(error),
        }
        if let Some(content_type) = content_type {
            match HeaderValue::try_from(content_type) {
                Ok(value) => self.draft.content_type = Some(value),
                Err(error) => self.draft.fail(
                    Error::usage("the body's content type cannot stand in a header").because(error),
                ),
            }
        }
        Request {
            surface: self.surface,
            draft: self.draft,
            body: PhantomData,
        }
    }

    /// Carries `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Request<S, WithBody> {
        let body = serde_json::to_vec(value)
            .map(|bytes| RequestBody::Bytes(bytes.into()))
            .map_err(|error| Error::usage("the value cannot be written as JSON").because(error));
        self.with_body(Some("application/json"), body)
    }

    /// Carries bytes of that content type.
    pub fn raw(self, content_type: &str, bytes: impl Into<Bytes>) -> Request<S, WithBody> {
        self.with_body(Some(content_type), Ok(RequestBody::Bytes(bytes.into())))
    }

    /// Carries `fields` as an HTML form does: a struct, a map or pairs.
    pub fn form<T: Serialize + ?Sized>(self, fields: &T) -> Request<S, WithBody> {
        let body = serde_urlencoded::to_string(fields)
            .map(|text| RequestBody::Bytes(text.into()))
            .map_err(|error| Error::usage("the fields cannot be written as a form").because(error));
        self.with_body(Some("application/x-www-form-urlencoded"), body)
    }

    /// Carries a form of several parts, files among them.
    pub fn multipart(self, form: Multipart) -> Request<S, WithBody> {
        let content_type = form.content_type();
        let body = RequestBody::Multipart(Arc::new(form));
        self.with_body(Some(&content_type), Ok(body))
    }

    /// Carries what a stream yields, without a length known beforehand. Once the stream was asked for its first bytes the
    /// request is never sent again.
    pub fn body_stream<T, E>(self, stream: T) -> Request<S, WithBody>
    where
        T: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.with_body(None, Ok(RequestBody::stream(stream)))
    }
}

impl<S, B> Request<S, B> {
    /// Sets a header; what the client sets by default under that name is replaced, what this request set stays beside it.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        HeaderName: TryFrom<N>,
        <HeaderName as TryFrom<N>>::Error: Into<http::Error>,
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
    {
        match header_pair(name, value) {
            Ok((name, value)) => self.draft.append(name, value),
            Err(error) => self.draft.fail(error),
        }
        self
    }

    /// Adds a field to the query, escaped.
    pub fn query(mut self, name: &str, value: impl fmt::Display) -> Self {
        let query = std::mem::take(&mut self.draft.query);
        self.draft.query = url::form_urlencoded::Serializer::new(query)
            .append_pair(name, &value.to_string())
            .finish();
        self
    }

    /// How long one attempt may take, its body included, instead of the client's timeout. Longer than zero.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if timeout.is_zero() {
            self.draft.fail(Error::usage(
                "request timeout = 0: it must be longer than zero",
            ));
        }
        self.draft.timeout = Some(timeout);
        self
    }

    /// The largest answer in bytes, after decompression, instead of the client's limit.
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.draft.limit = Some(bytes);
        self
    }

    /// Sends a key by which the receiver can tell a repetition (`Idempotency-Key`): it makes a POST or PATCH
    /// [`Idempotent`](bursar::Effect::Idempotent). It must not be empty, and the last one given counts.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.draft.headers.remove(IDEMPOTENCY_KEY);
        self.header(IDEMPOTENCY_KEY, key)
    }

    /// Serializes the request with others of the same key under the client's contract.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.draft.bounds.key = Some(key.into());
        self
    }

    /// Bounds the whole call, waiting and retries included, counted from its first poll.
    pub fn within(mut self, bound: Duration) -> Self {
        self.draft.bounds.within = Some(bound);
        self
    }

    /// Bounds the whole call by a moment of the client's clock.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.draft.bounds.deadline = Some(deadline);
        self
    }

    /// Ends the call when `token` completes, in every mode and down to the connection, an answer's body included.
    pub fn until(mut self, token: impl Future + Send + 'static) -> Self {
        self.draft.bounds.token = Some(Token::new(token));
        self
    }

    /// The same request through another surface.
    pub(crate) fn through<O>(self, change: impl FnOnce(S) -> O) -> Request<O, B> {
        Request {
            surface: change(self.surface),
            draft: self.draft,
            body: PhantomData,
        }
    }

    pub(crate) fn surface(&self) -> &S {
        &self.surface
    }

    pub(crate) fn into_parts(self) -> (S, Draft) {
        (self.surface, self.draft)
    }
}

impl Draft {
    fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
    }

    fn append(&mut self, name: HeaderName, value: HeaderValue) {
        if self.headers.len() >= config::HEADERS {
            self.fail(Error::usage("a request has too many headers"));
        } else {
            self.headers.append(name, value);
        }
    }

    /// The key by which the receiver can tell a repetition. One that it cannot tell by is none.
    fn idempotency_key(&self) -> Result<Option<Arc<str>>, Error> {
        let mut keys = self.headers.get_all(IDEMPOTENCY_KEY).iter();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return match self.headers.contains_key(IDEMPOTENCY_KEY) {
                true => Err(Error::usage(
                    "a request has one idempotency key, not several",
                )),
                false => Ok(None),
            };
        };
        match key.to_str() {
            Ok(key) if !key.trim().is_empty() => Ok(Some(Arc::from(key))),
            _ => Err(Error::usage(
                "an idempotency key is visible ASCII, and not empty",
            )),
        }
    }

    /// Checks the request and completes it with what its client sets.
    pub(crate) fn ready(self, core: &Core) -> Result<Ready, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let idempotency_key = self.idempotency_key()?;
        let uri = config::address(core.base.as_ref(), self.path, &self.query)?;
        let mut headers = self.headers;
        if let Some(content_type) = self.content_type {
            headers.entry(header::CONTENT_TYPE).or_insert(content_type);
        }
        for name in core.headers.keys() {
            // Several defaults of one name are kept, one that the request set itself is not.
            if !headers.contains_key(name) {
                for value in core.headers.get_all(name) {
                    headers.append(name, value.clone());
                }
            }
        }
        let of_method = verdict::effect(&self.method, idempotency_key.is_some());
        // The stricter of what both say counts, for what an answer means as well as for what may be repeated.
        let declared = core.contract.effect();
        let plan = Plan {
            effect: declared.map_or(of_method, |declared| declared.max(of_method)),
            method: self.method,
            uri,
            headers,
            body: self.body,
            limit: self.limit.unwrap_or(core.limit),
        };
        Ok(Ready {
            plan,
            timeout: self.timeout.unwrap_or(core.timeout),
            bounds: self.bounds,
            idempotency_key,
        })
    }
}

/// Without the query, since queries carry secrets into logs.
impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft")
            .field("method", &self.method)
            .field("path", &config::shown(&self.path))
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl<S: fmt::Debug, B> fmt::Debug for Request<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("surface", &self.surface)
            .field("draft", &self.draft)
            .finish()
    }
}
