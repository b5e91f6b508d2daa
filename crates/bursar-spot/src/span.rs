//! The `tracing` span that a piece of work is polled in: its requester's, wherever it runs. Without the feature `tracing`
//! these types are empty (`span/off.rs`).
//!
//! What a turn's end makes due is started by whoever ended it, and has to be told whose it is. No span is entered, cloned
//! or dropped under a lock: a subscriber is user code.

use std::future::Future;
use std::pin::Pin;

use tracing::Instrument as _;
use tracing::instrument::Instrumented;

use crate::resident::Work;

/// See the module.
#[derive(Debug)]
pub(crate) struct Span(tracing::Span);

impl Span {
    /// That of nobody.
    pub(crate) fn none() -> Self {
        Self(tracing::Span::none())
    }

    /// That of whoever asks.
    pub(crate) fn current() -> Self {
        Self(tracing::Span::current())
    }

    /// Runs one poll in it.
    pub(crate) fn scope<R>(&self, poll: impl FnOnce() -> R) -> R {
        self.0.in_scope(poll)
    }

    /// Takes it along into a task.
    pub(crate) fn carry<F>(self, future: F) -> Instrumented<F> {
        future.instrument(self.0)
    }

    /// As `carry`, for work that lies in its cell.
    pub(crate) fn work<F: Future<Output = ()> + Send + 'static>(self, cell: Pin<Box<F>>) -> Work {
        if self.0.is_none() {
            return cell;
        }
        Box::pin(self.carry(cell))
    }
}
