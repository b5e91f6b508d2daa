//! How a Spot ends: its last turn, and waiting for it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use bursar::seam::Chain;

use crate::body::{Nobody, Queued};
use crate::error::CloseReason;
use crate::frame;
use crate::held::Held;
use crate::strand::{Job, Strand};

type LastTurn = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a Spot was told to do at turning points of its life.
pub(crate) struct Hooks<S: Send + 'static> {
    pub(crate) on_closing: Box<dyn Fn(ClosingTurn<S>, CloseReason) -> LastTurn + Send + Sync>,
}

/// The last turn of a Spot, in which [`on_closing`](crate::SpotBuilder::on_closing) runs. It cannot yield.
pub struct ClosingTurn<S: Send + 'static> {
    held: Held<S>,
}

impl<S: Send + 'static> ClosingTurn<S> {
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
    let exec = &strand.common.shared.exec;
    let job = Box::pin(Queued::new(exec, None, Chain::default(), make, Nobody));
    frame::start(job.grant(strand, Some(state)));
}

/// Waits until a strand has ended.
pub(crate) async fn closed<S: Send + 'static>(strand: &Strand<S>) {
    poll_fn(|cx| strand.poll_closed(cx)).await;
}
