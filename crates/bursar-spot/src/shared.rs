//! What a host lends to its Spots, and what tells a drain of them.
//!
//! Invariant: work is taken in under the lock of its gate, where `stopping` is read. So a drain that looks at the gate later
//! sees it, and one that looked before it is told to look again.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use bursar::seam::{self, Membership};
use bursar::{Clock, RuntimeId};

use crate::due::Moments;
use crate::exec::Exec;
use crate::sync::{Mutex, lock};
use crate::worker::Workers;

/// What a host lends to all its Spots.
pub(crate) struct Shared {
    pub(crate) exec: Exec,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether its runtime is exact.
    #[cfg_attr(
        not(feature = "exact"),
        expect(dead_code, reason = "turns are not watched")
    )]
    pub(crate) exact: bool,
    /// When its timers are due.
    pub(crate) moments: Arc<Moments>,
    pub(crate) workers: Workers,
    /// The runtime whose drain includes this work.
    pub(crate) home: RuntimeId,
    /// How long work may wait whose chain holds something.
    pub(crate) nested_wait: Duration,
    pub(crate) services: Vec<(Box<str>, Service)>,
    pub(crate) drain: Drain,
    /// Completions whose Spot had closed.
    pub(crate) lost: AtomicU64,
}

pub(crate) type Service = Arc<dyn Any + Send + Sync>;

/// How far a host's shutdown has come.
#[derive(Default)]
pub(crate) struct Drain {
    stopping: AtomicBool,
    /// How often work was taken in since then.
    late: AtomicU64,
    membership: OnceLock<Membership>,
    waiting: Mutex<Vec<Waker>>,
}

impl Drain {
    /// The host is part of its runtime's drain from now on.
    pub(crate) fn joined(&self, membership: Membership) {
        // A host joins once.
        let _first = self.membership.set(membership);
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whoever looks at all Spots has seen them idle at once if this is the same before and after.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::SeqCst)
    }

    /// Wakes `waker` when some Spot has become idle.
    pub(crate) fn wait(&self, waker: &Waker) {
        let waker = waker.clone();
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|known| known.will_wake(&waker)) {
            waiting.push(waker);
        }
    }
}

impl Shared {
    /// Whether the intake is open to whoever asks: to all, or while stopping to live work alone.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        !self.is_stopping() || seam::inside(self.home)
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.drain.stopping.load(Ordering::Relaxed)
    }

    /// Work was taken in: a drain that looks just now looks again.
    #[inline]
    pub(crate) fn noted(&self) {
        if self.is_stopping() {
            // Before the live work that asked can end.
            self.drain.late.fetch_add(1, Ordering::SeqCst);
            if let Some(membership) = self.drain.membership.get() {
                membership.note_late();
            }
        }
    }

    /// A Spot has become idle while the host stops.
    pub(crate) fn became_idle(&self) {
        if let Some(membership) = self.drain.membership.get() {
            membership.became_idle();
        }
        let waiting = std::mem::take(&mut *lock(&self.drain.waiting));
        for waker in waiting {
            crate::contain::wake(Some(waker));
        }
    }

    /// Completions whose Spot had closed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// What was named so at configuration, if it is of that type.
    pub(crate) fn service<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        let (_, service) = self.services.iter().find(|(known, _)| **known == *name)?;
        Arc::clone(service).downcast().ok()
    }
}

/// What a Spot was told at its creation; most share one.
pub(crate) struct Common {
    pub(crate) shared: Arc<Shared>,
    /// Whoever finds the Spot by name, to be told when it has ended.
    pub(crate) registry: Weak<dyn Registrar>,
    /// The most that wait for a turn.
    pub(crate) limit: u32,
    /// How long work waits for space in a full queue.
    pub(crate) send_timeout: Duration,
    pub(crate) close_on_panic: bool,
}

/// Whoever finds Spots by name.
pub(crate) trait Registrar: Send + Sync {
    /// The strand of that name at that address has ended.
    fn gone(&self, name: &str, address: usize);
}
