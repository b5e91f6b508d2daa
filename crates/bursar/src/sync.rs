//! The primitives the engine synchronises with: the standard ones, or a checker's: loom's under `--cfg bursar_loom`,
//! shuttle's under `--cfg bursar_shuttle`.
//!
//! Beside them a checker changes two sizes alone: how many threads have a number, and how many shards keys have.

#[cfg(not(any(bursar_loom, bursar_shuttle)))]
mod imp {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    pub(crate) use std::sync::{Mutex, MutexGuard};
    pub(crate) use std::thread_local;
}

#[cfg(bursar_loom)]
mod imp {
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    /// Loom's own knows no `const` initialiser.
    macro_rules! local {
        ($(static $name:ident: $of:ty = const $init:block;)*) => {
            $(loom::thread_local! { static $name: $of = $init; })*
        };
    }
    pub(crate) use local as thread_local;
}

#[cfg(bursar_shuttle)]
mod imp {
    pub(crate) use shuttle::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
    pub(crate) use shuttle::thread_local;
}

use std::sync::PoisonError;

pub(crate) use imp::{AtomicI64, AtomicU64, Mutex, MutexGuard, Ordering, thread_local};

/// Locks, going on after a panic elsewhere: no user code runs under any lock here, so what the lock guards is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], where no checker looks.
pub(crate) fn lock_plain<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
