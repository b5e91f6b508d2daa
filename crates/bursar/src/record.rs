//! What a call remembers of its attempts, and the decisions that rest on it.

use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use crate::bounds::Bounds;
use crate::engine::Plan;
use crate::error::{Attempted, CallError, EndedBy};
use crate::outcome::{Effect, Failure, Outcome};
use crate::retry::{Made, Next};
use crate::trace;

/// What a call remembers of its attempts.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) attempts: u32,
    uncertain: bool,
    /// What the call states of its effect.
    stated: Option<Effect>,
    /// Whether the call states an idempotency key.
    keyed: bool,
}

impl Record {
    #[inline]
    pub(crate) fn new(stated: Option<Effect>, keyed: bool) -> Self {
        Self {
            attempts: 0,
            uncertain: false,
            stated,
            keyed,
        }
    }

    /// What follows an attempt that failed so. `last`: the handler has said that nothing can.
    pub(crate) fn next<E>(&mut self, plan: &Plan, failure: &Failure<E>, last: bool) -> Next {
        let next = self.decide(plan, failure, last);
        trace::attempt_failed(&plan.names, self.attempts, failure.outcome(), &next);
        next
    }

    fn decide<E>(&mut self, plan: &Plan, failure: &Failure<E>, last: bool) -> Next {
        self.uncertain |= failure.outcome() == Outcome::Uncertain;
        if last {
            return Next::Nothing;
        }
        let made = Made {
            effect: effect_of(plan.effect, self.stated),
            keyed: self.keyed,
            attempts: self.attempts,
        };
        let random = || plan.engine.jitter.draw();
        let next = plan
            .retry
            .next(made, failure.outcome(), failure.pushback(), random);
        match &plan.retries {
            Some(account) if next != Next::Nothing && !account.spend() => {
                plan.counters.denied();
                Next::Denied
            }
            _ => next,
        }
    }

    /// How the call ends with this failure, of an attempt that `cut` cut off: uncertainty of any attempt sticks to it.
    pub(crate) fn outcome<E>(&self, cut: Option<EndedBy>, failure: &Failure<E>) -> Outcome {
        if cut.is_some() || self.uncertain {
            return Outcome::Uncertain;
        }
        failure.outcome()
    }

    /// The call's error: `cut` is what cut the last attempt off, `kept` what kept the next from starting. The outcome is
    /// to be counted before the call is counted finished.
    pub(crate) fn error<E>(
        &self,
        plan: &Plan,
        cut: Option<EndedBy>,
        kept: Option<EndedBy>,
        failure: Failure<E>,
    ) -> CallError<E> {
        let attempted = Attempted {
            names: Arc::clone(&plan.names),
            attempts: self.attempts,
            outcome: self.outcome(cut, &failure),
            ended_by: kept.or(cut),
            failure,
        };
        match cut {
            Some(EndedBy::CallerLeft) => CallError::Cancelled(attempted),
            Some(_) => CallError::TimedOut(attempted),
            None => CallError::Failed(attempted),
        }
    }
}

/// The stricter of what the policy declares and what the call states; an effect left to the call that says nothing is
/// `NonIdempotent`.
fn effect_of(declared: Option<Effect>, stated: Option<Effect>) -> Effect {
    match (declared, stated) {
        (Some(declared), Some(stated)) => declared.max(stated),
        (declared, stated) => declared.or(stated).unwrap_or(Effect::NonIdempotent),
    }
}

/// An error in the light of the time it came at, with what cut the attempt off: past the caller's deadline that did;
/// past the attempt's own an unclassified error is uncertain.
pub(crate) fn judge<E>(
    failure: Failure<E>,
    plan: &Plan,
    own: Option<Instant>,
    callers: Option<Instant>,
) -> (Failure<E>, Option<EndedBy>) {
    if passed(plan, callers) {
        return (failure, Some(EndedBy::CallerDeadline));
    }
    if !failure.is_classified() && passed(plan, own) {
        return (failure.after_deadline(), None);
    }
    (failure, None)
}

/// Whether the caller's bounds forbid another attempt.
pub(crate) fn gone<B: Bounds>(
    plan: &Plan,
    bounds: &mut B,
    cx: &mut Context<'_>,
) -> Option<EndedBy> {
    if bounds.left(cx) {
        return Some(EndedBy::CallerLeft);
    }
    passed(plan, bounds.deadline()).then_some(EndedBy::CallerDeadline)
}

pub(crate) fn passed(plan: &Plan, deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| plan.engine.clock.now() >= at)
}
