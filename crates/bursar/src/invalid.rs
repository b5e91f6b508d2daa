//! What is wrong with a contract: every reason for which a runtime or an operation is refused before serving.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::outcome::Outcome;

/// Why a runtime or an operation was refused, before serving.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContractError {
    /// A runtime needs at least one budget.
    NoBudgets,
    /// A budget's name is empty.
    EmptyBudgetName,
    /// Two budgets have one name.
    DuplicateBudget {
        /// The name.
        budget: String,
    },
    /// A capacity is not between 1 and 2^31 - 1.
    InvalidCapacity {
        /// The budget.
        budget: String,
        /// The capacity asked for.
        capacity: u32,
    },
    /// The runtime was built without the `tokio` feature and was given no clock.
    NoClock,
    /// Nested calls are to wait for no time at all.
    ZeroNestedWait,
    /// An operation's name is empty.
    EmptyOperationName,
    /// A dynamic policy states no effect.
    EffectRequired {
        /// The operation.
        operation: String,
    },
    /// An operation claims a budget that its runtime does not have.
    UnknownBudget {
        /// The operation.
        operation: String,
        /// The name it claims.
        budget: String,
        /// The budgets there are.
        known: Vec<String>,
    },
    /// An operation claims one budget twice.
    DuplicateClaim {
        /// The operation.
        operation: String,
        /// The budget.
        budget: String,
    },
    /// An operation claims no unit of a budget, or more than there are.
    InvalidUnits {
        /// The operation.
        operation: String,
        /// The budget.
        budget: String,
        /// The units claimed.
        units: u32,
        /// The budget's capacity.
        capacity: u32,
    },
    /// A retry was asked for after an outcome that is never retried.
    InvalidRetry {
        /// The operation.
        operation: String,
        /// The outcome.
        outcome: Outcome,
    },
    /// A retry after `Uncertain` was asked for on a `NonIdempotent` operation.
    UnsafeRetry {
        /// The operation.
        operation: String,
    },
    /// A duration cannot be used.
    InvalidDuration {
        /// The operation.
        operation: String,
        /// Which duration.
        setting: &'static str,
        /// Its value.
        value: Duration,
        /// What would be right.
        expected: &'static str,
    },
    /// Two groups of retries have one name, or one has none.
    InvalidRetryGroup {
        /// The name.
        group: String,
    },
    /// An operation names a group of retries that its runtime does not have.
    UnknownRetryGroup {
        /// The operation.
        operation: String,
        /// The name it uses.
        group: String,
    },
    /// A budget that is to be resized does not exist.
    NoSuchBudget {
        /// The name asked for.
        budget: String,
        /// The budgets there are.
        known: Vec<String>,
    },
    /// A budget is to become smaller than what an operation claims of it.
    CapacityBelowClaim {
        /// The budget.
        budget: String,
        /// The capacity asked for.
        capacity: u32,
        /// The operation.
        operation: String,
        /// The units it claims.
        units: u32,
    },
    /// A key space's name is empty.
    EmptyKeySpace {
        /// The operation.
        operation: String,
    },
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBudgets => f.write_str(
                "a runtime needs at least one budget: add one with `.resource(name, capacity)`",
            ),
            Self::EmptyBudgetName => f.write_str("a budget's name is empty"),
            Self::DuplicateBudget { budget } => {
                write!(f, "budget {budget:?} is declared twice: names must be unique")
            }
            Self::InvalidCapacity { budget, capacity } => write!(
                f,
                "budget {budget:?} has capacity {capacity}: it must be between 1 and {}",
                i32::MAX
            ),
            Self::NoClock => f.write_str(
                "the runtime has no clock: give it one with `.clock(..)` or enable the `tokio` feature",
            ),
            Self::ZeroNestedWait => f.write_str(
                "the longest wait of nested calls is zero: leave it out for 10 s, or declare `.reject()` for what must not wait",
            ),
            Self::EmptyOperationName => f.write_str("an operation's name is empty"),
            Self::EffectRequired { operation } => write!(
                f,
                "operation {operation:?} states no effect: it must be Pure, Idempotent or NonIdempotent, or stated by each call"
            ),
            Self::UnknownBudget {
                operation,
                budget,
                known,
            } => write!(
                f,
                "operation {operation:?} claims budget {budget:?}, which does not exist: the runtime has {}",
                known.join(", ")
            ),
            Self::DuplicateClaim { operation, budget } => write!(
                f,
                "operation {operation:?} claims budget {budget:?} twice: claim it once, with all the units"
            ),
            Self::InvalidUnits {
                operation,
                budget,
                units: 0,
                ..
            } => write!(
                f,
                "operation {operation:?} claims 0 units of budget {budget:?}: claim at least 1, or leave the claim out"
            ),
            Self::InvalidUnits {
                operation,
                budget,
                units,
                capacity,
            } => write!(
                f,
                "operation {operation:?} claims {units} units of budget {budget:?}, whose capacity is {capacity}"
            ),
            Self::InvalidRetry { operation, outcome } => {
                write!(f, "operation {operation:?} asks for a retry after {outcome}, ")?;
                f.write_str(match outcome {
                    Outcome::Success => "which is no failure",
                    Outcome::Throttled => "which needs a backoff, and none is declared",
                    _ => "which would fail the same way again",
                })
            }
            Self::UnsafeRetry { operation } => write!(
                f,
                "operation {operation:?} is NonIdempotent and asks for a retry after Uncertain: the first attempt may already have taken effect"
            ),
            Self::InvalidDuration {
                operation,
                setting,
                value,
                expected,
            } => write!(
                f,
                "operation {operation:?} has a {setting} of {value:?}: {expected}"
            ),
            Self::InvalidRetryGroup { group } => write!(
                f,
                "a group of retries is named {group:?}: names must be unique and not empty"
            ),
            Self::UnknownRetryGroup { operation, group } => write!(
                f,
                "operation {operation:?} names the group of retries {group:?}, which does not exist: add it with `.retry_group(name, budget)`"
            ),
            Self::NoSuchBudget { budget, known } => write!(
                f,
                "there is no budget {budget:?} to resize: the runtime has {}",
                known.join(", ")
            ),
            Self::CapacityBelowClaim {
                budget,
                capacity,
                operation,
                units,
            } => write!(
                f,
                "budget {budget:?} cannot shrink to {capacity}: operation {operation:?} claims {units} of it"
            ),
            Self::EmptyKeySpace { operation } => {
                write!(f, "operation {operation:?} names an empty key space")
            }
        }
    }
}

impl Error for ContractError {}
