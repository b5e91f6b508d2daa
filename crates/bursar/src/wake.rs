//! Wakers collected under a lock and woken after it.
//!
//! 1. A waker is user code: it is never woken, cloned or dropped under a lock.
//! 2. Nobody is left out for the panic of another's waker. Every collected waker is woken exactly once, even when one of
//!    them panics. Such a panic ends here: the panic hook has reported it, it belongs to the task that was to be woken, and
//!    the call that happens to give units back has more to give back after it. What a waker panics with when it is dropped
//!    unwoken ends here as well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};

/// Wakers to be woken, in order, when the list is dropped. One waker costs no allocation.
#[derive(Debug, Default)]
#[must_use = "dropping the list wakes what it holds: drop it after the lock"]
pub(crate) struct WakeList {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl WakeList {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }
}

impl Drop for WakeList {
    fn drop(&mut self) {
        let Some(first) = self.first.take() else {
            return;
        };
        let rest = std::mem::take(&mut self.rest);
        for waker in std::iter::once(first).chain(rest) {
            contained(|| waker.wake());
        }
    }
}

/// See invariant 2. What it panicked with is forgotten: to drop that would be to run user code again.
fn contained(user: impl FnOnce()) {
    if let Err(panicked) = catch_unwind(AssertUnwindSafe(user)) {
        std::mem::forget(panicked);
    }
}

/// A waker kept for later, or none. It is dropped outside of any lock, and may be dropped in the middle of giving things
/// back: what it panics with then ends here.
#[derive(Debug, Default)]
pub(crate) struct Kept(Option<Waker>);

impl Kept {
    pub(crate) fn of(cx: &Context<'_>) -> Self {
        Self(Some(cx.waker().clone()))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn will_wake(&self, other: &Waker) -> bool {
        self.0.as_ref().is_some_and(|waker| waker.will_wake(other))
    }

    /// The waker, to be woken.
    pub(crate) fn take(&mut self) -> Option<Waker> {
        self.0.take()
    }
}

impl From<Waker> for Kept {
    fn from(waker: Waker) -> Self {
        Self(Some(waker))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            contained(|| drop(waker));
        }
    }
}

/// Wakes one task, as a list of one does.
#[inline]
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        let mut list = WakeList::new();
        list.push(waker);
    }
}

/// Whether a drain may be waiting for what was just given back: then it must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a drain waits to be told"]
pub(crate) struct Poke(pub(crate) bool);

#[cfg(all(test, not(bursar_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Counting {
        woken: Arc<AtomicUsize>,
        panics: bool,
    }

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "this waker panics");
        }
    }

    #[test]
    fn b8_a_panicking_waker_does_not_lose_the_others() {
        let woken = Arc::new(AtomicUsize::new(0));
        let mut list = WakeList::new();
        for panics in [false, true, false, true, false] {
            list.push(Waker::from(Arc::new(Counting {
                woken: woken.clone(),
                panics,
            })));
        }
        drop(list);
        assert_eq!(woken.load(Ordering::Relaxed), 5);
    }
}
