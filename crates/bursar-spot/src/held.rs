//! What turns hold: the gate, a lane's claim, or both, from the grant to the end of the turn.
//!
//! Invariants:
//! 1. What a turn holds ends in one place, [`Held::drop`]; what a yielded body keeps, in [`Away::drop`].
//! 2. A lane outlives its work: whatever is queued for it or runs in it owns a part of it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bursar::seam::{self, HoldId, Standing};

use crate::error::CloseReason;
use crate::frame::{self, BodyId};
use crate::line::Ticket;
use crate::strand::{Strand, index};
use crate::watch::Watched;

/// A lane of a strand, which ends with its last owner: its handle, or work of it that is queued or runs.
pub(crate) struct Lane<S: Send + 'static> {
    strand: Arc<Strand<S>>,
    /// Names its claim in chains.
    hold: HoldId,
    index: u32,
}

impl<S: Send + 'static> Lane<S> {
    pub(crate) fn open(strand: &Arc<Strand<S>>) -> Arc<Self> {
        Arc::new(Self {
            index: strand.look(|gate| gate.open_lane()),
            hold: HoldId::unique(),
            strand: Arc::clone(strand),
        })
    }

    pub(crate) fn hold(&self) -> HoldId {
        self.hold
    }

    pub(crate) fn strand(&self) -> &Arc<Strand<S>> {
        &self.strand
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

impl<S: Send + 'static> Drop for Lane<S> {
    fn drop(&mut self) {
        self.strand.look(|gate| gate.close_lane(self.index));
    }
}

impl<S: Send + 'static> fmt::Debug for Lane<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lane").field(&self.index).finish()
    }
}

/// What a turn holds: the gate with the state, a lane's claim, or both.
pub(crate) struct Held<S: Send + 'static> {
    state: Option<Box<S>>,
    strand: Arc<Strand<S>>,
    lane: Option<Arc<Lane<S>>>,
    watched: Watched,
    body: BodyId,
    gone: bool,
}

impl<S: Send + 'static> Held<S> {
    #[inline]
    pub(crate) fn new(
        strand: &Arc<Strand<S>>,
        state: Option<Box<S>>,
        lane: Option<Arc<Lane<S>>>,
    ) -> Self {
        Self {
            state,
            strand: Arc::clone(strand),
            lane,
            watched: strand.watched(),
            body: frame::number(),
            gone: false,
        }
    }

    pub(crate) fn lane(&self) -> Option<&Arc<Lane<S>>> {
        self.lane.as_ref()
    }

    /// Brings the state that its Spot comes to have.
    pub(crate) fn bring(&mut self, state: S) {
        self.state = Some(Box::new(state));
    }

    /// What the body stands in, to be entered around its polls.
    pub(crate) fn standing(&self) -> Standing {
        let home = self.strand.common.shared.home;
        Standing::new(Some(home), self.body, Some(self.gate()), self.claim())
    }

    fn gate(&self) -> HoldId {
        self.strand.gate_of(self.lane.as_ref())
    }

    fn claim(&self) -> Option<HoldId> {
        self.lane.as_ref().map(|lane| lane.hold())
    }

    /// The chain of the body around this poll no longer holds the gate, or holds it again; the claim stays.
    pub(crate) fn lets_go(&self) {
        seam::regate(self.body, None, self.claim());
    }

    pub(crate) fn holds_again(&self) {
        seam::regate(self.body, Some(self.gate()), self.claim());
    }

    pub(crate) fn strand(&self) -> &Arc<Strand<S>> {
        &self.strand
    }

    /// The state, of a turn that holds the gate of its Spot.
    #[inline]
    pub(crate) fn state_mut(&mut self) -> Option<&mut S> {
        self.state.as_deref_mut()
    }

    pub(crate) fn body(&self) -> BodyId {
        self.body
    }

    /// Returns the gate and keeps the claim.
    pub(crate) fn yields(mut self, waker: &Waker) -> Away<S> {
        // A user's code: a panic in it ends the turn as any.
        let waker = waker.clone();
        self.gone = true;
        self.watched.ends();
        let (state, lane) = (self.state.take(), self.lane.take());
        let ticket = self.strand.yields(state, index(lane.as_ref()), waker);
        Away {
            strand: Arc::clone(&self.strand),
            lane,
            ticket: Some(ticket),
            asked: false,
            body: self.body,
        }
    }
}

impl<S: Send + 'static> Drop for Held<S> {
    #[inline]
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        if frame::is_making(self.body) && !frame::is_unwinding() {
            frame::keep(Box::new(Self {
                state: self.state.take(),
                strand: Arc::clone(&self.strand),
                lane: self.lane.take(),
                watched: std::mem::take(&mut self.watched),
                body: self.body,
                gone: false,
            }));
            return;
        }
        self.watched.ends();
        // A body may outlive its turn, and then asks as any.
        seam::regate(self.body, None, None);
        if self.strand.common.close_on_panic && frame::has_failed(self.body) {
            self.strand.close(CloseReason::Panicked);
        }
        self.strand
            .leave(self.state.take(), index(self.lane.as_ref()));
    }
}

impl<S: Send + 'static> fmt::Debug for Held<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("spot", &self.strand.name)
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}

/// A body that has yielded: it keeps its lane's claim, and its place once it has asked to come back.
pub(crate) struct Away<S: Send + 'static> {
    strand: Arc<Strand<S>>,
    lane: Option<Arc<Lane<S>>>,
    ticket: Option<Ticket>,
    /// What it waited for has come, and it has asked for the gate.
    asked: bool,
    body: BodyId,
}

impl<S: Send + 'static> Away<S> {
    /// What it waits for is not there yet: the waker of the body is kept for when the Spot closes. `None` once it has.
    pub(crate) fn poll_away(&mut self, cx: &mut Context<'_>) -> Poll<Option<Held<S>>> {
        let Some(ticket) = self.ticket else {
            return Poll::Ready(None);
        };
        self.strand.come(ticket, cx).map(|_closed| None)
    }

    /// Asks for the gate, for the first time or again. `None` once the Spot has closed.
    pub(crate) fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<Option<Held<S>>> {
        let Some(ticket) = self.ticket else {
            return Poll::Ready(None);
        };
        let came = if self.asked {
            self.strand.come(ticket, cx)
        } else {
            let waker = cx.waker().clone();
            self.asked = true;
            self.strand.comes_back(ticket, waker)
        };
        came.map(|taken| {
            let taken = taken?;
            self.ticket = None;
            let held = Held {
                state: taken.state,
                strand: Arc::clone(&self.strand),
                lane: self.lane.take(),
                watched: self.strand.watched(),
                body: self.body,
                gone: false,
            };
            held.holds_again();
            Some(held)
        })
    }

    pub(crate) fn body(&self) -> BodyId {
        self.body
    }

    pub(crate) fn strand(&self) -> &Arc<Strand<S>> {
        &self.strand
    }
}

impl<S: Send + 'static> Drop for Away<S> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            seam::regate(self.body, None, None);
            self.strand.quit(ticket);
        }
    }
}
