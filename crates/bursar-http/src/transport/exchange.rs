//! One request on its way: what the connection has taken of it, and the body through which the connection says so.
//!
//! hyper asks a body for its size on the connection's task, just before it buffers the head. Until then the request can
//! be handed back untouched; from then on its bytes may leave. Both ends decide under one lock, so the caller that
//! leaves and the connection that begins never disagree: who finds the request withdrawn seals an HTTP/1 connection
//! before a byte is written. Where HTTP/2 may be spoken hyper-util is asked which connection it chose
//! (`capture_connection`), since a shared one cannot be sealed.
//!
//! Lock order: an exchange's state, then its wire's. Wakers are woken after both.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::{CaptureConnection, Connected};

use super::wire::{self, Taken, Wire};
use crate::body::Source;
use crate::error::BoxError;
use crate::verdict::Sent;

/// What is known of one request's way to its peer.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Whichever connection takes it, it can be sealed.
    http1: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    chosen: Chosen,
    stage: Stage,
    /// Who waits for the request to be taken.
    submitter: Option<Waker>,
    /// The caller has left after the answer's head, or has it all.
    left: bool,
    /// Whoever sends the body on a connection that cannot be sealed.
    sender: Option<Waker>,
    /// The request's own body failed.
    body_failed: bool,
}

/// Which connection the pool has chosen.
#[derive(Debug)]
pub(crate) enum Chosen {
    /// Whichever, it speaks HTTP/1.
    Http1,
    /// Told once it is chosen.
    Either(CaptureConnection),
    /// Told once it is chosen; it speaks HTTP/2.
    Http2(CaptureConnection),
}

impl Chosen {
    /// Whether a request that no connection has looked at may lie before a shared one.
    fn may_be_shared(&self) -> bool {
        match self {
            Self::Http1 => false,
            Self::Either(capture) => capture
                .connection_metadata()
                .as_ref()
                .is_some_and(Connected::is_negotiated_h2),
            Self::Http2(capture) => capture.connection_metadata().is_some(),
        }
    }
}

#[derive(Debug)]
enum Stage {
    /// No connection has looked at the request.
    Untouched,
    /// A connection is taking it.
    Taken(Arc<Wire>, Taken),
    /// A connection took it, and which one is not known.
    Lost,
    /// The caller left before any connection took it.
    Withdrawn,
}

impl Exchange {
    pub(crate) fn new(chosen: Chosen) -> Arc<Self> {
        Arc::new(Self {
            http1: matches!(chosen, Chosen::Http1),
            state: Mutex::new(State {
                chosen,
                stage: Stage::Untouched,
                submitter: None,
                left: false,
                sender: None,
                body_failed: false,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On the connection's task: it looks at the request and is about to write.
    fn touch(&self) {
        let mut state = self.lock();
        match state.stage {
            Stage::Untouched => {}
            // Sealed already if it was sealed before: this costs a lock.
            Stage::Withdrawn => {
                drop(state);
                if let Some(wire) = wire::current() {
                    wire.seal();
                }
                return;
            }
            Stage::Taken(..) | Stage::Lost => return,
        }
        state.stage = match wire::current() {
            Some(wire) => {
                let taken = wire.begin();
                Stage::Taken(wire, taken)
            }
            None => Stage::Lost,
        };
        let submitter = state.submitter.take();
        drop(state);
        if let Some(waker) = submitter {
            waker.wake();
        }
    }

    /// On the connection's task: the request's last frame was handed over.
    fn whole(&self) {
        if let Stage::Taken(wire, taken) = &self.lock().stage {
            wire.whole(*taken);
        }
    }

    /// Whether the request's own body failed.
    pub(crate) fn body_failed(&self) -> bool {
        self.lock().body_failed
    }

    /// What is known of a request that failed without an answer. Nothing more of it leaves.
    pub(crate) fn failed(&self) -> Sent {
        let mut state = self.lock();
        let (wire, taken) = match &state.stage {
            Stage::Untouched => {
                // The error has come back, so the request has: nobody can take it any more.
                state.stage = Stage::Withdrawn;
                return Sent::Nothing;
            }
            Stage::Withdrawn => return Sent::Nothing,
            Stage::Lost => return Sent::Perhaps,
            Stage::Taken(wire, taken) => (Arc::clone(wire), *taken),
        };
        drop(state);
        if wire.seal_unwritten(taken) {
            Sent::Nothing
        } else {
            Sent::Perhaps
        }
    }

    /// The caller leaves while the request waits for its answer: stops what can be stopped. The pool's future is still
    /// there, so that nobody else can have got a connection that was taken.
    pub(crate) fn abandon(&self) -> Sent {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Untouched) {
            drop(state);
            return self.failed();
        }
        state.stage = Stage::Withdrawn;
        if state.chosen.may_be_shared() {
            // It may lie before the connection's task, which then takes it up all the same.
            Sent::Perhaps
        } else {
            Sent::Nothing
        }
    }

    /// The caller leaves after the answer's head, or has it all: a request that is still being sent is stopped.
    pub(crate) fn abandon_rest(&self) -> bool {
        let mut state = self.lock();
        state.left = true;
        let sender = state.sender.take();
        let taken = match &state.stage {
            Stage::Taken(wire, taken) => Some((Arc::clone(wire), *taken)),
            _ => None,
        };
        drop(state);
        let sealed = taken.is_some_and(|(wire, taken)| wire.seal_partial(taken));
        if let Some(waker) = sender {
            waker.wake();
        }
        sealed
    }

    /// Ready once nobody wants the body to be sent any more. A connection that can be sealed is, and asks in vain.
    fn poll_left(&self, cx: &Context<'_>) -> Poll<()> {
        if self.http1 {
            return Poll::Pending;
        }
        let waker = cx.waker().clone();
        let mut state = self.lock();
        if state.left {
            return Poll::Ready(());
        }
        let old = state.sender.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// The peer was not heard in time. A shared connection may be dead and nobody told, so the pool is to open another
    /// one; those who use this one may go on. One that is not shared is sealed anyway.
    pub(crate) fn distrust(&self) {
        let state = self.lock();
        if let Chosen::Either(capture) | Chosen::Http2(capture) = &state.chosen {
            if let Some(connected) = capture.connection_metadata().as_ref() {
                connected.poison();
            }
        }
    }

    /// Ready once the request's last byte was written. HTTP/1 alone knows.
    pub(crate) fn poll_submitted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        match &state.stage {
            Stage::Taken(wire, taken) => {
                let (wire, taken) = (Arc::clone(wire), *taken);
                drop(state);
                wire.poll_flushed(taken, cx)
            }
            Stage::Untouched => {
                let old = state.submitter.replace(waker);
                drop(state);
                drop(old);
                Poll::Pending
            }
            Stage::Lost | Stage::Withdrawn => Poll::Pending,
        }
    }
}

/// A request's body as hyper sees it.
pub(crate) struct SentBody {
    source: Source,
    exchange: Arc<Exchange>,
    /// What was told to the exchange already, and is not told again.
    touched: Cell<bool>,
    whole: Cell<bool>,
}

impl SentBody {
    pub(crate) fn new(source: Source, exchange: Arc<Exchange>) -> Self {
        Self {
            source,
            exchange,
            touched: Cell::new(false),
            whole: Cell::new(false),
        }
    }

    fn touch(&self) {
        if !self.touched.replace(true) {
            self.exchange.touch();
        }
    }

    fn end(&self) {
        if !self.whole.replace(true) {
            self.exchange.whole();
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.touch();
        if self.exchange.poll_left(cx).is_ready() {
            // The reason that the stream is reset with.
            let reason = h2::Error::from(h2::Reason::CANCEL);
            return Poll::Ready(Some(Err(reason.into())));
        }
        let frame = self.source.poll_frame(cx);
        match frame {
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Err(_))) => self.exchange.lock().body_failed = true,
            _ => {}
        }
        frame.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        self.touch();
        let ended = self.source.is_ended();
        if ended {
            self.end();
        }
        ended
    }

    fn size_hint(&self) -> SizeHint {
        self.touch();
        match self.source.length() {
            Some(length) => SizeHint::with_exact(length),
            None => SizeHint::default(),
        }
    }
}

impl fmt::Debug for SentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SentBody")
    }
}
