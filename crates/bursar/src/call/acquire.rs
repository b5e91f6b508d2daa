//! Taking or queueing for the key and the budgets, the lobby, and what passes the stop.
//!
//! Whether a wait would be a wait for the call's own chain is asked when it would begin, before the call joins a queue.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::waiting::reserve_wait;
use super::{Counted, Denied, Holding, Stage};
use crate::budget::NotTaken;
use crate::chain;
use crate::engine::Plan;
use crate::fifo::{Arrival, Joined};
use crate::key::Key;
use crate::keys::Asked;
use crate::refusal::Site;
use crate::wake::Kept;

impl<P: Deref<Target = Plan>> Holding<P> {
    pub(super) fn ask_for_key(
        &mut self,
        cx: &mut Context<'_>,
        key: &Key,
    ) -> Poll<Result<(), Denied>> {
        loop {
            let plan = &*self.plan;
            let engine = &plan.engine;
            let late = self.late;
            let nested = late || chain::inside(engine.id());
            let bare = !self.lobby;
            let mut waker = if plan.reject {
                Kept::default()
            } else {
                Kept::of(cx)
            };
            let mut deadlock = false;
            let waiting = &mut self.waiting;
            // Without an arrival the call is refused.
            let arrival = |held: u64| {
                deadlock = !plan.reject && chain::holds_key(engine.id(), held);
                if deadlock || plan.reject || !reserve_wait(plan, waiting) {
                    return None;
                }
                Some(Arrival {
                    counters: &plan.counters,
                    operation: plan.number,
                    units: 0,
                    nested,
                    bare,
                    counted: false,
                    waker: std::mem::take(&mut waker),
                })
            };
            let caller = plan.counters.number();
            let asked = engine
                .keys
                .ask(plan.key_space, key, caller, &mut self.key, late, arrival);
            return match asked {
                Asked::Held => Poll::Ready(Ok(())),
                Asked::Queued(slot) => {
                    self.wait(Stage::AtKey, slot);
                    Poll::Pending
                }
                Asked::Refused(usage) => Poll::Ready(Err(self.denied(Site::Key(usage), deadlock))),
                Asked::Stopping => match self.pass_stop() {
                    Ok(()) => continue,
                    Err(denied) => Poll::Ready(Err(denied)),
                },
            };
        }
    }

    pub(super) fn take_budgets(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Denied>> {
        while let Some(claim) = self.plan.claims.get(self.taken as usize) {
            match claim.budget.take(claim.units, self.late) {
                Ok(()) => self.taken += 1,
                Err(NotTaken::Stopping) => self.pass_stop()?,
                Err(NotTaken::MustWait) => ready!(self.queue_for_budget(cx))?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once the next budget is to be asked again, or its units are held.
    #[cold]
    fn queue_for_budget(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Denied>> {
        let deadlock = !self.plan.reject && self.chain_holds_budget();
        if deadlock || self.plan.reject || !reserve_wait(&self.plan, &mut self.waiting) {
            return Poll::Ready(Err(self.denied(self.budget_site(), deadlock)));
        }
        let claim = &self.plan.claims[self.taken as usize];
        let arrival = Arrival {
            counters: &self.plan.counters,
            operation: self.plan.number,
            units: claim.units,
            nested: self.late || chain::inside(self.plan.engine.id()),
            bare: self.bare(),
            counted: self.counted != Counted::Nothing,
            waker: Kept::of(cx),
        };
        let joined = claim.budget.join(arrival, self.late);
        match joined {
            Joined::Taken => self.taken += 1,
            Joined::Queued(slot) => {
                self.wait(Stage::AtBudget, slot);
                return Poll::Pending;
            }
            Joined::Stopping => self.pass_stop()?,
        }
        Poll::Ready(Ok(()))
    }

    /// The gate is closed to all but what is part of live work.
    #[cold]
    fn pass_stop(&mut self) -> Result<(), Denied> {
        if self.admitted_late() {
            return Ok(());
        }
        Err(Denied::Stopping(self.turn_away()))
    }

    /// A call with neither key nor budget is held by the lobby, so that a drain sees it.
    pub(super) fn enter_lobby(&mut self) -> bool {
        if !self.lobby {
            // Who was admitted past the stop has a place.
            self.lobby = self.plan.engine.lifecycle.enter(false);
        }
        self.lobby || self.admitted_late()
    }

    /// Whether the call is part of live work, so that it goes on past the stop.
    ///
    /// Its chain may end meanwhile, on another thread. So a place is taken first, where a drain finds the call, and
    /// the chain asked once more: had it ended before, this call is refused; if not, the drain has not ended either.
    #[cold]
    fn admitted_late(&mut self) -> bool {
        let engine = Arc::clone(&self.plan.engine);
        if !chain::inside(engine.id()) {
            return false;
        }
        let had_place = self.lobby;
        if !had_place {
            self.lobby = engine.lifecycle.enter(true);
        }
        engine.lifecycle.note_late();
        self.late = chain::inside(engine.id());
        if !self.late && !had_place {
            self.leave_lobby();
        }
        self.late
    }
}
