//! The short way of a call through its first poll: everything is free, or the call does not wait and is turned away.
//!
//! Whatever else there is goes the long way, [`Holding::poll`], which goes on from where this one stopped. A [`Short`] is
//! a few words; the [`Holding`] is made of it when there is to be another poll.
//!
//! It gives nothing back by itself: whoever has one ends it, or makes a holding of it.

use std::sync::Arc;

use super::{Counted, Holding, Stage};
use crate::budget::NotTaken;
use crate::chain::Frame;
use crate::chain::links::Node;
use crate::counters::Here;
use crate::engine::Plan;
use crate::key::Key;
use crate::keys::{Asked, KeyHold};
use crate::refusal::Refusal;

/// What the short way of a call came to. A word: what a refusal says is asked for by the few that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// The call holds everything, and executes.
    Held,
    /// It does not wait, and the next budget was full: to be turned away by [`Holding::refuse_now`].
    Full,
    /// Nothing is lost: [`Holding::poll`] goes on from here.
    NotYet,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short<'p> {
    plan: &'p Plan,
    here: Here<'p>,
    key: KeyHold,
}

impl<'p> Short<'p> {
    #[inline(always)]
    pub(crate) fn new(plan: &'p Plan, here: Here<'p>) -> Self {
        Self {
            plan,
            here,
            key: KeyHold::default(),
        }
    }

    /// Takes all that is free; the number is that of the budgets taken.
    #[inline(always)]
    pub(crate) fn take(&mut self, key: &Key) -> (Now, usize) {
        let plan = self.plan;
        if plan.watched.is_on() {
            return (Now::NotYet, 0);
        }
        if !key.is_empty() {
            let keys = &plan.engine.keys;
            let caller = plan.counters.number();
            let asked = keys.ask(plan.key_space, key, caller, &mut self.key, false, |_| None);
            if !matches!(asked, Asked::Held) {
                return (Now::NotYet, 0);
            }
        } else if plan.key_required || plan.claims.is_empty() {
            return (Now::NotYet, 0);
        }
        for (taken, claim) in plan.claims.iter().enumerate() {
            match claim.budget.take(claim.units, false) {
                Ok(()) => {}
                Err(NotTaken::MustWait) if plan.reject => return (Now::Full, taken),
                Err(_) => return (Now::NotYet, taken),
            }
        }
        // What `start` does for a call that never waited.
        self.here.direct();
        (Now::Held, plan.claims.len())
    }

    #[inline(always)]
    pub(crate) fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// What the handler's thread says of this call.
    #[inline(always)]
    pub(crate) fn frame(&self) -> Frame {
        self.plan.frame(self.key)
    }

    pub(crate) fn panicked(&self) {
        self.plan.counters.panicked();
    }

    /// The call has ended: it is counted, and everything goes back, budgets in reverse, the key last.
    #[inline(always)]
    pub(crate) fn end(&self) {
        let plan = self.plan;
        let lifecycle = &plan.engine.lifecycle;
        self.here.finished();
        for claim in plan.claims.iter().rev() {
            lifecycle.tell(claim.budget.give(claim.units));
        }
        if !self.key.is_none() {
            lifecycle.tell(plan.engine.keys.release(self.key));
        }
    }

    /// The same place, for further polls: `holding` is new, and filled where it lies.
    #[inline(always)]
    pub(crate) fn move_to(&self, holding: &mut Holding<&Plan>, taken: usize) {
        holding.key = self.key;
        holding.taken = taken as u32;
    }

    /// As [`move_to`](Self::move_to), of a call that executes; `record` is its attempt's, if somebody linked to it.
    #[inline(always)]
    pub(crate) fn executing(&self, holding: &mut Holding<&Plan>, record: Option<Arc<Node>>) {
        self.move_to(holding, self.plan.claims.len());
        holding.counted = Counted::Started;
        holding.stage = Stage::Executing;
        holding.record = record;
    }
}

impl Holding<&Plan> {
    /// Turns the call away at the budget that was full: counted, and everything is back. `None` past the gate's closing:
    /// there the long way decides.
    #[inline(always)]
    pub(crate) fn refuse_now(&mut self) -> Option<Refusal> {
        let site = self.budget_site();
        if !self.plan.counters.overload(!self.bare()) {
            return None;
        }
        self.stage = Stage::Over;
        self.release();
        Some(self.refusal(site))
    }
}
