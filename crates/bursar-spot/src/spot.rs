//! A Spot as its users hold it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::actor::Actor;
use crate::bound::Bound;
use crate::error::{SpotError, SpotErrorKind};
use crate::gate::Phase;
use crate::held::Lane;
use crate::kind::{Kind, SpotWide};
use crate::line::Ticket;
use crate::strand::Strand;
use crate::submit::{Asked, Sent, Target};
use crate::turn::{Entered, Turn};

/// State that one turn at a time may touch. Cheap to clone; every clone is the same Spot.
pub struct Spot<S: Send + 'static, K: Kind = SpotWide> {
    strand: Arc<Strand<S>>,
    kind: PhantomData<fn() -> K>,
}

/// By hand, since a derived one would ask for `S: Clone`.
impl<S: Send + 'static, K: Kind> Clone for Spot<S, K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.strand))
    }
}

impl<S: Send + 'static, K: Kind> Spot<S, K> {
    pub(crate) fn new(strand: Arc<Strand<S>>) -> Self {
        Self {
            strand,
            kind: PhantomData,
        }
    }

    pub(crate) fn strand(&self) -> &Arc<Strand<S>> {
        &self.strand
    }

    fn target(&self) -> Target<'_, S> {
        Target {
            strand: &self.strand,
            lane: None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.strand.name
    }

    /// Whether it takes work in: it has not begun to close.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.strand.look(|gate| gate.phase() == Phase::Open)
    }

    /// Runs `work` as a turn and waits for its result.
    ///
    /// Once accepted the work runs to its end whether or not this future is still there, unless the Spot closes.
    ///
    /// # Errors
    /// See [`SpotErrorKind`](crate::SpotErrorKind).
    ///
    /// # Cancel safety
    /// Dropping the future before the work was accepted takes it back; afterwards it only gives up the result.
    pub fn request<F, W>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<W::Output, SpotError>> + Send + use<'_, S, K, F, W>
    where
        F: FnOnce(Turn<S, K>) -> W + Send + 'static,
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        Asked::new(self.target(), move |held| work(Turn::new(held)))
    }

    /// Hands `work` in to be run as a turn, and returns once it is accepted. It never runs inside of this call.
    ///
    /// # Errors
    /// See [`SpotErrorKind`](crate::SpotErrorKind).
    ///
    /// # Cancel safety
    /// Dropping the future before the work was accepted takes it back.
    pub fn send<F, W>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<(), SpotError>> + Send + use<'_, S, K, F, W>
    where
        F: FnOnce(Turn<S, K>) -> W + Send + 'static,
        W: Future<Output: Send> + Send + 'static,
    {
        Sent::new(self.target(), move |held| work(Turn::new(held)))
    }

    /// Adds an actor: a lane of this Spot with state of its own.
    pub fn actor<A: Send + 'static>(&self, state: A) -> Actor<S, A, K> {
        Actor::new(self.open_lane(), state)
    }

    /// Takes a turn right here: it lasts until what comes back is dropped, and cannot yield.
    ///
    /// # Errors
    /// [`Closed`](crate::SpotErrorKind::Closed): the Spot has closed. [`ShuttingDown`](crate::SpotErrorKind::ShuttingDown):
    /// its host takes nothing in any more. [`InvalidOperation`](crate::SpotErrorKind::InvalidOperation): the turn that asks
    /// holds the gate already. [`DeadlineExceeded`](crate::SpotErrorKind::DeadlineExceeded): the asker holds something that
    /// others may wait for, and it took longer than its runtime's nested wait.
    ///
    /// # Cancel safety
    /// Dropping the future gives its place up.
    pub async fn enter(&self) -> Result<Entered<'_, S>, SpotError> {
        let taken = self.strand.take(None);
        if let Some(state) = taken.and_then(|taken| taken.state) {
            return Ok(Entered::new(&self.strand, state));
        }
        self.wait_to_enter().await
    }

    async fn wait_to_enter(&self) -> Result<Entered<'_, S>, SpotError> {
        let strand = &self.strand;
        if strand.is_held_above(None) {
            return Err(SpotError::new(SpotErrorKind::InvalidOperation, self.name())
                .saying("the turn that asks holds the gate already"));
        }
        let mut waits = Waits {
            strand,
            ticket: None,
        };
        let mut bound = Bound::of_chain(&strand.common.shared);
        poll_fn(move |cx| {
            let state = match waits.poll(cx) {
                Poll::Ready(state) => state,
                Poll::Pending => {
                    let Some(bound) = &mut bound else {
                        return Poll::Pending;
                    };
                    ready!(bound.poll(&strand.common.shared, cx));
                    return Poll::Ready(Err(SpotError::new(
                        SpotErrorKind::DeadlineExceeded,
                        &strand.name,
                    )
                    .saying("its asker holds something that others may wait for")));
                }
            };
            Poll::Ready(match state {
                Some(state) => Ok(Entered::new(strand, state)),
                None => Err(strand.never_ran()),
            })
        })
        .await
    }
}

/// A place in the line for an entered turn.
struct Waits<'s, S: Send + 'static> {
    strand: &'s Arc<Strand<S>>,
    ticket: Option<Ticket>,
}

impl<S: Send + 'static> Waits<'_, S> {
    /// Ready with the state once it has the gate, with nothing if the Spot takes nobody in.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Box<S>>> {
        let Some(ticket) = self.ticket else {
            return match self.strand.wait(cx.waker()) {
                Ok(None) => Poll::Ready(None),
                Err(state) => Poll::Ready(state),
                Ok(ticket) => {
                    self.ticket = ticket;
                    Poll::Pending
                }
            };
        };
        self.strand.come(ticket, cx).map(|taken| {
            let taken = taken?;
            self.ticket = None;
            taken.state
        })
    }
}

impl<S: Send + 'static> Drop for Waits<'_, S> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.strand.quit(ticket);
        }
    }
}

impl<S: Send + 'static, K: Kind> Spot<S, K> {
    /// A lane: work of one lane runs one after the other, also across yields. In a Spot whose lanes have gates of their
    /// own its turns have no state of the Spot. It ends with its last owner.
    pub(crate) fn open_lane(&self) -> Arc<Lane<S>> {
        Lane::open(&self.strand)
    }
}

impl<S: Send + 'static, K: Kind> fmt::Debug for Spot<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spot").field(&self.strand.name).finish()
    }
}
