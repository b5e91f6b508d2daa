//! The path of a call up to its handler and back: gate, key, budgets in name order; budgets in reverse, key last.
//!
//! A [`Holding`] is one call's place in that order: what it waits for and what it holds. A [`Short`] is that of a call which
//! has found everything free. They are the only code that acquires, so the order of acquisition exists here alone.
//!
//! Invariants:
//! 1. Budgets `0..taken` of the plan's claims are held, the key if `key` is set, a place in the lobby if `lobby`. A
//!    call waits for at most one thing, later in the order than all it holds.
//! 2. Everything held is given back exactly once, by [`Holding::end`], which drop calls, or [`Short::end`].
//! 3. A call is counted as admitted once (`direct`, or `queued` when it first waits or is withdrawn) and finished once,
//!    before the last thing it holds is given back; both in one step (`overload`) when it is turned away for want of
//!    capacity. If it holds nothing while it waits, whoever ends that wait counts it, under the lock it waits behind.
//! 4. Nothing here waits on its own account: one poll takes all that is free.

mod acquire;
mod short;
mod waiting;

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::chain::Frame;
use crate::chain::links::Node;
use crate::engine::Plan;
use crate::fifo::{Slot, State};
use crate::key::Key;
use crate::keys::KeyHold;
use crate::outcome::Outcome;
use crate::refusal::{Refusal, Site};
use crate::sync::Ordering;
use crate::watch::{Doing, Watch};
pub(crate) use short::{Now, Short};

/// See the module.
///
/// The stage has no fields: replacing one that had would copy them all, wider than they were written.
#[derive(Debug)]
pub(crate) struct Holding<P: Deref<Target = Plan>> {
    plan: P,
    /// Held, or waited for while the stage is `AtKey`.
    key: KeyHold,
    /// The record in the queue that the stage names.
    slot: Option<Slot>,
    taken: u32,
    counted: Counted,
    /// Counted among the operation's waiting calls.
    waiting: bool,
    lobby: bool,
    /// Admitted past the stop, as a part of live work.
    late: bool,
    stage: Stage,
    /// Its entry among the watched calls.
    watch: Watch,
    /// Until when the policy lets it wait, once it waits.
    wait_until: Option<Instant>,
    /// The running attempt's record in its chain, if somebody linked to it.
    record: Option<Arc<Node>>,
    /// How the call ends should its next attempt, for which it has paid, not be made.
    owed: Option<Outcome>,
}

/// What has been counted of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Nothing,
    Queued,
    Started,
    /// Started, and held on its own: letting go of it is how it ends.
    Promoted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Acquiring, and in no queue.
    Acquiring,
    AtKey,
    AtBudget,
    /// Pauses between two attempts, holding its key or a place in the lobby.
    Parked,
    /// Holds everything.
    Executing,
    /// Holds everything, and is watched: it ends the long way.
    Watched,
    /// Counted, and everything given back.
    Over,
}

/// Why a call came to hold nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Overloaded(Refusal),
    Stopping(Refusal),
    Deadlock(Refusal),
}

impl<P: Deref<Target = Plan>> Holding<P> {
    #[inline(always)]
    pub(crate) fn new(plan: P) -> Self {
        Self {
            plan,
            key: KeyHold::default(),
            slot: None,
            taken: 0,
            counted: Counted::Nothing,
            waiting: false,
            lobby: false,
            late: false,
            stage: Stage::Acquiring,
            watch: Watch::new(),
            wait_until: None,
            record: None,
            owed: None,
        }
    }

    #[inline]
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the handler's thread says of this call.
    pub(crate) fn frame(&self) -> Frame {
        self.plan.frame(self.key)
    }

    /// Ready once the call holds everything, or comes to nothing. Not to be polled again then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, key: &Key) -> Poll<Result<(), Denied>> {
        match (self.stage, self.slot) {
            (Stage::AtKey, Some(slot)) => {
                let state = ready!(self.plan.engine.keys.poll_wait(
                    self.key,
                    slot,
                    cx,
                    &self.plan.counters
                ));
                self.slot = None;
                if state == State::Stopped {
                    return Poll::Ready(Err(self.stopped()));
                }
                self.stage = Stage::Acquiring;
            }
            (Stage::AtBudget, Some(slot)) => {
                let claim = &self.plan.claims[self.taken as usize];
                let state = ready!(claim.budget.poll_wait(slot, cx, &self.plan.counters));
                self.slot = None;
                if state == State::Stopped {
                    return Poll::Ready(Err(self.stopped()));
                }
                self.taken += 1;
                self.stage = Stage::Acquiring;
            }
            _ if self.key.is_none() && !key.is_empty() => ready!(self.ask_for_key(cx, key))?,
            _ => {}
        }
        ready!(self.take_budgets(cx))?;
        if self.bare() && !self.enter_lobby() {
            return Poll::Ready(Err(Denied::Stopping(self.turn_away())));
        }
        self.start();
        if self.plan.watched.is_on() {
            self.stage = Stage::Watched;
            self.becomes(Doing::Executing);
        }
        Poll::Ready(Ok(()))
    }

    fn leave_lobby(&mut self) {
        self.lobby = false;
        let lifecycle = &self.plan.engine.lifecycle;
        lifecycle.tell(lifecycle.leave());
    }

    #[inline]
    fn start(&mut self) {
        match self.counted {
            Counted::Nothing => self.plan.counters.direct(),
            Counted::Queued => self.plan.counters.late(),
            // It had given its units back between two attempts.
            Counted::Started | Counted::Promoted => self.plan.counters.paused(true),
        }
        if self.counted != Counted::Promoted {
            self.counted = Counted::Started;
        }
        self.stage = Stage::Executing;
        self.end_wait();
    }

    #[inline]
    fn end_wait(&mut self) {
        if self.waiting {
            self.waiting = false;
            self.plan.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.wait_until = None;
    }

    /// Whether the call holds nothing: a key it waits for is not held.
    fn bare(&self) -> bool {
        self.taken == 0 && (self.key.is_none() || self.stage == Stage::AtKey) && !self.lobby
    }

    /// The gate is closed: a refusal if this was the first thing the call touched, a withdrawal if not.
    #[cold]
    fn turn_away(&mut self) -> Refusal {
        if self.bare() && self.counted == Counted::Nothing {
            self.plan.counters.refused();
            self.stage = Stage::Over;
            self.end_wait();
        } else {
            self.plan.counters.withdrawn();
            let _admitted = self.give_up();
        }
        self.refusal(Site::Nowhere)
    }

    /// Shutdown ended the wait; a call that held nothing has been counted by it.
    #[cold]
    fn stopped(&mut self) -> Denied {
        let site = self.site();
        if self.bare() {
            self.key = KeyHold::default();
            self.stage = Stage::Over;
            self.end_wait();
            self.watch_end();
        } else {
            self.stage = Stage::Acquiring;
            let _admitted = self.give_up();
        }
        Denied::Stopping(self.refusal(site))
    }

    /// The call may not wait: it is refused for want of capacity, or because its own chain is what it would wait for.
    #[cold]
    fn denied(&mut self, site: Site, deadlock: bool) -> Denied {
        let counted = if deadlock || self.counted != Counted::Nothing {
            self.give_up()
        } else {
            self.give_up_for_want()
        };
        if !counted {
            Denied::Stopping(self.refusal(Site::Nowhere))
        } else if deadlock {
            Denied::Deadlock(self.nested_refusal(site))
        } else {
            Denied::Overloaded(self.refusal(site))
        }
    }

    /// Counts a call that comes to nothing for want of capacity, and gives everything back. False if the gate turns out
    /// to be closed: then it is counted as refused there.
    fn give_up_for_want(&mut self) -> bool {
        // Before the gate closes nothing else is needed; past it, a place where a drain finds the call.
        let mut counted = self.plan.counters.overload(!self.bare());
        if !counted && self.enter_lobby() {
            counted = self.plan.counters.overload(true);
        }
        if !counted {
            self.plan.counters.refused();
        }
        self.stage = Stage::Over;
        self.end_wait();
        self.release();
        counted
    }

    /// Ends a call that did not come to execute, counting it as admitted if that was not done yet. False if the gate
    /// turns out to be closed: then it is counted as refused there.
    fn give_up(&mut self) -> bool {
        // Nothing shows such a call to a drain, so that it passes through the lobby to be counted.
        if self.counted == Counted::Nothing && self.bare() && !self.enter_lobby() {
            self.plan.counters.refused();
            self.stage = Stage::Over;
            self.end_wait();
            return false;
        }
        if self.counted == Counted::Nothing {
            self.plan.counters.queued();
            self.plan.counters.unwaited();
            self.counted = Counted::Queued;
        }
        self.end_early();
        true
    }

    /// Leaves whatever queue the call is in, counts it finished if it was admitted, and gives everything back. Not for a
    /// call that is over.
    pub(crate) fn end(&mut self) {
        match self.stage {
            Stage::Executing => self.plan.counters.finished(),
            _ => self.end_waiting(),
        }
        self.stage = Stage::Over;
        self.release();
    }

    /// As [`end`](Self::end), for a call that did not come to its end by itself.
    fn end_early(&mut self) {
        if let Some(outcome) = self.owed {
            self.fails(outcome);
        } else {
            self.end();
        }
    }

    /// The call does something else from now on, should it be watched.
    fn becomes(&mut self, doing: Doing) {
        let plan = &*self.plan;
        let clock = &plan.engine.clock;
        self.watch
            .becomes(&plan.watched, doing, self.key.id(), clock);
    }

    fn watch_end(&mut self) {
        let plan = &*self.plan;
        self.watch.ends(&plan.watched, &plan.engine.clock);
    }

    /// The call's future was dropped, or what was promoted is let go of.
    #[inline(never)]
    fn drop_early(&mut self) {
        self.end_attempt();
        if self.counted == Counted::Started {
            self.plan.counters.dropped();
        }
        self.unmade();
        self.end();
    }

    /// Counts the end of a call that gives back more than its place in a queue.
    fn count_end(&self) {
        match self.counted {
            Counted::Started | Counted::Promoted => self.plan.counters.paused(true),
            _ => self.plan.counters.never_ran(),
        }
        self.plan.counters.finished();
    }

    /// The end of a call that goes the long way.
    #[cold]
    fn end_waiting(&mut self) {
        let engine = &self.plan.engine;
        match (self.stage, self.slot.take()) {
            (Stage::AtKey, Some(slot)) => {
                let hold = std::mem::take(&mut self.key);
                let poke = engine.keys.leave(hold, slot, &self.plan.counters);
                engine.lifecycle.tell(poke);
                if !self.bare() {
                    self.count_end();
                }
            }
            (Stage::AtBudget, Some(slot)) => {
                let claim = &self.plan.claims[self.taken as usize];
                let poke = claim.budget.leave(slot, claim.units, &self.plan.counters);
                engine.lifecycle.tell(poke);
                if !self.bare() {
                    self.count_end();
                }
            }
            (stage, slot) => {
                if let (Stage::Parked, Some(slot)) = (stage, slot) {
                    engine.lifecycle.unpark(slot, &self.plan.counters);
                }
                // Not one that was never admitted, dropped before its first poll.
                match self.counted {
                    Counted::Nothing => {}
                    _ if stage == Stage::Watched => self.plan.counters.finished(),
                    _ => self.count_end(),
                }
            }
        }
        self.end_wait();
        // What it holds goes back after its times are noted, and also if the clock, which is the user's, panics then.
        GivesBack(self).0.watch_end();
    }

    /// Budgets in reverse, the key last.
    #[inline(always)]
    fn release(&mut self) {
        self.give_units();
        let plan = &*self.plan;
        let lifecycle = &plan.engine.lifecycle;
        if !self.key.is_none() {
            lifecycle.tell(plan.engine.keys.release(self.key));
            self.key = KeyHold::default();
        }
        if self.lobby {
            self.leave_lobby();
        }
    }

    #[inline(always)]
    fn give_units(&mut self) {
        let plan = &*self.plan;
        let taken = std::mem::take(&mut self.taken);
        for claim in plan
            .claims
            .get(..taken as usize)
            .unwrap_or_default()
            .iter()
            .rev()
        {
            let poke = claim.budget.give(claim.units);
            plan.engine.lifecycle.tell(poke);
        }
    }
}

/// Gives everything back when dropped.
struct GivesBack<'h, P: Deref<Target = Plan>>(&'h mut Holding<P>);

impl<P: Deref<Target = Plan>> Drop for GivesBack<'_, P> {
    fn drop(&mut self) {
        self.0.stage = Stage::Over;
        self.0.release();
    }
}

impl Plan {
    /// What the handler's thread says of a call that holds this key.
    #[inline(always)]
    pub(crate) fn frame(&self, key: KeyHold) -> Frame {
        Frame {
            engine: self.engine.id(),
            operation: self.number,
            key: key.id(),
        }
    }
}

impl<'p> Holding<&'p Plan> {
    #[inline]
    pub(crate) fn plan_ref(&self) -> &'p Plan {
        self.plan
    }

    /// The same place, held on its own: for guards and for work on another thread.
    pub(crate) fn promote(&mut self, plan: Arc<Plan>) -> Holding<Arc<Plan>> {
        let promoted = Holding {
            plan,
            key: std::mem::take(&mut self.key),
            slot: self.slot.take(),
            taken: self.taken,
            counted: match self.counted {
                Counted::Started => Counted::Promoted,
                counted => counted,
            },
            waiting: std::mem::take(&mut self.waiting),
            lobby: self.lobby,
            late: self.late,
            stage: self.stage,
            watch: std::mem::replace(&mut self.watch, Watch::new()),
            wait_until: self.wait_until.take(),
            record: None,
            owed: self.owed.take(),
        };
        // What it held has moved out.
        self.stage = Stage::Over;
        promoted
    }
}

impl<P: Deref<Target = Plan>> Drop for Holding<P> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            self.drop_early();
        }
    }
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests;
