//! The handler's future and what is held for it, while one attempt runs.
//!
//! 1. Whatever of the handler panics ends the call there and then: the future is dropped first, then everything is given
//!    back.
//! 2. The call's frame is on the thread's chain exactly while the handler is polled.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Deliver, Stage, Step};
use crate::call::Holding;
use crate::chain;
use crate::engine::Plan;

/// The handler's future and what is held for it. Whatever of it panics ends the call there and then: the future first,
/// then what the call holds.
pub(super) struct Work<'w, 'p, Fut> {
    pub(super) running: Pin<&'w mut Option<Fut>>,
    pub(super) holding: &'w mut Holding<&'p Plan>,
    pub(super) stage: &'w mut Stage,
}

#[inline(always)]
pub(super) fn poll_handler<Fut: Future>(
    running: Pin<&mut Option<Fut>>,
    cx: &mut Context<'_>,
) -> Poll<Fut::Output> {
    match running.as_pin_mut() {
        Some(handler) => handler.poll(cx),
        // Only a running call polls its handler.
        None => Poll::Pending,
    }
}

struct Unwinding<'u, 'w, 'p, Fut>(&'u mut Work<'w, 'p, Fut>);

impl<Fut> Drop for Unwinding<'_, '_, '_, Fut> {
    #[cold]
    fn drop(&mut self) {
        *self.0.stage = Stage::Over;
        self.0.holding.plan().counters.panicked();
        self.0.running.set(None);
        self.0.holding.end_attempt();
        self.0.holding.end();
    }
}

impl<Fut: Future> Work<'_, '_, Fut> {
    /// Makes the handler's future and polls it. What a handler does before it returns its future is inside the call as
    /// well.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        handler: impl FnOnce() -> Fut,
        cx: &mut Context<'_>,
    ) -> Poll<Fut::Output> {
        let frame = self.holding.frame();
        let unwinding = Unwinding(self);
        let entered = chain::enter(frame, unwinding.0.holding.record());
        unwinding.0.running.set(Some(handler()));
        let polled = poll_handler(unwinding.0.running.as_mut(), cx);
        entered.leave(unwinding.0.holding.record());
        std::mem::forget(unwinding);
        polled
    }

    /// Polls the handler, with its call on this thread's chain.
    #[inline(always)]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Fut::Output> {
        let frame = self.holding.frame();
        let unwinding = Unwinding(self);
        let entered = chain::enter(frame, unwinding.0.holding.record());
        let polled = poll_handler(unwinding.0.running.as_mut(), cx);
        entered.leave(unwinding.0.holding.record());
        std::mem::forget(unwinding);
        polled
    }

    /// The handler succeeded.
    #[inline]
    pub(super) fn succeed<D: Deliver, T>(&mut self, deliver: &D, value: T) -> Step<D::Of<T>> {
        self.drop_handler();
        *self.stage = Stage::Over;
        Step::Done(deliver.deliver(self.holding, value))
    }

    /// The handler is done; its future is dropped before anything is given back.
    #[inline]
    pub(super) fn drop_handler(&mut self) {
        let unwinding = Unwinding(self);
        unwinding.0.running.set(None);
        std::mem::forget(unwinding);
        self.holding.end_attempt();
    }
}
