//! The end of a service: its server's drain and its runtime's, as one, within a bound.
//!
//! 1. From the signal the server takes no new connection, and each open one ends with the request it is serving.
//! 2. For the patience, half the bound unless said otherwise, requests under way go on as before, calls that they begin
//!    included. When all have ended, or then, the runtime stops: what waits is told so, what runs ends.
//! 3. At the bound it is over, whatever still runs.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bursar::{DrainReport, Runtime, ShutdownError};
use tokio::sync::oneshot;

use crate::clock;

/// Completes when the server is to stop: what `with_graceful_shutdown` and its like take.
#[derive(Debug)]
#[must_use = "give it to the server"]
pub struct Stop(oneshot::Receiver<()>);

impl Future for Stop {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Sent, or whoever would have sent it is gone: no reason to go on either way.
        Pin::new(&mut self.0).poll(cx).map(|_| ())
    }
}

/// Serves until a signal, then drains the server and the runtime together.
///
/// Works with every server that takes a future for its graceful shutdown, axum's and tonic's among them.
///
/// ```no_run
/// use bursar::Runtime;
/// use bursar_tower::Graceful;
/// use std::time::Duration;
///
/// # async fn main_() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("db", 16).build()?;
/// let app = axum::Router::new();
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:3000").await?;
///
/// let ctrl_c = async { tokio::signal::ctrl_c().await.expect("signals can be awaited") };
/// let report = Graceful::new(&runtime, ctrl_c)
///     .within(Duration::from_secs(25))
///     .serve(|stop| axum::serve(listener, app).with_graceful_shutdown(stop))
///     .await?;
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
///
/// Several servers, such as one for the public and one for operators, are one server that ends when all have:
///
/// ```no_run
/// use futures_util::FutureExt;
/// # async fn serve(
/// #     graceful: bursar_tower::Graceful<std::future::Pending<()>>,
/// #     (public, app): (tokio::net::TcpListener, axum::Router),
/// #     (private, admin): (tokio::net::TcpListener, axum::Router),
/// # ) -> Result<(), bursar_tower::ServeError<std::io::Error>> {
/// graceful
///     .serve(|stop| async move {
///         let stop = stop.shared();
///         let app = axum::serve(public, app).with_graceful_shutdown(stop.clone());
///         let admin = axum::serve(private, admin).with_graceful_shutdown(stop);
///         tokio::try_join!(app.into_future(), admin.into_future()).map(drop)
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it begins with `serve`"]
pub struct Graceful<F> {
    runtime: Runtime,
    signal: F,
    bound: Duration,
    patience: Option<Duration>,
}

impl<F: Future> Graceful<F> {
    /// Until `signal` completes, whatever it completes with. The bound is 20 s.
    ///
    /// Whoever sends requests may go on for a while after the process was told to end, as a load balancer does until it has
    /// noticed; let `signal` complete that much later, so that they are still served.
    pub fn new(runtime: &Runtime, signal: F) -> Self {
        Self {
            runtime: runtime.clone(),
            signal,
            bound: Duration::from_secs(20),
            patience: None,
        }
    }

    /// How long all may take from the signal on.
    pub fn within(mut self, bound: Duration) -> Self {
        self.bound = bound;
        self
    }

    /// For how long of that time requests under way may still begin calls. The default is half of it.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Serves, and returns once everything has ended. A server that ends by itself is followed by the runtime's drain.
    ///
    /// # Errors
    /// [`ServeError`]: the server failed, or something still ran at the bound. The runtime is closed in either case.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Dropping the future drops the server's. A drain that has begun goes on and can be awaited at the runtime.
    pub async fn serve<S, E>(
        self,
        server: impl FnOnce(Stop) -> S,
    ) -> Result<DrainReport, ServeError<E>>
    where
        S: IntoFuture<Output = Result<(), E>>,
    {
        let (stop, stopped) = oneshot::channel();
        let mut server = Server {
            future: Box::pin(server(Stop(stopped)).into_future()),
            result: None,
        };
        server.until(self.signal).await;
        // Dropped, it is heard as a signal.
        drop(stop);
        let last = clock::after(self.bound);
        let patience = self.patience.unwrap_or(self.bound / 2).min(self.bound);
        server
            .until(clock::sleep_until(clock::after(patience)))
            .await;
        let left = last.map_or(self.bound, |last| {
            last.saturating_duration_since(clock::now())
        });
        let drained = server.beside(self.runtime.shutdown_within(left)).await;
        server.until(clock::sleep_until(last)).await;
        match (server.result, drained) {
            (Some(Err(error)), _) => Err(ServeError::Server(error)),
            (_, Err(error)) => Err(ServeError::Runtime(error)),
            (None, Ok(report)) => Err(ServeError::Connections(report)),
            (Some(Ok(())), Ok(report)) => Ok(report),
        }
    }
}

/// A server that is polled beside something else.
struct Server<S, E> {
    future: Pin<Box<S>>,
    /// Once it has ended.
    result: Option<Result<(), E>>,
}

impl<S: Future<Output = Result<(), E>>, E> Server<S, E> {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.result.is_none() {
            if let Poll::Ready(result) = self.future.as_mut().poll(cx) {
                self.result = Some(result);
            }
        }
    }

    /// Until it has ended, or the other has.
    async fn until(&mut self, other: impl Future) {
        let mut other = pin!(other);
        poll_fn(|cx| {
            self.poll(cx);
            if self.result.is_some() {
                return Poll::Ready(());
            }
            other.as_mut().poll(cx).map(|_| ())
        })
        .await;
    }

    /// Until the other has ended.
    async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        poll_fn(|cx| {
            self.poll(cx);
            other.as_mut().poll(cx)
        })
        .await
    }
}

/// Why a service did not end as it should.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError<E> {
    /// The server failed; the runtime was drained, or its bound passed, all the same.
    Server(E),
    /// The runtime was not drained within the bound.
    Runtime(ShutdownError),
    /// The runtime was drained, and connections were still open at the bound.
    Connections(DrainReport),
}

impl<E: fmt::Display> fmt::Display for ServeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => write!(f, "the server failed: {error}"),
            Self::Runtime(error) => error.fmt(f),
            Self::Connections(_) => {
                f.write_str("all calls ended, and connections were still open at the bound")
            }
        }
    }
}

impl<E: Error + 'static> Error for ServeError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Server(error) => Some(error),
            Self::Runtime(error) => Some(error),
            Self::Connections(_) => None,
        }
    }
}
