//! The first poll of a call, which nearly always is its only one.
//!
//! What the call holds is a [`Short`], a few words, and not yet a [`Holding`](crate::call::Holding): of a call that is done
//! in this poll nothing is written down that nobody reads. It is made of it when another poll is to follow.
//!
//! 1. Whatever of the handler panics ends the call there and then: the future is dropped first, then everything is given
//!    back.
//! 2. The call's frame is on the thread's chain exactly while the handler is polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::call::Short;
use crate::chain;
use crate::chain::links::Node;

/// The handler's future and what is held for it. It stays where it was made: a move would copy it in pieces of another
/// width than it was written in.
pub(super) struct First<'w, 'p, Fut> {
    running: Pin<&'w mut Option<Fut>>,
    pub(super) short: Short<'p>,
    /// The attempt's record in its chain, if somebody linked to it.
    record: Option<Arc<Node>>,
}

impl<Fut> Drop for First<'_, '_, Fut> {
    /// The handler panicked, or the clock that is read for its deadline.
    #[cold]
    fn drop(&mut self) {
        self.short.panicked();
        self.running.set(None);
        self.end_attempt();
        self.short.end();
    }
}

impl<Fut> First<'_, '_, Fut> {
    /// Whoever linked to the attempt is on its own from now on.
    #[cold]
    fn end_attempt(&mut self) {
        if let Some(record) = self.record.take() {
            record.end();
        }
    }
}

impl<'w, 'p, Fut: Future> First<'w, 'p, Fut> {
    #[inline(always)]
    pub(super) fn new(running: Pin<&'w mut Option<Fut>>, short: Short<'p>) -> Self {
        Self {
            running,
            short,
            record: None,
        }
    }

    /// Makes the handler's future and polls it. What a handler does before it returns its future is inside the call as
    /// well.
    #[inline(always)]
    pub(super) fn poll(
        &mut self,
        handler: impl FnOnce() -> Fut,
        cx: &mut Context<'_>,
    ) -> Poll<Fut::Output> {
        let entered = chain::enter(self.short.frame(), &mut self.record);
        self.running.set(Some(handler()));
        let polled = super::work::poll_handler(self.running.as_mut(), cx);
        entered.leave(&mut self.record);
        polled
    }

    /// The handler is done; its future is dropped before anything is given back.
    #[inline(always)]
    pub(super) fn drop_handler(&mut self) {
        self.running.set(None);
        if self.record.is_some() {
            self.end_attempt();
        }
    }

    /// What is held, and the attempt's record, for whoever goes on with it.
    #[inline(always)]
    pub(super) fn kept(mut self) -> (Short<'p>, Option<Arc<Node>>) {
        let kept = (self.short, self.record.take());
        std::mem::forget(self);
        kept
    }
}
