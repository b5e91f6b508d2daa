//! Spans and events, through `tracing`. Without the feature these are the functions of `off.rs` beside this file.
//!
//! Names, levels and fields stand in `docs/telemetry.md`; a test holds the two together.
//!
//! Nothing here is called under a lock: a subscriber is user code, and may look at the runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tracing::instrument::Instrumented;
use tracing::{Instrument as _, Span, debug, debug_span, field, info, warn};

use crate::error::CallError;
use crate::outcome::Outcome;
use crate::refusal::{Names, Refusal};
use crate::report::DrainReport;
use crate::retry::Next;

pin_project! {
    /// A call in its span, which learns how it ended.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Call<F> {
        #[pin]
        call: Instrumented<F>,
    }
}

/// Runs a call in a span of its own.
pub(crate) fn call<F>(names: &Names, call: F) -> Call<F> {
    let span = debug_span!(
        target: "bursar",
        "bursar.call",
        operation = &*names.operation,
        outcome = field::Empty,
        attempts = field::Empty,
    );
    Call {
        call: call.instrument(span),
    }
}

impl<F, T, E> Future for Call<F>
where
    F: Future<Output = Result<T, CallError<E>>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answer = ready!(this.call.as_mut().poll(cx));
        this.call.span().in_scope(|| ended(&answer));
        Poll::Ready(answer)
    }
}

fn ended<T, E>(answer: &Result<T, CallError<E>>) {
    let span = Span::current();
    let error = match answer {
        Ok(_) => {
            span.record("outcome", word(Outcome::Success));
            return;
        }
        Err(error) => error,
    };
    let (outcome, attempts) = (word(error.outcome()), error.attempts());
    span.record("outcome", outcome);
    span.record("attempts", attempts);
    let operation = error.operation();
    if let Some(refusal) = error.refusal() {
        let usage = refusal.usage().unwrap_or_default();
        debug!(
            target: "bursar",
            operation,
            outcome,
            reason = reason(error),
            budget = refusal.budget(),
            capacity = usage.capacity,
            in_use = usage.in_use,
            waiting = usage.waiting,
            "refused"
        );
    } else {
        warn!(
            target: "bursar",
            operation,
            outcome,
            reason = reason(error),
            attempts,
            "failed"
        );
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Transient => "transient",
        Outcome::Permanent => "permanent",
        Outcome::Throttled => "throttled",
        Outcome::Uncertain => "uncertain",
    }
}

fn reason<E>(error: &CallError<E>) -> &'static str {
    match error {
        CallError::Overloaded(_) => "overloaded",
        CallError::AdmissionTimedOut(_) => "admission timed out",
        CallError::Withdrawn(_) => "withdrawn",
        CallError::Stopping(_) => "stopping",
        CallError::KeyRequired(_) => "key required",
        CallError::WouldDeadlock(_) => "would deadlock",
        CallError::TimedOut(_) => "timed out",
        CallError::Cancelled(_) => "cancelled",
        CallError::Failed(_) => "failed",
    }
}

/// A call waits. `site` is asked for only if somebody listens.
pub(crate) fn waits(site: impl FnOnce() -> Refusal) {
    if !tracing::enabled!(target: "bursar", tracing::Level::DEBUG) {
        return;
    }
    let site = site();
    let usage = site.usage().unwrap_or_default();
    debug!(
        target: "bursar",
        operation = site.operation(),
        budget = site.budget(),
        capacity = usage.capacity,
        in_use = usage.in_use,
        waiting = usage.waiting,
        "waiting"
    );
}

/// An attempt failed, and what follows.
pub(crate) fn attempt_failed(names: &Names, attempt: u32, outcome: Outcome, next: &Next) {
    let (next, pause) = match next {
        Next::Nothing => ("nothing", None),
        Next::Denied => ("denied", None),
        Next::AtOnce => ("at once", None),
        Next::After(pause) => ("after a pause", Some(pause.as_secs_f64())),
    };
    debug!(
        target: "bursar",
        operation = &*names.operation,
        attempt,
        outcome = word(outcome),
        next,
        pause,
        "attempt failed"
    );
}

pub(crate) fn resized(budget: &str, capacity: u32) {
    info!(target: "bursar", budget, capacity, "resized");
}

pub(crate) fn draining() {
    info!(target: "bursar", "draining");
}

pub(crate) fn drained(report: &DrainReport) {
    let sum = |of: fn(&crate::report::Drained) -> u64| report.operations.iter().map(of).sum();
    let [ended, withdrawn]: [u64; 2] = [sum(|of| of.ended), sum(|of| of.withdrawn)];
    info!(target: "bursar", ended, withdrawn, "drained");
}

/// The span that a blocking handler belongs to, taken to its thread.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub(crate) struct Here(Span);

#[cfg(feature = "tokio")]
impl Here {
    pub(crate) fn now() -> Self {
        Self(Span::current())
    }

    pub(crate) fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        self.0.in_scope(work)
    }
}
