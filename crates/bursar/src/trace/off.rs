//! Spans and events left out: the functions of `trace.rs`, which do nothing.

use crate::outcome::Outcome;
use crate::refusal::{Names, Refusal};
use crate::report::DrainReport;
use crate::retry::Next;

#[inline(always)]
pub(crate) fn call<F>(_: &Names, call: F) -> F {
    call
}

#[inline(always)]
pub(crate) fn waits(_: impl FnOnce() -> Refusal) {}

#[inline(always)]
pub(crate) fn attempt_failed(_: &Names, _: u32, _: Outcome, _: &Next) {}

#[inline(always)]
pub(crate) fn resized(_: &str, _: u32) {}

#[inline(always)]
pub(crate) fn draining() {}

#[inline(always)]
pub(crate) fn drained(_: &DrainReport) {}

#[cfg(feature = "tokio")]
#[derive(Debug)]
pub(crate) struct Here;

#[cfg(feature = "tokio")]
impl Here {
    #[inline(always)]
    pub(crate) fn now() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        work()
    }
}
