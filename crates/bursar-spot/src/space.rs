//! Waiting for space in the full queue of a Spot, for as long as its send timeout lasts.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::bound::Bound;
use crate::gate::Place;
use crate::line::Ticket;
use crate::strand::Strand;

/// Waits for space in a full queue.
pub(crate) struct Space {
    ticket: Ticket,
    bound: Bound,
}

pub(crate) enum Waits {
    /// Accepted: whatever happens to it now.
    Accepted,
    Closed,
    TimedOut,
}

impl Space {
    pub(crate) fn new<S: Send + 'static>(strand: &Arc<Strand<S>>, ticket: Ticket) -> Self {
        Self {
            ticket,
            bound: Bound::of(strand.common.send_timeout),
        }
    }

    pub(crate) fn poll<S: Send + 'static>(
        &mut self,
        strand: &Arc<Strand<S>>,
        cx: &mut Context<'_>,
    ) -> Poll<Waits> {
        match strand.outside(self.ticket, cx.waker()) {
            Some(Place::Space) => {}
            Some(Place::Closed) => {
                strand.quit(self.ticket);
                return Poll::Ready(Waits::Closed);
            }
            _ => return Poll::Ready(Waits::Accepted),
        }
        ready!(self.bound.poll(&strand.common.shared, cx));
        Poll::Ready(if strand.cancel(self.ticket) {
            Waits::TimedOut
        } else {
            // It was accepted, or dismissed, just now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        })
    }

    /// Whoever waited goes away: what was not accepted goes with it.
    pub(crate) fn leave<S: Send + 'static>(&self, strand: &Arc<Strand<S>>) {
        match strand.place(self.ticket) {
            Some(Place::Space) => {
                // Accepted just now, if it is not there any more.
                let _taken_back = strand.cancel(self.ticket);
            }
            Some(Place::Closed) => strand.quit(self.ticket),
            _ => {}
        }
    }
}
