//! Connections of HTTP/1, kept while they are idle: where nothing else is spoken, hyper's connections are used as they are.
//!
//! hyper-util's pool finds out what a connection speaks, races the opening of one against the return of another, and
//! copies its configuration for each request; that costs more than the request itself. What is left to do where the
//! protocol is known stands here.
//!
//! Invariants:
//! 1. A connection is with one request or idle: a [`Lease`] owns its sender.
//! 2. It is idle again once the answer has been read to its end ([`Lease::give_back`]); dropped before that, it closes.
//! 3. A request that comes back untouched, since its idle connection had closed, goes to another one. On a new
//!    connection that is its failure.
//! 4. What was idle for [`IDLE`] is closed by one task, which ends with the last idle connection or with the client.
//! 5. A request that finds no idle connection opens one, in its own poll; leaving, it takes that with it.
//!
//! There is one lock. Nothing is polled, woken or closed under it.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::sync::oneshot;
use tower_service::Service;

use super::IDLE;
use super::connect::Connector;
use super::exchange::SentBody;
use super::is_https;
use super::wire::Tracking;
use crate::ambient;
use crate::error::BoxError;

/// The head of an answer, with the connection that its body comes on.
pub(super) type Exchanging =
    Pin<Box<dyn Future<Output = Result<(Response<Incoming>, Lease), BoxError>> + Send>>;

/// The connections of one client that speak HTTP/1.
#[derive(Clone)]
pub(super) struct Http1 {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By host and port, plain and over TLS; what came back last is taken first.
    idle: [HashMap<Arc<str>, Vec<Idle>>; 2],
    /// Held for the task that closes what was idle for too long: it ends when this is dropped.
    reaper: Option<oneshot::Sender<()>>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// One connection, and whom it leads to.
struct Connection {
    sender: http1::SendRequest<SentBody>,
    secure: bool,
    authority: Arc<str>,
}

/// A connection while a request has it. Dropped, it closes.
pub(super) struct Lease {
    connection: Connection,
    shared: Arc<Shared>,
    /// Its server speaks HTTP/1.0, in which hyper would send no stream: for one request only.
    once: bool,
}

impl Http1 {
    pub(super) fn new(connector: Connector) -> Self {
        Self {
            shared: Arc::new(Shared {
                connector,
                kept: Mutex::default(),
            }),
        }
    }

    /// Sends `request` to where `target` leads and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(super) fn exchange(&self, target: &Uri, request: Request<SentBody>) -> Exchanging {
        // Where a connection leads is copied only if one is to be made.
        let found = self.shared.take(target).ok_or_else(|| target.clone());
        Box::pin(exchange(Arc::clone(&self.shared), found, request))
    }
}

/// `found` is an idle connection, or where one is to lead.
async fn exchange(
    shared: Arc<Shared>,
    mut found: Result<Connection, Uri>,
    mut request: Request<SentBody>,
) -> Result<(Response<Incoming>, Lease), BoxError> {
    loop {
        let (mut connection, was_idle) = match found {
            Ok(connection) => (connection, true),
            Err(target) => (shared.connect(target).await?, false),
        };
        // Its task may still be busy with the end of the last answer.
        let open = connection.sender.ready().await.is_ok();
        if open || !was_idle {
            let sent = connection.sender.try_send_request(request);
            let mut error = match sent.await {
                Ok(response) => {
                    let once = response.version() < Version::HTTP_11;
                    let lease = Lease {
                        connection,
                        shared,
                        once,
                    };
                    return Ok((response, lease));
                }
                Err(error) => error,
            };
            match error.take_message() {
                Some(untouched) if was_idle => request = untouched,
                _ => return Err(error.into_error().into()),
            }
        }
        let target = connection.target()?;
        found = shared.take(&target).ok_or(target);
    }
}

impl Connection {
    fn target(&self) -> Result<Uri, BoxError> {
        let scheme = if self.secure {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        let target = Uri::builder()
            .scheme(scheme)
            .authority(&*self.authority)
            .path_and_query("/");
        target.build().map_err(Into::into)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection to there, unless there is none that is open and has come back lately. Whether its runtime has
    /// closed in time what was idle for long is not asked: that may not have run.
    fn take(&self, target: &Uri) -> Option<Connection> {
        let authority = target.authority().map_or("", Authority::as_str);
        loop {
            let mut kept = self.lock();
            let idle = kept.idle[usize::from(is_https(target))].get_mut(authority)?;
            let Idle { connection, since } = idle.pop()?;
            if ambient::now().duration_since(since) >= IDLE {
                // Those before it came back before it.
                let older = std::mem::take(idle);
                drop(kept);
                drop((connection, older));
                return None;
            }
            drop(kept);
            if !connection.sender.is_closed() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self, target: Uri) -> Result<Connection, BoxError> {
        let secure = is_https(&target);
        let authority = target.authority().map_or("", Authority::as_str);
        let authority = Arc::from(authority);
        let stream = self.connector.clone().call(target).await?;
        let (sender, connection) = http1::handshake(stream).await?;
        hyper::rt::Executor::execute(&Tracking, connection);
        Ok(Connection {
            sender,
            secure,
            authority,
        })
    }

    fn keep(self: &Arc<Self>, connection: Connection) {
        let since = ambient::now();
        let mut kept = self.lock();
        let place = &mut kept.idle[usize::from(connection.secure)];
        // The task that closes them may belong to a runtime that nobody drives.
        let mut late = Vec::new();
        match place.get_mut(&*connection.authority) {
            Some(idle) => {
                late.extend(expire(idle, since));
                idle.push(Idle { connection, since });
            }
            None => {
                let authority = Arc::clone(&connection.authority);
                place.insert(authority, vec![Idle { connection, since }]);
            }
        }
        if kept
            .reaper
            .as_ref()
            .is_some_and(|reaper| !reaper.is_closed())
        {
            drop(kept);
            return drop(late);
        }
        let (reaper, gone) = oneshot::channel();
        let old = kept.reaper.replace(reaper);
        drop(kept);
        drop((old, late));
        // Read to its end outside of a runtime, the answer leaves its connection to whoever keeps the next one: the
        // receiver is gone then, and another task is made.
        ambient::spawn_within(reap(Arc::downgrade(self), since, gone));
    }

    /// Takes out what was idle for too long, and says since when the oldest of the others is.
    fn expired(&self, now: Instant) -> (Vec<Idle>, Option<Instant>) {
        let mut kept = self.lock();
        let mut expired = Vec::new();
        let mut oldest = None;
        for place in &mut kept.idle {
            place.retain(|_, idle| {
                expired.extend(expire(idle, now));
                if let Some(first) = idle.first() {
                    oldest =
                        Some(oldest.map_or(first.since, |oldest: Instant| oldest.min(first.since)));
                }
                !idle.is_empty()
            });
        }
        if oldest.is_none() {
            // Under this lock, so that whoever keeps the next one starts the next task.
            kept.reaper = None;
        }
        (expired, oldest)
    }
}

/// Takes out of a list what was idle for too long: it is in the order in which they came back.
fn expire(idle: &mut Vec<Idle>, now: Instant) -> std::vec::Drain<'_, Idle> {
    let late = idle.partition_point(|idle| now.duration_since(idle.since) >= IDLE);
    idle.drain(..late)
}

/// Closes what was idle for too long, until nothing is idle or the client is `gone`.
async fn reap(shared: std::sync::Weak<Shared>, since: Instant, mut gone: oneshot::Receiver<()>) {
    let mut oldest = since;
    while ambient::reached(oldest + IDLE, &mut gone).await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let (expired, next) = shared.expired(ambient::now());
        drop(expired);
        match next {
            Some(next) => oldest = next,
            None => return,
        }
    }
}

impl Lease {
    /// The answer has been read to its end: another request may have the connection.
    pub(super) fn give_back(self) {
        if !self.once && !self.connection.sender.is_closed() {
            self.shared.keep(self.connection);
        }
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1")
            .field("connector", &self.shared.connector)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease")
            .field(&self.connection.authority)
            .finish()
    }
}
