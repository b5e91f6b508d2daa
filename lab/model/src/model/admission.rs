//! From the gate to holding everything, and back: section B. B1 gives the order.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;

use bursar::{EndedBy, Outcome};

use super::chain::May;
use super::{Became, Model, Polled, Stage, Wait};
use crate::scenario::{Answer, Event, Failed, Form, Id, Kind, Place};

/// B11's bound where the runtime is told of no other.
const TEN_SECONDS: u64 = 10_000;

impl Model {
    pub(super) fn admit(&mut self, id: Id) -> Polled {
        let new = self.calls[&id].stage == Stage::New;
        if new {
            if self.turned_away(id) {
                self.counts(id).rejected += 1;
                self.call(id).stage = Stage::Over;
                return self.never_ran(id, Kind::Stopping);
            }
            self.counts(id).admitted += 1;
            if self.op(id).key_required && self.calls[&id].spec.key == 0 {
                self.end(id);
                return self.never_ran(id, Kind::KeyRequired);
            }
            let now = self.now;
            let call = self.call(id);
            let within = call.spec.within.map(|within| now + within);
            call.deadline = within.into_iter().chain(call.spec.deadline).min();
        }
        // B9: nothing runs past a bound, though capacity is free or was granted meanwhile.
        if let Some(by) = self.gone(id) {
            return self.refuse(id, by, self.place(id));
        }
        let polled = match self.calls[&id].stage {
            Stage::AtKey(Wait::Waiting) | Stage::AtBudget(Wait::Waiting) => Polled::Pending,
            Stage::AtKey(Wait::Withdrawn)
            | Stage::AtBudget(Wait::Withdrawn)
            | Stage::Pausing(_, Wait::Withdrawn) => self.refuse(id, EndedBy::Stopping, None),
            Stage::Pausing(until, _) if self.now < until => Polled::Pending,
            // C10: queued for again, at the tail.
            Stage::Pausing(..) => self.take_budgets(id),
            _ if new => self.take_key(id),
            _ => self.take_budgets(id),
        };
        // B10: what was granted in time is taken; what is waited for is not, once the time is over.
        if self.calls[&id].waits() && self.past(self.calls[&id].wait_until) {
            return self.refuse(id, EndedBy::WaitTooLong, self.place(id));
        }
        polled
    }

    /// B6: held by one, awaited in the order of arrival.
    fn take_key(&mut self, id: Id) -> Polled {
        let Some(key) = self.key(id) else {
            return self.take_budgets(id);
        };
        self.let_in(id);
        if let Entry::Vacant(free) = self.keys.entry(key) {
            free.insert(VecDeque::new());
            self.call(id).key_held = true;
            return self.take_budgets(id);
        }
        let may = self.may_wait(id, self.chain_holds_key(id));
        let queue = self.keys.get_mut(&key).expect("the key is held");
        if may == May::Wait {
            queue.push_back(id);
            return self.wait(id, Stage::AtKey(Wait::Waiting));
        }
        let waiting = queue.len();
        self.may_not(id, may, Place::Key { waiting })
    }

    /// B2, B3: in the order of names, all that is free in one poll.
    fn take_budgets(&mut self, id: Id) -> Polled {
        let new = self.calls[&id].stage == Stage::New;
        while let Some((budget, units)) = self.next_claim(id) {
            if self.turned_away(id) {
                self.call(id).withdrawn = true;
                return self.refuse(id, EndedBy::Stopping, None);
            }
            self.let_in(id);
            // At once only if it fits and nobody waits.
            if self.fits(budget, units) && self.budgets[budget].queue.is_empty() {
                self.budgets[budget].in_use += units;
                self.call(id).claims_held += 1;
                continue;
            }
            let may = self.may_wait(id, self.chain_holds_budget(id, budget));
            if may == May::Wait {
                self.budgets[budget].queue.push_back(id);
                return self.wait(id, Stage::AtBudget(Wait::Waiting));
            }
            return self.may_not(id, may, self.place_at(budget, units));
        }
        if new && self.key(id).is_none() && self.op(id).claims.is_empty() {
            // It passes nothing else.
            self.let_in(id);
        }
        let call = self.call(id);
        call.waiting = false;
        call.wait_until = None;
        if call.pausing.take().is_some() {
            self.paused += 1;
            self.counts(id).retried += 1;
            return self.attempt(id);
        }
        self.counts(id).started += 1;
        self.call(id).started = true;
        self.earn(id);
        if self.calls[&id].spec.form == Form::Admit {
            self.call(id).stage = Stage::Permit;
            self.call(id).became = Became::Success;
            return Polled::Ready(Answer::Permit);
        }
        self.attempt(id)
    }

    fn may_not(&mut self, id: Id, may: May, place: Place) -> Polled {
        let by = match may {
            May::Deadlock => EndedBy::WouldDeadlock,
            _ => EndedBy::Overload,
        };
        self.refuse(id, by, Some(place))
    }

    /// B10, B11: the longest wait counts from the first.
    fn wait(&mut self, id: Id, stage: Stage) -> Polled {
        let nested = self.config.nested_wait.unwrap_or(TEN_SECONDS);
        let nested = self.chain_holds_something(id).then_some(nested);
        let longest = self.op(id).max_wait.into_iter().chain(nested).min();
        let until = longest.map(|longest| self.now + longest);
        let call = self.call(id);
        let first = !std::mem::replace(&mut call.waited, true) && !call.started;
        call.stage = stage;
        call.inside = call.late || call.parent.is_some();
        call.wait_until = call.wait_until.or(until);
        let operation = call.spec.operation;
        self.counts[operation].waited += u64::from(first);
        Polled::Pending
    }

    /// Whether the lifecycle gate is closed to this call. Nested work passes (D1).
    pub(super) fn turned_away(&self, id: Id) -> bool {
        let call = &self.calls[&id];
        self.stopping && !call.late && call.parent.is_none()
    }

    /// D1: what is let past the stop as a part of live work stays in.
    pub(super) fn let_in(&mut self, id: Id) {
        let stopping = self.stopping;
        let call = self.call(id);
        call.late |= stopping && call.parent.is_some();
    }

    /// B9: which of the caller's bounds has ended. Open: the token counts first.
    pub(super) fn gone(&self, id: Id) -> Option<EndedBy> {
        let call = &self.calls[&id];
        if call.fired {
            return Some(EndedBy::CallerLeft);
        }
        self.past(call.deadline).then_some(EndedBy::CallerDeadline)
    }

    pub(super) fn key(&self, id: Id) -> Option<(Option<u8>, u8)> {
        let key = self.calls[&id].spec.key;
        (key != 0).then(|| (self.op(id).key_space, key))
    }

    fn next_claim(&self, id: Id) -> Option<(usize, u32)> {
        let held = self.calls[&id].claims_held;
        self.op(id).claims.get(held).copied()
    }

    /// B12: of a budget made smaller, more than there is may be in use.
    fn fits(&self, budget: usize, units: u32) -> bool {
        let budget = &self.budgets[budget];
        budget.in_use + units <= budget.capacity
    }

    /// B7: everything is back when the error is seen. A call that has made an attempt returns its failure, with the
    /// reason beside it (C1); another never ran.
    fn refuse(&mut self, id: Id, by: EndedBy, place: Option<Place>) -> Polled {
        if let Some(failure) = self.call(id).pausing.take() {
            return self.error(id, failure, Some(by));
        }
        let kind = match by {
            EndedBy::Stopping => Kind::Stopping,
            EndedBy::CallerLeft => Kind::Withdrawn,
            EndedBy::Overload => Kind::Overloaded,
            EndedBy::WouldDeadlock => Kind::WouldDeadlock,
            _ => Kind::AdmissionTimedOut,
        };
        let bounded = self.calls[&id].wait_until.is_some() && self.chain_holds_something(id);
        let named = match kind {
            Kind::WouldDeadlock => true,
            // Open: a wait that was bounded for its chain's sake says so, whatever ended it.
            Kind::AdmissionTimedOut | Kind::Withdrawn => bounded,
            _ => false,
        };
        let chain = if named { self.named_chain(id) } else { 0 };
        self.end(id);
        let refusal = Failed {
            chain,
            ..self.refusal(id, kind, place)
        };
        if kind == Kind::Overloaded {
            // B4: rolled back and counted before the turn of the executor.
            self.counts(id).rejected += 1;
            self.call(id).stage = Stage::Refused(refusal);
            return Polled::Pending;
        }
        Polled::Ready(Answer::Error(refusal))
    }

    /// Where a call waits. One that was granted what it waited for and has not noticed is still there.
    fn place(&self, id: Id) -> Option<Place> {
        let call = &self.calls[&id];
        match call.stage {
            Stage::AtKey(_) => {
                let queue = self.key(id).and_then(|key| self.keys.get(&key));
                let waiting = queue.map_or(0, VecDeque::len);
                Some(Place::Key { waiting })
            }
            Stage::AtBudget(wait) => {
                let noticed = call.claims_held - usize::from(wait == Wait::Granted);
                let (budget, units) = self.op(id).claims[noticed];
                Some(self.place_at(budget, units))
            }
            _ => None,
        }
    }

    fn place_at(&self, budget: usize, units: u32) -> Place {
        let of = &self.budgets[budget];
        Place::Budget {
            budget,
            units,
            capacity: of.capacity,
            in_use: of.in_use,
            waiting: of.queue.len(),
        }
    }

    /// Ends a call: out of its queue, everything back, the next examined there and then (B2, B6, B8), counted once.
    pub(super) fn end(&mut self, id: Id) {
        self.leave_queue(id);
        self.give_units(id);
        if self.calls[&id].key_held
            && let Some(key) = self.key(id)
        {
            match self.keys.get_mut(&key).and_then(VecDeque::pop_front) {
                Some(next) => {
                    self.call(next).stage = Stage::AtKey(Wait::Granted);
                    self.call(next).key_held = true;
                }
                None => drop(self.keys.remove(&key)),
            }
        }
        let call = self.call(id);
        call.stage = Stage::Over;
        call.key_held = false;
        call.waiting = false;
        self.finish(id);
    }

    pub(super) fn give_units(&mut self, id: Id) {
        for at in 0..std::mem::take(&mut self.call(id).claims_held) {
            let (budget, units) = self.op(id).claims[at];
            self.budgets[budget].in_use -= units;
        }
        self.grant();
    }

    pub(super) fn leave_queue(&mut self, id: Id) {
        let budgets = self.budgets.iter_mut().map(|budget| &mut budget.queue);
        for queue in budgets.chain(self.keys.values_mut()) {
            queue.retain(|waiter| *waiter != id);
        }
    }

    /// E1, E2, D5.
    pub(super) fn finish(&mut self, id: Id) {
        let call = self.call(id);
        if std::mem::replace(&mut call.finished, true) {
            return;
        }
        self.refund(id);
        let call = self.call(id);
        let (operation, withdrawn) = (call.spec.operation, call.withdrawn);
        let (started, became) = (call.started, call.became);
        self.counts[operation].finished += 1;
        let of = &mut self.counts[operation].outcomes;
        *match became {
            _ if !started => &mut of.never_ran,
            Became::Dropped => &mut of.dropped,
            Became::Panicked => &mut of.panicked,
            Became::Success => &mut of.success,
            Became::Failed(Outcome::Transient) => &mut of.transient,
            Became::Failed(Outcome::Permanent) => &mut of.permanent,
            Became::Failed(Outcome::Throttled) => &mut of.throttled,
            Became::Failed(Outcome::Uncertain) => &mut of.uncertain,
            Became::Failed(_) => unreachable!("an error has one of four outcomes"),
        } += 1;
        if self.stopping {
            self.ends[operation].withdrawn += u64::from(withdrawn);
            self.ends[operation].ended += u64::from(!withdrawn);
        }
    }

    /// B2: from the head for as long as the head fits, all of them at once.
    pub(super) fn grant(&mut self) {
        for budget in 0..self.budgets.len() {
            while let Some(head) = self.budgets[budget].queue.front().copied() {
                let Some((_, units)) = self
                    .next_claim(head)
                    .filter(|claim| self.fits(budget, claim.1))
                else {
                    break;
                };
                self.budgets[budget].queue.pop_front();
                self.budgets[budget].in_use += units;
                self.call(head).claims_held += 1;
                self.call(head).stage = Stage::AtBudget(Wait::Granted);
            }
        }
    }

    /// B12: growing grants at once, shrinking revokes nothing; none below the largest claim.
    pub(super) fn resize(&mut self, budget: usize, capacity: u32) {
        let claims = self.config.operations.iter().flat_map(|op| &op.claims);
        let largest = claims
            .filter(|claim| claim.0 == budget)
            .map(|claim| claim.1);
        let accepted = capacity >= largest.max().unwrap_or(1);
        if accepted {
            self.budgets[budget].capacity = capacity;
            self.grant();
        }
        self.events.push(Event::Resized(budget, accepted));
    }

    fn never_ran(&self, id: Id, kind: Kind) -> Polled {
        Polled::Ready(Answer::Error(self.refusal(id, kind, None)))
    }

    fn refusal(&self, id: Id, kind: Kind, place: Option<Place>) -> Failed {
        let outcome = match kind {
            Kind::KeyRequired | Kind::WouldDeadlock => Outcome::Permanent,
            _ => Outcome::Throttled,
        };
        Failed {
            operation: self.calls[&id].spec.operation,
            kind,
            outcome,
            attempts: 0,
            ended_by: None,
            said: None,
            pushback: None,
            place,
            chain: 0,
        }
    }
}
