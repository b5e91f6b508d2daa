//! Waiting for admission within the caller's bounds.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use crate::bounds::Bounds;
use crate::call::{Denied, Holding};
use crate::clock::Alarm;
use crate::engine::Plan;
use crate::error::CallError;
use crate::key::Key;
use crate::record::passed;

/// Waits until the call holds everything it needs, within the caller's bounds.
///
/// # Cancel safety
/// Dropped, the call leaves its queue once the holding is dropped; others are examined then and there.
pub(crate) async fn admit<B: Bounds, E>(
    holding: &mut Holding<&Plan>,
    bounds: &mut B,
    key: &Key,
) -> Result<(), CallError<E>> {
    let mut alarm = Alarm::new();
    let admitted = poll_fn(|cx| poll_admission(holding, bounds, &mut alarm, key, cx)).await;
    if let Err(CallError::Overloaded(_)) = admitted {
        // Everything is back and counted: a caller that tries again in a tight loop lets the holders run.
        yield_now().await;
    }
    admitted
}

pub(crate) fn poll_admission<B: Bounds, E>(
    holding: &mut Holding<&Plan>,
    bounds: &mut B,
    alarm: &mut Alarm,
    key: &Key,
    cx: &mut Context<'_>,
) -> Poll<Result<(), CallError<E>>> {
    let plan = holding.plan_ref();
    if let Some(refusal) = holding.refuse_at_gate() {
        return Poll::Ready(Err(CallError::Stopping(refusal)));
    }
    if plan.key_required && key.is_empty() {
        return Poll::Ready(Err(CallError::KeyRequired(holding.withdraw())));
    }
    if bounds.any() {
        bounds.begin(&plan.engine.clock);
        if bounds.left(cx) {
            return Poll::Ready(Err(CallError::Withdrawn(holding.withdraw())));
        }
        if passed(plan, bounds.deadline()) {
            return Poll::Ready(Err(CallError::AdmissionTimedOut(holding.withdraw())));
        }
    }
    if let Poll::Ready(answer) = holding.poll(cx, key) {
        return Poll::Ready(answer.map_err(|denied| match denied {
            Denied::Overloaded(refusal) => CallError::Overloaded(refusal),
            Denied::Stopping(refusal) => CallError::Stopping(refusal),
        }));
    }
    if let Some(at) = bounds.deadline() {
        ready!(alarm.poll(&plan.engine.clock, at, cx));
        return Poll::Ready(Err(CallError::AdmissionTimedOut(holding.withdraw())));
    }
    Poll::Pending
}

/// One turn of the executor.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
