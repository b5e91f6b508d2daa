//! Waiting within the caller's bounds: for admission, and between attempts.

use std::future::poll_fn;
use std::ops::Deref;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::bounds::Bounds;
use crate::call::{Denied, Holding};
use crate::clock::{Alarm, ClockHandle, earlier};
use crate::engine::Plan;
use crate::error::{CallError, EndedBy};
use crate::key::Key;
use crate::record::passed;
use crate::refusal::Refusal;

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
    if plan.key_required && key.is_empty() {
        return Poll::Ready(Err(never_ran(holding, CallError::KeyRequired)));
    }
    if bounds.any() {
        bounds.begin(&plan.engine.clock);
        if bounds.left(cx) {
            return Poll::Ready(Err(never_ran(holding, CallError::Withdrawn)));
        }
        if passed(plan, bounds.deadline()) {
            return Poll::Ready(Err(never_ran(holding, CallError::AdmissionTimedOut)));
        }
    }
    if let Poll::Ready(answer) = holding.poll(cx, key) {
        return Poll::Ready(answer.map_err(|denied| match denied {
            Denied::Overloaded(refusal) => CallError::Overloaded(refusal),
            Denied::Stopping(refusal) => CallError::Stopping(refusal),
            Denied::Deadlock(refusal) => CallError::WouldDeadlock(refusal),
        }));
    }
    if let Some(at) = earlier(bounds.deadline(), holding.wait_until()) {
        ready!(alarm.poll(&plan.engine.clock, at, cx));
        return Poll::Ready(Err(never_ran(holding, CallError::AdmissionTimedOut)));
    }
    Poll::Pending
}

/// Ends a call before its handler could start, unless the gate has closed meanwhile.
fn never_ran<E>(
    holding: &mut Holding<&Plan>,
    why: impl FnOnce(Refusal) -> CallError<E>,
) -> CallError<E> {
    holding.withdraw().map_or_else(CallError::Stopping, why)
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

/// A pause between two attempts, and the wait for the units that were given back for it.
#[derive(Debug)]
pub(crate) struct Pause {
    /// When the pause ends; `None` once it has, and the units are queued for.
    until: Option<Instant>,
}

impl Pause {
    /// Begins to pause. What forbids it is the reason for which the call ends with its last failure.
    pub(crate) fn begin<P: Deref<Target = Plan>>(
        holding: &mut Holding<P>,
        callers: Option<Instant>,
        pause: Duration,
        waker: &Waker,
    ) -> Result<Self, EndedBy> {
        let until = holding.plan().engine.clock.after(pause);
        // A next attempt that cannot start before the deadline is not started.
        match (until, callers) {
            (Some(until), Some(deadline)) if until >= deadline => {
                return Err(EndedBy::CallerDeadline);
            }
            (None, _) => return Err(EndedBy::WaitTooLong),
            _ => {}
        }
        if !holding.park(waker.clone()) {
            return Err(EndedBy::Stopping);
        }
        Ok(Self { until })
    }

    /// Arms the timer, when the token and the parking have the waker already; false if the pause is over.
    pub(crate) fn arm(&self, clock: &ClockHandle, alarm: &mut Alarm, cx: &mut Context<'_>) -> bool {
        self.until
            .is_some_and(|until| alarm.poll(clock, until, cx).is_pending())
    }

    /// Ready when the call holds everything again, or with what is to end it.
    pub(crate) fn poll<P: Deref<Target = Plan>, B: Bounds>(
        &mut self,
        holding: &mut Holding<P>,
        bounds: &mut B,
        alarm: &mut Alarm,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), EndedBy>> {
        if bounds.left(cx) {
            return Poll::Ready(Err(EndedBy::CallerLeft));
        }
        if passed(holding.plan(), bounds.deadline()) {
            return Poll::Ready(Err(EndedBy::CallerDeadline));
        }
        if let Some(until) = self.until {
            if holding.poll_parked(cx).is_ready() {
                return Poll::Ready(Err(EndedBy::Stopping));
            }
            ready!(alarm.poll(&holding.plan().engine.clock, until, cx));
            self.until = None;
            holding.unpark();
        }
        // The key was kept, so none is asked for.
        match holding.poll(cx, &Key::NONE) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(Denied::Overloaded(_))) => return Poll::Ready(Err(EndedBy::Overload)),
            Poll::Ready(Err(Denied::Stopping(_))) => return Poll::Ready(Err(EndedBy::Stopping)),
            Poll::Ready(Err(Denied::Deadlock(_))) => {
                return Poll::Ready(Err(EndedBy::WouldDeadlock));
            }
            Poll::Pending => {}
        }
        let callers = bounds.deadline();
        if let Some(at) = earlier(callers, holding.wait_until()) {
            ready!(alarm.poll(&holding.plan().engine.clock, at, cx));
            let by = if Some(at) == callers {
                EndedBy::CallerDeadline
            } else {
                EndedBy::WaitTooLong
            };
            return Poll::Ready(Err(by));
        }
        Poll::Pending
    }
}
