//! From an address to a watched stream: resolve, connect, tunnel through the proxy, TLS.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Uri, uri::Scheme};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::wire::Watched;
use crate::error::BoxError;

/// A forward proxy. Its credentials go to it alone.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(crate) uri: Uri,
    pub(crate) authorization: Option<HeaderValue>,
}

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    tls: TlsConnector,
    proxy: Option<Arc<Proxy>>,
    /// HTTP/2 without asking, on plain connections too.
    http2_only: bool,
}

/// Which step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Connect,
    Proxy,
    Tls,
}

/// No connection could be made, so nothing was sent.
#[derive(Debug)]
pub(crate) struct ConnectError {
    step: Step,
    /// Trying again would fail the same way.
    pub(crate) permanent: bool,
    source: BoxError,
}

impl ConnectError {
    pub(crate) const fn what(&self) -> &'static str {
        match (self.step, self.permanent) {
            (Step::Connect, _) => "no connection could be made",
            (Step::Proxy, _) => "the proxy made no connection",
            (Step::Tls, false) => "the TLS handshake failed",
            (Step::Tls, true) => "the server's certificate is not trusted or not for this host",
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source as _)
    }
}

impl Connector {
    pub(crate) fn new(
        tls: Arc<rustls::ClientConfig>,
        proxy: Option<Arc<Proxy>>,
        http2_only: bool,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            tcp,
            tls: TlsConnector::from(tls),
            proxy,
            http2_only,
        }
    }

    async fn connect(self, target: Uri) -> Result<Watched, ConnectError> {
        let secure = target.scheme() == Some(&Scheme::HTTPS);
        let stream = match &self.proxy {
            Some(proxy) if secure => tunnel(self.tcp.clone(), proxy, &target).await?,
            Some(proxy) => {
                let stream = dial(self.tcp.clone(), proxy.uri.clone(), Step::Proxy).await?;
                return Ok(Watched::plain(stream, self.http2_only, true));
            }
            None => dial(self.tcp.clone(), target.clone(), Step::Connect).await?,
        };
        if !secure {
            return Ok(Watched::plain(stream, self.http2_only, false));
        }
        self.secure(stream, &target).await
    }

    async fn secure(
        &self,
        stream: TokioIo<TcpStream>,
        target: &Uri,
    ) -> Result<Watched, ConnectError> {
        let failed = |permanent, source| ConnectError {
            step: Step::Tls,
            permanent,
            source,
        };
        let host = target.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| failed(true, BoxError::from(error)))?;
        match self.tls.connect(name, stream.into_inner()).await {
            Ok(stream) => Ok(Watched::tls(stream)),
            Err(error) => Err(failed(is_untrusted(&error), error.into())),
        }
    }
}

async fn dial(
    mut tcp: HttpConnector,
    target: Uri,
    step: Step,
) -> Result<TokioIo<TcpStream>, ConnectError> {
    tcp.call(target).await.map_err(|error| ConnectError {
        step,
        permanent: false,
        source: error.into(),
    })
}

async fn tunnel(
    tcp: HttpConnector,
    proxy: &Proxy,
    target: &Uri,
) -> Result<TokioIo<TcpStream>, ConnectError> {
    let mut tunnel = Tunnel::new(proxy.uri.clone(), tcp);
    if let Some(authorization) = &proxy.authorization {
        tunnel = tunnel.with_auth(authorization.clone());
    }
    // What the proxy answered is told in text alone, so bad credentials are not told from other refusals.
    tunnel
        .call(target.clone())
        .await
        .map_err(|error| ConnectError {
            step: Step::Proxy,
            permanent: false,
            source: error.into(),
        })
}

/// Whether the handshake failed because of who the server is.
fn is_untrusted(error: &std::io::Error) -> bool {
    let source = error.get_ref().and_then(|source| source.downcast_ref());
    matches!(
        source,
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

impl Service<Uri> for Connector {
    type Response = Watched;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Watched, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        Box::pin(self.clone().connect(target))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("proxy", &self.proxy.as_ref().map(|proxy| &proxy.uri))
            .field("http2_only", &self.http2_only)
            .finish_non_exhaustive()
    }
}
