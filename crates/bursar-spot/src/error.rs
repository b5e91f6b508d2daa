//! What users read when work for a Spot does not come to its end.

use std::error::Error;
use std::fmt;

use bursar::Outcome;

/// Why a Spot closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// Somebody asked for it.
    ExplicitClose,
    /// It had been idle.
    IdleEvicted,
    /// Its host shut down.
    HostShutdown,
    /// A turn panicked, and the Spot was told to close then.
    Panicked,
}

/// Why work for a Spot did not come to its end.
#[derive(Clone, PartialEq, Eq)]
pub struct SpotError(Box<Inner>);

/// Behind a pointer, so that answers stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: SpotErrorKind,
    spot: Box<str>,
    detail: Detail,
}

/// What kind of end it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpotErrorKind {
    /// It could never have worked: awaited from inside of what it needs, asked of a Spot of another kind or type, a
    /// name that is taken. Nothing was submitted.
    InvalidOperation,
    /// The queue was full, and waiting for space was out of the question.
    CapacityExceeded,
    /// It did not begin in time, and never will.
    DeadlineExceeded,
    /// The Spot closed. [`SpotError::never_ran`] tells whether the work had begun.
    Closed,
    /// The work panicked.
    Panicked,
    /// Nothing was configured under that name.
    NotConfigured,
    /// The Spot could not be made: its activation failed.
    ActivationFailed,
    /// The host is shutting down.
    ShuttingDown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    None,
    Began,
    Said(Box<str>),
}

impl SpotError {
    pub(crate) fn new(kind: SpotErrorKind, spot: &str) -> Self {
        Self(Box::new(Inner {
            kind,
            spot: spot.into(),
            detail: Detail::None,
        }))
    }

    pub(crate) fn saying(mut self, what: impl Into<Box<str>>) -> Self {
        self.0.detail = Detail::Said(what.into());
        self
    }

    pub(crate) fn closed(spot: &str, began: bool) -> Self {
        let mut error = Self::new(SpotErrorKind::Closed, spot);
        if began {
            error.0.detail = Detail::Began;
        }
        error
    }

    /// What kind of end it was.
    #[must_use]
    pub fn kind(&self) -> SpotErrorKind {
        self.0.kind
    }

    /// The name of the Spot.
    #[must_use]
    pub fn spot(&self) -> &str {
        &self.0.spot
    }

    /// Whether the work never began, so that nothing of it can have taken effect.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        self.0.kind != SpotErrorKind::Panicked && self.0.detail != Detail::Began
    }

    /// What became of the work. Never [`Outcome::Success`].
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self.0.kind {
            SpotErrorKind::CapacityExceeded
            | SpotErrorKind::DeadlineExceeded
            | SpotErrorKind::ShuttingDown => Outcome::Throttled,
            SpotErrorKind::Closed if self.never_ran() => Outcome::Transient,
            SpotErrorKind::ActivationFailed => Outcome::Transient,
            SpotErrorKind::Closed | SpotErrorKind::Panicked => Outcome::Uncertain,
            SpotErrorKind::InvalidOperation | SpotErrorKind::NotConfigured => Outcome::Permanent,
        }
    }
}

impl fmt::Display for SpotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spot = &self.0.spot;
        match self.0.kind {
            SpotErrorKind::InvalidOperation => write!(f, "invalid operation on Spot {spot:?}")?,
            SpotErrorKind::CapacityExceeded => write!(f, "the queue of Spot {spot:?} is full")?,
            SpotErrorKind::DeadlineExceeded => {
                write!(
                    f,
                    "the work for Spot {spot:?} did not begin in time and never will"
                )?;
            }
            SpotErrorKind::Closed if self.never_ran() => {
                write!(f, "Spot {spot:?} closed before the work began")?;
            }
            SpotErrorKind::Closed => {
                write!(f, "Spot {spot:?} closed while the work was under way")?;
            }
            SpotErrorKind::Panicked => write!(f, "the work for Spot {spot:?} panicked")?,
            SpotErrorKind::NotConfigured => {
                write!(f, "nothing is configured under the name {spot:?}")?;
            }
            SpotErrorKind::ActivationFailed => write!(f, "Spot {spot:?} could not be activated")?,
            SpotErrorKind::ShuttingDown => {
                write!(f, "the host of Spot {spot:?} is shutting down")?;
            }
        }
        match &self.0.detail {
            Detail::Said(what) => write!(f, ": {what}"),
            Detail::None | Detail::Began => Ok(()),
        }
    }
}

impl fmt::Debug for SpotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, spot, detail } = &*self.0;
        f.debug_struct("SpotError")
            .field("kind", kind)
            .field("spot", spot)
            .field("detail", detail)
            .finish()
    }
}

impl Error for SpotError {}
