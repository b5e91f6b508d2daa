//! The way back of an answer, from whoever ran the work to whoever waits for it.
//!
//! Invariants:
//! 1. An answer is given at most once. It is there before its requester is woken.
//! 2. No user code runs under the lock: wakers are cloned before it, and woken and dropped after it, as answers are.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::body::Ended;
use crate::contain::discard;
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
        let mut fresh = None;
        if let Slot::Waits(waker) = &*slot {
            if waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
            drop(slot);
            fresh = Some(cx.waker().clone());
            slot = lock(&self.0);
        }
        let (polled, old) = match (std::mem::replace(&mut *slot, Slot::Gone), fresh) {
            (Slot::Waits(old), Some(fresh)) => {
                *slot = Slot::Waits(fresh);
                (Poll::Pending, Some(old))
            }
            (Slot::Waits(waker), None) => {
                *slot = Slot::Waits(waker);
                (Poll::Pending, None)
            }
            (Slot::Ended(ended), fresh) => (Poll::Ready(ended), fresh),
            // Polled again after its end: nobody does.
            (Slot::Gone, fresh) => (Poll::Pending, fresh),
        };
        drop(slot);
        discard(old);
        polled
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let left = std::mem::replace(&mut *lock(&self.0), Slot::Gone);
        discard(left);
    }
}

#[cfg(all(test, not(bursar_shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waker() -> (Arc<Woken>, Waker) {
        let woken = Arc::new(Woken::default());
        (Arc::clone(&woken), Waker::from(woken))
    }

    fn poll<T>(reply: &mut Reply<T>, waker: &Waker) -> Poll<Result<T, Ended>> {
        reply.poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn f6_an_answer_reaches_whoever_polled_last() {
        let ((first, one), (second, two)) = (waker(), waker());
        let (requester, mut reply) = Requester::new(one.clone());
        assert!(poll(&mut reply, &one).is_pending());
        assert!(poll(&mut reply, &two).is_pending());
        assert_eq!(Arc::strong_count(&first), 2, "the old waker is let go");
        let wake = requester.tell(Ok(7)).expect("somebody waits");
        wake.wake();
        let woken = |woken: &Woken| woken.0.load(Ordering::Relaxed);
        assert_eq!((woken(&first), woken(&second)), (0, 1));
        assert!(matches!(poll(&mut reply, &two), Poll::Ready(Ok(7))));
        assert!(poll(&mut reply, &two).is_pending(), "once");
    }

    #[test]
    fn f6_an_answer_that_nobody_wants_is_dropped_at_once() {
        let (_woken, one) = waker();
        let (requester, reply) = Requester::new(one);
        drop(reply);
        let value = Arc::new(());
        assert!(requester.tell(Ok(Arc::clone(&value))).is_none());
        assert_eq!(Arc::strong_count(&value), 1);
        let (_woken, one) = waker();
        let (requester, reply) = Requester::new(one);
        let _wake = requester.tell(Ok(Arc::clone(&value)));
        drop(reply);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
