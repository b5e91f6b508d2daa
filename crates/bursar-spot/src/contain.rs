//! Users' values are woken and dropped here, with no lock held: what they panic with ends here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// A panicking waker belongs to the task that was to be woken: the hook has reported it, and there is more to do here.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        let _reported = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// Drops what may hold a user's values. A panic there has been reported by the hook and stops nothing here.
#[inline]
pub(crate) fn discard<T>(value: T) {
    let _reported = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
