//! Loopback HTTP, both ends: a small server that can reset a connection for real, and a client whose errors tell whether
//! bytes may have left.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bursar::Failure;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What a service does with a request.
#[derive(Debug)]
pub enum Reply {
    Answer(StatusCode, String),
    /// The connection goes away at once: no answer, no goodbye.
    Reset,
}

/// A service behind a loopback address.
pub trait Service: Send + Sync + 'static {
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Reply> + Send;

    /// Whether the connection with this ordinal is reset before anything on it is read.
    fn resets(&self, _connection: u64) -> bool {
        false
    }
}

/// A server on a loopback port of its own. It ends when this is dropped; requests under way are cut off.
#[derive(Debug)]
pub struct Server {
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Listens and serves.
    ///
    /// # Errors
    ///
    /// If no port can be had.
    pub async fn start<S: Service>(service: Arc<S>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            for ordinal in 0.. {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(connection(stream, ordinal, Arc::clone(&service)));
                    }
                    // Too many open files, most likely: connections that end give some back.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connection<S: Service>(stream: TcpStream, ordinal: u64, service: Arc<S>) {
    if service.resets(ordinal) {
        // The peer's bytes are here, unread, when the connection goes.
        let _ = stream.readable().await;
        reset(stream);
        return;
    }
    let gone = Arc::new(Notify::new());
    let answer = |request| {
        let (service, gone) = (Arc::clone(&service), Arc::clone(&gone));
        async move {
            match service.handle(request).await {
                Reply::Answer(status, body) => {
                    let mut response = Response::new(Full::new(Bytes::from(body)));
                    *response.status_mut() = status;
                    Ok::<_, std::convert::Infallible>(response)
                }
                Reply::Reset => {
                    gone.notify_one();
                    std::future::pending().await
                }
            }
        }
    };
    let mut connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    tokio::select! {
        // An error here is the peer's: it hung up.
        _ = &mut connection => {}
        () = gone.notified() => reset(connection.into_parts().io.into_inner()),
    }
}

/// Closes with a reset instead of an orderly end, as a crashed process or an impatient middlebox does.
fn reset(stream: TcpStream) {
    // If the option cannot be set the peer sees an orderly end without an answer, which tells it no more.
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// A client with its pool of connections.
#[derive(Debug, Clone)]
pub struct Client(Pool<HttpConnector, Full<Bytes>>);

impl Client {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Pool::builder(TokioExecutor::new()).build(connector))
    }

    /// Posts a body and returns the body of a successful answer.
    ///
    /// # Errors
    ///
    /// Says whether the request may have reached the other side.
    pub async fn post(
        &self,
        to: SocketAddr,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> Result<Bytes, HttpError> {
        let mut request =
            Request::post(format!("http://{to}{path}")).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(HttpError::Request)?;
        let response = self.0.request(request).await.map_err(|error| {
            if error.is_connect() {
                HttpError::Connect(error)
            } else {
                HttpError::Lost(Box::new(error))
            }
        })?;
        let status = response.status();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|e| HttpError::Lost(Box::new(e)))?
            .to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(HttpError::Status(status))
        }
    }
}

/// Why there is no successful answer.
#[derive(Debug)]
pub enum HttpError {
    /// The request could not be made: nothing was sent.
    Request(hyper::http::Error),
    /// There was no connection: nothing was sent.
    Connect(hyper_util::client::legacy::Error),
    /// The connection was lost on the way: the request may have arrived.
    Lost(Box<dyn std::error::Error + Send + Sync>),
    /// An answer that is not a success.
    Status(StatusCode),
}

impl HttpError {
    /// What the error says about the effect of the request.
    ///
    /// The one question is what the other side may have done. Without a connection: nothing. A refusal for load or a fault
    /// in the request: nothing, in the server's own word. Anything after the first byte, and a server that failed on the way:
    /// nobody on this side can know.
    pub fn classified(self) -> Failure<Self> {
        match &self {
            Self::Connect(_) => Failure::transient(self),
            Self::Lost(_) => Failure::uncertain(self),
            Self::Request(_) => Failure::permanent(self),
            Self::Status(status) => match status.as_u16() {
                429 => Failure::throttled(self),
                // Not the request's fault alone: it may have been under way.
                408 => Failure::uncertain(self),
                501 | 505 => Failure::permanent(self),
                500.. => Failure::uncertain(self),
                _ => Failure::permanent(self),
            },
        }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => write!(f, "the request cannot be made: {error}"),
            Self::Connect(error) => write!(f, "there is no connection, nothing was sent: {error}"),
            Self::Lost(error) => write!(
                f,
                "the connection was lost after the request may have left: {error}"
            ),
            Self::Status(status) => write!(f, "the server answered {status}"),
        }
    }
}

impl std::error::Error for HttpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(error),
            Self::Connect(error) => Some(error),
            Self::Lost(error) => Some(&**error),
            Self::Status(_) => None,
        }
    }
}
