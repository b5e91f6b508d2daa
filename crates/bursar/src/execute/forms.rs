//! In what the forms of a call differ: whether there is a key, and what becomes of what is held.

use std::sync::Arc;

use crate::call::{Holding, Short};
use crate::engine::Plan;
use crate::key::Key;

/// What becomes of what is held when the call succeeds.
pub(crate) trait Deliver {
    type Of<T>;

    /// For a call that was done in its first poll.
    fn at_once<T>(&self, short: &Short<'_>, value: T) -> Self::Of<T>;

    fn deliver<T>(&self, holding: &mut Holding<&Plan>, value: T) -> Self::Of<T>;
}

/// Everything is given back before the value is seen.
pub(crate) struct Release;

impl Deliver for Release {
    type Of<T> = T;

    #[inline(always)]
    fn at_once<T>(&self, short: &Short<'_>, value: T) -> T {
        short.end();
        value
    }

    fn deliver<T>(&self, holding: &mut Holding<&Plan>, value: T) -> T {
        holding.end();
        value
    }
}

/// The value comes with what the call holds.
pub(crate) struct Keep<'p>(pub(crate) &'p Arc<Plan>);

impl Deliver for Keep<'_> {
    type Of<T> = (T, Holding<Arc<Plan>>);

    fn at_once<T>(&self, short: &Short<'_>, value: T) -> Self::Of<T> {
        let mut holding = Holding::new(short.plan());
        short.executing(&mut holding, None);
        self.deliver(&mut holding, value)
    }

    fn deliver<T>(&self, holding: &mut Holding<&Plan>, value: T) -> Self::Of<T> {
        (value, holding.promote(Arc::clone(self.0)))
    }
}

/// A call's key, or the knowledge that there is none.
pub(crate) trait MaybeKey {
    fn key(&self) -> &Key;
}

/// No key.
pub(crate) struct Keyless;

impl MaybeKey for Keyless {
    #[inline]
    fn key(&self) -> &Key {
        const { &Key::NONE }
    }
}

impl MaybeKey for &Key {
    #[inline]
    fn key(&self) -> &Key {
        self
    }
}
