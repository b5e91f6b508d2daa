//! The primitives the strand synchronises with: the standard ones, or shuttle's under `--cfg bursar_shuttle`.

#[cfg(not(bursar_shuttle))]
mod imp {
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread_local;
}

#[cfg(bursar_shuttle)]
mod imp {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use shuttle::thread_local;
}

pub(crate) use imp::{Mutex, MutexGuard, thread_local};

/// Locks, going on after a panic elsewhere: no user code runs under any lock here, so what the lock guards is whole.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
