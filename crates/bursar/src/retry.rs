//! Whether a call tries again: a pure decision.

use std::marker::PhantomData;

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
    };

    pub(crate) fn asks(self, outcome: Outcome) -> bool {
        self.asked & bit(outcome) != 0
    }

    /// The first outcome that nothing may be retried for, if one was asked for.
    pub(crate) fn invalid(self) -> Option<Outcome> {
        [Outcome::Success, Outcome::Permanent, Outcome::Throttled]
            .into_iter()
            .find(|outcome| self.asks(*outcome))
    }

    /// Whether attempt `made + 1` follows an attempt that ended in `outcome`: it was asked for, it is safe for the
    /// call's effect, and attempts remain.
    pub(crate) fn again(self, effect: Effect, outcome: Outcome, made: u32) -> bool {
        made < self.attempts && self.asks(outcome) && safe(effect, outcome)
    }
}

/// Whether repeating an operation of this effect after this outcome cannot do harm.
const fn safe(effect: Effect, outcome: Outcome) -> bool {
    match outcome {
        Outcome::Transient => true,
        Outcome::Uncertain => !matches!(effect, Effect::NonIdempotent),
        Outcome::Success | Outcome::Permanent | Outcome::Throttled => false,
    }
}

impl Retry<Certain> {
    /// At most `attempts` attempts in all, the first included; 0 and 1 both mean one. Nothing is retried until one of
    /// the methods below asks for it.
    pub const fn up_to(attempts: u32) -> Self {
        Self {
            plan: RetryPlan { attempts, asked: 0 },
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

    /// Tries again after `outcome`, or not: for contracts read from files. What may not be retried is refused when
    /// the operation is built.
    pub const fn on(self, outcome: Outcome, again: bool) -> Retry<Unchecked> {
        self.asking(outcome, again)
    }

    const fn asking<S>(self, outcome: Outcome, again: bool) -> Retry<S> {
        let RetryPlan { attempts, asked } = self.plan;
        let asked = if again {
            asked | bit(outcome)
        } else {
            asked & !bit(outcome)
        };
        Retry {
            plan: RetryPlan { attempts, asked },
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

    #[test]
    fn c4_a_retry_must_be_asked_for_and_safe() {
        let everything = Retry::up_to(9).on_transient().on_uncertain().plan;
        for effect in [Pure, Idempotent, NonIdempotent] {
            for outcome in ALL {
                let right = match outcome {
                    Outcome::Transient => true,
                    Outcome::Uncertain => effect != NonIdempotent,
                    _ => false,
                };
                assert_eq!(
                    everything.again(effect, outcome, 1),
                    right,
                    "{effect} after {outcome}"
                );
                assert!(!Retry::up_to(9).plan.again(effect, outcome, 1));
            }
        }
    }

    #[test]
    fn a5_attempts_count_all_and_zero_means_one() {
        for (attempts, total) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let plan = Retry::up_to(attempts).on_transient().plan;
            let mut made = 1;
            while plan.again(Pure, Outcome::Transient, made) {
                made += 1;
            }
            assert_eq!(made, total);
        }
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
    }
}
