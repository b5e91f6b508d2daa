//! The exact mode: when each running turn began. A runtime is built so ([`RuntimeBuilder::exact`]), and its hosts' Spots
//! follow.
//!
//! Spots of a runtime that was not built so keep nothing and read no clock; without the feature `exact` these types are
//! empty (`watch/off.rs`).
//!
//! Invariant: a turn is listed from its grant until it ends or yields. The lock is a leaf, and no user code runs under it.
//!
//! [`RuntimeBuilder::exact`]: bursar::RuntimeBuilder::exact

use std::sync::Arc;
use std::time::Instant;

use slab::Slab;

use crate::shared::Shared;
use crate::sync::{Mutex, lock};

type Turns = Arc<Mutex<Slab<Instant>>>;

/// The running turns of one Spot.
#[derive(Debug)]
pub(crate) struct Watch(Option<Turns>);

/// One running turn, listed until it ends.
#[derive(Debug, Default)]
pub(crate) struct Watched(Option<(Turns, usize)>);

impl Watch {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self(shared.exact.then(Turns::default))
    }

    /// A turn begins, or comes back.
    pub(crate) fn begins(&self, shared: &Shared) -> Watched {
        Watched(self.0.as_ref().map(|turns| {
            let now = shared.clock.now();
            let place = lock(turns).insert(now);
            (Arc::clone(turns), place)
        }))
    }

    /// When the oldest of the running turns began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let turns = lock(self.0.as_ref()?);
        turns.iter().map(|(_, began)| *began).min()
    }
}

impl Watched {
    /// The turn ends, or yields.
    pub(crate) fn ends(&mut self) {
        if let Some((turns, place)) = self.0.take() {
            lock(&turns).remove(place);
        }
    }
}
