//! Users' values are woken and dropped here, with no lock held: what they panic with ends here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// A panicking waker belongs to the task that was to be woken: the hook has reported it, and there is more to do here.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        contained(|| waker.wake());
    }
}

/// Drops what may hold a user's values. A panic there has been reported by the hook and stops nothing here.
#[inline]
pub(crate) fn discard<T>(value: T) {
    contained(|| drop(value));
}

/// Runs a user's code, and ends its panic here.
#[inline]
pub(crate) fn contained(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        forget(panic);
    }
}

/// What a panic left behind may panic in its turn when it is dropped; what that leaves behind is not dropped at all.
#[cold]
pub(crate) fn forget(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}
