//! Another error in the place of the handler's; everything else that is known of the call stays.

use std::convert::Infallible;

use super::{Attempted, CallError};

impl<E> CallError<E> {
    /// Changes the handler's error and keeps everything else.
    pub fn map<F>(self, change: impl FnOnce(E) -> F) -> CallError<F> {
        let Ok(changed) = self.try_map(|error| Ok::<F, Infallible>(change(error)));
        changed
    }

    /// Changes the handler's error and keeps everything else, unless the error turns out to be something else.
    ///
    /// # Errors
    /// What `change` failed with.
    pub fn try_map<F, T>(self, change: impl FnOnce(E) -> Result<F, T>) -> Result<CallError<F>, T> {
        Ok(match self {
            Self::Overloaded(refusal) => CallError::Overloaded(refusal),
            Self::AdmissionTimedOut(refusal) => CallError::AdmissionTimedOut(refusal),
            Self::Withdrawn(refusal) => CallError::Withdrawn(refusal),
            Self::Stopping(refusal) => CallError::Stopping(refusal),
            Self::KeyRequired(refusal) => CallError::KeyRequired(refusal),
            Self::WouldDeadlock(refusal) => CallError::WouldDeadlock(refusal),
            Self::TimedOut(ran) => CallError::TimedOut(ran.try_map(change)?),
            Self::Cancelled(ran) => CallError::Cancelled(ran.try_map(change)?),
            Self::Failed(ran) => CallError::Failed(ran.try_map(change)?),
        })
    }
}

impl<E> Attempted<E> {
    fn try_map<F, T>(self, change: impl FnOnce(E) -> Result<F, T>) -> Result<Attempted<F>, T> {
        Ok(Attempted {
            names: self.names,
            attempts: self.attempts,
            outcome: self.outcome,
            ended_by: self.ended_by,
            failure: self.failure.try_map(change)?,
        })
    }
}
