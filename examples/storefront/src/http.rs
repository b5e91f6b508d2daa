//! The other end of loopback HTTP: a small server that can reset a connection for real.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
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
