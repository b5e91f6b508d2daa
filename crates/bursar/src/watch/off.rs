//! The exact mode left out: the types of `watch.rs`, empty. What is asked of them costs nothing.

use std::sync::Arc;
use std::time::Instant;

use crate::clock::ClockHandle;
use crate::snapshot::Times;

#[derive(Clone, Debug)]
pub(crate) struct Calls;

#[derive(Clone, Debug)]
pub(crate) struct Watched;

#[derive(Debug)]
pub(crate) struct Watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    AtKey,
    AtBudget(u32),
    Executing,
    Pausing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) operation: u32,
    pub(crate) doing: Doing,
    pub(crate) key: u64,
    pub(crate) arrived: Instant,
    pub(crate) since: Instant,
}

impl Calls {
    pub(crate) fn new(_: bool) -> Self {
        Self
    }

    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn operation(&self, _: u32, _: &Arc<str>) -> Watched {
        Watched
    }

    pub(crate) fn all(&self) -> Option<Vec<Live>> {
        None
    }
}

impl Watched {
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn times(&self) -> Option<Times> {
        None
    }
}

impl Watch {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn becomes(&mut self, _: &Watched, _: Doing, _: u64, _: &ClockHandle) {}

    #[inline(always)]
    pub(crate) fn ends(&mut self, _: &Watched, _: &ClockHandle) {}
}
