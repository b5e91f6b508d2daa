//! A snapshot as numbers, through the `metrics` facade.
//!
//! Counters are told as they stand, so that publishing seldom loses nothing; names and labels stand in
//! `docs/telemetry.md`, and a test holds the two together.

use std::sync::Arc;

#[cfg(feature = "exact")]
use metrics::histogram;
use metrics::{counter, gauge};

use crate::snapshot::{BudgetSnapshot, OperationSnapshot, Snapshot};

pub(crate) fn publish(snapshot: &Snapshot) {
    for of in &snapshot.operations {
        operation(of);
    }
    for of in &snapshot.budgets {
        budget(of);
    }
    gauge!("bursar_keys_held").set(snapshot.keys.len() as f64);
}

fn operation(of: &OperationSnapshot) {
    let stats = &of.stats;
    for (name, value) in [
        ("bursar_calls_admitted_total", stats.admitted),
        ("bursar_calls_rejected_total", stats.rejected),
        ("bursar_calls_waited_total", stats.waited),
        ("bursar_calls_started_total", stats.started),
        ("bursar_calls_finished_total", stats.finished),
        ("bursar_attempts_retried_total", stats.retried),
        ("bursar_retries_denied_total", stats.denied),
    ] {
        counter!(name, "operation" => Arc::clone(&stats.name)).absolute(value);
    }
    for (outcome, value) in stats.outcomes.columns() {
        let outcome = outcome.replace(' ', "_");
        counter!("bursar_calls_total", "operation" => Arc::clone(&stats.name), "outcome" => outcome)
            .absolute(value);
    }
    for (name, value) in [
        ("bursar_calls_executing", of.executing),
        ("bursar_calls_waiting", of.waiting),
        ("bursar_calls_paused", of.paused),
        ("bursar_calls_adrift", of.adrift),
    ] {
        gauge!(name, "operation" => Arc::clone(&stats.name)).set(value as f64);
    }
}

fn budget(of: &BudgetSnapshot) {
    for (name, value) in [
        ("bursar_budget_capacity", of.capacity),
        ("bursar_budget_in_use", of.in_use),
        ("bursar_budget_owed", of.owed),
        ("bursar_budget_unnoticed", of.unnoticed),
        ("bursar_budget_waiting", of.waiting),
    ] {
        gauge!(name, "budget" => Arc::clone(&of.name)).set(f64::from(value));
    }
}

/// How long one call of an exact runtime waited, and ran if it did.
#[cfg(feature = "exact")]
pub(crate) fn times(
    operation: &Arc<str>,
    waited: std::time::Duration,
    ran: Option<std::time::Duration>,
) {
    histogram!("bursar_call_wait_seconds", "operation" => Arc::clone(operation)).record(waited);
    if let Some(ran) = ran {
        histogram!("bursar_call_run_seconds", "operation" => Arc::clone(operation)).record(ran);
    }
}
