//! How a call failed ([`CallError`]), with the evidence.

mod change;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::outcome::{Failure, Holds, NotUnpin, Outcome, Reason};
use crate::refusal::{Names, Refusal};

/// What brought a call to its end besides the failure of its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndedBy {
    /// The attempt's own timeout.
    AttemptTimeout,
    /// The caller's deadline.
    CallerDeadline,
    /// The caller's token fired.
    CallerLeft,
    /// Shutdown began while the call paused between attempts, or waited for its units again.
    Stopping,
    /// After a pause the units were not free and the operation does not wait.
    Overload,
    /// After a pause the units did not come free in time.
    WaitTooLong,
    /// After a pause the call would have had to wait for what it was called from inside of.
    WouldDeadlock,
    /// The retry budget was spent.
    RetryBudget,
}

impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AttemptTimeout => "the attempt's timeout",
            Self::CallerDeadline => "the caller's deadline",
            Self::CallerLeft => "the caller's leaving",
            Self::Stopping => "shutdown",
            Self::Overload => "want of capacity for another attempt",
            Self::RetryBudget => "the retry budget, which is spent",
            Self::WouldDeadlock => "a wait for what its own caller holds",
            Self::WaitTooLong => "too long a wait for another attempt",
        })
    }
}

/// A call that ran and failed: its attempts, its last failure, and what ended it.
pub struct Attempted<E> {
    pub(crate) names: Arc<Names>,
    pub(crate) attempts: u32,
    pub(crate) outcome: Outcome,
    pub(crate) ended_by: Option<EndedBy>,
    pub(crate) failure: Failure<E>,
}

impl<E> Attempted<E> {
    /// The operation that was called.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.names.operation
    }

    /// How many attempts were made, at least one.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What became of the call: [`Outcome::Uncertain`] if any of its attempts may have taken effect.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The last attempt's failure.
    #[must_use]
    pub fn failure(&self) -> &Failure<E> {
        &self.failure
    }

    /// The last attempt's failure, by value.
    #[must_use]
    pub fn into_failure(self) -> Failure<E> {
        self.failure
    }

    /// What ended the call, or kept the next attempt from starting. `None` if the failure alone did.
    #[must_use]
    pub fn ended_by(&self) -> Option<EndedBy> {
        self.ended_by
    }
}

impl<E: fmt::Debug> fmt::Debug for Attempted<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempted")
            .field("operation", &self.names.operation)
            .field("attempts", &self.attempts)
            .field("outcome", &self.outcome)
            .field("ended_by", &self.ended_by)
            .field("failure", &self.failure)
            .finish()
    }
}

/// How a call failed.
///
/// The variants that hold a [`Refusal`] mean that it never ran: no attempt was made, everything is given back. Those
/// that hold [`Attempted`] mean that it ran; [`outcome`](Self::outcome) tells what is known of its effect.
///
/// | variant | ran | outcome |
/// |---|---|---|
/// | `Overloaded`, `AdmissionTimedOut`, `Withdrawn`, `Stopping` | no | `Throttled` |
/// | `KeyRequired`, `WouldDeadlock` | no | `Permanent` |
/// | `TimedOut`, `Cancelled` | yes | `Uncertain` |
/// | `Failed` | yes | `Uncertain` if any attempt was, else the last failure's |
#[non_exhaustive]
pub enum CallError<E> {
    /// The operation rejects instead of waiting, and something was not free.
    Overloaded(Refusal),
    /// The caller's deadline, the longest wait of the policy, or the bound on waits of nested calls passed before the
    /// handler could start. In the last case [`Refusal::chain`] says what it was called from inside of.
    AdmissionTimedOut(Refusal),
    /// The caller's token fired before the handler could start.
    Withdrawn(Refusal),
    /// The runtime is shutting down.
    Stopping(Refusal),
    /// The policy requires a key and the call came without one.
    KeyRequired(Refusal),
    /// The call would have had to wait for a budget or a key that is held by a call it was made from inside of, which
    /// waits for it in turn. [`Refusal::chain`] names them.
    WouldDeadlock(Refusal),
    /// The last attempt was cut off by a deadline, its own or the caller's.
    TimedOut(Attempted<E>),
    /// The caller's token fired while an attempt ran.
    Cancelled(Attempted<E>),
    /// The last attempt failed, in its own words.
    Failed(Attempted<E>),
}

impl<E> Unpin for CallError<E> where NotUnpin<E>: Holds {}

impl<E> CallError<E> {
    /// What became of the call. Never [`Outcome::Success`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Overloaded(_)
            | Self::AdmissionTimedOut(_)
            | Self::Withdrawn(_)
            | Self::Stopping(_) => Outcome::Throttled,
            Self::KeyRequired(_) | Self::WouldDeadlock(_) => Outcome::Permanent,
            Self::TimedOut(ran) | Self::Cancelled(ran) | Self::Failed(ran) => ran.outcome,
        }
    }

    /// How many attempts were made; 0 if it never ran.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempted().map_or(0, Attempted::attempts)
    }

    /// Whether no attempt was made, so that nothing can have taken effect.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        self.refusal().is_some()
    }

    /// The operation that was called.
    #[must_use]
    pub fn operation(&self) -> &str {
        match self {
            Self::Overloaded(refusal)
            | Self::AdmissionTimedOut(refusal)
            | Self::Withdrawn(refusal)
            | Self::Stopping(refusal)
            | Self::KeyRequired(refusal)
            | Self::WouldDeadlock(refusal) => &refusal.names.operation,
            Self::TimedOut(ran) | Self::Cancelled(ran) | Self::Failed(ran) => &ran.names.operation,
        }
    }

    /// The evidence of a call that never ran.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Overloaded(refusal)
            | Self::AdmissionTimedOut(refusal)
            | Self::Withdrawn(refusal)
            | Self::Stopping(refusal)
            | Self::KeyRequired(refusal)
            | Self::WouldDeadlock(refusal) => Some(refusal),
            Self::TimedOut(_) | Self::Cancelled(_) | Self::Failed(_) => None,
        }
    }

    /// What is known of a call that ran.
    #[must_use]
    pub fn attempted(&self) -> Option<&Attempted<E>> {
        match self {
            Self::TimedOut(ran) | Self::Cancelled(ran) | Self::Failed(ran) => Some(ran),
            _ => None,
        }
    }

    /// The last attempt's failure.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure<E>> {
        self.attempted().map(Attempted::failure)
    }

    /// The handler's error. `None` if it never ran, or was cut off and gave no answer.
    #[must_use]
    pub fn error(&self) -> Option<&E> {
        self.failure().and_then(Failure::error)
    }

    /// The handler's error, by value. `None` if it never ran, or was cut off and gave no answer.
    #[must_use]
    pub fn into_error(self) -> Option<E> {
        match self {
            Self::TimedOut(ran) | Self::Cancelled(ran) | Self::Failed(ran) => {
                ran.failure.into_error()
            }
            _ => None,
        }
    }

    /// Whether the call met a full budget or a held key and did not wait.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Overloaded(_))
    }

    /// Whether the runtime is shutting down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        matches!(self, Self::Stopping(_))
    }
}

impl<E: fmt::Debug> fmt::Debug for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, content): (_, &dyn fmt::Debug) = match self {
            Self::Overloaded(refusal) => ("Overloaded", refusal),
            Self::AdmissionTimedOut(refusal) => ("AdmissionTimedOut", refusal),
            Self::Withdrawn(refusal) => ("Withdrawn", refusal),
            Self::Stopping(refusal) => ("Stopping", refusal),
            Self::KeyRequired(refusal) => ("KeyRequired", refusal),
            Self::WouldDeadlock(refusal) => ("WouldDeadlock", refusal),
            Self::TimedOut(ran) => ("TimedOut", ran),
            Self::Cancelled(ran) => ("Cancelled", ran),
            Self::Failed(ran) => ("Failed", ran),
        };
        f.debug_tuple(name).field(content).finish()
    }
}

impl<E> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {:?} ", self.operation())?;
        match self {
            Self::Overloaded(refusal) => {
                write!(f, "was refused, it does not wait: {}", refusal)
            }
            Self::AdmissionTimedOut(refusal) => {
                write!(f, "did not start in time: {}", refusal)
            }
            Self::Withdrawn(refusal) => write!(
                f,
                "was withdrawn by its caller before it started: {}",
                refusal
            ),
            Self::Stopping(_) => f.write_str("did not start: the runtime is shutting down"),
            Self::KeyRequired(_) => {
                f.write_str("did not start: it requires a key, and the call came without one")
            }
            Self::WouldDeadlock(refusal) => write!(
                f,
                "did not start, it would wait for what its own caller holds: {}",
                refusal
            ),
            Self::TimedOut(ran) | Self::Cancelled(ran) | Self::Failed(ran) => ran.describe(f),
        }
    }
}

impl<E> Attempted<E> {
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempts, outcome, ..
        } = self;
        let plural = if *attempts == 1 { "" } else { "s" };
        write!(f, "failed after {attempts} attempt{plural} ({outcome})")?;
        if let Some(ended_by) = self.ended_by {
            write!(f, ", ended by {ended_by}")?;
        }
        Ok(())
    }
}

impl<E: Error + 'static> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error().map(|error| error as _)
    }
}

impl<E> Reason for CallError<E> {
    type Error = Self;

    fn into_failure(self, verdict: Option<Outcome>) -> Failure<Self> {
        match self.outcome() {
            Outcome::Uncertain => Failure::uncertain(self),
            _ => Failure::classified(self, verdict),
        }
    }
}

/// Hands a nested call's error on with its verdict.
pub trait Carry {
    /// What success carries.
    type Ok;
    /// The nested call's error.
    type Error;

    /// The nested call's error becomes this handler's failure and means what it meant there.
    ///
    /// # Errors
    /// The nested call's error, with its verdict.
    fn carry(self) -> Result<Self::Ok, Failure<Self::Error>>;
}

impl<T, E> Carry for Result<T, CallError<E>> {
    type Ok = T;
    type Error = CallError<E>;

    fn carry(self) -> Result<T, Failure<CallError<E>>> {
        self.map_err(|error| {
            let outcome = error.outcome();
            let pushback = error.failure().and_then(Failure::pushback);
            let failure = Failure::classified(error, outcome);
            match pushback {
                Some(pause) => failure.after(pause),
                None => failure,
            }
        })
    }
}
