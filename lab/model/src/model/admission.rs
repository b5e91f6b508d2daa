//! From the gate to holding everything, and back: section B. B1 gives the order.

use std::collections::VecDeque;

use bursar::{EndedBy, Outcome};

use super::{Model, Polled, Stage, Wait};
use crate::scenario::{Answer, Failed, Form, Id, Kind, Place};

impl Model {
    pub(super) fn admit(&mut self, id: Id) -> Polled {
        let new = self.calls[&id].stage == Stage::New;
        if new {
            if self.turned_away(id) {
                self.counts(id).rejected += 1;
                self.call(id).stage = Stage::Over;
                return refused(Kind::Stopping, None);
            }
            self.counts(id).admitted += 1;
            if self.op(id).key_required && self.calls[&id].spec.key == 0 {
                return self.refuse(id, Kind::KeyRequired, None);
            }
            let now = self.now;
            let call = self.call(id);
            let within = call.spec.within.map(|within| now + within);
            call.deadline = within.into_iter().chain(call.spec.deadline).min();
        }
        // B9: nothing runs past a bound, though capacity is free or was granted meanwhile.
        if let Some(by) = self.gone(id) {
            let left = by == EndedBy::CallerLeft;
            let kind = [Kind::AdmissionTimedOut, Kind::Withdrawn][usize::from(left)];
            return self.refuse(id, kind, self.place(id));
        }
        match self.calls[&id].stage {
            Stage::AtKey(Wait::Waiting) | Stage::AtBudget(Wait::Waiting) => Polled::Pending,
            Stage::AtKey(Wait::Withdrawn) | Stage::AtBudget(Wait::Withdrawn) => {
                self.refuse(id, Kind::Stopping, None)
            }
            _ if new => self.take_key(id),
            _ => self.take_budgets(id),
        }
    }

    /// B6: held by one, awaited in the order of arrival.
    fn take_key(&mut self, id: Id) -> Polled {
        let Some(key) = self.key(id) else {
            return self.take_budgets(id);
        };
        let reject = self.op(id).reject;
        match self.keys.get_mut(&key) {
            None => {
                self.keys.insert(key, VecDeque::new());
                self.call(id).key_held = true;
                self.take_budgets(id)
            }
            Some(queue) if reject => {
                let waiting = queue.len();
                self.overloaded(id, Place::Key { waiting })
            }
            Some(queue) => {
                queue.push_back(id);
                self.call(id).stage = Stage::AtKey(Wait::Waiting);
                Polled::Pending
            }
        }
    }

    /// B2, B3: in the order of names, all that is free in one poll.
    fn take_budgets(&mut self, id: Id) -> Polled {
        while let Some((budget, units)) = self.next_claim(id) {
            if self.turned_away(id) {
                return self.refuse(id, Kind::Stopping, None);
            }
            // At once only if it fits and nobody waits.
            if self.fits(budget, units) && self.budgets[budget].queue.is_empty() {
                self.budgets[budget].in_use += units;
                self.call(id).claims_held += 1;
            } else if self.op(id).reject {
                return self.overloaded(id, self.place_at(budget, units));
            } else {
                self.budgets[budget].queue.push_back(id);
                self.call(id).stage = Stage::AtBudget(Wait::Waiting);
                return Polled::Pending;
            }
        }
        self.counts(id).started += 1;
        if self.calls[&id].spec.form == Form::Admit {
            self.call(id).stage = Stage::Permit;
            return Polled::Ready(Answer::Permit);
        }
        self.attempt(id)
    }

    /// Whether the lifecycle gate is closed to this call. Nested work passes (D1).
    fn turned_away(&self, id: Id) -> bool {
        self.stopping && self.calls[&id].parent.is_none()
    }

    /// B9: which of the caller's bounds has ended. Open: the token counts first.
    pub(super) fn gone(&self, id: Id) -> Option<EndedBy> {
        let call = &self.calls[&id];
        if call.fired {
            return Some(EndedBy::CallerLeft);
        }
        self.past(call.deadline).then_some(EndedBy::CallerDeadline)
    }

    fn key(&self, id: Id) -> Option<(Option<u8>, u8)> {
        let key = self.calls[&id].spec.key;
        (key != 0).then(|| (self.op(id).key_space, key))
    }

    fn next_claim(&self, id: Id) -> Option<(usize, u32)> {
        let held = self.calls[&id].claims_held;
        self.op(id).claims.get(held).copied()
    }

    fn fits(&self, budget: usize, units: u32) -> bool {
        self.budgets[budget].in_use + units <= self.config.budgets[budget]
    }

    /// B4: rolled back and counted before the turn of the executor.
    fn overloaded(&mut self, id: Id, place: Place) -> Polled {
        self.counts(id).rejected += 1;
        let answer = self.refuse(id, Kind::Overloaded, Some(place));
        self.call(id).stage = Stage::Refused(answer.failed());
        Polled::Pending
    }

    /// B7: everything is back when the error is seen.
    fn refuse(&mut self, id: Id, kind: Kind, place: Option<Place>) -> Polled {
        self.end(id);
        refused(kind, place)
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
        let in_use = self.budgets[budget].in_use;
        let waiting = self.budgets[budget].queue.len();
        Place::Budget {
            budget,
            units,
            in_use,
            waiting,
        }
    }

    /// Ends a call: out of its queue, everything back, the next examined there and then (B2, B6, B8), counted once.
    pub(super) fn end(&mut self, id: Id) {
        self.leave_queue(id);
        let held = self.calls[&id].claims_held;
        for at in 0..held {
            let (budget, units) = self.op(id).claims[at];
            self.budgets[budget].in_use -= units;
        }
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
        call.claims_held = 0;
        self.finish(id);
        self.grant();
    }

    pub(super) fn leave_queue(&mut self, id: Id) {
        let budgets = self.budgets.iter_mut().map(|budget| &mut budget.queue);
        for queue in budgets.chain(self.keys.values_mut()) {
            queue.retain(|waiter| *waiter != id);
        }
    }

    pub(super) fn finish(&mut self, id: Id) {
        if !std::mem::replace(&mut self.call(id).finished, true) {
            self.counts(id).finished += 1;
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
}

fn refused(kind: Kind, place: Option<Place>) -> Polled {
    let outcome = match kind {
        Kind::KeyRequired => Outcome::Permanent,
        _ => Outcome::Throttled,
    };
    Polled::Ready(Answer::Error(Failed {
        kind,
        outcome,
        attempts: 0,
        ended_by: None,
        said: None,
        place,
    }))
}
