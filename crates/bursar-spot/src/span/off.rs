//! Spans left out: the type of `span.rs`, empty. What is asked of it costs nothing.

#[derive(Debug)]
pub(crate) struct Span;

impl Span {
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn current() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn scope<R>(&self, poll: impl FnOnce() -> R) -> R {
        poll()
    }

    #[inline(always)]
    pub(crate) fn carry<F>(self, future: F) -> F {
        future
    }
}
