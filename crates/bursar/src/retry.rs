//! Whether a call tries again: a pure decision.

use std::marker::PhantomData;

use std::time::Duration;

use crate::backoff::Backoff;
use crate::outcome::{Effect, Outcome};

/// Marks a [`Retry`] that asks for nothing unsafe.
#[derive(Debug)]
pub enum Certain {}

/// Marks a [`Retry`] that asks for [`Outcome::Uncertain`]: the attempt may have taken effect.
#[derive(Debug)]
pub enum Doubtful {}

/// Marks a [`Retry`] composed at run time, which only a [dynamic policy](crate::Policy::dynamic) takes.
#[derive(Debug)]
pub enum Unchecked {}

/// How often an operation is attempted, and after which outcomes it is attempted again.
///
/// The type says whether it asks for a retry after [`Outcome::Uncertain`], so that a policy whose effect forbids it
/// does not compile.
///
/// ```
/// use bursar::{Policy, Retry};
///
/// let policy = Policy::idempotent().retry(Retry::up_to(3).on_transient().on_uncertain());
/// ```
///
/// ```compile_fail
/// use bursar::{Policy, Retry};
///
/// let policy = Policy::non_idempotent().retry(Retry::up_to(2).on_uncertain());
/// ```
#[must_use = "give it to a policy"]
#[derive(Debug)]
pub struct Retry<R = Certain> {
    pub(crate) plan: RetryPlan,
    asks: PhantomData<fn() -> R>,
}

/// The outcomes a retry was asked for, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryPlan {
    attempts: u32,
    asked: u8,
    /// After `Uncertain`, if the call has an idempotency key.
    if_keyed: bool,
    pub(crate) backoff: Option<Backoff>,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    AtOnce,
    After(Duration),
    /// There would be another, and the retry budget is spent.
    Denied,
}

/// What is known of a call when one of its attempts has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) effect: Effect,
    /// It has an idempotency key.
    pub(crate) keyed: bool,
    /// Attempts made.
    pub(crate) attempts: u32,
}

const fn bit(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Success => 1,
        Outcome::Transient => 2,
        Outcome::Permanent => 4,
        Outcome::Throttled => 8,
        Outcome::Uncertain => 16,
    }
}

impl RetryPlan {
    /// One attempt.
    pub(crate) const NEVER: Self = Self {
        attempts: 1,
        asked: 0,
        if_keyed: false,
        backoff: None,
    };

    pub(crate) fn asks(self, outcome: Outcome) -> bool {
        self.asked & bit(outcome) != 0
    }

    /// The first outcome that nothing may be retried for, if one was asked for.
    pub(crate) fn invalid(self) -> Option<Outcome> {
        [Outcome::Success, Outcome::Permanent, Outcome::Throttled]
            .into_iter()
            .filter(|outcome| *outcome != Outcome::Throttled || self.backoff.is_none())
            .find(|outcome| self.asks(*outcome))
    }

    /// What follows an attempt that ended in `outcome`: another one if that was asked for, is safe for the call, and
    /// attempts remain. A server's `pushback` takes the place of the backoff; longer than its cap, or without one, it
    /// ends the call.
    pub(crate) fn next(
        self,
        made: Made,
        outcome: Outcome,
        pushback: Option<Duration>,
        random: impl FnOnce() -> u64,
    ) -> Next {
        let asked =
            self.asks(outcome) || (self.if_keyed && made.keyed && outcome == Outcome::Uncertain);
        if made.attempts >= self.attempts || !asked || !safe(made, outcome) {
            return Next::Nothing;
        }
        match (self.backoff, pushback) {
            (None, None) => Next::AtOnce,
            (None, Some(_)) => Next::Nothing,
            (Some(backoff), None) => Next::After(backoff.pause(made.attempts, random())),
            (Some(backoff), Some(pushback)) if pushback <= backoff.cap => Next::After(pushback),
            (Some(_), Some(_)) => Next::Nothing,
        }
    }
}

/// Whether repeating this call after this outcome cannot do harm.
const fn safe(made: Made, outcome: Outcome) -> bool {
    match outcome {
        // Throttled: it was refused. That it may be asked for only with a backoff is checked at construction.
        Outcome::Transient | Outcome::Throttled => true,
        Outcome::Uncertain => made.keyed || !matches!(made.effect, Effect::NonIdempotent),
        Outcome::Success | Outcome::Permanent => false,
    }
}

impl Retry<Certain> {
    /// At most `attempts` attempts in all, the first included; 0 and 1 both mean one. Nothing is retried until one of
    /// the methods below asks for it.
    pub const fn up_to(attempts: u32) -> Self {
        Self {
            plan: RetryPlan {
                attempts,
                ..RetryPlan::NEVER
            },
            asks: PhantomData,
        }
    }
}

impl<R> Retry<R> {
    /// Tries again after [`Outcome::Transient`]: the attempt did not take effect.
    pub const fn on_transient(self) -> Self {
        self.asking(Outcome::Transient, true)
    }

    /// Tries again after [`Outcome::Uncertain`]: the attempt may have taken effect, so the operation must be one that
    /// may be repeated.
    pub const fn on_uncertain(self) -> Retry<Doubtful> {
        self.asking(Outcome::Uncertain, true)
    }

    /// Tries again after [`Outcome::Throttled`], when a [`backoff`](Self::backoff) is declared too.
    pub const fn on_throttled(self) -> Self {
        self.asking(Outcome::Throttled, true)
    }

    /// Tries again after [`Outcome::Uncertain`] when the call states an
    /// [idempotency key](crate::Call::idempotency_key): the receiver can tell that the attempt is a repetition.
    pub const fn on_uncertain_if_idempotency_key(mut self) -> Self {
        self.plan.if_keyed = true;
        self
    }

    /// Pauses between attempts. While a call pauses it holds no units; they are queued for again, at the tail. It keeps
    /// its key.
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.plan.backoff = Some(backoff);
        self
    }

    /// Tries again after `outcome`, or not: for contracts read from files. What may not be retried is refused when
    /// the operation is built.
    pub const fn on(self, outcome: Outcome, again: bool) -> Retry<Unchecked> {
        self.asking(outcome, again)
    }

    const fn asking<S>(self, outcome: Outcome, again: bool) -> Retry<S> {
        let asked = if again {
            self.plan.asked | bit(outcome)
        } else {
            self.plan.asked & !bit(outcome)
        };
        Retry {
            plan: RetryPlan { asked, ..self.plan },
            asks: PhantomData,
        }
    }
}

#[cfg(all(test, not(bursar_loom)))]
mod tests {
    use super::*;
    use Effect::{Idempotent, NonIdempotent, Pure};

    const ALL: [Outcome; 5] = [
        Outcome::Success,
        Outcome::Transient,
        Outcome::Permanent,
        Outcome::Throttled,
        Outcome::Uncertain,
    ];

    const PAUSE: Duration = Duration::from_millis(50);

    fn made(effect: Effect, attempts: u32) -> Made {
        Made {
            effect,
            keyed: false,
            attempts,
        }
    }

    fn next(plan: RetryPlan, made: Made, outcome: Outcome) -> Next {
        plan.next(made, outcome, None, || 0)
    }

    #[test]
    fn c4_a_retry_must_be_asked_for_and_safe() {
        let asks = Retry::up_to(9).on_transient().on_uncertain();
        let backoff = Backoff::exponential(PAUSE);
        let pausing = Retry::up_to(9)
            .on_transient()
            .on_uncertain()
            .on_throttled()
            .backoff(backoff);
        for effect in [Pure, Idempotent, NonIdempotent] {
            for outcome in ALL {
                let right = match outcome {
                    Outcome::Transient => true,
                    Outcome::Uncertain => effect != NonIdempotent,
                    _ => false,
                };
                let found = next(asks.plan, made(effect, 1), outcome);
                let name = format!("{effect} after {outcome}");
                assert_eq!(found == Next::AtOnce, right, "{name}");
                assert_eq!(found == Next::Nothing, !right, "{name}");
                let found = next(pausing.plan, made(effect, 1), outcome);
                let right = right || outcome == Outcome::Throttled;
                assert_eq!(found == Next::After(Duration::ZERO), right, "{name}");
                let unasked = Retry::up_to(9).backoff(backoff).plan;
                assert_eq!(next(unasked, made(effect, 1), outcome), Next::Nothing);
            }
        }
    }

    #[test]
    fn a5_attempts_count_all_and_zero_means_one() {
        for (attempts, total) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let plan = Retry::up_to(attempts).on_transient().plan;
            let mut done = 1;
            while next(plan, made(Pure, done), Outcome::Transient) == Next::AtOnce {
                done += 1;
            }
            assert_eq!(done, total);
        }
    }

    #[test]
    fn c10_a_pushback_takes_the_place_of_the_backoff_up_to_its_cap() {
        let cap = Duration::from_secs(1);
        let plan = Retry::up_to(9)
            .on_throttled()
            .backoff(Backoff::exponential(PAUSE).cap(cap))
            .plan;
        let next = |plan: RetryPlan, pushback| {
            plan.next(made(Pure, 1), Outcome::Throttled, Some(pushback), || {
                1 << 63
            })
        };
        assert_eq!(next(plan, cap), Next::After(cap));
        assert_eq!(next(plan, Duration::ZERO), Next::After(Duration::ZERO));
        assert_eq!(next(plan, cap + Duration::from_nanos(1)), Next::Nothing);
        let without = Retry::up_to(9).on_transient().plan;
        let pushback = Some(Duration::ZERO);
        let found = without.next(made(Pure, 1), Outcome::Transient, pushback, || 0);
        assert_eq!(found, Next::Nothing, "asked to wait, it does not hurry");
    }

    #[test]
    fn c12_an_idempotency_key_makes_uncertain_safe() {
        let keyed = |effect| Made {
            keyed: true,
            ..made(effect, 1)
        };
        let plan = Retry::up_to(2).on_uncertain_if_idempotency_key().plan;
        for effect in [Pure, Idempotent, NonIdempotent] {
            assert_eq!(next(plan, keyed(effect), Outcome::Uncertain), Next::AtOnce);
            let without = next(plan, made(effect, 1), Outcome::Uncertain);
            assert_eq!(without, Next::Nothing);
            let other = next(plan, keyed(effect), Outcome::Transient);
            assert_eq!(other, Next::Nothing);
        }
        // Effect left to the call, Uncertain asked for outright.
        let plan = Retry::up_to(2).on_uncertain().plan;
        let found = next(plan, keyed(NonIdempotent), Outcome::Uncertain);
        assert_eq!(found, Next::AtOnce);
    }

    #[test]
    fn a4_an_entry_set_to_no_is_inert() {
        let plan = Retry::up_to(2)
            .on(Outcome::Success, false)
            .on(Outcome::Throttled, true)
            .on(Outcome::Throttled, false)
            .plan;
        assert_eq!(plan.invalid(), None);
        assert_eq!(
            Retry::up_to(2).on(Outcome::Permanent, true).plan.invalid(),
            Some(Outcome::Permanent)
        );
        let throttled = Retry::up_to(2).on_throttled();
        assert_eq!(throttled.plan.invalid(), Some(Outcome::Throttled));
        let pausing = throttled.backoff(Backoff::exponential(PAUSE));
        assert_eq!(pausing.plan.invalid(), None);
    }
}
