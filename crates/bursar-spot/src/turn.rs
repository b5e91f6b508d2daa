//! Turns: what work holds while it runs.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bursar::seam::CompleteTurn;

use crate::beside;
use crate::error::{SpotError, SpotErrorKind};
use crate::frame;
use crate::held::{Away, Held};
use crate::kind::{Kind, SharedGate, SpotWide};
use crate::strand::Strand;
use crate::watch::Watched;
use crate::worker::Workers;

/// One piece of work that holds its Spot's gate. Dropping it ends the turn.
///
/// It is handed to the closure of [`request`](crate::Spot::request) or [`send`](crate::Spot::send) by value. A closure
/// that takes no notice of it (`|_turn| async { .. }`) has its turn all the same, until its future has ended.
pub struct Turn<S: Send + 'static, K: Kind = SpotWide> {
    held: Held<S>,
    kind: PhantomData<fn() -> K>,
}

impl<S: Send + 'static, K: Kind> Turn<S, K> {
    pub(crate) fn new(held: Held<S>) -> Self {
        Self {
            held,
            kind: PhantomData,
        }
    }

    /// The Spot's state, which nobody else can touch until the turn ends or yields.
    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "a turn of the Spot's own gate has its state from its grant to its end"
    )]
    pub fn state(&mut self) -> &mut S {
        self.held.state_mut().expect("a turn holds its state")
    }

    /// The name of its Spot.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.held.strand().name
    }

    /// Where work beside the turns is handed in. Its cancellation fires when the Spot closes.
    #[must_use]
    pub fn workers(&self) -> Workers {
        let strand = self.held.strand();
        beside::workers(strand)
    }

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

    /// Starts `future` on its own and goes on at once. Its result enters as a new turn of this Spot, exactly once, in
    /// which `callback` runs. If the Spot closes meanwhile both are dropped, and that is counted
    /// ([`Host::lost_completions`](crate::Host::lost_completions)).
    pub fn on_complete<F, C, W>(&self, future: F, callback: C)
    where
        F: Future<Output: Send + 'static> + Send + 'static,
        C: FnOnce(Self, F::Output) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        CompleteTurn::on_complete(self, future, callback);
    }

    /// As [`yield_on`](Turn::yield_on), where the kind of the Spot is known at run time alone.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation), with the turn, if this turn has no shared gate to give
    /// back. `future` has not been polled then.
    ///
    /// # Panics
    /// As [`yield_on`](Turn::yield_on).
    ///
    /// # Cancel safety
    /// Dropping this future ends the turn.
    pub async fn try_yield_on<F: Future>(
        self,
        future: F,
    ) -> Result<(Self, F::Output), (Self, SpotError)> {
        if !self.held.strand().is_shared() {
            let error = SpotError::new(SpotErrorKind::InvalidOperation, self.name())
                .saying("a turn of a `PerActor` Spot has no shared gate to give back");
            return Err((self, error));
        }
        let ((), held, out) = yield_on((), self.held, future).await;
        Ok((Self::new(held), out))
    }
}

impl<S: Send + 'static, K: SharedGate> Turn<S, K> {
    /// Returns the gate while `future` waits, and takes it back in a new turn.
    ///
    /// The future is polled once with the gate still held, so that it is under way; then the gate is free for whatever
    /// waits. When the future is done the body lines up behind what waits by then, and gets its turn back with the
    /// future's output. A future that is done at once yields all the same to what waits already.
    ///
    /// The turn goes in by value: nothing borrowed from its state lives across the wait, and the state that comes back
    /// may have changed.
    ///
    /// If the Spot closes meanwhile the body is dropped.
    ///
    /// # Panics
    /// If the Spot closes meanwhile, and the turn was taken out of its body into some other task, there.
    ///
    /// # Cancel safety
    /// Dropping this future ends the turn.
    pub async fn yield_on<F: Future>(self, future: F) -> (Self, F::Output) {
        let ((), held, out) = yield_on((), self.held, future).await;
        (Self::new(held), out)
    }
}

/// What a body has while it yields, in the order in which it goes when it is dropped: what belongs to the claim before
/// the claim.
struct Yielding<O, S: Send + 'static> {
    own: Option<O>,
    held: Option<Held<S>>,
    away: Option<Away<S>>,
}

/// See [`Turn::yield_on`]. `own` stays with the claim.
pub(crate) async fn yield_on<O, S: Send + 'static, F: Future>(
    own: O,
    held: Held<S>,
    future: F,
) -> (O, Held<S>, F::Output) {
    let mut yielding = Yielding {
        own: Some(own),
        held: Some(held),
        away: None,
    };
    // Declared later, so dropped first: what is waited for goes before the claim.
    let mut future = pin!(future);
    let mut output = None;
    poll_fn(|cx| {
        if let Some(held) = &yielding.held {
            // Before the first poll of what is waited for.
            held.lets_go();
        }
        if output.is_none() {
            output = match future.as_mut().poll(cx) {
                Poll::Ready(out) => Some(out),
                Poll::Pending => None,
            };
        }
        let held = std::task::ready!(yielding.poll(output.is_some(), cx));
        match (yielding.own.take(), output.take()) {
            (Some(own), Some(out)) => Poll::Ready((own, held, out)),
            // Both are there until they are handed out here.
            _ => Poll::Pending,
        }
    })
    .await
}

impl<O, S: Send + 'static> Yielding<O, S> {
    /// Ready with the turn once what it waits for is `done` and it has the gate again.
    fn poll(&mut self, done: bool, cx: &mut Context<'_>) -> Poll<Held<S>> {
        if let Some(held) = self.held.take() {
            // Done at once, and nobody waits: there is nobody to go first.
            if done && !held.strand().contended() {
                held.holds_again();
                return Poll::Ready(held);
            }
            self.away = Some(held.yields(cx.waker()));
        }
        let Some(away) = &mut self.away else {
            return Poll::Pending;
        };
        let came = if done {
            away.poll_back(cx)
        } else {
            away.poll_away(cx)
        };
        match came {
            Poll::Ready(Some(held)) => Poll::Ready(held),
            Poll::Ready(None) => {
                // The Spot closed. Inside its own body it goes with that.
                let (spot, inside) = (away.strand(), frame::abandon(away.body()));
                if !inside {
                    let spot = Arc::clone(spot);
                    self.away = None;
                    // Elsewhere there is no other way to end what waits for a turn that never comes.
                    panic!(
                        "Spot {:?} closed while a turn of it had yielded outside of its body",
                        spot.name
                    );
                }
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Send + 'static, K: Kind> fmt::Debug for Turn<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("spot", &self.held.strand().name)
            .finish_non_exhaustive()
    }
}

/// A turn that runs where it was entered, and cannot yield. Dropping it ends it.
///
/// Made by [`Spot::enter`](crate::Spot::enter).
#[must_use = "the turn ends when it is dropped"]
pub struct Entered<'s, S: Send + 'static> {
    strand: &'s Arc<Strand<S>>,
    state: Option<Box<S>>,
    watched: Watched,
}

impl<'s, S: Send + 'static> Entered<'s, S> {
    pub(crate) fn new(strand: &'s Arc<Strand<S>>, state: Box<S>) -> Self {
        Self {
            strand,
            state: Some(state),
            watched: strand.watched(),
        }
    }

    /// The Spot's state, which nobody else can touch until the turn ends.
    #[inline]
    #[expect(
        clippy::expect_used,
        reason = "an entered turn has its state until its drop"
    )]
    pub fn state(&mut self) -> &mut S {
        self.state.as_deref_mut().expect("a turn holds its state")
    }
}

impl<S: Send + 'static> Drop for Entered<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.watched.ends();
        if self.strand.common.close_on_panic && std::thread::panicking() {
            self.strand.close(crate::error::CloseReason::Panicked);
        }
        self.strand.leave(self.state.take(), None);
    }
}

impl<S: Send + 'static> fmt::Debug for Entered<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered")
            .field("spot", &self.strand.name)
            .finish_non_exhaustive()
    }
}
