//! What a script does to a model, and what the runner asks of it. No clause stands here but those that say who must be
//! woken.

use super::{Call, Drain, Model, Polled, Said, Stage, Wait};
use crate::scenario::{Answer, Event, Id, Lent, Move, Spec, Step, Via};

impl Model {
    /// What is seen to happen.
    pub fn step(&mut self, step: &Step) -> Vec<Event> {
        match step {
            Step::Call(id, spec) => self.make(*id, spec, None, false),
            Step::Drain(id, bound) => {
                let (begun, deadline) = (false, None);
                let drain = Drain {
                    bound: *bound,
                    begun,
                    deadline,
                };
                self.drains.insert(*id, drain);
            }
            Step::Poll(id) if self.drains.contains_key(id) => self.poll_drain(*id),
            Step::Poll(id) => {
                self.stirred.remove(id);
                match self.poll(*id) {
                    Polled::Pending => {}
                    Polled::Ready(answer) => self.answered(*id, answer),
                    Polled::Panicked => {
                        self.calls.remove(id);
                        self.events.push(Event::Panicked(*id));
                    }
                }
            }
            Step::Drop(id) if self.drains.contains_key(id) => drop(self.drains.remove(id)),
            Step::Drop(id) => self.leave(*id),
            Step::Tell(id, what) => {
                self.call(*id).moves.push_back(what.clone());
                self.stir(*id);
            }
            Step::Advance(by) => self.now += by,
            Step::Resize(budget, capacity) => self.resize(*budget, *capacity),
            Step::Fire(id) => self.call(*id).fired = true,
        }
        std::mem::take(&mut self.events)
    }

    /// Whether the step says something about this state. Others are left out.
    pub fn applies(&self, step: &Step) -> bool {
        let call = |id| self.calls.get(id);
        let root = |id| call(id).is_some_and(Call::is_root);
        let ended = |id| call(id).is_some_and(|call| call.stage == Stage::Permit);
        match step {
            Step::Call(..) | Step::Drain(..) | Step::Advance(_) | Step::Resize(..) => true,
            Step::Poll(id) => self.drains.contains_key(id) || root(id) && !ended(id),
            Step::Drop(id) => self.drains.contains_key(id) || root(id),
            Step::Tell(id, _) => self.calls.contains_key(id),
            Step::Fire(id) => call(id).is_some_and(|call| call.spec.token && !call.fired),
        }
    }

    /// What the script holds: calls that no handler awaits, and drains.
    pub fn roots(&self) -> Vec<Id> {
        let mut roots = self.ids(Call::is_root);
        roots.extend(self.drains.keys());
        roots
    }

    /// Calls whose handlers may be told something.
    pub fn running(&self) -> Vec<Id> {
        self.ids(|call| {
            matches!(
                call.stage,
                Stage::Running | Stage::Between(_) | Stage::Pausing(..)
            )
        })
    }

    /// Whether a call pauses, or waits for what it gave up for a pause.
    pub fn pauses(&self) -> bool {
        self.calls.values().any(|call| call.pausing.is_some())
    }

    /// The futures that have something to see, and so must have been woken since they were last polled (B3, B8, C4, C5,
    /// D1).
    pub fn restless(&self) -> Vec<Id> {
        let mut restless = self.ids(|call| call.is_root() && self.stirs(call));
        let ended = |drain: &Drain| drain.begun && (self.drained() || self.past(drain.deadline));
        let drains = self.drains.iter().filter(|(_, drain)| ended(drain));
        restless.extend(drains.map(|(id, _)| *id));
        restless
    }

    /// The calls that nothing may have woken since they were last polled, since nothing has changed for them (B3). A drain
    /// may be woken at any time, to look whether it is over.
    pub fn asleep(&self) -> Vec<Id> {
        let restless = self.restless();
        let mut calls = self.ids(|call| call.is_root() && call.stage != Stage::Permit);
        calls.retain(|id| !restless.contains(id) && !self.stirred.contains(id));
        calls
    }

    /// Whoever polls this call may be woken on account of its handler: one that is told something, or has woken itself and
    /// is polled again, or dropped, in the same poll.
    pub(super) fn stir(&mut self, id: Id) {
        let call = &self.calls[&id];
        match call.parent.filter(|_| !call.spawned) {
            Some(parent) => self.stir(parent),
            None => drop(self.stirred.insert(id)),
        }
    }

    fn stirs(&self, call: &Call) -> bool {
        let bounds = call.fired || self.past(call.deadline);
        match call.stage {
            Stage::New | Stage::Permit | Stage::Over => false,
            Stage::AtKey(Wait::Waiting) | Stage::AtBudget(Wait::Waiting) => {
                bounds || self.past(call.wait_until)
            }
            Stage::Pausing(until, Wait::Waiting) => bounds || self.now >= until,
            Stage::AtKey(_)
            | Stage::AtBudget(_)
            | Stage::Pausing(..)
            | Stage::Refused(_)
            | Stage::Between(_) => true,
            Stage::Running => {
                let nested = call
                    .child
                    .is_some_and(|child| self.stirs(&self.calls[&child]));
                bounds || call.yielded || self.past(self.own_deadline(call)) || nested
            }
        }
    }

    fn make(&mut self, id: Id, spec: &Spec, parent: Option<Id>, spawned: bool) {
        let spec = spec.clone();
        let call = Call {
            spec,
            parent,
            spawned,
            ..Call::default()
        };
        self.calls.insert(id, call);
    }

    fn answered(&mut self, id: Id, answer: Answer) {
        if !answer.holds() {
            self.calls.remove(&id);
        }
        self.events.push(Event::Answered(id, answer));
    }

    /// The caller drops what it has of a call (B8, C8): its future or its permit.
    fn leave(&mut self, id: Id) {
        match self.calls[&id].stage {
            Stage::New | Stage::Refused(_) | Stage::Over => {}
            Stage::Running => {
                self.drop_handler(id);
                self.end(id);
            }
            _ => self.end(id),
        }
        self.calls.remove(&id);
    }

    /// What one handler does as it was told, up to where it suspends or ends.
    pub(super) fn handler(&mut self, id: Id) -> Said {
        let call = &self.calls[&id];
        let lent = (call.spec.via != Via::Contract).then(|| Lent {
            number: call.attempts,
            deadline: self.lent_deadline(call),
            cancelled: call.cancelled,
            idempotency_key: call.spec.idempotency_key,
        });
        self.events.push(Event::Polled(id, lent));
        self.call(id).yielded = false;
        loop {
            if let Some(child) = self.calls[&id].child {
                match self.poll(child) {
                    Polled::Pending => return Said::Nothing,
                    Polled::Panicked => {
                        self.calls.remove(&child);
                        self.call(id).child = None;
                        return Said::Panic;
                    }
                    Polled::Ready(answer) => {
                        self.call(id).child = None;
                        self.call(id)
                            .permits
                            .extend(answer.holds().then_some(child));
                        self.answered(child, answer);
                    }
                }
            }
            match self.call(id).moves.pop_front() {
                None => return Said::Nothing,
                Some(Move::Answer(word)) => return Said::Word(word, None),
                Some(Move::AnswerLater(word, pause)) => return Said::Word(word, Some(pause)),
                Some(Move::AnswerWhenCancelled(word))
                    if lent.is_some_and(|lent| lent.cancelled) =>
                {
                    return Said::Word(word, None);
                }
                Some(waits @ Move::AnswerWhenCancelled(_)) => {
                    self.call(id).moves.push_front(waits);
                    return Said::Nothing;
                }
                Some(Move::Panic) => return Said::Panic,
                Some(Move::Block(time)) => {
                    self.now += time;
                    // Its own timers may have come due, and this poll sees to them.
                    self.stir(id);
                }
                Some(Move::Yield) => {
                    self.call(id).yielded = true;
                    return Said::Nothing;
                }
                Some(Move::Nest(child, spec)) => {
                    self.make(child, &spec, Some(id), false);
                    self.call(id).child = Some(child);
                }
                Some(Move::Spawn(child, spec)) => self.make(child, &spec, Some(id), true),
                // D4: refused, and nothing is closed.
                Some(Move::Drain) => self.events.push(Event::RefusedToDrain(id)),
            }
        }
    }

    /// The handler's future goes, and what it awaits and keeps with it, while everything of its own is still held.
    pub(super) fn drop_handler(&mut self, id: Id) {
        let call = self.call(id);
        let permits = std::mem::take(&mut call.permits);
        for child in call.child.take().into_iter().chain(permits) {
            self.leave(child);
        }
        // B11: what it left behind is on its own.
        let left = |call: &&mut Call| call.parent == Some(id);
        for child in self.calls.values_mut().filter(left) {
            child.parent = None;
            child.spawned = false;
        }
        let in_use = self.budgets.iter().map(|budget| budget.in_use).collect();
        self.events
            .push(Event::Dropped(id, in_use, self.keys.len()));
    }
}
