//! Actors: lanes of a Spot, each with state of its own, whose work runs one after the other.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bursar::seam::CompleteTurn;

use crate::contain::discard;
use crate::error::{SpotError, SpotErrorKind};
use crate::held::{Held, Lane};
use crate::kind::{Kind, SharedGate, SpotWide};
use crate::submit::{Asked, Sent, Target};
use crate::sync::{Mutex, lock};
use crate::turn::yield_on;

/// An actor of a Spot: work for it runs one after the other, also across yields, and has state that is the actor's own.
///
/// In a [`SpotWide`] Spot its turns hold the Spot's gate as well and may yield it: others of the Spot go on meanwhile,
/// the actor's own next work does not. In a [`PerActor`](crate::PerActor) Spot they hold a gate of the actor's own.
///
/// Cheap to clone; every clone is the same actor. Its state is dropped with the last handle, once its work has ended.
pub struct Actor<S: Send + 'static, A: Send + 'static, K: Kind = SpotWide> {
    cell: Arc<Cell<S, A>>,
    kind: PhantomData<fn() -> K>,
}

struct Cell<S: Send + 'static, A> {
    lane: Arc<Lane<S>>,
    /// Here while no turn of the actor is under way: whoever holds the claim takes it.
    state: Mutex<Option<Box<A>>>,
}

/// By hand, since a derived one would ask for `S: Clone`.
impl<S: Send + 'static, A: Send + 'static, K: Kind> Clone for Actor<S, A, K> {
    fn clone(&self) -> Self {
        Self {
            cell: Arc::clone(&self.cell),
            kind: PhantomData,
        }
    }
}

impl<S: Send + 'static, A: Send + 'static, K: Kind> Actor<S, A, K> {
    pub(crate) fn new(lane: Arc<Lane<S>>, state: A) -> Self {
        Self {
            cell: Arc::new(Cell {
                lane,
                state: Mutex::new(Some(Box::new(state))),
            }),
            kind: PhantomData,
        }
    }

    pub(crate) fn turn(self, held: Held<S>) -> ActorTurn<S, A, K> {
        ActorTurn::new(held, self.cell)
    }

    fn target(&self) -> Target<'_, S> {
        Target {
            strand: self.cell.lane.strand(),
            lane: Some(&self.cell.lane),
        }
    }

    /// Runs `work` as a turn of this actor and waits for its result; see [`Spot::request`](crate::Spot::request).
    ///
    /// # Errors
    /// As for a request to the Spot.
    ///
    /// # Cancel safety
    /// As for a request to the Spot.
    pub fn request<F, W>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<W::Output, SpotError>> + Send + use<'_, S, A, K, F, W>
    where
        F: FnOnce(ActorTurn<S, A, K>) -> W + Send + 'static,
        W: Future<Output: Send + 'static> + Send + 'static,
    {
        let cell = Arc::clone(&self.cell);
        Asked::new(self.target(), move |held| work(ActorTurn::new(held, cell)))
    }

    /// Hands `work` in to be run as a turn of this actor; see [`Spot::send`](crate::Spot::send).
    ///
    /// # Errors
    /// As for a send to the Spot.
    ///
    /// # Cancel safety
    /// As for a send to the Spot.
    pub fn send<F, W>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<(), SpotError>> + Send + use<'_, S, A, K, F, W>
    where
        F: FnOnce(ActorTurn<S, A, K>) -> W + Send + 'static,
        W: Future<Output: Send> + Send + 'static,
    {
        let cell = Arc::clone(&self.cell);
        Sent::new(self.target(), move |held| work(ActorTurn::new(held, cell)))
    }
}

impl<S: Send + 'static, A: Send + 'static, K: Kind> fmt::Debug for Actor<S, A, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actor")
            .field("spot", &self.cell.lane.strand().name)
            .field("lane", &self.cell.lane)
            .finish()
    }
}

/// The actor's state while a turn of it is under way; it goes back when this is dropped, before the claim is free.
struct Own<S: Send + 'static, A> {
    state: Option<Box<A>>,
    cell: Arc<Cell<S, A>>,
}

impl<S: Send + 'static, A> Drop for Own<S, A> {
    fn drop(&mut self) {
        let state = self.state.take();
        let none = std::mem::replace(&mut *lock(&self.cell.state), state);
        discard(none);
    }
}

/// One piece of an actor's work, which holds the actor's claim and, in a Spot with a shared gate, that gate. Dropping it
/// ends the turn.
pub struct ActorTurn<S: Send + 'static, A: Send + 'static, K: Kind = SpotWide> {
    // Dropped in this order: the actor's state is back before its claim is free.
    own: Own<S, A>,
    held: Held<S>,
    kind: PhantomData<fn() -> K>,
}

impl<S: Send + 'static, A: Send + 'static, K: Kind> ActorTurn<S, A, K> {
    fn new(held: Held<S>, cell: Arc<Cell<S, A>>) -> Self {
        let state = lock(&cell.state).take();
        Self {
            own: Own { state, cell },
            held,
            kind: PhantomData,
        }
    }

    pub(crate) fn held(&self) -> &Held<S> {
        &self.held
    }

    /// The actor whose turn this is.
    #[must_use]
    pub fn handle(&self) -> Actor<S, A, K> {
        Actor {
            cell: Arc::clone(&self.own.cell),
            kind: PhantomData,
        }
    }

    /// What was named so when the host was configured; see [`HostBuilder::service`](crate::HostBuilder::service).
    ///
    /// # Errors
    /// [`NotConfigured`](SpotErrorKind::NotConfigured): nothing of that type has that name.
    pub fn service<T: Any + Send + Sync>(&self, name: &str) -> Result<Arc<T>, SpotError> {
        let found = self.held.strand().common.shared.service(name);
        found.ok_or_else(|| SpotError::new(SpotErrorKind::NotConfigured, name))
    }

    /// Starts `future` on its own and goes on at once; its result enters as a new turn of this actor. See
    /// [`Turn::on_complete`](crate::Turn::on_complete).
    pub fn on_complete<F, C, W>(&self, future: F, callback: C)
    where
        F: Future<Output: Send + 'static> + Send + 'static,
        C: FnOnce(Self, F::Output) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        CompleteTurn::on_complete(self, future, callback);
    }

    /// The actor's own state.
    #[expect(
        clippy::expect_used,
        reason = "whoever holds the claim has the actor's state"
    )]
    pub fn actor(&mut self) -> &mut A {
        self.own.state.as_deref_mut().expect("a turn has its state")
    }

    /// The name of its Spot.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.held.strand().name
    }
}

impl<S: Send + 'static, A: Send + 'static, K: SharedGate> ActorTurn<S, A, K> {
    /// The Spot's state, which nobody else can touch until the turn ends or yields.
    #[expect(
        clippy::expect_used,
        reason = "a turn that holds the shared gate has the state"
    )]
    pub fn state(&mut self) -> &mut S {
        self.held.state_mut().expect("a turn has its state")
    }

    /// The Spot's state and the actor's.
    #[expect(
        clippy::expect_used,
        reason = "a turn that holds the shared gate and the claim has both states"
    )]
    pub fn both(&mut self) -> (&mut S, &mut A) {
        let spot = self.held.state_mut().expect("a turn has its state");
        let own = self.own.state.as_deref_mut().expect("a turn has its state");
        (spot, own)
    }

    /// Returns the gate while `future` waits and takes it back in a new turn; see [`Turn::yield_on`](crate::Turn::yield_on).
    /// The actor's claim is kept: its next work starts after this turn has ended.
    ///
    /// # Panics
    /// As there.
    ///
    /// # Cancel safety
    /// Dropping this future ends the turn and frees the claim.
    pub async fn yield_on<F: Future>(self, future: F) -> (Self, F::Output) {
        let Self { own, held, kind } = self;
        let (own, held, out) = yield_on(own, held, future).await;
        (Self { own, held, kind }, out)
    }
}

impl<S: Send + 'static, A: Send + 'static, K: Kind> fmt::Debug for ActorTurn<S, A, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorTurn")
            .field("spot", &self.held.strand().name)
            .finish_non_exhaustive()
    }
}
