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
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::Clock;

use crate::error::CloseReason;
use crate::exec::Exec;
use crate::frame::{self, BodyId, Due};
use crate::gate::{Arrival, Come, Effects, Gate, LaneIndex, Next, Phase, Place, Received, Taken};
use crate::line::Ticket;
use crate::sync::{Mutex, lock};

/// What the Spots of a host have in common, and what one was told at its creation.
pub(crate) struct Common {
    pub(crate) exec: Exec,
    pub(crate) clock: Arc<dyn Clock>,
    /// The most that wait for a turn.
    pub(crate) limit: u32,
    /// How long work waits for space in a full queue.
    pub(crate) send_timeout: Duration,
    pub(crate) close_on_panic: bool,
}

/// Work that waits for a turn.
pub(crate) trait Job<S>: Send {
    /// Gives it its turn: it holds what it needs, and its first poll begins it.
    fn grant(self: Pin<Box<Self>>, strand: &Arc<Strand<S>>, taken: Taken<S>) -> Due;
}

pub(crate) type BoxJob<S> = Pin<Box<dyn Job<S>>>;

/// See the module.
pub(crate) struct Strand<S> {
    gate: Mutex<Gate<S, BoxJob<S>>>,
    pub(crate) common: Arc<Common>,
    pub(crate) name: Box<str>,
}

impl<S: Send + 'static> Strand<S> {
    /// A strand with a free gate; without a state, one whose first turn is about to begin.
    pub(crate) fn new(
        name: Box<str>,
        common: Arc<Common>,
        shared: bool,
        state: Option<S>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate: Mutex::new(Gate::new(state.map(Box::new), shared)),
            common,
            name,
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
        let closed = lock(&self.gate).close();
        let Some((gone, effects)) = closed else {
            return false;
        };
        let _ = reason;
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
            Next::Last(state) => {
                // The last turn.
                self.leave(Some(state), None);
            }
            Next::Ended { state, closers } => {
                discard(state);
                for waker in closers {
                    wake(Some(waker));
                }
            }
        }
        wake(effects.woken);
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

fn index<S: Send + 'static>(lane: Option<&Arc<Lane<S>>>) -> LaneIndex {
    lane.map(|lane| lane.index)
}

impl<S> fmt::Debug for Strand<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strand")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How work was received.
pub(crate) enum Handed<S> {
    Started,
    Queued(Ticket),
    Full(Ticket),
    Refused(BoxJob<S>),
    Closed(BoxJob<S>),
}

/// A lane of a strand, which ends with its last owner: its handle, or work of it that is queued or runs.
pub(crate) struct Lane<S: Send + 'static> {
    strand: Arc<Strand<S>>,
    index: u32,
}

impl<S: Send + 'static> Lane<S> {
    pub(crate) fn open(strand: &Arc<Strand<S>>) -> Arc<Self> {
        Arc::new(Self {
            index: lock(&strand.gate).open_lane(),
            strand: Arc::clone(strand),
        })
    }

    pub(crate) fn strand(&self) -> &Arc<Strand<S>> {
        &self.strand
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

impl<S: Send + 'static> Drop for Lane<S> {
    fn drop(&mut self) {
        lock(&self.strand.gate).close_lane(self.index);
    }
}

impl<S: Send + 'static> fmt::Debug for Lane<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lane").field(&self.index).finish()
    }
}

/// What a turn holds: the gate with the state, a lane's claim, or both.
pub(crate) struct Held<S: Send + 'static> {
    state: Option<Box<S>>,
    strand: Arc<Strand<S>>,
    lane: Option<Arc<Lane<S>>>,
    seq: u64,
    gone: bool,
}

impl<S: Send + 'static> Held<S> {
    #[inline]
    pub(crate) fn new(
        strand: &Arc<Strand<S>>,
        taken: Taken<S>,
        lane: Option<Arc<Lane<S>>>,
    ) -> Self {
        Self {
            state: taken.state,
            strand: Arc::clone(strand),
            lane,
            seq: taken.seq,
            gone: false,
        }
    }

    pub(crate) fn strand(&self) -> &Arc<Strand<S>> {
        &self.strand
    }

    /// The state, of a turn that holds the gate of its Spot.
    #[inline]
    pub(crate) fn state(&self) -> Option<&S> {
        self.state.as_deref()
    }

    #[inline]
    pub(crate) fn state_mut(&mut self) -> Option<&mut S> {
        self.state.as_deref_mut()
    }

    pub(crate) fn body(&self) -> BodyId {
        self.strand.body(self.seq)
    }

    /// Returns the gate and keeps the claim.
    pub(crate) fn yields(mut self, waker: &Waker) -> Away<S> {
        self.gone = true;
        let (state, lane) = (self.state.take(), self.lane.take());
        let ticket = self.strand.yields(state, index(lane.as_ref()), waker);
        Away {
            strand: Arc::clone(&self.strand),
            lane,
            ticket: Some(ticket),
            seq: self.seq,
        }
    }
}

impl<S: Send + 'static> Drop for Held<S> {
    #[inline]
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        if self.strand.common.close_on_panic && std::thread::panicking() {
            self.strand.close(CloseReason::Panicked);
        }
        self.strand
            .leave(self.state.take(), index(self.lane.as_ref()));
    }
}

impl<S: Send + 'static> fmt::Debug for Held<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("spot", &self.strand.name)
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}

/// A body that has yielded: it keeps its lane's claim, and its place once it has asked to come back.
pub(crate) struct Away<S: Send + 'static> {
    strand: Arc<Strand<S>>,
    lane: Option<Arc<Lane<S>>>,
    ticket: Option<Ticket>,
    seq: u64,
}

impl<S: Send + 'static> Away<S> {
    /// Keeps the waker of the body for when the Spot closes. True if it has.
    pub(crate) fn keep(&self, waker: &Waker) -> bool {
        let Some(ticket) = self.ticket else {
            return true;
        };
        self.strand.rewake(ticket, waker);
        self.strand.place(ticket) == Some(Place::Closed)
    }

    /// Asks for the gate, for the first time or again. `None` once the Spot has closed.
    pub(crate) fn poll_back(
        &mut self,
        asked: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Held<S>>> {
        let Some(ticket) = self.ticket else {
            return Poll::Ready(None);
        };
        let came = if std::mem::replace(asked, true) {
            self.strand.come(ticket, cx)
        } else {
            self.strand.comes_back(ticket, cx)
        };
        came.map(|taken| {
            let taken = taken?;
            self.ticket = None;
            Some(Held {
                state: taken.state,
                strand: Arc::clone(&self.strand),
                lane: self.lane.take(),
                seq: self.seq,
                gone: false,
            })
        })
    }

    pub(crate) fn body(&self) -> BodyId {
        self.strand.body(self.seq)
    }
}

impl<S: Send + 'static> Drop for Away<S> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.strand.quit(ticket);
        }
    }
}
