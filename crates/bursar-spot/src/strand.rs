//! One Spot's strand: the gate behind its lock, and what the gate says carried out after it.
//!
//! Invariants:
//! 1. The lock is a leaf. No user code runs under it: wakers, jobs and states are cloned before it and dropped after it.
//! 2. Every grant reaches somebody: a job that is started, a waker that is woken, and when either is dropped instead,
//!    what it held passes on from its drop.
//! 3. What a turn holds ends in one place, [`Held::drop`].

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::Clock;

use crate::beside::Beside;
use crate::closing::{self, Hooks};
use crate::due::Moments;
use crate::error::CloseReason;
use crate::exec::Exec;
use crate::frame::{self, BodyId, Due};
use crate::gate::{
    Arrival, Closing, Come, Effects, Gate, LaneIndex, Next, Phase, Place, Received, Taken,
};
use crate::held::{Held, Lane};
use crate::line::Ticket;
use crate::sync::{Mutex, lock};
use crate::worker::Workers;

/// What a host lends to all its Spots.
pub(crate) struct Shared {
    pub(crate) exec: Exec,
    pub(crate) clock: Arc<dyn Clock>,
    /// When its timers are due.
    pub(crate) moments: Arc<Moments>,
    pub(crate) workers: Workers,
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

/// Work that waits for a turn.
pub(crate) trait Job<S: Send + 'static>: Send {
    /// Gives it its turn: it holds what it needs, and its first poll begins it.
    fn grant(self: Pin<Box<Self>>, strand: &Arc<Strand<S>>, taken: Taken<S>) -> Due;
}

pub(crate) type BoxJob<S> = Pin<Box<dyn Job<S>>>;

/// See the module.
pub(crate) struct Strand<S: Send + 'static> {
    gate: Mutex<Gate<S, BoxJob<S>>>,
    pub(crate) common: Arc<Common>,
    pub(crate) name: Box<str>,
    hooks: Option<Arc<Hooks<S>>>,
    pub(crate) beside: Beside<S>,
}

impl<S: Send + 'static> Strand<S> {
    /// A strand with a free gate; without a state, one whose first turn is about to begin.
    pub(crate) fn new(
        name: Box<str>,
        common: Arc<Common>,
        hooks: Option<Arc<Hooks<S>>>,
        shared: bool,
        state: Option<S>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate: Mutex::new(Gate::new(state.map(Box::new), shared)),
            common,
            name,
            hooks,
            beside: Beside::new(),
        })
    }

    /// Takes what work of the lane needs, if nothing is before it.
    #[inline]
    pub(crate) fn take(self: &Arc<Self>, lane: Option<&Arc<Lane<S>>>) -> Option<Held<S>> {
        let taken = lock(&self.gate).take(index(lane))?;
        Some(Held::new(self, taken, lane.cloned()))
    }

    /// As `take` for the Spot's own work, borrowing the strand.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Box<S>> {
        lock(&self.gate).take(None)?.state
    }

    /// Hands work in: it is started, kept for its turn, or told to wait for space.
    pub(crate) fn receive(
        self: &Arc<Self>,
        job: BoxJob<S>,
        lane: LaneIndex,
        counted: bool,
        space: Option<&Waker>,
    ) -> Handed<S> {
        let limit = self.common.limit;
        let arrival = Arrival { job, lane, counted };
        let mut received = lock(&self.gate).receive(arrival, limit, &mut None);
        if let (Received::Refused(_), Some(waker)) = (&received, space) {
            // A waker is cloned before the lock and dropped after it.
            let mut waker = Some(waker.clone());
            if let Received::Refused(job) = received {
                let arrival = Arrival { job, lane, counted };
                received = lock(&self.gate).receive(arrival, limit, &mut waker);
            }
        }
        match received {
            Received::Start(job, taken) => {
                frame::start(job.grant(self, taken));
                Handed::Started
            }
            Received::Queued(ticket) => Handed::Queued(ticket),
            Received::Full(ticket) => Handed::Full(ticket),
            Received::Refused(job) => Handed::Refused(job),
            Received::Closed(job) => Handed::Closed(job),
        }
    }

    /// Queues work of the Spot's own making, which counts against no limit. `None` if the Spot has closed.
    pub(crate) fn submit(self: &Arc<Self>, job: BoxJob<S>, lane: LaneIndex) -> Option<Ticket> {
        match self.receive(job, lane, false, None) {
            Handed::Queued(ticket) | Handed::Full(ticket) => Some(ticket),
            Handed::Started => Some(Ticket::STARTED),
            Handed::Refused(job) | Handed::Closed(job) => {
                discard(job);
                None
            }
        }
    }

    /// Takes back work that has not started; false if it has, or is gone.
    pub(crate) fn cancel(self: &Arc<Self>, ticket: Ticket) -> bool {
        let cancelled = lock(&self.gate).cancel(ticket);
        let Some((job, effects)) = cancelled else {
            return false;
        };
        self.carry_out(effects);
        discard(job);
        true
    }

    pub(crate) fn place(&self, ticket: Ticket) -> Option<Place> {
        lock(&self.gate).place(ticket)
    }

    pub(crate) fn rewake(&self, ticket: Ticket, waker: &Waker) {
        let waker = waker.clone();
        let old = lock(&self.gate).rewake(ticket, waker);
        drop(old);
    }

    /// Waits for the gate itself. `Err` with what is held, if it has come free; `Ok(None)` once the Spot has closed.
    pub(crate) fn wait(&self, waker: &Waker) -> Result<Option<Ticket>, Option<Box<S>>> {
        let waker = waker.clone();
        let mut gate = lock(&self.gate);
        if gate.phase() != Phase::Open {
            drop(gate);
            return Ok(None);
        }
        if let Some(taken) = gate.take(None) {
            drop(gate);
            return Err(taken.state);
        }
        Ok(Some(gate.wait(waker)))
    }

    pub(crate) fn come(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Option<Taken<S>>> {
        let waker = cx.waker().clone();
        let come = lock(&self.gate).come(ticket, waker);
        settle(come)
    }

    /// What a yielded body waited for has come.
    pub(crate) fn comes_back(
        &self,
        ticket: Ticket,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Taken<S>>> {
        let waker = cx.waker().clone();
        let come = lock(&self.gate).comes_back(ticket, waker);
        settle(come)
    }

    pub(crate) fn quit(self: &Arc<Self>, ticket: Ticket) {
        let (waker, effects) = lock(&self.gate).quit(ticket);
        self.carry_out(effects);
        drop(waker);
    }

    pub(crate) fn contended(&self) -> bool {
        lock(&self.gate).contended()
    }

    pub(crate) fn yields(
        self: &Arc<Self>,
        state: Option<Box<S>>,
        lane: LaneIndex,
        waker: &Waker,
    ) -> Ticket {
        let waker = waker.clone();
        let (ticket, effects) = lock(&self.gate).yields(state, lane, waker);
        self.carry_out(effects);
        ticket
    }

    #[inline]
    pub(crate) fn leave(self: &Arc<Self>, state: Option<Box<S>>, lane: LaneIndex) {
        let effects = lock(&self.gate).leave(state, lane);
        if let (Next::Nothing, None) = (&effects.next, &effects.woken) {
            return;
        }
        self.carry_out(effects);
    }

    /// Begins to close; false if that has been done.
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason) -> bool {
        let closed = lock(&self.gate).close(reason);
        self.dismiss(closed)
    }

    /// Begins to close if it is idle; false if it is not, or does so already.
    pub(crate) fn evict(self: &Arc<Self>) -> bool {
        let closed = lock(&self.gate).evict();
        self.dismiss(closed)
    }

    fn dismiss(self: &Arc<Self>, closed: Closing<S, BoxJob<S>>) -> bool {
        let Some((gone, effects)) = closed else {
            return false;
        };
        self.beside.close(self);
        for job in gone.jobs {
            discard(job);
        }
        for waker in gone.wakers {
            wake(Some(waker));
        }
        self.carry_out(effects);
        true
    }

    #[cold]
    fn carry_out(self: &Arc<Self>, effects: Effects<S, BoxJob<S>>) {
        match effects.next {
            Next::Nothing => {}
            Next::Wake(waker) => wake(waker),
            Next::Start {
                job, state, seq, ..
            } => frame::start(job.grant(self, Taken { state, seq })),
            Next::Last(state, reason) => closing::last_turn(self, state, reason),
            Next::Ended { state, closers } => {
                discard(state);
                if let Some(registry) = self.common.registry.upgrade() {
                    registry.gone(&self.name, Arc::as_ptr(self).addr());
                }
                for waker in closers {
                    wake(Some(waker));
                }
            }
        }
        wake(effects.woken);
    }

    pub(crate) fn hooks(&self) -> Option<&Hooks<S>> {
        self.hooks.as_deref()
    }

    /// Ready once everything has ended, the last turn included.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waker = Some(cx.waker().clone());
        let closed = lock(&self.gate).closed(&mut waker);
        drop(waker);
        if closed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Gate<S, BoxJob<S>>) -> R) -> R {
        look(&mut lock(&self.gate))
    }

    /// The name of a body of this strand.
    pub(crate) fn body(self: &Arc<Self>, seq: u64) -> BodyId {
        (Arc::as_ptr(self).addr(), seq)
    }
}

fn settle<S>(come: Come<S>) -> Poll<Option<Taken<S>>> {
    match come {
        Come::Taken(taken) => Poll::Ready(Some(taken)),
        Come::Closed => Poll::Ready(None),
        Come::Wait(old) => {
            drop(old);
            Poll::Pending
        }
    }
}

/// A panicking waker belongs to the task that was to be woken: the hook has reported it, and there is more to do here.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        let _reported = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// Drops what may hold a user's values. A panic there has been reported by the hook and stops nothing here.
pub(crate) fn discard<T>(value: T) {
    let _reported = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

pub(crate) fn index<S: Send + 'static>(lane: Option<&Arc<Lane<S>>>) -> LaneIndex {
    lane.map(|lane| lane.index())
}

impl<S: Send + 'static> fmt::Debug for Strand<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strand")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How work was received.
pub(crate) enum Handed<S: Send + 'static> {
    Started,
    Queued(Ticket),
    Full(Ticket),
    Refused(BoxJob<S>),
    Closed(BoxJob<S>),
}
