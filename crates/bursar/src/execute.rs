//! From admission to answer: attempts, their deadlines, the caller's bounds, and the decision to try again.
//!
//! Order within one poll of an attempt: the caller's token, the handler, then the timer. The timer is armed when the
//! handler first suspends. Whatever ends an attempt early, the handler is told and polled once more, so that it can
//! answer in its own words; then its future is dropped at its await point.

mod forms;
mod work;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use pin_project_lite::pin_project;

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
use crate::refusal::Site;
use crate::retry::Next;
pub(crate) use forms::{Deliver, Keep, Keyless, MaybeKey, Release};
use work::Work;

/// How one attempt ended.
enum End<T, E> {
    Done(T),
    /// In the handler's own words, or cut off by something; then the failure is what the handler answered in its last
    /// poll, or says that it did not.
    Failed(Failure<E>, Option<EndedBy>),
}

/// Where a call stands between two polls. What goes with it lies in [`Parked`]: replacing a stage with fields would
/// copy them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Admitting,
    /// Turned away; answered after one turn of the executor.
    Refused,
    Running,
    /// One attempt failed and the next follows after one turn of the executor.
    Between,
    /// One attempt failed and the next follows after a pause.
    Pausing,
    Over,
}

/// What a call keeps over one turn of the executor.
enum Parked<E> {
    /// What was not free. The error is made when it is answered.
    Refused(Site),
    Between(Failure<E>, Option<EndedBy>),
    Pausing(Failure<E>, Option<EndedBy>, Pause),
}

pin_project! {
    /// One call, from admission to answer.
    ///
    /// Written by hand rather than as an async block: the fields are read where they lie, whereas nested blocks copy
    /// what they pass on, in pieces of another width than they were written in. That cost 30 of 48 ns a call.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the call leaves its queue. Dropped while it executes, the handler's future is dropped
    /// at its await point; what it may have done is done. Either way units and key are back at once.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Drive<'p, K, B, L, D, F, Fut, E> {
        // Declared before the holding: dropped before units and key go back.
        #[pin]
        running: Option<Fut>,
        holding: Holding<&'p Plan>,
        key: K,
        bounds: B,
        lend: L,
        deliver: D,
        handler: F,
        record: Record,
        deadline: Option<Instant>,
        in_grace: bool,
        alarm: Alarm,
        stage: Stage,
        parked: Option<Parked<E>>,
    }
}

impl<'p, K, B, L, D, F, Fut, E> Drive<'p, K, B, L, D, F, Fut, E> {
    #[inline]
    pub(crate) fn new(
        plan: &'p Plan,
        key: K,
        bounds: B,
        lend: L,
        deliver: D,
        record: Record,
        handler: F,
    ) -> Self {
        Self {
            running: None,
            holding: Holding::new(plan),
            key,
            bounds,
            lend,
            deliver,
            handler,
            record,
            deadline: None,
            in_grace: false,
            alarm: Alarm::new(),
            stage: Stage::Admitting,
            parked: None,
        }
    }
}

impl<K, B, L, D, F, Fut, T, E> Future for Drive<'_, K, B, L, D, F, Fut, E>
where
    K: MaybeKey,
    B: Bounds,
    L: Lend + Copy,
    D: Deliver,
    F: FnMut(L) -> Fut,
    Fut: Future<Output = Result<T, Failure<E>>>,
{
    type Output = Result<D::Of<T>, CallError<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let plan = this.holding.plan_ref();
        let mut work = Work {
            running: this.running,
            holding: this.holding,
            stage: this.stage,
        };
        let begins = *work.stage != Stage::Running;
        if begins {
            let key = this.key.key();
            let now = if *work.stage == Stage::Admitting && !this.bounds.any() {
                work.holding.take_now(key)
            } else {
                Now::NotYet
            };
            match now {
                Now::Held => {}
                Now::Refused(site) => return refused(work.stage, this.parked, site, cx),
                Now::NotYet => {
                    if let (Stage::Refused, Some(Parked::Refused(site))) =
                        (*work.stage, &*this.parked)
                    {
                        *work.stage = Stage::Over;
                        let refusal = work.holding.refusal(*site);
                        return Poll::Ready(Err(CallError::Overloaded(refusal)));
                    }
                    ready!(before_attempt(
                        work.stage,
                        this.parked,
                        work.holding,
                        this.record,
                        this.bounds,
                        this.alarm,
                        key,
                        cx
                    ))?;
                }
            }
            this.record.attempts += 1;
            *this.deadline = plan
                .timeout
                .and_then(|timeout| plan.engine.clock.after(timeout));
            *this.in_grace = false;
            let deadline = earlier(*this.deadline, this.bounds.deadline());
            this.lend.begin(this.record.attempts, deadline);
            *work.stage = Stage::Running;
        }
        // Asked once a poll: a token that had not fired a moment ago starts no handler only to stop it.
        let end = if !begins && this.bounds.left(cx) {
            this.lend.cancel();
            cut_by_caller(EndedBy::CallerLeft, work.poll(cx))
        } else {
            let polled = if begins {
                work.begin(|| (this.handler)(*this.lend), cx)
            } else {
                work.poll(cx)
            };
            match polled {
                // Nearly always: out of the way of all that follows.
                Poll::Ready(Ok(value)) => {
                    return Poll::Ready(Ok(work.succeed(this.deliver, value)));
                }
                Poll::Ready(Err(failure)) => {
                    let callers = this.bounds.deadline();
                    let (failure, cut) = judge(failure, plan, *this.deadline, callers);
                    End::Failed(failure, cut)
                }
                Poll::Pending => {
                    let callers = this.bounds.deadline();
                    if this.deadline.is_none() && callers.is_none() {
                        return Poll::Pending;
                    }
                    ready!(watch(
                        &mut work,
                        *this.lend,
                        *this.deadline,
                        callers,
                        this.in_grace,
                        this.alarm,
                        cx,
                    ))
                }
            }
        };
        let (failure, cut) = match end {
            End::Done(value) => return Poll::Ready(Ok(work.succeed(this.deliver, value))),
            End::Failed(failure, cut) => (failure, cut),
        };
        // Dropped at its await point, or done: before anything is given back.
        work.drop_handler();
        match failed(
            work.holding,
            this.record,
            this.bounds.deadline(),
            cut,
            failure,
            this.lend.is_last(),
            cx,
        ) {
            Ok(error) => {
                *work.stage = Stage::Over;
                Poll::Ready(Err(error))
            }
            Err(again) => {
                let armed = match &again {
                    Parked::Pausing(_, _, pause) => {
                        *work.stage = Stage::Pausing;
                        pause.arm(&plan.engine.clock, this.alarm, cx)
                    }
                    _ => {
                        *work.stage = Stage::Between;
                        false
                    }
                };
                *this.parked = Some(again);
                if !armed {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// What stands between a call and its next attempt: admission before the first, the caller's bounds before others.
#[cold]
#[expect(clippy::too_many_arguments, reason = "the pieces of one pinned future")]
fn before_attempt<B: Bounds, E>(
    stage: &mut Stage,
    parked: &mut Option<Parked<E>>,
    holding: &mut Holding<&Plan>,
    record: &mut Record,
    bounds: &mut B,
    alarm: &mut Alarm,
    key: &Key,
    cx: &mut Context<'_>,
) -> Poll<Result<(), CallError<E>>> {
    match parked.take() {
        None if *stage == Stage::Admitting => {
            let admitted = ready!(poll_admission(holding, bounds, alarm, key, cx));
            if let Err(CallError::Overloaded(refusal)) = admitted {
                return refused(stage, parked, refusal.site, cx);
            }
            if admitted.is_err() {
                *stage = Stage::Over;
            }
            Poll::Ready(admitted)
        }
        None | Some(Parked::Refused(_)) => panic!("a call was polled after it had ended"),
        Some(Parked::Between(failure, cut)) => {
            let plan = holding.plan_ref();
            if let Some(by) = gone(plan, bounds, cx) {
                *stage = Stage::Over;
                let error = record.error(plan, cut, Some(by), failure);
                holding.end();
                return Poll::Ready(Err(error));
            }
            plan.counters.retried();
            Poll::Ready(Ok(()))
        }
        Some(Parked::Pausing(failure, cut, mut pause)) => {
            match pause.poll(holding, bounds, alarm, cx) {
                Poll::Pending => {
                    *parked = Some(Parked::Pausing(failure, cut, pause));
                    Poll::Pending
                }
                Poll::Ready(Ok(())) => {
                    holding.plan().counters.retried();
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(by)) => {
                    *stage = Stage::Over;
                    let plan = holding.plan_ref();
                    let error = record.error(plan, cut, Some(by), failure);
                    Poll::Ready(Err(error))
                }
            }
        }
    }
}

/// Everything is back and counted. The answer follows after one turn of the executor: a caller that tries again in a tight
/// loop lets the holders run.
#[cold]
fn refused<T, E>(
    stage: &mut Stage,
    parked: &mut Option<Parked<E>>,
    site: Site,
    cx: &Context<'_>,
) -> Poll<T> {
    *stage = Stage::Refused;
    *parked = Some(Parked::Refused(site));
    cx.waker().wake_by_ref();
    Poll::Pending
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
    let kept = match next {
        Next::Nothing => None,
        Next::Denied => Some(EndedBy::RetryBudget),
        Next::AtOnce => return Err(Parked::Between(failure, cut)),
        Next::After(pause) => match Pause::begin(holding, callers, pause, cx.waker()) {
            Ok(pause) => return Err(Parked::Pausing(failure, cut, pause)),
            Err(by) => Some(by),
        },
    };
    let error = record.error(plan, cut, kept, failure);
    holding.end();
    Ok(error)
}

/// A suspended attempt: arms the timer, and at a deadline tells the handler and polls it once more.
fn watch<Fut, L, T, E>(
    work: &mut Work<'_, '_, Fut>,
    lend: L,
    deadline: Option<Instant>,
    callers: Option<Instant>,
    in_grace: &mut bool,
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
            Some(grace) if *in_grace => deadline.and_then(|at| at.checked_add(grace)),
            _ => deadline,
        };
        let Some(at) = earlier(own, callers) else {
            return Poll::Pending;
        };
        ready!(alarm.poll(&plan.engine.clock, at, cx));
        if *in_grace && Some(at) != callers {
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
            Poll::Pending if plan.grace.is_some() => *in_grace = true,
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
