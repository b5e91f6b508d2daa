//! Completions: what a turn starts and does not wait for, whose result enters as a new turn.
//!
//! Invariants:
//! 1. The callback runs at most once, and exactly once unless its Spot closes, the executor shuts down, or the future
//!    panics; then both are dropped, and that is counted.
//! 2. A Spot with a completion to come is not idle.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bursar::seam::{Chain, CompleteTurn, Services, Standing, YieldTurn};
use pin_project_lite::pin_project;

use crate::actor::ActorTurn;
use crate::body::{Answer, Ended, Queued};
use crate::closing::ClosingTurn;
use crate::contain::discard;
use crate::frame;
use crate::held::{Held, Lane};
use crate::kind::{Kind, SharedGate};
use crate::line::Ticket;
use crate::shared::Shared;
use crate::span::Span;
use crate::strand::{BoxJob, Strand};
use crate::turn::Turn;

/// Starts `future` on its own. Its result enters as a turn of the Spot, or of the lane.
pub(crate) fn on_complete<S, F, C, W>(
    strand: &Arc<Strand<S>>,
    lane: Option<Arc<Lane<S>>>,
    future: F,
    callback: C,
) where
    S: Send + 'static,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    C: FnOnce(Held<S>, F::Output) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let shared = &strand.common.shared;
    let owed = Owed {
        ticket: strand.owe(),
        strand: Arc::clone(strand),
        handed_in: false,
    };
    if owed.ticket.is_none() {
        discard((owed, future, callback));
        return;
    }
    let completion = Completion {
        standing: Standing::new(Some(shared.home), frame::number(), None, None),
        future,
        callback: Some(callback),
        lane,
        owed,
    };
    shared.exec.spawn(Span::current().carry(completion));
}

/// A completion to come, counted as lost unless its callback is handed in.
struct Owed<S: Send + 'static> {
    ticket: Option<Ticket>,
    strand: Arc<Strand<S>>,
    handed_in: bool,
}

/// A callback that was handed in is counted as lost if it never begins.
struct Lost(Arc<Shared>);

impl Answer<()> for Lost {
    fn answer(self, ended: Result<(), Ended>) -> Option<Waker> {
        if let Err(Ended::Closed(false)) = ended {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

impl<S: Send + 'static> Drop for Owed<S> {
    fn drop(&mut self) {
        if !self.handed_in {
            let lost = &self.strand.common.shared.lost;
            lost.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(ticket) = self.ticket.take() {
            self.strand.quit(ticket);
        }
    }
}

pin_project! {
    struct Completion<S, F, C>
    where
        S: Send,
        S: 'static,
    {
        standing: Standing,
        #[pin]
        future: F,
        callback: Option<C>,
        lane: Option<Arc<Lane<S>>>,
        // Dropped last: the Spot is not idle before the rest is gone.
        owed: Owed<S>,
    }
}

impl<S, F, C, W> Future for Completion<S, F, C>
where
    S: Send + 'static,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    C: FnOnce(Held<S>, F::Output) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let strand = &this.owed.strand;
        if let Some(ticket) = this.owed.ticket {
            if strand.come(ticket, cx).is_ready() {
                return Poll::Ready(());
            }
        }
        let future = this.future;
        let polled = this
            .standing
            .alone(|| catch_unwind(AssertUnwindSafe(|| future.poll(cx))));
        let out = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(out)) => out,
            Err(panic) => {
                discard(panic);
                return Poll::Ready(());
            }
        };
        if let Some(callback) = this.callback.take() {
            let lane = this.lane.take();
            let index = lane.as_ref().map(|lane| lane.index());
            let shared = &strand.common.shared;
            let (work, lost) = (move |held| callback(held, out), Lost(Arc::clone(shared)));
            let queued = Queued::new(lane, Chain::default(), work, lost);
            let job: BoxJob<S> = Box::new(queued.in_span(Span::current()));
            // Turned away or not, from here on it counts itself.
            let _turn = strand.resume(job, index);
            this.owed.handed_in = true;
        }
        Poll::Ready(())
    }
}

impl<S: Send + 'static, K: Kind> CompleteTurn for Turn<S, K> {
    type Next = Self;

    fn on_complete<F, C, W>(&self, future: F, callback: C)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
        C: FnOnce(Self, F::Output) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let held = self.held();
        let callback = move |held, out| callback(Self::new(held), out);
        on_complete(held.strand(), held.lane().cloned(), future, callback);
    }
}

impl<S: Send + 'static, A: Send + 'static, K: Kind> CompleteTurn for ActorTurn<S, A, K> {
    type Next = Self;

    fn on_complete<F, C, W>(&self, future: F, callback: C)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
        C: FnOnce(Self, F::Output) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let held = self.held();
        let actor = self.handle();
        let callback = move |held, out| callback(actor.turn(held), out);
        on_complete(held.strand(), held.lane().cloned(), future, callback);
    }
}

impl<S: Send + 'static, K: SharedGate> YieldTurn for Turn<S, K> {
    async fn yield_on<F>(self, future: F) -> (Self, F::Output)
    where
        F: Future + Send,
        F::Output: Send,
    {
        Self::yield_on(self, future).await
    }
}

impl<S: Send + 'static, A: Send + 'static, K: SharedGate> YieldTurn for ActorTurn<S, A, K> {
    async fn yield_on<F>(self, future: F) -> (Self, F::Output)
    where
        F: Future + Send,
        F::Output: Send,
    {
        Self::yield_on(self, future).await
    }
}

impl<S: Send + 'static, K: Kind> Services for Turn<S, K> {
    fn service<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        self.held().strand().common.shared.service(name)
    }
}

impl<S: Send + 'static, A: Send + 'static, K: Kind> Services for ActorTurn<S, A, K> {
    fn service<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        self.held().strand().common.shared.service(name)
    }
}

impl<S: Send + 'static> Services for ClosingTurn<S> {
    fn service<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        self.held().strand().common.shared.service(name)
    }
}
