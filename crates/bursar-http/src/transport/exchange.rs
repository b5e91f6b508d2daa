//! One request on its way: what the connection has taken of it, and the body through which the connection says so.
//!
//! hyper asks a body for its size on the connection's task, just before it buffers the head. Until then the request can
//! be handed back untouched; from then on its bytes may leave. Both ends decide under one lock, so the caller that
//! leaves and the connection that begins never disagree.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::CaptureConnection;

use super::wire::{Taken, Wire};
use crate::body::Source;
use crate::error::BoxError;
use crate::verdict::Sent;

/// What is known of one request's way to its peer.
#[derive(Debug)]
pub(crate) struct Exchange {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Says which connection was chosen, once one was.
    capture: Option<CaptureConnection>,
    stage: Stage,
    /// Who waits for the request to be taken.
    submitter: Option<Waker>,
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
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                capture: None,
                stage: Stage::Untouched,
                submitter: None,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the request is handed to the pool.
    pub(crate) fn watch(&self, capture: CaptureConnection) {
        self.lock().capture = Some(capture);
    }

    /// On the connection's task: it looks at the request and is about to write.
    fn touch(&self) {
        let mut state = self.lock();
        if matches!(state.stage, Stage::Untouched) {
            state.stage = match state.wire() {
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
    }

    /// On the connection's task: the request's last frame was handed over.
    fn whole(&self) {
        if let Stage::Taken(wire, taken) = &self.lock().stage {
            wire.whole(*taken);
        }
    }

    /// What is known of a request that failed without an answer. Nothing more of it leaves.
    pub(crate) fn failed(&self) -> Sent {
        let mut state = self.lock();
        match &state.stage {
            Stage::Untouched => {
                // The error has come back, so the request has: nobody can take it any more.
                state.stage = Stage::Withdrawn;
                Sent::Nothing
            }
            Stage::Withdrawn => Sent::Nothing,
            Stage::Taken(wire, taken) if wire.seal_unwritten(*taken) => Sent::Nothing,
            Stage::Taken(..) | Stage::Lost => Sent::Perhaps,
        }
    }

    /// The caller leaves while the request waits for its answer: stops what can be stopped. The pool's future is still
    /// there, so that nobody else can have got the connection.
    pub(crate) fn abandon(&self) -> Sent {
        let mut state = self.lock();
        if !matches!(state.stage, Stage::Untouched) {
            drop(state);
            return self.failed();
        }
        state.stage = Stage::Withdrawn;
        match state.wire() {
            None => Sent::Nothing,
            // It lies before the connection's task, which may still take it up.
            Some(wire) if wire.is_shared() => Sent::Perhaps,
            Some(wire) => {
                wire.seal();
                Sent::Nothing
            }
        }
    }

    /// The caller leaves after the answer's head: a request that is still being sent is stopped.
    pub(crate) fn abandon_rest(&self) {
        if let Stage::Taken(wire, taken) = &self.lock().stage {
            wire.seal_partial(*taken);
        }
    }

    /// Ready once the request's last byte was written. HTTP/1 alone knows.
    pub(crate) fn poll_submitted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        match &state.stage {
            Stage::Taken(wire, taken) => wire.poll_flushed(*taken, cx),
            Stage::Untouched => {
                state.submitter = Some(cx.waker().clone());
                Poll::Pending
            }
            Stage::Lost | Stage::Withdrawn => Poll::Pending,
        }
    }
}

impl State {
    fn wire(&self) -> Option<Arc<Wire>> {
        let connected = self.capture.as_ref()?.connection_metadata();
        let mut extras = Extensions::new();
        connected.as_ref()?.get_extras(&mut extras);
        extras.remove::<Arc<Wire>>()
    }
}

/// A request's body as hyper sees it.
pub(crate) struct SentBody {
    source: Source,
    exchange: Arc<Exchange>,
}

impl SentBody {
    pub(crate) fn new(source: Source, exchange: Arc<Exchange>) -> Self {
        Self { source, exchange }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.exchange.touch();
        let frame = self.source.poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) {
            self.exchange.whole();
        }
        frame.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.touch();
        let ended = self.source.is_ended();
        if ended {
            self.exchange.whole();
        }
        ended
    }

    fn size_hint(&self) -> SizeHint {
        self.exchange.touch();
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
