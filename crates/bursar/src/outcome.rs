//! What an operation changes ([`Effect`]), what became of an attempt ([`Outcome`]), and how a handler says so
//! ([`Classify`], [`Failure`]).

use std::fmt;
use std::time::Duration;

/// What an operation changes in the world, and so whether it may be repeated.
///
/// Ordered by strictness: when a policy and a call each state an effect, the stricter one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Changes nothing: may be repeated freely.
    Pure,
    /// Repeating it has the effect of doing it once.
    Idempotent,
    /// Each execution counts: must not be repeated unless it is known not to have happened.
    NonIdempotent,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pure => "Pure",
            Self::Idempotent => "Idempotent",
            Self::NonIdempotent => "NonIdempotent",
        })
    }
}

/// What became of an attempt, or of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It was done.
    Success,
    /// It was not done, and doing it again may work.
    Transient,
    /// It was not done, and doing it again would fail the same way.
    Permanent,
    /// It was refused for want of capacity, here or at the provider; it was not done.
    Throttled,
    /// It may have been done or not: nobody here knows.
    Uncertain,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "Success",
            Self::Transient => "Transient",
            Self::Permanent => "Permanent",
            Self::Throttled => "Throttled",
            Self::Uncertain => "Uncertain",
        })
    }
}

/// A handler's failure: its error, with the handler's word on what the failure means.
///
/// Made by the methods of [`Classify`] on a `Result`, or by the functions below. A failure whose meaning nobody stated
/// is unclassified; it counts as [`Permanent`](Outcome::Permanent), or as [`Uncertain`](Outcome::Uncertain) if the
/// attempt's deadline had passed, and is never retried speculatively.
///
/// It is no `std::error::Error`, so that `?` never turns an error into a failure silently.
pub struct Failure<E> {
    verdict: Option<Outcome>,
    pushback: Option<Duration>,
    error: Option<E>,
}

impl<E> Failure<E> {
    /// It did not take effect, and trying again may help. The runtime trusts this word: say it only where it is true.
    pub const fn transient(error: E) -> Self {
        Self::said(Some(Outcome::Transient), error)
    }

    /// It did not take effect, and trying again would not help.
    pub const fn permanent(error: E) -> Self {
        Self::said(Some(Outcome::Permanent), error)
    }

    /// The provider refused it for want of capacity; it did not take effect.
    pub const fn throttled(error: E) -> Self {
        Self::said(Some(Outcome::Throttled), error)
    }

    /// It may have taken effect.
    pub const fn uncertain(error: E) -> Self {
        Self::said(Some(Outcome::Uncertain), error)
    }

    /// Nobody knows what this error means.
    pub const fn unclassified(error: E) -> Self {
        Self::said(None, error)
    }

    /// A failure whose meaning was computed. `None` and [`Outcome::Success`] say nothing about a failure, so the
    /// failure is unclassified.
    pub fn classified(error: E, outcome: impl Into<Option<Outcome>>) -> Self {
        Self::said(
            outcome
                .into()
                .filter(|outcome| *outcome != Outcome::Success),
            error,
        )
    }

    const fn said(verdict: Option<Outcome>, error: E) -> Self {
        Self {
            verdict,
            pushback: None,
            error: Some(error),
        }
    }

    /// An attempt that was cut off and gave no answer.
    pub(crate) const fn cut_off() -> Self {
        Self {
            verdict: Some(Outcome::Uncertain),
            pushback: None,
            error: None,
        }
    }

    /// What is left unsaid is uncertain once the deadline has passed.
    pub(crate) fn after_deadline(mut self) -> Self {
        self.verdict.get_or_insert(Outcome::Uncertain);
        self
    }

    /// The server asked to be left alone for `pause`: if the attempt is repeated, then not before. It takes the place of
    /// the policy's backoff; longer than the backoff's cap, or without a backoff, it ends the call.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.pushback = Some(pause);
        self
    }

    /// How long the server asked to be left alone.
    #[must_use]
    pub fn pushback(&self) -> Option<Duration> {
        self.pushback
    }

    /// What the failure means. Never [`Outcome::Success`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.verdict.unwrap_or(Outcome::Permanent)
    }

    /// Whether the handler said what the failure means.
    #[must_use]
    pub fn is_classified(&self) -> bool {
        self.verdict.is_some()
    }

    /// The handler's error. `None` when the attempt was cut off and gave no answer.
    #[must_use]
    pub fn error(&self) -> Option<&E> {
        self.error.as_ref()
    }

    /// The handler's error, by value. `None` when the attempt was cut off and gave no answer.
    #[must_use]
    pub fn into_error(self) -> Option<E> {
        self.error
    }

    /// Changes the error and keeps what the failure means.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> Failure<F> {
        Failure {
            verdict: self.verdict,
            pushback: self.pushback,
            error: self.error.map(change),
        }
    }
}

impl<E> Failure<E> {
    pub(crate) fn try_map<F, T>(
        self,
        change: impl FnOnce(E) -> Result<F, T>,
    ) -> Result<Failure<F>, T> {
        Ok(Failure {
            verdict: self.verdict,
            pushback: self.pushback,
            error: self.error.map(change).transpose()?,
        })
    }
}

impl<E: fmt::Debug> fmt::Debug for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("verdict", &self.verdict)
            .field("pushback", &self.pushback)
            .field("error", &self.error)
            .finish()
    }
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.error, self.verdict) {
            (Some(error), Some(verdict)) => write!(f, "{error} ({verdict})"),
            (Some(error), None) => write!(f, "{error} (unclassified)"),
            (None, _) => f.write_str("it was cut off and gave no answer"),
        }
    }
}

/// Bounds an implementation of `Unpin` that never applies: see [`Reason`].
pub(crate) struct NotUnpin<E>(std::marker::PhantomData<E>);
pub(crate) trait Holds {}

impl<E> Unpin for Failure<E> where NotUnpin<E>: Holds {}

/// What can be the error of a `Result` that is classified.
///
/// Implemented for every error type there is in practice (every `Unpin` type), which becomes the error of the
/// [`Failure`]; for `Failure` itself, whose first verdict stays; and for [`CallError`](crate::CallError), whose
/// uncertainty stays.
///
/// The three do not overlap because `Failure` and `CallError` are declared not to be `Unpin`. Nothing else in them
/// depends on that: a blanket implementation cannot exempt a type by name, and it can by a property it lacks.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be classified",
    note = "an error type must be `Unpin`; box it if it is not"
)]
pub trait Reason {
    /// The error that the failure carries.
    type Error;

    /// The failure, which means `verdict` unless it is known better.
    fn into_failure(self, verdict: Option<Outcome>) -> Failure<Self::Error>;
}

impl<E: Unpin> Reason for E {
    type Error = E;

    fn into_failure(self, verdict: Option<Outcome>) -> Failure<E> {
        Failure::classified(self, verdict)
    }
}

impl<E> Reason for Failure<E> {
    type Error = E;

    fn into_failure(mut self, verdict: Option<Outcome>) -> Failure<E> {
        let verdict = verdict.filter(|outcome| *outcome != Outcome::Success);
        self.verdict = self.verdict.or(verdict);
        self
    }
}

/// A handler's word on what its error means: the only way from an error to a [`Failure`].
///
/// ```
/// use bursar::{Classify, Outcome};
///
/// let refused: Result<(), &str> = Err("connection refused");
/// assert_eq!(refused.transient().unwrap_err().outcome(), Outcome::Transient);
///
/// // The innermost word stays.
/// let lost: Result<(), &str> = Err("connection lost after the request was sent");
/// assert_eq!(lost.uncertain().permanent().unwrap_err().outcome(), Outcome::Uncertain);
/// ```
pub trait Classify {
    /// What success carries.
    type Ok;
    /// The error that is classified.
    type Reason;
    /// What failure carries.
    type Error;

    /// An error here means what `outcome` says. `None` and [`Outcome::Success`] leave it unclassified.
    ///
    /// # Errors
    /// The error, classified.
    fn classify(
        self,
        outcome: impl Into<Option<Outcome>>,
    ) -> Result<Self::Ok, Failure<Self::Error>>;

    /// An error here means what `outcome` says of it. `None` and [`Outcome::Success`] leave it unclassified.
    ///
    /// ```
    /// use bursar::{Classify, Outcome};
    /// use std::io::{Error, ErrorKind};
    ///
    /// let refused: Result<(), Error> = Err(ErrorKind::ConnectionRefused.into());
    /// let failure = refused
    ///     .classify_by(|error| match error.kind() {
    ///         ErrorKind::ConnectionRefused => Some(Outcome::Transient),
    ///         ErrorKind::ConnectionReset => Some(Outcome::Uncertain),
    ///         _ => None,
    ///     })
    ///     .unwrap_err();
    /// assert_eq!(failure.outcome(), Outcome::Transient);
    /// ```
    ///
    /// # Errors
    /// The error, classified.
    fn classify_by<O: Into<Option<Outcome>>>(
        self,
        outcome: impl FnOnce(&Self::Reason) -> O,
    ) -> Result<Self::Ok, Failure<Self::Error>>;

    /// An error here means that it did not take effect and that trying again may help. The runtime trusts this word.
    ///
    /// # Errors
    /// The error, as [`Outcome::Transient`].
    fn transient(self) -> Result<Self::Ok, Failure<Self::Error>>
    where
        Self: Sized,
    {
        self.classify(Outcome::Transient)
    }

    /// An error here means that it did not take effect and that trying again would not help.
    ///
    /// # Errors
    /// The error, as [`Outcome::Permanent`].
    fn permanent(self) -> Result<Self::Ok, Failure<Self::Error>>
    where
        Self: Sized,
    {
        self.classify(Outcome::Permanent)
    }

    /// An error here means that the provider refused it for want of capacity; it did not take effect.
    ///
    /// # Errors
    /// The error, as [`Outcome::Throttled`].
    fn throttled(self) -> Result<Self::Ok, Failure<Self::Error>>
    where
        Self: Sized,
    {
        self.classify(Outcome::Throttled)
    }

    /// An error here means that it may have taken effect.
    ///
    /// # Errors
    /// The error, as [`Outcome::Uncertain`].
    fn uncertain(self) -> Result<Self::Ok, Failure<Self::Error>>
    where
        Self: Sized,
    {
        self.classify(Outcome::Uncertain)
    }

    /// Nobody knows what an error here means: it counts as [`Outcome::Permanent`], or as [`Outcome::Uncertain`] past
    /// the attempt's deadline.
    ///
    /// # Errors
    /// The error, unclassified.
    fn unclassified(self) -> Result<Self::Ok, Failure<Self::Error>>
    where
        Self: Sized,
    {
        self.classify(None)
    }
}

impl<T, R: Reason> Classify for Result<T, R> {
    type Ok = T;
    type Reason = R;
    type Error = R::Error;

    fn classify_by<O: Into<Option<Outcome>>>(
        self,
        outcome: impl FnOnce(&R) -> O,
    ) -> Result<T, Failure<R::Error>> {
        self.map_err(|reason| {
            let verdict = outcome(&reason).into();
            reason.into_failure(verdict)
        })
    }

    fn classify(self, outcome: impl Into<Option<Outcome>>) -> Result<T, Failure<R::Error>> {
        self.map_err(|reason| reason.into_failure(outcome.into()))
    }
}
