//! Whether a call tries again, and when: C4, C10, C11, C12.

use bursar::{Effect, EndedBy, Outcome};

use super::{Failure, Model, Polled, Stage, Wait};
use crate::draws;
use crate::scenario::{Id, Retries};

const MILLISECOND: u64 = 1_000_000;

impl Model {
    /// An attempt has failed: asked for, safe, attempts remain, the caller is still there.
    pub(super) fn failed(&mut self, id: Id, failure: Failure) -> Polled {
        self.drop_handler(id);
        self.call(id).uncertain |= failure.outcome == Outcome::Uncertain;
        let left = !matches!(failure.cut, None | Some(EndedBy::AttemptTimeout));
        if left || !self.asked_and_safe(id, failure.outcome) {
            return self.error(id, failure, None);
        }
        // In nanoseconds.
        let pause = match (self.op(id).backoff, failure.pushback) {
            (None, None) => None,
            (Some(backoff), None) => Some(self.draw(id, backoff)),
            (Some((_, cap)), Some(pushback)) if pushback <= cap => Some(pushback * MILLISECOND),
            // Asked to wait for longer than it would, it does not hurry.
            (_, Some(_)) => return self.error(id, failure, None),
        };
        if !self.spend(id) {
            self.counts(id).denied += 1;
            return self.error(id, failure, Some(EndedBy::RetryBudget));
        }
        let Some(pause) = pause else {
            self.call(id).stage = Stage::Between(failure);
            return Polled::Pending;
        };
        // A next attempt that cannot start before the deadline is not started (B9).
        let deadline = self.calls[&id].deadline;
        if deadline.is_some_and(|at| self.now + pause / MILLISECOND >= at) {
            return self.error(id, failure, Some(EndedBy::CallerDeadline));
        }
        if self.turned_away(id) {
            return self.error(id, failure, Some(EndedBy::Stopping));
        }
        // It keeps its key and no units.
        self.let_in(id);
        self.give_units(id);
        // Time goes on in whole milliseconds.
        let until = self.now + pause.div_ceil(MILLISECOND);
        let call = self.call(id);
        call.stage = Stage::Pausing(until, Wait::Waiting);
        call.inside = call.late || call.parent.is_some();
        call.pausing = Some(failure);
        Polled::Pending
    }

    fn asked_and_safe(&self, id: Id, outcome: Outcome) -> bool {
        let (op, call) = (self.op(id), &self.calls[&id]);
        let keyed = call.spec.idempotency_key != 0;
        // A3: the stricter counts, and what nobody states is NonIdempotent.
        let effect = op.effect.max(call.spec.effect);
        let repeatable = keyed || effect.is_some_and(|effect| effect != Effect::NonIdempotent);
        let again = match outcome {
            Outcome::Transient => op.on_transient,
            Outcome::Throttled => op.on_throttled,
            Outcome::Uncertain => repeatable && (op.on_uncertain || op.if_keyed && keyed),
            _ => false,
        };
        again && call.attempts < op.attempts
    }

    /// Exponential with full jitter. Open: a number is drawn before the retry budget is asked.
    fn draw(&mut self, id: Id, (base, cap): (u64, u64)) -> u64 {
        let doubled = base << (self.calls[&id].attempts - 1);
        self.drawn += 1;
        draws::pause(self.drawn - 1, doubled.min(cap) * MILLISECOND)
    }

    /// C11: which retry budget the call's retries spend.
    fn account(&self, id: Id) -> Option<usize> {
        let all = self.config.retries.map(|_| self.left.len() - 1);
        self.op(id).group.or(all)
    }

    /// A call that starts earns its share, up to the burst.
    pub(super) fn earn(&mut self, id: Id) {
        if let Some(at) = self.account(id) {
            self.put(at, u64::from(self.retry_budget(at).percent));
        }
    }

    fn retry_budget(&self, at: usize) -> Retries {
        let mut budgets = self.config.groups.iter().chain(&self.config.retries);
        *budgets.nth(at).expect("the budget exists")
    }

    fn put(&mut self, at: usize, hundredths: u64) {
        let most = u64::from(self.retry_budget(at).burst) * 100;
        self.left[at] = (self.left[at] + hundredths).min(most);
    }

    fn spend(&mut self, id: Id) -> bool {
        let Some(at) = self.account(id) else {
            return true;
        };
        let left = self.left[at].checked_sub(100);
        self.left[at] = left.unwrap_or(self.left[at]);
        self.call(id).paid = left.map(|_| at);
        left.is_some()
    }

    /// What has paid for an attempt that is never made has it back, up to its burst.
    pub(super) fn refund(&mut self, id: Id) {
        if let Some(at) = self.call(id).paid.take() {
            self.put(at, 100);
        }
    }
}
