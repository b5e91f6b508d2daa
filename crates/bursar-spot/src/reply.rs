//! The way back of an answer, from whoever ran the work to whoever waits for it.
//!
//! Invariants:
//! 1. An answer is given at most once. It is there before its requester is woken.
//! 2. No user code runs under the lock: wakers are cloned before it, and woken and dropped after it, as answers are.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::body::Ended;
use crate::strand::discard;
use crate::sync::{Mutex, lock};

enum Slot<T> {
    /// Whom to wake.
    Waits(Waker),
    Ended(Result<T, Ended>),
    /// The requester has its answer, or wants none any more.
    Gone,
}

/// Where whoever runs the work answers.
pub(crate) struct Requester<T>(Arc<Mutex<Slot<T>>>);

/// Where the requester waits. Dropping it gives up the answer.
pub(crate) struct Reply<T>(Arc<Mutex<Slot<T>>>);

impl<T> Requester<T> {
    /// `waker` is woken for the answer, unless the reply is polled with another one.
    pub(crate) fn new(waker: Waker) -> (Self, Reply<T>) {
        let slot = Arc::new(Mutex::new(Slot::Waits(waker)));
        (Self(Arc::clone(&slot)), Reply(slot))
    }

    /// Gives the answer, and says whom to wake for it.
    pub(crate) fn tell(self, ended: Result<T, Ended>) -> Option<Waker> {
        let mut slot = lock(&self.0);
        match std::mem::replace(&mut *slot, Slot::Ended(ended)) {
            Slot::Waits(waker) => Some(waker),
            unwanted => {
                let answer = std::mem::replace(&mut *slot, unwanted);
                drop(slot);
                discard(answer);
                None
            }
        }
    }
}

impl<T> Reply<T> {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Ended>> {
        let mut slot = lock(&self.0);
        if let Slot::Waits(waker) = &*slot {
            if waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            drop(slot);
            let fresh = Slot::Waits(cx.waker().clone());
            slot = lock(&self.0);
            if matches!(&*slot, Slot::Waits(_)) {
                let old = std::mem::replace(&mut *slot, fresh);
                drop(slot);
                discard(old);
                return Poll::Pending;
            }
        }
        match std::mem::replace(&mut *slot, Slot::Gone) {
            Slot::Ended(ended) => Poll::Ready(ended),
            // Polled again after its end: nobody does.
            Slot::Waits(_) | Slot::Gone => Poll::Pending,
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let left = std::mem::replace(&mut *lock(&self.0), Slot::Gone);
        discard(left);
    }
}
