//! From admission to answer: attempts, their deadlines, the caller's bounds, and the decision to try again.
//!
//! Order within one poll of an attempt: the caller's token, the handler, then the timer. The timer is armed when the
//! handler first suspends. Whatever ends an attempt early, the handler is told and polled once more, so that it can
//! answer in its own words; then its future is dropped at its await point.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pin_project_lite::pin_project;

use crate::attempt::Lend;
use crate::bounds::Bounds;
use crate::call::{Denied, Holding};
use crate::chain::{self, Frame};
use crate::clock::Alarm;
use crate::engine::Plan;
use crate::error::{Attempted, CallError, EndedBy};
use crate::key::Key;
use crate::outcome::{Effect, Failure, Outcome};

/// Waits until the call holds everything it needs, within the caller's bounds.
///
/// # Cancel safety
/// Dropped, the call leaves its queue and gives back what it held; others are examined then and there.
pub(crate) async fn admit<B: Bounds, E>(
    holding: &mut Holding<&Plan>,
    bounds: &mut B,
    key: &Key,
) -> Result<(), CallError<E>> {
    if holding.plan().key_required && key.is_empty() {
        return Err(CallError::KeyRequired(holding.withdraw()));
    }
    bounds.begin(&holding.plan().engine.clock);
    let mut alarm = Alarm::new();
    let admitted = poll_fn(|cx| poll_admission(holding, bounds, &mut alarm, key, cx)).await;
    if let Err(CallError::Overloaded(_)) = admitted {
        // Everything is back and counted: a caller that tries again in a tight loop lets the holders run.
        yield_now().await;
    }
    admitted
}

fn poll_admission<B: Bounds, E>(
    holding: &mut Holding<&Plan>,
    bounds: &mut B,
    alarm: &mut Alarm,
    key: &Key,
    cx: &mut Context<'_>,
) -> Poll<Result<(), CallError<E>>> {
    let engine = &holding.plan().engine;
    if B::ANY && !holding.gate_closed() {
        if bounds.left(cx) {
            return Poll::Ready(Err(CallError::Withdrawn(holding.withdraw())));
        }
        if bounds.deadline().is_some_and(|at| engine.clock.now() >= at) {
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
        ready!(alarm.poll(&holding.plan().engine.clock, at, cx));
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

/// How one attempt ended.
#[derive(Debug)]
pub(crate) enum End<T, E> {
    Done(T),
    /// In the handler's own words.
    Failed(Failure<E>),
    /// Cut off; the failure is what the handler answered in its last poll, or says that it did not.
    Cut(EndedBy, Failure<E>),
}

pin_project! {
    /// One attempt.
    struct Execute<'s, Fut, B, L> {
        #[pin]
        handler: Fut,
        plan: &'s Plan,
        bounds: &'s mut B,
        lend: L,
        frame: Frame,
        deadline: Option<Instant>,
        in_grace: bool,
        alarm: Alarm,
    }
}

impl<Fut, B, L, T, E> Future for Execute<'_, Fut, B, L>
where
    Fut: Future<Output = Result<T, Failure<E>>>,
    B: Bounds,
    L: Lend,
{
    type Output = End<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End<T, E>> {
        let mut this = self.project();
        if B::ANY && this.bounds.left(cx) {
            this.lend.cancel();
            let last = poll_handler(this.handler, *this.frame, cx);
            return Poll::Ready(cut_by_caller(EndedBy::CallerLeft, last));
        }
        match poll_handler(this.handler.as_mut(), *this.frame, cx) {
            Poll::Ready(Ok(value)) => return Poll::Ready(End::Done(value)),
            Poll::Ready(Err(failure)) => {
                return Poll::Ready(End::Failed(judge(failure, this.plan, *this.deadline)));
            }
            Poll::Pending => {}
        }
        let clock = &this.plan.engine.clock;
        loop {
            let grace = if *this.in_grace { this.plan.grace } else { None };
            let own = match grace {
                None => *this.deadline,
                Some(grace) => this.deadline.and_then(|at| at.checked_add(grace)),
            };
            let callers = bounds_deadline::<B>(this.bounds);
            let Some(at) = earlier(own, callers) else {
                return Poll::Pending;
            };
            ready!(this.alarm.poll(clock, at, cx));
            if *this.in_grace && Some(at) != callers {
                return Poll::Ready(End::Cut(EndedBy::AttemptTimeout, Failure::cut_off()));
            }
            this.lend.cancel();
            let last = poll_handler(this.handler.as_mut(), *this.frame, cx);
            if Some(at) == callers {
                return Poll::Ready(cut_by_caller(EndedBy::CallerDeadline, last));
            }
            match last {
                Poll::Ready(Ok(value)) => return Poll::Ready(End::Done(value)),
                Poll::Ready(Err(failure)) => {
                    return Poll::Ready(End::Failed(failure.after_deadline()));
                }
                Poll::Pending if this.plan.grace.is_some() => *this.in_grace = true,
                Poll::Pending => {
                    return Poll::Ready(End::Cut(EndedBy::AttemptTimeout, Failure::cut_off()));
                }
            }
        }
    }
}

fn bounds_deadline<B: Bounds>(bounds: &B) -> Option<Instant> {
    if B::ANY { bounds.deadline() } else { None }
}

#[inline]
fn poll_handler<Fut: Future>(
    handler: Pin<&mut Fut>,
    frame: Frame,
    cx: &mut Context<'_>,
) -> Poll<Fut::Output> {
    let _entered = chain::enter(frame);
    handler.poll(cx)
}

/// A success in the last poll stands; an error becomes the source.
fn cut_by_caller<T, E>(by: EndedBy, last: Poll<Result<T, Failure<E>>>) -> End<T, E> {
    match last {
        Poll::Ready(Ok(value)) => End::Done(value),
        Poll::Ready(Err(failure)) => End::Cut(by, failure),
        Poll::Pending => End::Cut(by, Failure::cut_off()),
    }
}

/// An unclassified error is uncertain once the deadline has passed.
pub(crate) fn judge<E>(
    failure: Failure<E>,
    plan: &Plan,
    deadline: Option<Instant>,
) -> Failure<E> {
    match deadline {
        Some(at) if !failure.is_classified() && plan.engine.clock.now() >= at => {
            failure.after_deadline()
        }
        _ => failure,
    }
}

/// What a call remembers of its attempts.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) attempts: u32,
    uncertain: bool,
    effect: Effect,
}

impl Record {
    pub(crate) fn new(plan: &Plan, stated: Option<Effect>) -> Self {
        Self {
            attempts: 0,
            uncertain: false,
            effect: effect_of(plan.effect, stated),
        }
    }

    /// Whether another attempt follows one that failed so.
    pub(crate) fn again<E>(&mut self, plan: &Plan, failure: &Failure<E>) -> bool {
        self.uncertain |= failure.outcome() == Outcome::Uncertain;
        plan.retry
            .again(self.effect, failure.outcome(), self.attempts)
    }

    /// The call's error. Uncertainty of any attempt sticks to the call.
    pub(crate) fn error<E>(
        &self,
        plan: &Plan,
        ended_by: Option<EndedBy>,
        cut: bool,
        failure: Failure<E>,
    ) -> CallError<E> {
        let uncertain = cut || self.uncertain || failure.outcome() == Outcome::Uncertain;
        let attempted = Attempted {
            operation: plan.operation.clone(),
            attempts: self.attempts,
            outcome: if uncertain {
                Outcome::Uncertain
            } else {
                failure.outcome()
            },
            ended_by,
            failure,
        };
        match ended_by {
            Some(EndedBy::CallerLeft) if cut => CallError::Cancelled(attempted),
            Some(_) if cut => CallError::TimedOut(attempted),
            _ => CallError::Failed(attempted),
        }
    }
}

/// The stricter of what the policy declares and what the call states; an effect left to the call that says nothing is
/// `NonIdempotent`.
fn effect_of(declared: Option<Effect>, stated: Option<Effect>) -> Effect {
    match (declared, stated) {
        (Some(declared), Some(stated)) => declared.max(stated),
        (declared, stated) => declared.or(stated).unwrap_or(Effect::NonIdempotent),
    }
}

/// One call, from admission to answer: the value, together with what the call still holds.
///
/// # Cancel safety
/// Dropped while it waits, the call leaves its queue. Dropped while it executes, the handler's future is dropped at its
/// await point; what it may have done is done. Either way units and key are back at once.
pub(crate) fn drive<'x, B, L, F, Fut, T, E>(
    plan: &'x Plan,
    key: Key,
    mut bounds: B,
    lend: L,
    effect: Option<Effect>,
    mut handler: F,
) -> impl Future<Output = Result<(T, Holding<&'x Plan>), CallError<E>>>
where
    B: Bounds,
    L: Lend + Copy,
    F: FnMut(L) -> Fut,
    Fut: Future<Output = Result<T, Failure<E>>>,
{
    // A block, not an async fn: what it captures is stored once.
    async move {
        let mut holding = Holding::new(plan);
        if B::ANY || !key.is_empty() || !holding.take_now() {
            admit(&mut holding, &mut bounds, &key).await?;
        }
        let mut record = Record::new(plan, effect);
        loop {
            record.attempts += 1;
            let deadline = plan
                .timeout
                .and_then(|timeout| plan.engine.clock.now().checked_add(timeout));
            lend.begin(
                record.attempts,
                earlier(deadline, bounds_deadline(&bounds)),
            );
            let end = Execute {
                handler: handler(lend),
                plan,
                bounds: &mut bounds,
                lend,
                frame: holding.frame(),
                deadline,
                in_grace: false,
                alarm: Alarm::new(),
            }
            .await;
            let (failure, cut) = match end {
                End::Done(value) => return Ok((value, holding)),
                End::Failed(failure) => (failure, None),
                End::Cut(by, failure) => (failure, Some(by)),
            };
            if matches!(cut, Some(EndedBy::CallerDeadline | EndedBy::CallerLeft))
                || !record.again(plan, &failure)
            {
                return Err(record.error(plan, cut, cut.is_some(), failure));
            }
            yield_now().await;
            if let Some(by) = poll_fn(|cx| Poll::Ready(gone(plan, &mut bounds, cx))).await {
                return Err(record.error(plan, Some(by), cut.is_some(), failure));
            }
            plan.counters.retried();
        }
    }
}

/// Whether the caller's bounds forbid another attempt.
pub(crate) fn gone<B: Bounds>(
    plan: &Plan,
    bounds: &mut B,
    cx: &mut Context<'_>,
) -> Option<EndedBy> {
    if !B::ANY {
        return None;
    }
    if bounds.left(cx) {
        return Some(EndedBy::CallerLeft);
    }
    bounds
        .deadline()
        .is_some_and(|at| plan.engine.clock.now() >= at)
        .then_some(EndedBy::CallerDeadline)
}

pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
