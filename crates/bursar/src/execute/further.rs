//! The polls of a call that was not done in its first one: waiting, attempts that suspend, pauses, and the decision to try
//! again.
//!
//! Order within one poll of an attempt: the caller's token, the handler, then the timer. The timer is armed when the
//! handler first suspends. Whatever ends an attempt early, the handler is told and polled once more, so that it can
//! answer in its own words; then its future is dropped at its await point.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::work::Work;
use super::{Deliver, Drive, MaybeKey, Parked, Rest, Stage, Step};
use crate::admit::{Pause, poll_admission};
use crate::attempt::Lend;
use crate::bounds::Bounds;
use crate::call::{Holding, Now};
use crate::clock::{Alarm, earlier};
use crate::engine::Plan;
use crate::error::{CallError, EndedBy};
use crate::key::Key;
use crate::outcome::Failure;
use crate::record::{Record, gone, judge};
use crate::refusal::Refusal;
use crate::retry::Next;

/// How one attempt ended.
enum End<T, E> {
    Done(T),
    /// In the handler's own words, or cut off by something; then the failure is what the handler answered in its last
    /// poll, or says that it did not.
    Failed(Failure<E>, Option<EndedBy>),
}

impl<K, B, L, D, F, Fut, T, E> Drive<'_, K, B, L, D, F, Fut, E>
where
    K: MaybeKey,
    B: Bounds,
    L: Lend + Copy,
    D: Deliver,
    F: FnMut(L) -> Fut,
    Fut: Future<Output = Result<T, Failure<E>>>,
{
    /// A poll that is not the short way of the first.
    #[inline(never)]
    pub(super) fn go_on(
        mut self: Pin<&mut Self>,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Step<D::Of<T>> {
        let this = self.as_mut().project();
        let Some(rest) = this.rest else {
            panic!("a call was polled after it had ended");
        };
        let running = matches!(this.stage, Stage::Running | Stage::Grace);
        if !running {
            let key = this.key.key();
            match before_attempt(now, this.stage, rest, this.record, this.bounds, key, cx) {
                Step::Pending => return Step::Pending,
                Step::Failed => return Step::Failed,
                Step::Done(()) => {}
            }
            this.record.attempts += 1;
            let plan = *this.plan;
            let timeout = plan.timeout;
            rest.deadline = timeout.and_then(|timeout| plan.engine.clock.after(timeout));
            let deadline = earlier(rest.deadline, this.bounds.deadline());
            this.lend.begin(this.record.attempts, deadline);
            *this.stage = Stage::Running;
        }
        let mut work = Work {
            running: this.running,
            holding: &mut rest.holding,
            stage: this.stage,
        };
        let polled = if !running {
            work.begin(|| (this.handler)(*this.lend), cx)
        } else if this.bounds.left(cx) {
            // Asked once a poll: a token that had not fired a moment ago starts no handler only to stop it.
            this.lend.cancel();
            let last = work.poll(cx);
            return self.ended(cut_by_caller(EndedBy::CallerLeft, last), cx);
        } else {
            work.poll(cx)
        };
        match polled {
            Poll::Ready(Ok(value)) => work.succeed(this.deliver, value),
            Poll::Ready(Err(failure)) => self.erred(failure, cx),
            Poll::Pending => self.suspended(cx),
        }
    }

    /// The handler answered with an error.
    #[cold]
    pub(super) fn erred(
        mut self: Pin<&mut Self>,
        failure: Failure<E>,
        cx: &mut Context<'_>,
    ) -> Step<D::Of<T>> {
        let this = self.as_mut().project();
        let own = this.rest.as_ref().and_then(|rest| rest.deadline);
        let (failure, cut) = judge(failure, this.plan, own, this.bounds.deadline());
        self.ended(End::Failed(failure, cut), cx)
    }

    /// The handler is not done.
    #[inline]
    pub(super) fn suspended(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Step<D::Of<T>> {
        let this = self.as_mut().project();
        let callers = this.bounds.deadline();
        match this.rest {
            Some(rest) if rest.deadline.is_some() || callers.is_some() => {
                let mut work = Work {
                    running: this.running,
                    holding: &mut rest.holding,
                    stage: this.stage,
                };
                let alarm = &mut rest.alarm;
                match watch(&mut work, *this.lend, rest.deadline, callers, alarm, cx) {
                    Poll::Pending => Step::Pending,
                    Poll::Ready(end) => self.ended(end, cx),
                }
            }
            Some(rest) => {
                // What has bounded its waiting wakes it no more.
                rest.alarm.disarm();
                Step::Pending
            }
            None => Step::Pending,
        }
    }

    /// An attempt is over.
    fn ended(self: Pin<&mut Self>, end: End<T, E>, cx: &mut Context<'_>) -> Step<D::Of<T>> {
        let this = self.project();
        let Some(rest) = this.rest else {
            return Step::Pending;
        };
        let mut work = Work {
            running: this.running,
            holding: &mut rest.holding,
            stage: this.stage,
        };
        let (failure, cut) = match end {
            End::Done(value) => return work.succeed(this.deliver, value),
            End::Failed(failure, cut) => (failure, cut),
        };
        // Dropped at its await point, or done: before anything is given back.
        work.drop_handler();
        *work.stage = Stage::Over;
        let callers = this.bounds.deadline();
        let last = this.lend.is_last();
        let again = match failed(work.holding, this.record, callers, cut, failure, last, cx) {
            Ok(error) => return rest.failed(error),
            Err(again) => again,
        };
        let armed = match &again {
            Parked::Pausing(_, _, pause) => {
                *work.stage = Stage::Pausing;
                pause.arm(&this.plan.engine.clock, &mut rest.alarm, cx)
            }
            _ => {
                *work.stage = Stage::Between;
                false
            }
        };
        rest.parked = Some(again);
        if !armed {
            cx.waker().wake_by_ref();
        }
        Step::Pending
    }
}

/// What stands between a call and its next attempt: admission before the first, the caller's bounds before others. A
/// step that failed has left its error.
fn before_attempt<B: Bounds, E>(
    now: Now,
    stage: &mut Stage,
    rest: &mut Rest<'_, E>,
    record: &mut Record,
    bounds: &mut B,
    key: &Key,
    cx: &mut Context<'_>,
) -> Step<()> {
    match *stage {
        Stage::Refused => {
            *stage = Stage::Over;
            return Step::Failed;
        }
        Stage::Admitting => {
            if now == Now::Full {
                if let Some(refusal) = rest.holding.refuse_now() {
                    return rest.refused(stage, refusal, cx);
                }
            }
            let Rest { holding, alarm, .. } = rest;
            return match poll_admission(holding, bounds, alarm, key, cx) {
                Poll::Pending => Step::Pending,
                Poll::Ready(Ok(())) => Step::Done(()),
                Poll::Ready(Err(CallError::Overloaded(refusal))) => {
                    rest.refused(stage, refusal, cx)
                }
                Poll::Ready(Err(error)) => {
                    *stage = Stage::Over;
                    rest.failed(error)
                }
            };
        }
        _ => {}
    }
    let plan = rest.holding.plan_ref();
    let error = match rest.parked.take() {
        Some(Parked::Between(failure, cut)) => {
            let Some(by) = gone(plan, bounds, cx) else {
                rest.holding.retries();
                return Step::Done(());
            };
            rest.holding.fails(record.outcome(cut, &failure));
            record.error(plan, cut, Some(by), failure)
        }
        Some(Parked::Pausing(failure, cut, mut pause)) => {
            let Rest { holding, alarm, .. } = rest;
            match pause.poll(holding, bounds, alarm, cx) {
                Poll::Pending => {
                    rest.parked = Some(Parked::Pausing(failure, cut, pause));
                    return Step::Pending;
                }
                Poll::Ready(Ok(())) => {
                    holding.retries();
                    return Step::Done(());
                }
                Poll::Ready(Err(by)) => {
                    holding.fails(record.outcome(cut, &failure));
                    record.error(plan, cut, Some(by), failure)
                }
            }
        }
        None | Some(Parked::Failed(_)) => panic!("a call was polled after it had ended"),
    };
    *stage = Stage::Over;
    rest.failed(error)
}

impl<E> Rest<'_, E> {
    /// Everything is back and counted. The answer follows after one turn of the executor: a caller that tries again in a
    /// tight loop lets the holders run.
    #[inline(always)]
    fn refused<T>(&mut self, stage: &mut Stage, refusal: Refusal, cx: &Context<'_>) -> Step<T> {
        *stage = Stage::Refused;
        self.parked = Some(Parked::Failed(CallError::Overloaded(refusal)));
        cx.waker().wake_by_ref();
        Step::Pending
    }
}

/// An attempt failed: the call's error, or what is kept until the next attempt.
#[cold]
fn failed<E>(
    holding: &mut Holding<&Plan>,
    record: &mut Record,
    callers: Option<Instant>,
    cut: Option<EndedBy>,
    failure: Failure<E>,
    last: bool,
    cx: &Context<'_>,
) -> Result<CallError<E>, Parked<E>> {
    let plan = holding.plan_ref();
    let left = matches!(cut, Some(EndedBy::CallerDeadline | EndedBy::CallerLeft));
    let next = if left {
        Next::Nothing
    } else {
        record.next(plan, &failure, last)
    };
    let outcome = record.outcome(cut, &failure);
    if matches!(next, Next::AtOnce | Next::After(_)) {
        holding.owes(outcome);
    }
    let kept = match next {
        Next::Nothing => None,
        Next::Denied => Some(EndedBy::RetryBudget),
        Next::AtOnce => return Err(Parked::Between(failure, cut)),
        Next::After(pause) => match Pause::begin(holding, callers, pause, cx.waker()) {
            Ok(pause) => return Err(Parked::Pausing(failure, cut, pause)),
            Err(by) => Some(by),
        },
    };
    holding.fails(outcome);
    Ok(record.error(plan, cut, kept, failure))
}

/// A suspended attempt: arms the timer, and at a deadline tells the handler and polls it once more.
fn watch<Fut, L, T, E>(
    work: &mut Work<'_, '_, Fut>,
    lend: L,
    deadline: Option<Instant>,
    callers: Option<Instant>,
    alarm: &mut Alarm,
    cx: &mut Context<'_>,
) -> Poll<End<T, E>>
where
    Fut: Future<Output = Result<T, Failure<E>>>,
    L: Lend,
{
    let plan = work.holding.plan_ref();
    loop {
        let own = match plan.grace {
            Some(grace) if *work.stage == Stage::Grace => {
                deadline.and_then(|at| at.checked_add(grace))
            }
            _ => deadline,
        };
        let Some(at) = earlier(own, callers) else {
            return Poll::Pending;
        };
        ready!(alarm.poll(&plan.engine.clock, at, cx));
        if *work.stage == Stage::Grace && Some(at) != callers {
            return Poll::Ready(End::Failed(
                Failure::cut_off(),
                Some(EndedBy::AttemptTimeout),
            ));
        }
        lend.cancel();
        let last = work.poll(cx);
        if Some(at) == callers {
            return Poll::Ready(cut_by_caller(EndedBy::CallerDeadline, last));
        }
        match last {
            Poll::Ready(Ok(value)) => return Poll::Ready(End::Done(value)),
            Poll::Ready(Err(failure)) => {
                let (failure, cut) = judge(failure, plan, deadline, callers);
                return Poll::Ready(End::Failed(failure, cut));
            }
            Poll::Pending if plan.grace.is_some() => *work.stage = Stage::Grace,
            Poll::Pending => {
                return Poll::Ready(End::Failed(
                    Failure::cut_off(),
                    Some(EndedBy::AttemptTimeout),
                ));
            }
        }
    }
}

/// A success in the last poll stands; an error becomes the source.
fn cut_by_caller<T, E>(by: EndedBy, last: Poll<Result<T, Failure<E>>>) -> End<T, E> {
    match last {
        Poll::Ready(Ok(value)) => End::Done(value),
        Poll::Ready(Err(failure)) => End::Failed(failure, Some(by)),
        Poll::Pending => End::Failed(Failure::cut_off(), Some(by)),
    }
}
