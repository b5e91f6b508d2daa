//! One Spot's strand: the gate behind its lock, and what the gate says carried out after it.
//!
//! Invariants:
//! 1. The lock comes before a timer's and the host's moments, and before no other. No user code runs under it: wakers, jobs
//!    and states are cloned before it and dropped after it.
//! 2. Every grant reaches somebody: a job that is started, a waker that is woken, and when either is dropped instead,
//!    what it held passes on from its drop.
//! 3. What a turn holds ends in one place, [`Held::drop`].

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bursar::seam::{self, HoldId};

use crate::beside::{self, Beside};
use crate::closing::{self, Hooks};
use crate::contain::{discard, wake};
use crate::error::CloseReason;
use crate::frame::{self, Due};
use crate::gate::{
    Arrival, Closing, Come, Effects, Gate, LaneIndex, Next, Phase, Place, Received, Taken,
};
use crate::held::Lane;
use crate::line::Ticket;
use crate::shared::Common;
use crate::sync::{Mutex, get, lock, replace, thread_local};
use crate::watch::{Watch, Watched};

/// How often a requester looks again before it becomes the first to wait, and how many pauses lie between: about 2 us. A
/// turn on another thread that does not suspend is over within it, and then neither of the two touches the line.
#[cfg(not(bursar_shuttle))]
const LOOKS: u32 = 3;
#[cfg(bursar_shuttle)]
const LOOKS: u32 = 0;
const PAUSES: u32 = 40;

/// After so many in a row on this thread that looked for nothing, turns are taken to suspend: only one in `RETRY` looks.
const PATIENCE: u32 = 16;
const RETRY: u32 = 256;

thread_local! {
    /// How many in a row looked again for nothing.
    static FUTILE: Cell<u32> = const { Cell::new(0) };
}

/// Work that waits for a turn.
pub(crate) trait Job<S: Send + 'static>: Send {
    /// Gives it its turn: it holds what it needs, and may be started.
    fn grant(self: Box<Self>, strand: &Arc<Strand<S>>, state: Option<Box<S>>) -> Due;
}

pub(crate) type BoxJob<S> = Box<dyn Job<S>>;

/// See the module.
pub(crate) struct Strand<S: Send + 'static> {
    inner: Mutex<Inner<S>>,
    pub(crate) common: Arc<Common>,
    pub(crate) name: Box<str>,
    /// Names its gate in chains.
    pub(crate) hold: HoldId,
    /// What most Spots do without.
    rare: Option<Box<Rare<S>>>,
    pub(crate) watch: Watch,
}

struct Inner<S: Send + 'static> {
    gate: Gate<S, BoxJob<S>>,
    beside: Beside<S>,
}

struct Rare<S: Send + 'static> {
    /// Names the Spot in the chains of lanes that have gates of their own. `None` where all share one.
    apart: Option<HoldId>,
    hooks: Option<Arc<Hooks<S>>>,
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
        let apart = (!shared).then(HoldId::unique);
        let rare = (apart.is_some() || hooks.is_some()).then(|| Box::new(Rare { apart, hooks }));
        Arc::new(Self {
            inner: Mutex::new(Inner {
                gate: Gate::new(state.map(Box::new), shared),
                beside: Beside::NOTHING,
            }),
            watch: Watch::new(&common.shared),
            common,
            name,
            hold: HoldId::unique(),
            rare,
        })
    }

    /// Takes what work of the lane needs, if nothing is before it.
    #[inline]
    pub(crate) fn take(&self, lane: LaneIndex) -> Option<Taken<S>> {
        let shared = &self.common.shared;
        let mut inner = lock(&self.inner);
        if !shared.admits() {
            return None;
        }
        let taken = inner.gate.take(lane)?;
        drop(inner);
        shared.noted();
        Some(taken)
    }

    /// As `take`, looking again for a moment while nobody waits.
    #[inline]
    pub(crate) fn take_soon(&self, lane: LaneIndex) -> Option<Taken<S>> {
        self.take(lane).or_else(|| self.look_again(lane))
    }

    #[cold]
    fn look_again(&self, lane: LaneIndex) -> Option<Taken<S>> {
        if frame::is_in_body() {
            return None;
        }
        let futile = get(&FUTILE);
        if futile < PATIENCE || futile % RETRY == 0 {
            for _ in 0..LOOKS {
                if !self.look(|gate| gate.first(lane)) {
                    return None;
                }
                for _ in 0..PAUSES {
                    std::hint::spin_loop();
                }
                let taken = self.take(lane);
                if taken.is_some() {
                    replace(&FUTILE, 0);
                    return taken;
                }
            }
        }
        replace(&FUTILE, futile.wrapping_add(1));
        None
    }

    /// Whether the chain of whoever asks holds what work of the lane needs.
    #[inline]
    pub(crate) fn is_held_above(&self, lane: Option<&Arc<Lane<S>>>) -> bool {
        match lane {
            None => seam::holds(self.hold),
            Some(lane) => seam::holds(lane.hold()) || self.is_shared() && seam::holds(self.hold),
        }
    }

    /// Whether lanes share the Spot's gate.
    pub(crate) fn is_shared(&self) -> bool {
        self.apart().is_none()
    }

    fn apart(&self) -> Option<HoldId> {
        self.rare.as_ref().and_then(|rare| rare.apart)
    }

    /// What a turn of the lane holds beside the lane's claim: the gate, or without it a part of a Spot that cannot end
    /// before the turn does.
    pub(crate) fn gate_of(&self, lane: Option<&Arc<Lane<S>>>) -> HoldId {
        match lane {
            Some(_) => self.apart().unwrap_or(self.hold),
            None => self.hold,
        }
    }

    /// Whether whoever asks would wait for itself if it waited for this Spot to end.
    pub(crate) fn is_kept_above(&self) -> bool {
        seam::holds(self.hold) || self.apart().is_some_and(seam::holds)
    }

    /// Hands work in: it is started, kept for its turn, or told to wait for space.
    pub(crate) fn receive(
        self: &Arc<Self>,
        job: BoxJob<S>,
        lane: LaneIndex,
        counted: bool,
        space: Option<&Waker>,
    ) -> Handed<S> {
        let mut received = self.offer(job, lane, counted, &mut None);
        if let (Received::Refused(_), Some(waker)) = (&received, space) {
            // A waker is cloned before the lock and dropped after it.
            let mut waker = Some(waker.clone());
            if let Received::Refused(job) = received {
                received = self.offer(job, lane, counted, &mut waker);
            }
            discard(waker);
        }
        match received {
            Received::Start(job, taken) => {
                self.start(job, taken.state);
                Handed::Started
            }
            Received::Queued(ticket) => Handed::Queued(ticket),
            Received::Full(ticket) => Handed::Full(ticket),
            Received::Refused(job) => Handed::Refused(job),
            Received::Closed(job) => Handed::Closed(job),
        }
    }

    /// Sees to it that work which holds what it needs is started.
    pub(crate) fn start(self: &Arc<Self>, job: BoxJob<S>, state: Option<Box<S>>) {
        frame::start(job.grant(self, state), &self.common.shared.exec);
    }

    fn offer(
        &self,
        job: BoxJob<S>,
        lane: LaneIndex,
        counted: bool,
        space: &mut Option<Waker>,
    ) -> Received<S, BoxJob<S>> {
        let shared = &self.common.shared;
        let arrival = Arrival { job, lane, counted };
        let mut inner = lock(&self.inner);
        if counted && !shared.admits() {
            drop(inner);
            return Received::Closed(arrival.job);
        }
        let received = inner.gate.receive(arrival, self.common.limit, space);
        drop(inner);
        shared.noted();
        received
    }

    /// Queues work of the Spot's own making, which counts against no limit. `None` if the Spot has closed, or its host
    /// is shutting down.
    pub(crate) fn submit(self: &Arc<Self>, job: BoxJob<S>, lane: LaneIndex) -> Option<Ticket> {
        if self.common.shared.is_stopping() {
            discard(job);
            return None;
        }
        self.resume(job, lane)
    }

    /// As `submit`, for what completes work that was accepted before.
    pub(crate) fn resume(self: &Arc<Self>, job: BoxJob<S>, lane: LaneIndex) -> Option<Ticket> {
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
        let cancelled = lock(&self.inner).gate.cancel(ticket);
        let Some((job, waker, effects)) = cancelled else {
            return false;
        };
        self.carry_out(effects);
        discard(job);
        discard(waker);
        true
    }

    pub(crate) fn place(&self, ticket: Ticket) -> Option<Place> {
        lock(&self.inner).gate.place(ticket)
    }

    /// As `place`, for whoever waits for space: meanwhile this waker is kept.
    pub(crate) fn outside(&self, ticket: Ticket, waker: &Waker) -> Option<Place> {
        let mut waker = Some(waker.clone());
        let place = lock(&self.inner).gate.outside(ticket, &mut waker);
        discard(waker);
        place
    }

    /// Waits for the gate itself. `Err` with what is held, if it has come free; `Ok(None)` once the Spot has closed.
    pub(crate) fn wait(&self, waker: &Waker) -> Result<Option<Ticket>, Option<Box<S>>> {
        let mut waker = Some(waker.clone());
        let mut inner = lock(&self.inner);
        let waits = if inner.gate.phase() != Phase::Open || !self.common.shared.admits() {
            Ok(None)
        } else {
            match inner.gate.take(None) {
                Some(taken) => Err(taken.state),
                None => Ok(Some(inner.gate.wait(&mut waker))),
            }
        };
        drop(inner);
        discard(waker);
        if !matches!(waits, Ok(None)) {
            self.common.shared.noted();
        }
        waits
    }

    pub(crate) fn come(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Option<Taken<S>>> {
        let mut waker = Some(cx.waker().clone());
        let come = lock(&self.inner).gate.come(ticket, &mut waker);
        settle(come, waker)
    }

    /// What a yielded body waited for has come. `waker` is the body's.
    pub(crate) fn comes_back(&self, ticket: Ticket, waker: Waker) -> Poll<Option<Taken<S>>> {
        let mut waker = Some(waker);
        let come = lock(&self.inner).gate.comes_back(ticket, &mut waker);
        settle(come, waker)
    }

    pub(crate) fn quit(self: &Arc<Self>, ticket: Ticket) {
        let (waker, effects) = lock(&self.inner).gate.quit(ticket);
        self.carry_out(effects);
        discard(waker);
        if self.common.shared.is_stopping() {
            self.tell_drain();
        }
    }

    /// A drain waits for this Spot to be idle.
    #[cold]
    fn tell_drain(&self) {
        if self.look(|gate| gate.idle()) {
            self.common.shared.became_idle();
        }
    }

    /// Keeps a completion that is to come, so that the Spot is not idle meanwhile. `None` if the Spot closes.
    pub(crate) fn owe(&self) -> Option<Ticket> {
        lock(&self.inner).gate.owe()
    }

    /// Whether anything waits that goes before a turn which yields now.
    pub(crate) fn contended(&self) -> bool {
        lock(&self.inner).gate.contended()
    }

    pub(crate) fn yields(
        self: &Arc<Self>,
        state: Option<Box<S>>,
        lane: LaneIndex,
        waker: Waker,
    ) -> Ticket {
        let (ticket, effects) = lock(&self.inner).gate.yields(state, lane, waker);
        self.carry_out(effects);
        ticket
    }

    #[inline]
    pub(crate) fn leave(self: &Arc<Self>, state: Option<Box<S>>, lane: LaneIndex) {
        let effects = lock(&self.inner).gate.leave(state, lane);
        if self.common.shared.is_stopping() {
            self.carry_out(effects);
            self.tell_drain();
            return;
        }
        if let (Next::Nothing, None, None) = (&effects.next, &effects.woken, &effects.also) {
            return;
        }
        self.carry_out(effects);
    }

    /// Begins to close; false if that has been done.
    pub(crate) fn close(self: &Arc<Self>, reason: CloseReason) -> bool {
        let closed = lock(&self.inner).gate.close(reason);
        self.dismiss(closed)
    }

    /// Begins to close if it is idle; false if it is not, or does so already.
    pub(crate) fn evict(self: &Arc<Self>) -> bool {
        let closed = lock(&self.inner).gate.evict();
        self.dismiss(closed)
    }

    fn dismiss(self: &Arc<Self>, closed: Closing<S, BoxJob<S>>) -> bool {
        let Some((gone, effects)) = closed else {
            return false;
        };
        beside::close(self);
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
            Next::Start { job, state } => self.start(job, state),
            Next::Last(state, reason) => closing::last_turn(self, state, reason),
            Next::Ended(state) => {
                discard(state);
                if let Some(registry) = self.common.registry.upgrade() {
                    registry.gone(&self.name, Arc::as_ptr(self).addr());
                }
                let closers = lock(&self.inner).gate.ended();
                for waker in closers {
                    wake(Some(waker));
                }
            }
        }
        wake(effects.woken);
        wake(effects.also);
    }

    /// A turn begins, or comes back.
    #[inline]
    pub(crate) fn watched(&self) -> Watched {
        self.watch.begins(&self.common.shared)
    }

    /// Why it never came to have a state, if it did not.
    pub(crate) fn failure(&self) -> Option<Box<str>> {
        self.beside(|beside| beside.failure())
    }

    pub(crate) fn failed(&self, why: Box<str>) {
        self.beside(|beside| beside.failed(why));
    }

    pub(crate) fn hooks(&self) -> Option<&Hooks<S>> {
        self.rare.as_ref().and_then(|rare| rare.hooks.as_deref())
    }

    /// Ready once everything has ended, the last turn included.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waker = Some(cx.waker().clone());
        let closed = lock(&self.inner).gate.closed(&mut waker);
        drop(waker);
        if closed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// What the Spot has beside its gate, under its lock.
    pub(crate) fn beside<R>(&self, look: impl FnOnce(&mut Beside<S>) -> R) -> R {
        look(&mut lock(&self.inner).beside)
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Gate<S, BoxJob<S>>) -> R) -> R {
        look(&mut lock(&self.inner).gate)
    }
}

/// What is left of wakers goes here, after the lock: a panic in one must not lose what has come.
fn settle<S>(come: Come<S>, waker: Option<Waker>) -> Poll<Option<Taken<S>>> {
    discard(waker);
    match come {
        Come::Taken(taken, old) => {
            discard(old);
            Poll::Ready(Some(taken))
        }
        Come::Closed => Poll::Ready(None),
        Come::Wait => Poll::Pending,
    }
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
