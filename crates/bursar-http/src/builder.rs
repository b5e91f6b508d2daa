//! The options of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar::seam::{Execute, Resume};
use bursar::{Clock, Contract, PerCall, Permits, Policy, Retry, Takes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::ambient;
use crate::attempt::Ways;
use crate::client::{Client, Core};
use crate::config::{self, Base};
use crate::cookies::Jar;
use crate::error::Error;
use crate::payload::ACCEPT_ENCODING;
use crate::redirect;
use crate::request::{IDEMPOTENCY_KEY, Request};
use crate::schedule::Schedulers;
use crate::surface::OneShot;
use crate::transport::{Protocols, TlsOptions, Transport};

/// The options of a [`Client`]. Everything is checked in [`build`](Self::build).
///
/// | option | default |
/// |---|---|
/// | [`base_url`](Self::base_url) | none: each request names a whole URL |
/// | [`timeout`](Self::timeout) | 3 s for each attempt, its body included |
/// | [`body_limit`](Self::body_limit) | 16 MiB of decoded body |
/// | [`redirects`](Self::redirects) | off: a redirect is handed out as the answer it is |
/// | [`retry`](Self::retry) | off: one attempt |
/// | [`cookies`](Self::cookies) | off |
/// | [`compression`](Self::compression) | off |
/// | [`proxy`](Self::proxy) | none; the environment is not asked |
/// | [`contract`](Self::contract) | one of its own, which spends nothing |
/// | [`header`](Self::header), [`basic_auth`](Self::basic_auth), [`bearer_auth`](Self::bearer_auth) | none |
/// | [`trusted_pem`](Self::trusted_pem) | the public roots of `webpki-roots` |
/// | [`client_certificate_pem`](Self::client_certificate_pem) | none |
/// | [`http1_only`](Self::http1_only), [`http2_only`](Self::http2_only) | HTTP/2 where TLS negotiates it, else HTTP/1.1 |
/// | [`resume_on`](Self::resume_on), [`execute_on`](Self::execute_on) | the caller's own runtime |
/// | [`clock`](Self::clock) | tokio's |
#[must_use = "finish it with `build`, or begin a one-shot request"]
pub struct ClientBuilder {
    base: Option<String>,
    timeout: Duration,
    limit: u64,
    headers: HeaderMap,
    redirects: Option<u32>,
    policy: Option<Policy<PerCall>>,
    contract: Option<Contract>,
    cookies: bool,
    compression: bool,
    proxy: Option<String>,
    tls: TlsOptions,
    protocols: Protocols,
    clock: ambient::Clock,
    pub(crate) schedulers: Schedulers,
    /// The first option that was wrong by itself.
    fault: Option<Error>,
}

impl ClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            base: None,
            timeout: config::TIMEOUT,
            limit: config::BODY_LIMIT,
            headers: HeaderMap::new(),
            redirects: None,
            policy: None,
            contract: None,
            cookies: false,
            compression: false,
            proxy: None,
            tls: TlsOptions::default(),
            protocols: Protocols::Either,
            clock: ambient::Clock::default(),
            schedulers: Schedulers::default(),
            fault: None,
        }
    }

    /// The URL that the paths of requests are appended to, a path of its own included. Such a client reaches no other
    /// origin, redirects excepted.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base = Some(url.into());
        self
    }

    /// How long one attempt may take: to connect, to send, and for the answer's body to arrive, in all modes. Longer
    /// than zero; a request may state its own.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The largest answer in bytes, after decompression. A request may state its own.
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// A header that every request carries unless it sets it itself.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        HeaderName: TryFrom<N>,
        <HeaderName as TryFrom<N>>::Error: Into<http::Error>,
        HeaderValue: TryFrom<V>,
        <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
    {
        match header_pair(name, value) {
            Ok((name, _)) if name == IDEMPOTENCY_KEY => self.fail(Error::usage(
                "header `idempotency-key`: a key belongs to one request, not to all of a client",
            )),
            Ok((name, value)) => {
                if self.headers.len() >= config::HEADERS {
                    self.fail(Error::usage("a client has too many headers"));
                } else {
                    self.headers.append(name, value);
                }
            }
            Err(error) => self.fail(error),
        }
        self
    }

    /// Authenticates every request with user and password. On a redirect to another origin it stays behind.
    pub fn basic_auth(mut self, user: &str, password: &str) -> Self {
        if user.contains(':') {
            self.fail(Error::usage(
                "option `basic_auth`: a user name must not contain a colon",
            ));
        }
        let value = config::basic(user, password);
        self.headers.insert(header::AUTHORIZATION, value);
        self
    }

    /// Authenticates every request with a token. On a redirect to another origin it stays behind.
    pub fn bearer_auth(mut self, token: &str) -> Self {
        match config::secret(format!("Bearer {token}")) {
            Ok(value) => {
                self.headers.insert(header::AUTHORIZATION, value);
            }
            Err(error) => self.fail(
                Error::usage("option `bearer_auth`: the token cannot stand in a header")
                    .because(error),
            ),
        }
        self
    }

    /// Follows at most that many redirects, from 1 to 100. 301 and 302 turn a POST into a GET, 303 turns everything into
    /// one; 307 and 308 keep method and body. `Authorization`, `Cookie` and `Proxy-Authorization` leave when scheme,
    /// host or port changes.
    pub fn redirects(mut self, most: u32) -> Self {
        self.redirects = Some(most);
        self
    }

    /// Retries failed requests, as far as the effect of each permits. A client under a [`contract`](Self::contract) takes
    /// its retries from there.
    ///
    /// ```
    /// use bursar::{Backoff, Retry};
    /// use bursar_http::Client;
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), bursar_http::Error> {
    /// let client = Client::builder()
    ///     .base_url("https://api.example.com")
    ///     .retry(
    ///         Retry::up_to(3)
    ///             .on_transient()
    ///             .on_uncertain()
    ///             .on_throttled()
    ///             .backoff(Backoff::exponential(Duration::from_millis(50))),
    ///     )
    ///     .build()?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry<R>(mut self, retry: Retry<R>) -> Self
    where
        PerCall: Permits<R> + Takes<R>,
    {
        self.policy = Some(Policy::effect_per_call().retry(retry));
        self
    }

    /// Runs every request under `contract`: it takes budgets, key, retries and drain from there. Units are held until the
    /// answer's body has ended or is dropped.
    ///
    /// Its policy should be one with [effect per call](Policy::effect_per_call), since each request states its own; where
    /// both state one, the stricter counts.
    pub fn contract(mut self, contract: Contract) -> Self {
        self.contract = Some(contract);
        self
    }

    /// Keeps the cookies that servers set and sends them back, each to the host that set it.
    pub fn cookies(mut self) -> Self {
        self.cookies = true;
        self
    }

    /// Offers gzip and deflate to servers and decodes what comes so. The body limit counts decoded bytes.
    pub fn compression(mut self) -> Self {
        self.compression = true;
        self
    }

    /// Sends everything through a forward proxy, `http://user:password@host:port`: plain requests as they are, HTTPS
    /// through a tunnel. Its credentials never reach an origin.
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Trusts the certificates in this PEM text besides the public roots.
    pub fn trusted_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.trusted_pem.push(pem.into());
        self
    }

    /// Shows servers that ask for it the certificate chain in this PEM text, which holds its private key too.
    pub fn client_certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.client_pem = Some(pem.into());
        self
    }

    /// Speaks HTTP/1.1 alone.
    pub fn http1_only(mut self) -> Self {
        self.protocols = Protocols::Http1;
        self
    }

    /// Speaks HTTP/2 alone, without negotiation on plain connections.
    pub fn http2_only(mut self) -> Self {
        self.protocols = Protocols::Http2;
        self
    }

    /// Measures time by `clock`; a client under a contract should have its runtime's. For tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = ambient::Clock(Some(Arc::new(clock)));
        self
    }

    /// Runs callbacks ([`on_complete`](Request::on_complete)) on `resume`, and exchanges in their caller's task.
    pub fn resume_on(mut self, resume: Arc<dyn Resume>) -> Self {
        self.schedulers = Schedulers {
            execute: None,
            resume: Some(resume),
        };
        self
    }

    /// Runs exchanges on `execute` and callbacks on `resume`. An awaited future goes on in the task that awaits it; dropping
    /// it still cancels its exchange. Connections need tokio's I/O there.
    pub fn execute_on(mut self, execute: Arc<dyn Execute>, resume: Arc<dyn Resume>) -> Self {
        self.schedulers = Schedulers {
            execute: Some(execute),
            resume: Some(resume),
        };
        self
    }

    fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
    }

    /// Checks everything and makes the client.
    ///
    /// # Errors
    /// [`ProtocolError`](crate::ErrorKind::ProtocolError), naming the option that is wrong and what would be right.
    pub fn build(self) -> Result<Client, Error> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.timeout.is_zero() {
            return Err(Error::usage(
                "option `timeout` = 0: it must be longer than zero",
            ));
        }
        if let Some(most) = self.redirects.filter(|most| !(1..=100).contains(most)) {
            return Err(Error::usage(format!(
                "option `redirects` = {most}: it must be from 1 to 100; leave it out to follow none"
            )));
        }
        if self.contract.is_some() && self.policy.is_some() {
            return Err(Error::usage(
                "options `contract` and `retry`: a client under a contract takes its retries from the contract's policy",
            ));
        }
        let base = self.base.as_deref().map(Base::parse).transpose()?;
        let proxy = self.proxy.as_deref().map(config::proxy).transpose()?;
        let transport = Transport::new(&self.tls, self.protocols, proxy)?;
        let mut headers = self.headers;
        if self.compression {
            let accepted = HeaderValue::from_static(ACCEPT_ENCODING);
            headers.insert(header::ACCEPT_ENCODING, accepted);
        }
        let ways = Ways {
            transport,
            redirects: self.redirects,
            cookies: self.cookies.then(Jar::default),
            compression: self.compression,
        };
        Core::new(
            ways,
            base,
            headers,
            (self.timeout, self.limit),
            (self.clock, self.schedulers),
            self.contract,
            self.policy,
        )
        .map(Client::new)
    }
}

/// A header as given, or why it cannot be one.
pub(crate) fn header_pair<N, V>(name: N, value: V) -> Result<(HeaderName, HeaderValue), Error>
where
    HeaderName: TryFrom<N>,
    <HeaderName as TryFrom<N>>::Error: Into<http::Error>,
    HeaderValue: TryFrom<V>,
    <HeaderValue as TryFrom<V>>::Error: Into<http::Error>,
{
    let name = HeaderName::try_from(name)
        .map_err(|error| Error::usage("a header's name cannot be one").because(error.into()))?;
    if config::is_own(&name) {
        return Err(Error::usage(format!(
            "header `{name}`: the client sets it, from the body and the connection"
        )));
    }
    if name == header::PROXY_AUTHORIZATION {
        // Through a tunnel the origin would get it.
        return Err(Error::usage(
            "header `proxy-authorization`: the proxy's credentials stand in the URL of option `proxy`",
        ));
    }
    match HeaderValue::try_from(value) {
        Ok(mut value) => {
            if redirect::is_credential(&name) {
                // Not shown by `Debug`, and not indexed on HTTP/2.
                value.set_sensitive(true);
            }
            Ok((name, value))
        }
        Err(error) => {
            let what = format!("header `{name}`: its value cannot stand in a header");
            Err(Error::usage(what).because(error.into()))
        }
    }
}

macro_rules! one_shots {
    ($($(#[$doc:meta])* $verb:ident $method:ident)*) => {
        /// One-shot requests: the client is built when the request is first polled, and closed after it. Each pays for
        /// reading certificates, a pool and a connection of its own, so build a client for what is done more than once.
        impl ClientBuilder {
            $($(#[$doc])*
            pub fn $verb(self, url: impl Into<String>) -> Request<OneShot> {
                Request::new(OneShot::new(self), Method::$method, url.into())
            })*
        }
    };
}

one_shots! {
    /// A one-shot GET.
    get GET
    /// A one-shot HEAD.
    head HEAD
    /// A one-shot OPTIONS.
    options OPTIONS
    /// A one-shot PUT.
    put PUT
    /// A one-shot DELETE.
    delete DELETE
    /// A one-shot POST.
    post POST
    /// A one-shot PATCH.
    patch PATCH
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("base", &self.base.as_deref().map(config::shown))
            .field("timeout", &self.timeout)
            .field("limit", &self.limit)
            .field("redirects", &self.redirects)
            .finish_non_exhaustive()
    }
}
