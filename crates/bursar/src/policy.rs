//! What an operation declares: its effect, the budgets it spends, how long an attempt may take, what is retried.

use std::marker::PhantomData;
use std::time::Duration;

use crate::outcome::Effect;
use crate::retry::{Certain, Doubtful, Retry, RetryPlan, Unchecked};

/// Marks a policy whose operation changes nothing.
#[derive(Debug)]
pub enum Pure {}

/// Marks a policy whose operation may be repeated.
#[derive(Debug)]
pub enum Idempotent {}

/// Marks a policy whose operation must not be repeated unless it is known not to have happened.
#[derive(Debug)]
pub enum NonIdempotent {}

/// Marks a policy each of whose calls states its own effect.
#[derive(Debug)]
pub enum PerCall {}

/// Marks a policy whose effect is stated, and checked, at run time.
#[derive(Debug)]
pub enum Dynamic {}

/// Which retries a policy's effect permits.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` operation must not be retried after an `Uncertain` outcome",
    label = "this retry asks for what the effect forbids",
    note = "the first attempt may already have charged, sent or changed something; a retry could do it twice",
    note = "ask `.on_transient()` alone, or declare the operation `Policy::idempotent()` if repeating it is harmless"
)]
pub trait Permits<R> {}

impl<E> Permits<Certain> for E {}
impl Permits<Doubtful> for Pure {}
impl Permits<Doubtful> for Idempotent {}
impl Permits<Doubtful> for PerCall {}
impl Permits<Doubtful> for Dynamic {}
/// Whether it takes such a retry at all is the question of [`Takes`].
impl<E> Permits<Unchecked> for E {}

/// Which policies take a retry composed at run time.
#[diagnostic::on_unimplemented(
    message = "a policy whose effect is known to the compiler takes no retry composed at run time",
    label = "made with `Retry::on(..)`",
    note = "such a retry is checked at run time and goes with `Policy::dynamic()`",
    note = "for this policy ask `.on_transient()` or `.on_uncertain()`, which the compiler checks"
)]
pub trait Takes<R> {}

impl<E> Takes<Certain> for E {}
impl<E> Takes<Doubtful> for E {}
impl Takes<Unchecked> for Dynamic {}

/// What an operation declares about itself.
///
/// Begin with the effect; everything else has a default:
///
/// | declared | default |
/// |---|---|
/// | [`claim`](Policy::claim) | no budget is spent |
/// | [`reject`](Policy::reject) | a call waits for what it needs |
/// | [`timeout`](Policy::timeout) | an attempt may take for ever |
/// | [`grace`](Policy::grace) | none |
/// | [`retry`](Policy::retry) | one attempt |
/// | [`retry_group`](Policy::retry_group) | the runtime's retry budget, if it has one |
/// | [`max_wait`](Policy::max_wait) | a call waits for as long as its caller does |
/// | [`max_waiting`](Policy::max_waiting) | any number of calls wait |
/// | [`require_key`](Policy::require_key) | a call may come without a key |
/// | [`key_space`](Policy::key_space) | the runtime's common space |
///
/// A policy is checked against its runtime when the operation is built.
///
/// ```
/// use bursar::{Policy, Retry};
/// use std::time::Duration;
///
/// let render = Policy::idempotent()
///     .claim("renderer", 1)
///     .timeout(Duration::from_secs(2))
///     .retry(Retry::up_to(3).on_transient().on_uncertain());
/// ```
#[must_use = "give it to `Runtime::contract` or `Runtime::operation`"]
#[derive(Debug)]
pub struct Policy<E> {
    pub(crate) declared: Declared,
    effect: PhantomData<fn() -> E>,
}

/// A policy's declarations, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) effect: DeclaredEffect,
    pub(crate) claims: Vec<(String, u32)>,
    pub(crate) reject: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) retry: RetryPlan,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) max_waiting: Option<u32>,
    pub(crate) retry_group: Option<String>,
    pub(crate) key_required: bool,
    pub(crate) key_space: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredEffect {
    Missing,
    Fixed(Effect),
    PerCall,
}

impl<E> Policy<E> {
    const fn new(effect: DeclaredEffect) -> Self {
        Self {
            declared: Declared {
                effect,
                claims: Vec::new(),
                reject: false,
                timeout: None,
                grace: None,
                retry: RetryPlan::NEVER,
                max_wait: None,
                max_waiting: None,
                retry_group: None,
                key_required: false,
                key_space: None,
            },
            effect: PhantomData,
        }
    }
}

impl Policy<Pure> {
    /// The operation changes nothing.
    pub const fn pure() -> Self {
        Self::new(DeclaredEffect::Fixed(Effect::Pure))
    }
}

impl Policy<Idempotent> {
    /// Repeating the operation has the effect of doing it once.
    pub const fn idempotent() -> Self {
        Self::new(DeclaredEffect::Fixed(Effect::Idempotent))
    }
}

impl Policy<NonIdempotent> {
    /// Each execution counts.
    pub const fn non_idempotent() -> Self {
        Self::new(DeclaredEffect::Fixed(Effect::NonIdempotent))
    }
}

impl Policy<PerCall> {
    /// Each call states its own effect ([`Call::effect`](crate::Call::effect)); one that says nothing counts as
    /// [`Effect::NonIdempotent`].
    pub const fn effect_per_call() -> Self {
        Self::new(DeclaredEffect::PerCall)
    }
}

impl Policy<Dynamic> {
    /// A policy composed at run time, from a file say. Its effect must still be stated, with [`effect`](Self::effect),
    /// and what the compiler checks for the other policies is checked when the operation is built.
    pub const fn dynamic() -> Self {
        Self::new(DeclaredEffect::Missing)
    }

    /// States the effect. `None` leaves it unstated, which is refused when the operation is built.
    pub fn effect(mut self, effect: impl Into<Option<Effect>>) -> Self {
        self.declared.effect = match effect.into() {
            Some(effect) => DeclaredEffect::Fixed(effect),
            None => DeclaredEffect::Missing,
        };
        self
    }

    /// States that each call names its own effect.
    pub fn each_call_states_its_effect(mut self) -> Self {
        self.declared.effect = DeclaredEffect::PerCall;
        self
    }
}

impl<E> Policy<E> {
    /// Spends `units` of a budget while a call executes. A budget may be claimed once.
    pub fn claim(mut self, budget: impl Into<String>, units: u32) -> Self {
        self.declared.claims.push((budget.into(), units));
        self
    }

    /// A call whose key is held, or whose budgets are not free at once, fails as
    /// [`Throttled`](crate::Outcome::Throttled) instead of waiting.
    pub fn reject(mut self) -> Self {
        self.declared.reject = true;
        self
    }

    /// How long one attempt may take, counted from its handler's first poll. At the deadline the handler is told,
    /// polled once more, and dropped at its await point.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.declared.timeout = Some(timeout);
        self
    }

    /// How long an attempt goes on being polled past its [`timeout`](Self::timeout), so that it can end in its own
    /// way. What it answers within the grace stands.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.declared.grace = Some(grace);
        self
    }

    /// How often the operation is attempted, and after what. A retry that the effect forbids does not compile.
    pub fn retry<R>(mut self, retry: Retry<R>) -> Self
    where
        E: Permits<R> + Takes<R>,
    {
        self.declared.retry = retry.plan;
        self
    }

    /// Whose [retry budget](crate::RetryBudget) this operation's retries spend: a group that the runtime's builder names.
    pub fn retry_group(mut self, group: impl Into<String>) -> Self {
        self.declared.retry_group = Some(group.into());
        self
    }

    /// The longest a call waits, for its key and all its budgets together; then it fails as
    /// [`Throttled`](crate::Outcome::Throttled)
    /// ([`CallError::AdmissionTimedOut`](crate::CallError::AdmissionTimedOut)). After each backoff it waits for its
    /// budgets no longer than that again; then it fails with its last failure
    /// ([`EndedBy::WaitTooLong`](crate::EndedBy::WaitTooLong)).
    pub fn max_wait(mut self, longest: Duration) -> Self {
        self.declared.max_wait = Some(longest);
        self
    }

    /// How many calls of this operation may wait at a time; one more fails as
    /// [`Throttled`](crate::Outcome::Throttled) ([`CallError::Overloaded`](crate::CallError::Overloaded)).
    pub fn max_waiting(mut self, most: u32) -> Self {
        self.declared.max_waiting = Some(most);
        self
    }

    /// A call without a key, or with an empty one, is refused
    /// ([`CallError::KeyRequired`](crate::CallError::KeyRequired)).
    pub fn require_key(mut self) -> Self {
        self.declared.key_required = true;
        self
    }

    /// Keeps this operation's keys apart from those of other spaces, so that user "7" and brand "7" do not meet.
    /// Operations that name one space serialize against each other.
    pub fn key_space(mut self, space: impl Into<String>) -> Self {
        self.declared.key_space = Some(space.into());
        self
    }
}
