//! What is checked of a policy on its own: effect against retries, and durations.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::invalid::ContractError;
use crate::outcome::{Effect, Outcome};
use crate::policy::{Declared, DeclaredEffect};

pub(super) fn effect(
    operation: &str,
    declared: &Declared,
) -> Result<Option<Effect>, ContractError> {
    let effect = match declared.effect {
        DeclaredEffect::Missing => {
            return Err(ContractError::EffectRequired {
                operation: operation.to_owned(),
            });
        }
        DeclaredEffect::Fixed(effect) => Some(effect),
        DeclaredEffect::PerCall => None,
    };
    if let Some(outcome) = declared.retry.invalid() {
        return Err(ContractError::InvalidRetry {
            operation: operation.to_owned(),
            outcome,
        });
    }
    if effect == Some(Effect::NonIdempotent) && declared.retry.asks(Outcome::Uncertain) {
        return Err(ContractError::UnsafeRetry {
            operation: operation.to_owned(),
        });
    }
    Ok(effect)
}

pub(super) fn durations(operation: &str, declared: &Declared) -> Result<(), ContractError> {
    let wrong = |setting, value, expected| {
        Err(ContractError::InvalidDuration {
            operation: operation.to_owned(),
            setting,
            value,
            expected,
        })
    };
    match (declared.timeout, declared.grace) {
        (Some(timeout), _) if timeout.is_zero() => {
            wrong("timeout", timeout, "it must be longer than zero")
        }
        (None, Some(grace)) => wrong("grace", grace, "a grace follows a timeout, and none is set"),
        _ => Ok(()),
    }?;
    if let Some(wait) = declared.max_wait.filter(Duration::is_zero) {
        return wrong(
            "longest wait",
            wait,
            "it must be longer than zero; to wait for nothing, reject",
        );
    }
    match declared.retry.backoff {
        Some(Backoff { base, .. }) if base.is_zero() => {
            wrong("backoff base", base, "it must be longer than zero")
        }
        Some(Backoff { base, cap }) if cap < base => {
            wrong("backoff cap", cap, "it must not be shorter than the base")
        }
        _ => Ok(()),
    }
}
