//! From an address to a watched stream: resolve, connect, tunnel through the proxy, TLS.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri, uri::Scheme};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::tunnel;
use super::wire::Watched;
use crate::ambient;
use crate::error::BoxError;

/// How long making a connection may take. Requests have timeouts of their own; this ends a connection that none awaits
/// any more, because another one was free first.
const CONNECTING: Duration = Duration::from_secs(60);

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
    Negotiate,
}

/// No connection could be made, so nothing was sent.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(super) step: Step,
    /// Trying again would fail the same way.
    pub(crate) permanent: bool,
    pub(super) source: BoxError,
}

impl ConnectError {
    pub(crate) const fn what(&self) -> &'static str {
        match (self.step, self.permanent) {
            (Step::Connect, _) => "no connection could be made",
            (Step::Proxy, false) => "the proxy made no connection",
            (Step::Proxy, true) => "the proxy refuses to make the connection",
            (Step::Tls, false) => "the TLS handshake failed",
            (Step::Tls, true) => "the server's certificate is not trusted or not for this host",
            (Step::Negotiate, _) => "the server speaks no HTTP/2, and the client nothing else",
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
            Some(proxy) if secure => {
                let stream = dial(self.tcp.clone(), proxy.uri.clone(), Step::Proxy).await?;
                let stream = tunnel::open(stream.into_inner(), proxy, &target).await?;
                TokioIo::new(stream)
            }
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
        let stream = match self.tls.connect(name, stream.into_inner()).await {
            Ok(stream) => stream,
            Err(error) => return Err(failed(is_untrusted(&error), error.into())),
        };
        let watched = Watched::tls(stream);
        if self.http2_only && !watched.is_shared() {
            // It would take what is sent for a request of HTTP/1.
            return Err(ConnectError {
                step: Step::Negotiate,
                permanent: true,
                source: "no `h2` was negotiated".into(),
            });
        }
        Ok(watched)
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
        let connect = self.clone().connect(target);
        Box::pin(async move {
            let connected = ambient::at_most(CONNECTING, connect).await;
            connected.unwrap_or_else(|| {
                Err(ConnectError {
                    step: Step::Connect,
                    permanent: false,
                    source: "it took too long".into(),
                })
            })
        })
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
