//! Handlers that cannot be stopped: they run on a blocking thread, and what they hold follows the work.
//!
//! `job.rs` beside this file settles between caller and thread who was first; here the attempts follow each other, and
//! the caller gets its answer.

mod job;

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Instant;

use crate::admit::{Pause, admit, yield_now};
use crate::attempt::Attempt;
use crate::bounds::{Bounds, Unbounded};
use crate::call::Holding;
use crate::chain::links::{Chain, Tie};
use crate::clock::{Alarm, earlier};
use crate::contract::{Call, Contract, Stated};
use crate::engine::Plan;
use crate::error::{CallError, EndedBy};
use crate::key::Key;
use crate::outcome::{Failure, Outcome};
use crate::record::{Record, gone, judge};
use crate::refusal::{Refusal, Site};
use crate::retry::Next;
use crate::trace;
use job::{Answer, Job, State, Work, spawn};

/// Severs the handler from its requester, tells it, and leaves the job to its thread, when the caller goes away.
struct Caller<'j, F, T, E>
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    job: &'j Job<F, T, E>,
    tie: Tie,
    plan: &'j Plan,
    /// The call has been counted by its answer.
    answered: bool,
}

impl<F, T, E> Drop for Caller<'_, F, T, E>
where
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    fn drop(&mut self) {
        // Before anything else: the requester's own call ends right after this.
        self.tie.cut();
        if !self.answered {
            self.plan.counters.dropped();
        }
        let left = self.job.settle();
        if matches!(left, State::Running) {
            self.plan.counters.adrift(false);
            self.job.attempt.cancel();
        }
    }
}

/// How one attempt on a thread ended.
enum End<F, T, E> {
    Answered(Work<F>, Answer<T, E>),
    /// Cut off, and the thread goes on.
    Cut(EndedBy),
    /// Cut off by the caller with the handler's last answer in hand.
    CutWith(EndedBy, Work<F>, Answer<T, E>),
    NeverRan(Option<EndedBy>, State<F, T, E>),
}

/// One blocking attempt: its answer, or why there is none.
async fn one_attempt<B, F, T, E>(
    plan: &Plan,
    job: &Job<F, T, E>,
    bounds: &mut B,
    deadline: Option<Instant>,
) -> End<F, T, E>
where
    B: Bounds,
    F: FnMut(&Attempt) -> Result<T, Failure<E>>,
{
    let mut alarm = Alarm::new();
    let mut grace = plan.grace;
    let mut own = deadline;
    let ended_by = poll_fn(|cx| {
        if bounds.left(cx) {
            return Poll::Ready(Err(EndedBy::CallerLeft));
        }
        if let Poll::Ready(state) = job.poll(cx) {
            return Poll::Ready(Ok(state));
        }
        loop {
            let callers = bounds.deadline();
            let Some(at) = earlier(own, callers) else {
                return Poll::Pending;
            };
            ready!(alarm.poll(&plan.engine.clock, at, cx));
            if Some(at) == callers {
                return Poll::Ready(Err(EndedBy::CallerDeadline));
            }
            // A grace is for a handler that has begun.
            let more = match grace.take() {
                Some(more) if !job.call_off() => more,
                _ => return Poll::Ready(Err(EndedBy::AttemptTimeout)),
            };
            job.attempt.cancel();
            own = at.checked_add(more);
        }
    })
    .await;
    match ended_by {
        Ok(State::Done(work, answer)) => End::Answered(work, answer),
        Ok(unrun) => End::NeverRan(None, unrun),
        Err(by) => {
            job.attempt.cancel();
            match job.settle() {
                State::Done(work, answer) if by == EndedBy::AttemptTimeout => {
                    End::Answered(work, answer)
                }
                State::Done(work, answer) => End::CutWith(by, work, answer),
                State::Running => {
                    plan.counters.adrift(false);
                    End::Cut(by)
                }
                unrun => End::NeverRan(Some(by), unrun),
            }
        }
    }
}

/// See [`Contract::run_blocking`].
async fn drive_blocking<B, F, T, E>(
    plan: &Arc<Plan>,
    key: &Key,
    mut bounds: B,
    stated: Stated,
    handler: F,
) -> Result<T, CallError<E>>
where
    B: Bounds,
    F: FnMut(&Attempt) -> Result<T, Failure<E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let mut holding = Holding::new(&**plan);
    admit(&mut holding, &mut bounds, key).await?;
    let (above, tie) = Chain::tied();
    let work = Work {
        handler,
        holding: holding.promote(Arc::clone(plan)),
    };
    let mut attempt = Attempt::new(plan.engine.clock.clone(), plan.engine.epoch);
    attempt.idempotency_key = stated.idempotency_key;
    let record = Record::new(stated.effect, attempt.idempotency_key.is_some());
    let job = Arc::new(Job::new(attempt, above));
    let mut caller = Caller {
        job: &job,
        tie,
        plan,
        answered: false,
    };
    let answer = attempts(plan, &job, work, record, &mut bounds).await;
    caller.answered = true;
    // The answer, or the panic, is seen once nothing is held any more.
    drop(caller);
    answer.unwrap_or_else(|panic| resume_unwind(panic))
}

/// One attempt after another, up to the call's answer, or the panic that is to go on in its stead.
async fn attempts<B, F, T, E>(
    plan: &Plan,
    job: &Arc<Job<F, T, E>>,
    mut work: Work<F>,
    mut record: Record,
    bounds: &mut B,
) -> std::thread::Result<Result<T, CallError<E>>>
where
    B: Bounds,
    F: FnMut(&Attempt) -> Result<T, Failure<E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let mut last: Option<Failure<E>> = None;
    loop {
        let deadline = plan
            .timeout
            .and_then(|timeout| plan.engine.clock.after(timeout));
        job.attempt
            .begin(record.attempts + 1, earlier(deadline, bounds.deadline()));
        job.queue(work);
        spawn(job);
        // Whatever is counted of the call is counted before its units and key go back, and they are back when the answer,
        // or the panic, is seen.
        let (by, answer, held) = match one_attempt(plan, job, bounds, deadline).await {
            End::NeverRan(by, unrun) => {
                let error = never_ran(plan, &record, by, last);
                drop(unrun);
                return Ok(Err(error));
            }
            End::Cut(by) => {
                record.attempts += 1;
                let error = counted(plan, &record, Some(by), None, Failure::cut_off());
                return Ok(Err(error));
            }
            End::CutWith(by, held, answer) => {
                record.attempts += 1;
                (Some(by), answer, held)
            }
            End::Answered(back, answer) => {
                record.attempts += 1;
                match answer {
                    Ok(Err(failure)) => {
                        let (failure, cut) = judge(failure, plan, deadline, bounds.deadline());
                        if cut.is_some() {
                            (cut, Ok(Err(failure)), back)
                        } else {
                            work = back;
                            let next = record.next(plan, &failure, job.attempt.is_last());
                            let outcome = record.outcome(None, &failure);
                            if let Err(kept) =
                                between(next, &mut work.holding, outcome, bounds).await
                            {
                                work.holding.fails(outcome);
                                let error = record.error(plan, None, kept, failure);
                                drop(work);
                                return Ok(Err(error));
                            }
                            last = Some(failure);
                            continue;
                        }
                    }
                    answer => (None, answer, back),
                }
            }
        };
        let answer = match answer {
            // A success in hand stands: it is known to have happened.
            Ok(Ok(value)) => Ok(Ok(value)),
            Ok(Err(failure)) => Ok(Err(counted(plan, &record, by, None, failure))),
            Err(panic) => {
                plan.counters.panicked();
                Err(panic)
            }
        };
        drop(held);
        return answer;
    }
}

/// From one attempt to the next: what the call holds it holds again at the end. The error is what ended the call
/// besides the failure.
async fn between<B: Bounds>(
    next: Next,
    holding: &mut Holding<Arc<Plan>>,
    outcome: Outcome,
    bounds: &mut B,
) -> Result<(), Option<EndedBy>> {
    if matches!(next, Next::AtOnce | Next::After(_)) {
        holding.owes(outcome);
    }
    match next {
        Next::Nothing => Err(None),
        Next::Denied => Err(Some(EndedBy::RetryBudget)),
        Next::AtOnce => {
            yield_now().await;
            let plan = holding.plan();
            match poll_fn(|cx| Poll::Ready(gone(plan, bounds, cx))).await {
                Some(by) => Err(Some(by)),
                None => Ok(()),
            }
        }
        Next::After(pause) => {
            let mut alarm = Alarm::new();
            let callers = bounds.deadline();
            let mut pause =
                poll_fn(|cx| Poll::Ready(Pause::begin(holding, callers, pause, cx.waker())))
                    .await?;
            poll_fn(|cx| pause.poll(holding, bounds, &mut alarm, cx)).await?;
            Ok(())
        }
    }
}

/// The call's error, counted.
fn counted<E>(
    plan: &Plan,
    record: &Record,
    cut: Option<EndedBy>,
    kept: Option<EndedBy>,
    failure: Failure<E>,
) -> CallError<E> {
    plan.counters.failed(record.outcome(cut, &failure));
    record.error(plan, cut, kept, failure)
}

fn never_ran<E>(
    plan: &Plan,
    record: &Record,
    by: Option<EndedBy>,
    last: Option<Failure<E>>,
) -> CallError<E> {
    if let Some(failure) = last {
        return counted(plan, record, None, by, failure);
    }
    plan.counters.failed(Outcome::Throttled);
    let refusal = Refusal {
        names: Arc::clone(&plan.names),
        site: Site::Thread,
        chain: None,
    };
    match by {
        Some(EndedBy::CallerLeft) => CallError::Withdrawn(refusal),
        Some(_) => CallError::AdmissionTimedOut(refusal),
        None => CallError::Stopping(refusal),
    }
}

impl Contract {
    /// Runs a handler that blocks, on one blocking thread of the current tokio runtime.
    ///
    /// It cannot be stopped. When its time is up, or the caller leaves, the caller is answered as
    /// [`Uncertain`](crate::Outcome::Uncertain) and no further attempt is made; the handler runs on, holding its units
    /// and key until it has really ended, and what it returns then is discarded. It may look at
    /// [`Attempt::is_cancelled`] and end early. A success that was there before anybody was answered stands. A handler
    /// that no thread took up in time never ran.
    ///
    /// # Errors
    /// See [`CallError`]: the call never ran, or it ran and failed.
    ///
    /// # Panics
    /// Outside a tokio runtime. A panic of the handler goes on to the caller, after units and key are given back.
    ///
    /// # Cancel safety
    /// Dropping the future while it waits loses its place and nothing else. Dropped later, the handler is told through
    /// its attempt and runs on, holding its units and key, unless no thread has taken it up: then it never runs.
    pub fn run_blocking<F, T, E>(
        &self,
        handler: F,
    ) -> impl Future<Output = Result<T, CallError<E>>> + Send + use<'_, F, T, E>
    where
        F: FnMut(&Attempt) -> Result<T, Failure<E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let plan = self.plan();
        let stated = Stated::default();
        let call = drive_blocking(plan, const { &Key::NONE }, Unbounded, stated, handler);
        trace::call(&plan.names, call)
    }
}

impl<'c> Call<'c> {
    /// Runs a handler that blocks; see [`Contract::run_blocking`].
    ///
    /// # Errors
    /// See [`CallError`]: the call never ran, or it ran and failed.
    ///
    /// # Panics
    /// As [`Contract::run_blocking`].
    ///
    /// # Cancel safety
    /// As [`Contract::run_blocking`].
    pub fn run_blocking<'a, F, T, E>(
        &'a mut self,
        handler: F,
    ) -> impl Future<Output = Result<T, CallError<E>>> + Send + use<'a, 'c, F, T, E>
    where
        F: FnMut(&Attempt) -> Result<T, Failure<E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let (plan, key, bounds, stated) = self.parts();
        trace::call(
            &plan.names,
            drive_blocking(plan, key, bounds, stated, handler),
        )
    }
}
