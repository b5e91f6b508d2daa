//! How a Spot ends: its last turn, and waiting for it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bursar::seam::Chain;

use crate::body::{Nobody, Queued};
use crate::error::{CloseReason, SpotError, SpotErrorKind};
use crate::held::Held;
use crate::strand::Strand;

type LastTurn = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a Spot was told to do at turning points of its life.
pub(crate) struct Hooks<S: Send + 'static> {
    pub(crate) on_closing: Box<dyn Fn(ClosingTurn<S>, CloseReason) -> LastTurn + Send + Sync>,
}

impl<S: Send + 'static> Hooks<S> {
    pub(crate) fn new<F, W>(last: F) -> Self
    where
        F: Fn(ClosingTurn<S>, CloseReason) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        Self {
            on_closing: Box::new(move |turn, reason| Box::pin(last(turn, reason))),
        }
    }
}

/// The last turn of a Spot, in which [`on_closing`](crate::SpotBuilder::on_closing) runs. It cannot yield.
pub struct ClosingTurn<S: Send + 'static> {
    held: Held<S>,
}

impl<S: Send + 'static> ClosingTurn<S> {
    pub(crate) fn held(&self) -> &Held<S> {
        &self.held
    }

    /// What was named so when the host was configured; see [`HostBuilder::service`](crate::HostBuilder::service).
    ///
    /// # Errors
    /// [`NotConfigured`](SpotErrorKind::NotConfigured): nothing of that type has that name.
    pub fn service<T: Any + Send + Sync>(&self, name: &str) -> Result<Arc<T>, SpotError> {
        let found = self.held.strand().common.shared.service(name);
        found.ok_or_else(|| SpotError::new(SpotErrorKind::NotConfigured, name))
    }

    /// The Spot's state, which nobody else will touch again.
    #[expect(
        clippy::expect_used,
        reason = "the last turn holds the gate, and the state with it"
    )]
    pub fn state(&mut self) -> &mut S {
        self.held.state_mut().expect("a turn has its state")
    }

    /// The name of its Spot.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.held.strand().name
    }
}

impl<S: Send + 'static> fmt::Debug for ClosingTurn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosingTurn")
            .field("spot", &self.held.strand().name)
            .finish_non_exhaustive()
    }
}

/// Everything else has ended: starts the last turn, or ends it at once if there is nothing to do in it.
pub(crate) fn last_turn<S: Send + 'static>(
    strand: &Arc<Strand<S>>,
    state: Box<S>,
    reason: CloseReason,
) {
    if strand.hooks().is_none() {
        strand.leave(Some(state), None);
        return;
    }
    let make = move |held: Held<S>| {
        let strand = Arc::clone(held.strand());
        let turn = ClosingTurn { held };
        // Called here, in the last turn, so that a panic in it is the turn's.
        let last = strand.hooks().map(|hooks| (hooks.on_closing)(turn, reason));
        async move {
            if let Some(last) = last {
                last.await;
            }
        }
    };
    let job = Box::new(Queued::new(None, Chain::default(), make, Nobody));
    strand.start(job, Some(state));
}
