//! A call's waiting: the evidence of it, what bounds it, and pauses between attempts.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use super::{Counted, Holding, Stage};
use crate::chain;
use crate::chain::links::Node;
use crate::clock::earlier;
use crate::engine::Plan;
use crate::fifo::{Arrival, Slot};
use crate::outcome::Outcome;
use crate::refusal::{Refusal, Site};
use crate::sync::Ordering;
use crate::trace;
use crate::watch::Doing;

impl<P: Deref<Target = Plan>> Holding<P> {
    #[inline(always)]
    pub(crate) fn refusal(&self, site: Site) -> Refusal {
        Refusal {
            names: Arc::clone(&self.plan.names),
            site,
            chain: None,
        }
    }

    /// As [`refusal`](Self::refusal), naming what the call was made from inside of.
    pub(super) fn nested_refusal(&self, site: Site) -> Refusal {
        Refusal {
            chain: Some(Box::new(self.plan.engine.holders())),
            ..self.refusal(site)
        }
    }

    /// Whether what the call was made from inside of holds units of the budget it needs next.
    pub(super) fn chain_holds_budget(&self) -> bool {
        let claim = &self.plan.claims[self.taken as usize];
        self.plan.engine.chain_holds(claim.budget.name())
    }

    /// How the running attempt stands in its chain, between polls.
    #[inline(always)]
    pub(crate) fn record(&mut self) -> &mut Option<Arc<Node>> {
        &mut self.record
    }

    /// Whoever linked to the attempt is on its own from now on.
    #[inline(always)]
    pub(crate) fn end_attempt(&mut self) {
        if self.record.is_some() {
            self.sever();
        }
    }

    #[cold]
    fn sever(&mut self) {
        if let Some(record) = self.record.take() {
            record.end();
        }
    }

    /// Where the call waits now.
    pub(super) fn site(&self) -> Site {
        match self.stage {
            Stage::AtKey => Site::Key(self.plan.engine.keys.usage(self.key)),
            Stage::AtBudget => self.budget_site(),
            _ => Site::Nowhere,
        }
    }

    #[inline(always)]
    pub(super) fn budget_site(&self) -> Site {
        let claim = &self.plan.claims[self.taken as usize];
        Site::Budget {
            claim: self.taken,
            usage: claim.budget.usage(),
        }
    }

    /// The call waits in the queue that `stage` names.
    pub(super) fn wait(&mut self, stage: Stage, slot: Slot) {
        if self.counted == Counted::Nothing {
            self.counted = Counted::Queued;
        }
        self.stage = stage;
        self.slot = Some(slot);
        self.becomes(match stage {
            Stage::AtKey => Doing::AtKey,
            _ => Doing::AtBudget(self.taken),
        });
        trace::waits(|| self.refusal(self.site()));
        if self.wait_until.is_none() {
            let engine = &self.plan.engine;
            let nested = chain::holds_something().then_some(engine.nested_wait);
            let bound = earlier(self.plan.max_wait, nested);
            self.wait_until = bound.and_then(|wait| engine.clock.after(wait));
        }
    }

    /// The caller left, or ran out of time, before the handler could start. The evidence is taken first. An error means
    /// that the gate has closed and the call was refused there.
    #[cold]
    pub(crate) fn withdraw(&mut self) -> Result<Refusal, Refusal> {
        let site = self.site();
        // A wait that was bounded for its chain's sake says so.
        let nested = self.wait_until.is_some() && chain::holds_something();
        let refusal = if nested {
            self.nested_refusal(site)
        } else {
            self.refusal(site)
        };
        if self.give_up() {
            Ok(refusal)
        } else {
            Err(refusal)
        }
    }

    /// Until when the policy lets the call wait. `None` if it does not wait, or may for ever.
    pub(crate) fn wait_until(&self) -> Option<Instant> {
        self.wait_until
    }

    /// There is to be another attempt, for which the retry budget has been asked; `outcome` is how the call ends if not.
    pub(crate) fn owes(&mut self, outcome: Outcome) {
        self.owed = Some(outcome);
    }

    /// That attempt begins.
    pub(crate) fn retries(&mut self) {
        self.owed = None;
        self.plan.counters.retried();
    }

    /// The attempt that the call has paid for will not be made.
    pub(super) fn unmade(&mut self) {
        if let (Some(_), Some(account)) = (self.owed.take(), &self.plan.retries) {
            account.refund();
        }
    }

    /// Ends the call with this outcome, which is counted first; nothing if it has ended.
    #[cold]
    pub(crate) fn fails(&mut self, outcome: Outcome) {
        if self.stage != Stage::Over {
            self.plan.counters.failed(outcome);
            self.unmade();
            self.end();
        }
    }

    /// Gives the units back between two attempts and keeps the key; without one the lobby is the call's home. False if
    /// shutdown forbids the pause: then everything is still held.
    pub(crate) fn park(&mut self, waker: Waker) -> bool {
        let engine = Arc::clone(&self.plan.engine);
        let nested = self.late || chain::inside(engine.id());
        let needs_lobby = self.key.is_none() && !self.lobby;
        // First the new home, then the old one back: a drain finds the call in one of them.
        if needs_lobby && !self.enter_lobby() {
            return false;
        }
        let parked = engine.lifecycle.park(Arrival {
            counters: &self.plan.counters,
            operation: self.plan.number,
            units: 0,
            nested,
            bare: false,
            counted: true,
            waker: waker.into(),
        });
        let Some(slot) = parked else {
            if needs_lobby {
                self.leave_lobby();
            }
            return false;
        };
        // Whoever began to pause past the stop has been let past it: what it waits for behind the pause is no new work.
        self.late |= nested && engine.lifecycle.stopping();
        self.plan.counters.paused(false);
        self.give_units();
        self.stage = Stage::Parked;
        self.slot = Some(slot);
        self.becomes(Doing::Pausing);
        true
    }

    /// Ready when shutdown ends the pause: the call is over then.
    pub(crate) fn poll_parked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let (Stage::Parked, Some(slot)) = (self.stage, self.slot) {
            ready!(
                self.plan
                    .engine
                    .lifecycle
                    .poll_parked(slot, cx, &self.plan.counters)
            );
            self.slot = None;
            self.end_early();
        }
        Poll::Ready(())
    }

    /// The pause is over: [`poll`](Self::poll) queues for the units again, at the tail.
    pub(crate) fn unpark(&mut self) {
        if let (Stage::Parked, Some(slot)) = (self.stage, self.slot.take()) {
            self.plan.engine.lifecycle.unpark(slot, &self.plan.counters);
            self.stage = Stage::Acquiring;
        }
    }
}

/// Counts a call among its operation's waiting ones; false if there are as many as the policy allows.
pub(super) fn reserve_wait(plan: &Plan, counted: &mut bool) -> bool {
    let Some(most) = plan.max_waiting else {
        return true;
    };
    if !*counted {
        let most = u64::from(most);
        let mut waiting = plan.waiting.load(Ordering::Relaxed);
        loop {
            if waiting >= most {
                return false;
            }
            let next = plan.waiting.compare_exchange_weak(
                waiting,
                waiting + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match next {
                Ok(_) => break,
                Err(seen) => waiting = seen,
            }
        }
        *counted = true;
    }
    true
}
