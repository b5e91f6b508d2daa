//! The primitives the strand synchronises with: the standard ones, or shuttle's under `--cfg bursar_shuttle`.

#[cfg(not(bursar_shuttle))]
mod imp {
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread::LocalKey;
    pub(crate) use std::thread_local;
}

#[cfg(bursar_shuttle)]
mod imp {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use shuttle::thread::LocalKey;
    pub(crate) use shuttle::thread_local;
}

use std::cell::Cell;

use imp::LocalKey;
pub(crate) use imp::{Mutex, MutexGuard, thread_local};

/// What lies in a cell of this thread.
#[inline]
pub(crate) fn get<T: Copy>(cell: &'static LocalKey<Cell<T>>) -> T {
    cell.with(Cell::get)
}

/// Puts something else into a cell of this thread.
#[inline]
pub(crate) fn replace<T>(cell: &'static LocalKey<Cell<T>>, value: T) -> T {
    cell.with(|cell| cell.replace(value))
}

/// Locks, going on after a panic elsewhere: no user code runs under any lock here, so what the lock guards is whole.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
