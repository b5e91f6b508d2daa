//! What a Spot has beside its gate: its timers by name, and the cancellation of its work. Most Spots have neither, and pay
//! for a pointer.
//!
//! Invariants:
//! 1. A timer is listed from its registration until it is over: never a second one of its name meanwhile.
//! 2. Once closed, nothing is registered, no timer ticks, and the cancellation of all work has fired.
//!
//! Its lock comes before a timer's own and the host's moments, and is never taken under the gate's. No user code runs under
//! it.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::frame;
use crate::held::Lane;
use crate::schedule::Schedule;
use crate::strand::Strand;
use crate::sync::{Mutex, lock};
use crate::timers::{Handle, Timer};
use crate::worker::Workers;

/// See the module.
pub(crate) struct Beside<S: Send + 'static>(Mutex<State<S>>);

enum State<S: Send + 'static> {
    Nothing,
    Something(Box<Things<S>>),
    Closed,
}

struct Things<S: Send + 'static> {
    hasher: RandomState,
    timers: HashTable<Arc<Timer<S>>>,
    workers: Option<Workers>,
}

/// Why a timer was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A period of zero.
    NoPeriod,
    /// The Spot has closed.
    Closed,
    /// The host takes in no more, or is gone.
    Stopping,
}

impl<S: Send + 'static> State<S> {
    /// `None` once closed.
    fn things(&mut self) -> Option<&mut Things<S>> {
        if let Self::Nothing = self {
            *self = Self::Something(Box::new(Things {
                hasher: RandomState::default(),
                timers: HashTable::new(),
                workers: None,
            }));
        }
        match self {
            Self::Something(things) => Some(things),
            Self::Nothing | Self::Closed => None,
        }
    }
}

impl<S: Send + 'static> Things<S> {
    fn find(&self, name: &str) -> Option<&Arc<Timer<S>>> {
        let hash = self.hasher.hash_one(name);
        self.timers.find(hash, |timer| *timer.name == *name)
    }

    fn insert(&mut self, timer: Arc<Timer<S>>) {
        let hasher = &self.hasher;
        let hash = |timer: &Arc<Timer<S>>| hasher.hash_one(&*timer.name);
        self.timers.insert_unique(hash(&timer), timer, hash);
    }

    /// Takes a timer out that is over; to be dropped after the lock.
    fn remove(&mut self, timer: &Arc<Timer<S>>) -> Option<Arc<Timer<S>>> {
        if !timer.is_over() {
            return None;
        }
        let hash = self.hasher.hash_one(&*timer.name);
        let same = |other: &Arc<Timer<S>>| Arc::ptr_eq(other, timer);
        let (gone, _) = self.timers.find_entry(hash, same).ok()?.remove();
        Some(gone)
    }

    fn is_empty(&self) -> bool {
        self.timers.is_empty() && self.workers.is_none()
    }
}

impl<S: Send + 'static> Beside<S> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Nothing))
    }

    /// Begins a generation of the timer of this name.
    pub(crate) fn register(
        &self,
        strand: &Arc<Strand<S>>,
        name: &str,
        schedule: Schedule,
        handler: Arc<dyn Handle<S>>,
    ) -> Result<(), Refused> {
        if !schedule.is_valid() {
            return Err(Refused::NoPeriod);
        }
        let common = &strand.common;
        if common.shared.moments.is_closed() {
            return Err(Refused::Stopping);
        }
        let ticks = schedule.begin(common.shared.moments.now());
        // For a name that is new. Made before the lock, since it takes the gate's.
        let fresh = Timer::new(Lane::open(strand), name);
        let mut state = lock(&self.0);
        let Some(things) = state.things() else {
            drop(state);
            return Err(Refused::Closed);
        };
        let timer = match things.find(name) {
            Some(known) => Arc::clone(known),
            None => {
                things.insert(Arc::clone(&fresh));
                Arc::clone(&fresh)
            }
        };
        let old = timer.register(ticks, handler);
        drop(state);
        old.leave(strand);
        let shared = &common.shared;
        let exec = shared.exec.clone();
        let driver = shared.moments.driver(move |rung| {
            // A task of ours, in which the turns of all these ticks are started one after another.
            frame::spawn(&exec, async move { rung.ring() }).detach();
        });
        if let Some(driver) = driver {
            shared.exec.spawn(driver).detach();
        }
        Ok(())
    }

    /// Stops what has not started of a timer. False if there is none that would have ticked.
    pub(crate) fn cancel(&self, strand: &Arc<Strand<S>>, name: &str) -> bool {
        let mut state = lock(&self.0);
        let State::Something(things) = &mut *state else {
            return false;
        };
        let Some(timer) = things.find(name).cloned() else {
            return false;
        };
        let (old, stopped) = timer.cancel();
        let gone = things.remove(&timer);
        drop(state);
        old.leave(strand);
        drop(gone);
        stopped
    }

    /// Forgets a timer that is over, unless it has been registered again.
    pub(crate) fn forget(&self, timer: &Arc<Timer<S>>) {
        let mut state = lock(&self.0);
        let State::Something(things) = &mut *state else {
            return;
        };
        let gone = things.remove(timer);
        if things.is_empty() {
            *state = State::Nothing;
        }
        drop(state);
        drop(gone);
    }

    /// How many timers there are.
    pub(crate) fn timers(&self) -> usize {
        match &*lock(&self.0) {
            State::Something(things) => things.timers.len(),
            State::Nothing | State::Closed => 0,
        }
    }

    /// The host's workers, under a cancellation that this Spot's closing fires.
    pub(crate) fn workers(&self, strand: &Arc<Strand<S>>) -> Workers {
        let fresh = strand.common.shared.workers.within();
        let mut state = lock(&self.0);
        let Some(things) = state.things() else {
            drop(state);
            fresh.close();
            return fresh;
        };
        things.workers.get_or_insert(fresh).clone()
    }

    /// Its host is gone: no timer ticks any more. One that is registered at this moment is never armed.
    pub(crate) fn end_timers(&self, strand: &Arc<Strand<S>>) {
        let mut ended = Vec::new();
        if let State::Something(things) = &mut *lock(&self.0) {
            ended.extend(things.timers.drain());
        }
        for timer in ended {
            let (old, _) = timer.cancel();
            old.leave(strand);
        }
    }

    /// The Spot closes.
    pub(crate) fn close(&self, strand: &Arc<Strand<S>>) {
        let state = std::mem::replace(&mut *lock(&self.0), State::Closed);
        let State::Something(things) = state else {
            return;
        };
        if let Some(workers) = &things.workers {
            workers.close();
        }
        for timer in &things.timers {
            let (old, _) = timer.cancel();
            old.leave(strand);
        }
    }
}

impl<S: Send + 'static> fmt::Debug for Beside<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside")
            .field("timers", &self.timers())
            .finish_non_exhaustive()
    }
}
