//! Where crates that build on the runtime meet without knowing each other: where work runs, where a completion resumes,
//! what can give up its gate while it waits, and what a drain includes.
//!
//! A host of turns implements these traits and a client asks for them, so that neither imports the other.
//!
//! | trait | who implements it | who asks for it |
//! |---|---|---|
//! | [`Execute`], [`Resume`] | an executor, a one-thread loop | a client, to run its exchange and to deliver callbacks |
//! | [`YieldTurn`] | a turn that can return its gate, and only such | a client whose request may yield |
//! | [`CompleteTurn`] | a turn whose host takes completions in as new turns | a client with callbacks |
//! | [`Services`] | a turn, with what was named at configuration | a client that finds itself by name |
//! | [`DrainMember`] | a host whose work a runtime's drain includes | [`Runtime::register`](crate::Runtime::register) |
//!
//! [`Chain`], [`Standing`] and what belongs to them say who runs inside of whom where that crosses tasks and turns.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use crate::engine::Engine;

pub use crate::chain::links::{
    Chain, HoldId, RuntimeId, Standing, Tie, holds, holds_something, inside, regate,
};
pub use crate::engine::DrainMember;

/// Work on its own, as an executor takes it.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where work runs.
pub trait Execute: Send + Sync + 'static {
    /// Runs `work` to its end, or drops it when it shuts down. It never polls it before it returns.
    fn execute(&self, work: Work);
}

/// Where a completion resumes.
pub trait Resume: Send + Sync + 'static {
    /// Runs `continuation` to its end, or drops it when it shuts down. It never polls it before it returns.
    fn resume(&self, continuation: Work);
}

/// A turn that can return its gate while it waits.
///
/// It goes in by value and comes back when the gate is held again, so that nothing borrowed from it lives meanwhile.
pub trait YieldTurn: Sized + Send {
    /// Polls `future` once, returns the gate while it waits, and resumes in a new turn behind what waits already.
    fn yield_on<F>(self, future: F) -> impl Future<Output = (Self, F::Output)> + Send
    where
        F: Future + Send,
        F::Output: Send;
}

/// A turn whose host takes completions in as new turns.
pub trait CompleteTurn: Send {
    /// The new turn, as the callback gets it.
    type Next: Send + 'static;

    /// Starts `future` on its own; its result enters as a new turn, exactly once, in which `callback` runs. The turn
    /// that asks goes on at once. If it is closed meanwhile both are dropped, and that is counted.
    fn on_complete<F, C, W>(&self, future: F, callback: C)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
        C: FnOnce(Self::Next, F::Output) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static;
}

/// Named things of any type, given at configuration.
pub trait Services {
    /// What was named so, if it is of that type.
    fn service<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>>;
}

/// A host's part in a runtime's drain. Dropping it ends that.
#[derive(Debug)]
#[must_use = "dropping it ends the membership"]
pub struct Membership {
    engine: Arc<Engine>,
    number: usize,
}

impl Membership {
    pub(crate) fn new(engine: Arc<Engine>, member: Weak<dyn DrainMember>) -> Self {
        let number = engine.join(member);
        Self { engine, number }
    }

    /// Says that the host has become idle while stopped: drains look again.
    pub fn became_idle(&self) {
        self.engine.wake_drains();
    }

    /// Says that the host has taken in work past its stop, from inside live work, and before that work could end: a
    /// drain that looks just now looks again.
    pub fn note_late(&self) {
        self.engine.lifecycle.note_late();
    }

    /// Whether the runtime is shutting down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.engine.lifecycle.stopping()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.engine.part(self.number);
        self.engine.wake_drains();
    }
}
