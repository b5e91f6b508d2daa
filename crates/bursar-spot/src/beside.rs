//! What a Spot has beside its gate: its timers by name, the cancellation of its work, and why it failed to come to a state.
//! Most Spots have nothing of it, and pay for a pointer.
//!
//! Invariants:
//! 1. A timer is listed from its registration until it is over: never a second one of its name meanwhile.
//! 2. Once closed, nothing is registered, no timer ticks, and the cancellation of all work has fired.
//!
//! It lies under the strand's lock, which comes before a timer's own and the host's moments. No user code runs under it.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::frame;
use crate::held::Lane;
use crate::schedule::Schedule;
use crate::strand::Strand;
use crate::timers::{Handle, Timer};
use crate::worker::Workers;

/// See the module.
pub(crate) struct Beside<S: Send + 'static>(Option<Box<Things<S>>>);

struct Things<S: Send + 'static> {
    hasher: RandomState,
    timers: HashTable<Arc<Timer<S>>>,
    workers: Option<Workers>,
    closed: bool,
    /// Why the Spot never came to have a state, if it did not.
    failure: Option<Box<str>>,
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

impl<S: Send + 'static> Things<S> {
    fn new() -> Box<Self> {
        Box::new(Self {
            hasher: RandomState::default(),
            timers: HashTable::new(),
            workers: None,
            closed: false,
            failure: None,
        })
    }

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
        self.timers.is_empty() && self.workers.is_none() && !self.closed && self.failure.is_none()
    }
}

impl<S: Send + 'static> Beside<S> {
    pub(crate) const NOTHING: Self = Self(None);

    fn things(&mut self) -> &mut Things<S> {
        self.0.get_or_insert_with(Things::new)
    }

    /// How many timers there are.
    pub(crate) fn timers(&self) -> usize {
        self.0.as_ref().map_or(0, |things| things.timers.len())
    }

    /// The Spot never came to have a state. What is said of it first stands.
    pub(crate) fn failed(&mut self, why: Box<str>) {
        self.things().failure.get_or_insert(why);
    }

    /// Why it did not.
    pub(crate) fn failure(&self) -> Option<Box<str>> {
        self.0.as_ref()?.failure.clone()
    }
}

/// Begins a generation of the timer of this name.
pub(crate) fn register<S: Send + 'static>(
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
    // For a name that is new. Made before the lock, which its lane takes, and dropped after it.
    let fresh = Timer::new(Lane::open(strand), name);
    // Lent to the closure: what is refused is dropped after the lock.
    let mut handler = Some(handler);
    let registered = strand.beside(|beside| {
        let things = beside.things();
        if things.closed {
            return None;
        }
        let handler = handler.take()?;
        let timer = match things.find(name) {
            Some(known) => Arc::clone(known),
            None => {
                things.insert(Arc::clone(&fresh));
                Arc::clone(&fresh)
            }
        };
        Some((timer.register(ticks, handler), timer))
    });
    let Some((old, _listed)) = registered else {
        return Err(Refused::Closed);
    };
    old.leave(strand);
    let shared = &common.shared;
    let exec = shared.exec.clone();
    let driver = shared.moments.driver(move |rung| {
        // A task of ours, in which the turns of all these ticks are started one after another.
        frame::spawn(&exec, async move { rung.ring() });
    });
    if let Some(driver) = driver {
        shared.exec.spawn(driver);
    }
    Ok(())
}

/// Stops what has not started of a timer. False if there is none that would have ticked.
pub(crate) fn cancel<S: Send + 'static>(strand: &Arc<Strand<S>>, name: &str) -> bool {
    let cancelled = strand.beside(|beside| {
        let things = beside.0.as_mut()?;
        let timer = things.find(name).cloned()?;
        let (old, stopped) = timer.cancel();
        Some((old, stopped, things.remove(&timer), timer))
    });
    let Some((old, stopped, _gone, _timer)) = cancelled else {
        return false;
    };
    old.leave(strand);
    stopped
}

/// Forgets a timer that is over, unless it has been registered again.
pub(crate) fn forget<S: Send + 'static>(strand: &Strand<S>, timer: &Arc<Timer<S>>) {
    let gone = strand.beside(|beside| {
        let things = beside.0.as_mut()?;
        let gone = things.remove(timer);
        if things.is_empty() {
            beside.0 = None;
        }
        gone
    });
    drop(gone);
}

/// The host's workers, under a cancellation that this Spot's closing fires.
pub(crate) fn workers<S: Send + 'static>(strand: &Strand<S>) -> Workers {
    let fresh = strand.common.shared.workers.within();
    let known = strand.beside(|beside| {
        let things = beside.things();
        if things.closed {
            return None;
        }
        Some(things.workers.get_or_insert_with(|| fresh.clone()).clone())
    });
    known.unwrap_or_else(|| {
        fresh.close();
        fresh
    })
}

/// Its host is gone: no timer ticks any more. One that is registered at this moment is never armed.
pub(crate) fn end_timers<S: Send + 'static>(strand: &Arc<Strand<S>>) {
    let ended: Vec<_> = strand.beside(|beside| {
        let things = beside.0.as_mut();
        things.map_or_else(Vec::new, |things| things.timers.drain().collect())
    });
    for timer in ended {
        let (old, _) = timer.cancel();
        old.leave(strand);
    }
}

/// The Spot closes.
pub(crate) fn close<S: Send + 'static>(strand: &Arc<Strand<S>>) {
    let (workers, timers) = strand.beside(|beside| {
        let things = beside.things();
        things.closed = true;
        (things.workers.take(), std::mem::take(&mut things.timers))
    });
    if let Some(workers) = &workers {
        workers.close();
    }
    for timer in &timers {
        let (old, _) = timer.cancel();
        old.leave(strand);
    }
}

impl<S: Send + 'static> fmt::Debug for Beside<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside")
            .field("timers", &self.timers())
            .finish_non_exhaustive()
    }
}
