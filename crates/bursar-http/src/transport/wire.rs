//! What left on one connection, and how to stop it.
//!
//! [`Watched`] stands above TLS and below hyper. Invariants:
//! 1. Bytes are counted and the seal is checked under the lock that covers the write itself: once sealed, the count is
//!    final.
//! 2. An exchange takes its number and its baseline under the same lock, on the connection's task, before its first
//!    byte is buffered.
//! 3. Only a connection that speaks HTTP/1 is sealed: another one is shared.
//! 4. `flushed` follows `whole` and an empty write buffer, since hyper flushes only then.
//!
//! 5. A connection's task knows its wire: [`Tracking`] gives each task a place on its thread while it is polled, and the
//!    one stream that such a task polls leaves its wire there. hyper flushes before it takes a first request, so the
//!    place is filled by then; if it were not, the exchange would be in doubt and nothing worse.
//!
//! Lock order: an exchange's state (exchange.rs), then this one. Wakers are woken after it.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::ambient;

/// One connection's account of what was written to it.
#[derive(Debug)]
pub(crate) struct Wire {
    /// HTTP/2: many exchanges share it.
    shared: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that may have left.
    written: u64,
    sealed: bool,
    /// The exchange that was taken last.
    turn: u64,
    /// That exchange's request was handed over whole.
    whole: bool,
    /// And then everything buffered was written.
    flushed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Who waits for `flushed`.
    submitter: Option<Waker>,
}

/// An exchange's place on its wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    turn: u64,
    baseline: u64,
}

impl Wire {
    pub(crate) fn new(shared: bool) -> Arc<Self> {
        Arc::new(Self {
            shared,
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An exchange begins here: what is written from now on may be its own.
    pub(crate) fn begin(&self) -> Taken {
        let mut state = self.lock();
        state.turn += 1;
        state.whole = false;
        state.flushed = false;
        Taken {
            turn: state.turn,
            baseline: state.written,
        }
    }

    /// The exchange's request has been handed over whole.
    pub(crate) fn whole(&self, taken: Taken) {
        let mut state = self.lock();
        if state.turn == taken.turn {
            state.whole = true;
        }
    }

    /// Stops the connection before an exchange is taken that its caller has left. No other one is under way.
    pub(crate) fn seal(&self) {
        if !self.shared {
            let wakers = self.lock().seal();
            wake(wakers);
        }
    }

    /// Stops the connection for an exchange that has no answer yet, and tells whether all of its bytes are still here.
    pub(crate) fn seal_unwritten(&self, taken: Taken) -> bool {
        if self.shared {
            return false;
        }
        let mut state = self.lock();
        if state.turn != taken.turn {
            return false;
        }
        let unwritten = state.written == taken.baseline;
        let wakers = state.seal();
        drop(state);
        wake(wakers);
        unwritten
    }

    /// Stops the connection of an exchange that has its answer while its request is still on its way: nobody else waits
    /// for the rest of it. Tells whether it did. One whose request has left may be serving another exchange already.
    pub(crate) fn seal_partial(&self, taken: Taken) -> bool {
        if self.shared {
            return false;
        }
        let mut state = self.lock();
        if state.turn != taken.turn || state.flushed {
            return false;
        }
        let wakers = state.seal();
        drop(state);
        wake(wakers);
        true
    }

    /// Ready once the exchange's last byte was written, or the wire has moved on.
    pub(crate) fn poll_flushed(&self, taken: Taken, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.turn != taken.turn || state.flushed {
            return Poll::Ready(());
        }
        let old = remember(&mut state.submitter, cx);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

type Wakers = [Option<Waker>; 2];

impl State {
    #[must_use]
    fn seal(&mut self) -> Wakers {
        self.sealed = true;
        [self.reader.take(), self.writer.take()]
    }

    fn check(&self) -> io::Result<()> {
        if self.sealed {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the exchange was cancelled",
            ));
        }
        Ok(())
    }
}

fn wake(wakers: Wakers) {
    for waker in wakers.into_iter().flatten() {
        waker.wake();
    }
}

/// Keeps the task's waker. What it replaces is dropped by the caller, after the lock.
#[must_use]
fn remember(slot: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match slot {
        Some(waker) if waker.will_wake(cx.waker()) => None,
        slot => slot.replace(cx.waker().clone()),
    }
}

thread_local! {
    /// The place of the connection's task that is being polled, with its wire once that is known.
    static CURRENT: RefCell<Option<Option<Arc<Wire>>>> = const { RefCell::new(None) };
}

/// The wire of the connection whose task is being polled.
pub(crate) fn current() -> Option<Arc<Wire>> {
    CURRENT.with_borrow(|place| place.clone().flatten())
}

fn make_current(wire: &Arc<Wire>) {
    CURRENT.with_borrow_mut(|place| {
        if let Some(empty @ None) = place {
            *empty = Some(Arc::clone(wire));
        }
    });
}

/// Makes hyper's tasks, each with a place for its wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracking;

impl<F> hyper::rt::Executor<F> for Tracking
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        ambient::spawn(Tracked { wire: None, task });
    }
}

pin_project! {
    struct Tracked<F> {
        wire: Option<Arc<Wire>>,
        #[pin]
        task: F,
    }
}

/// Restores what stood in the place, on a panic too.
struct Place<'a> {
    wire: &'a mut Option<Arc<Wire>>,
    outer: Option<Option<Arc<Wire>>>,
}

impl<'a> Place<'a> {
    fn enter(wire: &'a mut Option<Arc<Wire>>) -> Self {
        let outer = CURRENT.replace(Some(wire.take()));
        Self { wire, outer }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.wire = CURRENT.replace(self.outer.take()).flatten();
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let _place = Place::enter(this.wire);
        this.task.poll(cx).map(drop)
    }
}

/// A stream that keeps its [`Wire`]'s account.
pub(crate) struct Watched {
    io: Io,
    proxied: bool,
    wire: Arc<Wire>,
}

enum Io {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Watched {
    /// `proxied` asks hyper for requests in absolute form.
    pub(crate) fn plain(stream: TokioIo<TcpStream>, shared: bool, proxied: bool) -> Self {
        Self {
            io: Io::Plain(stream),
            proxied,
            wire: Wire::new(shared),
        }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Self {
        let shared = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Self {
            io: Io::Tls(Box::new(TokioIo::new(stream))),
            proxied: false,
            wire: Wire::new(shared),
        }
    }
}

impl Watched {
    /// It speaks HTTP/2.
    pub(crate) fn is_shared(&self) -> bool {
        self.wire.shared
    }
}

impl Connection for Watched {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.proxied);
        match (&self.io, self.wire.shared) {
            (Io::Tls(_), true) => connected.negotiated_h2(),
            _ => connected,
        }
    }
}

impl Io {
    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(&mut **io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(io) => Pin::new(&mut **io).poll_write_vectored(cx, bufs),
        }
    }
}

impl Watched {
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Io, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let _old;
        let mut state = self.wire.lock();
        state.check()?;
        let written = write(&mut self.io, cx);
        match &written {
            Poll::Ready(Ok(bytes)) => state.written += *bytes as u64,
            // TLS may have sent whole records of this buffer before it failed; a socket that fails took nothing.
            Poll::Ready(Err(_)) if matches!(self.io, Io::Tls(_)) => state.written += 1,
            Poll::Ready(Err(_)) => {}
            Poll::Pending => _old = remember(&mut state.writer, cx),
        }
        written
    }
}

impl Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |io, cx| io.poll_write(cx, buf))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, |io, cx| io.poll_write_vectored(cx, bufs))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { io, wire, .. } = &mut *self;
        make_current(wire);
        let _old;
        let mut state = wire.lock();
        state.check()?;
        let flushed = match io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(&mut **io).poll_flush(cx),
        };
        match &flushed {
            Poll::Ready(Ok(())) if state.whole && !state.flushed => {
                state.flushed = true;
                let submitter = state.submitter.take();
                drop(state);
                wake([submitter, None]);
            }
            Poll::Pending => _old = remember(&mut state.writer, cx),
            Poll::Ready(_) => {}
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.lock().check()?;
        match &mut self.io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(&mut **io).poll_shutdown(cx),
        }
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, wire, .. } = &mut *self;
        make_current(wire);
        let _old;
        // Over the read as well, so that nobody seals the wire between it and the waker.
        let mut state = wire.lock();
        state.check()?;
        let read = match io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(&mut **io).poll_read(cx, buf),
        };
        if read.is_pending() {
            _old = remember(&mut state.reader, cx);
        }
        read
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("proxied", &self.proxied)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_a_connection_is_stopped_while_its_request_has_not_left() {
        let wire = Wire::new(false);
        let first = wire.begin();
        wire.whole(first);
        wire.lock().flushed = true;
        assert!(!wire.seal_partial(first), "it has left");
        let second = wire.begin();
        assert!(!wire.seal_partial(first), "another one is under way");
        // Handed over, and not written: the next one would wait for that.
        wire.whole(second);
        assert!(wire.seal_partial(second));
        assert!(wire.lock().check().is_err());
    }
}
