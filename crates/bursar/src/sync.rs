//! The primitives the engine synchronises with: the standard ones, or loom's under `--cfg bursar_loom`.
//!
//! Nothing else in the crate is conditional on the model checker.

#[cfg(not(bursar_loom))]
mod imp {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

#[cfg(bursar_loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

pub(crate) use imp::{AtomicI64, AtomicU64, Mutex, MutexGuard, Ordering};

/// Locks, going on after a panic elsewhere: no user code runs under any lock here, so what the lock guards is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
