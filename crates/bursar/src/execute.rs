//! From admission to answer: the first poll of a call, which nearly always is its only one, here; those that follow in
//! [`further`].
//!
//! What counts is how much is written, and that it is read in the width it was written in: a call is a few dozen stores
//! between two locked instructions.

mod first;
mod forms;
mod further;
mod work;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use pin_project_lite::pin_project;

use crate::admit::Pause;
use crate::attempt::Lend;
use crate::bounds::Bounds;
use crate::call::{Holding, Now, Short};
use crate::clock::Alarm;
use crate::engine::Plan;
use crate::error::{CallError, EndedBy};
use crate::outcome::Failure;
use crate::record::Record;
use first::First;
pub(crate) use forms::{Deliver, Keep, Keyless, MaybeKey, Release};

/// Where a call stands between two polls. What goes with it lies in [`Parked`]: replacing a stage with fields would
/// copy them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not polled yet.
    Fresh,
    Admitting,
    /// Turned away; answered after one turn of the executor.
    Refused,
    Running,
    /// Running past its deadline, within the policy's grace.
    Grace,
    /// One attempt failed and the next follows after one turn of the executor.
    Between,
    /// One attempt failed and the next follows after a pause.
    Pausing,
    Over,
}

/// What a poll came to. Errors lie in [`Parked`]: a result that is a few words passes in registers, and one that is not is
/// read in pieces of another width than it was written in, which cost 9 of 24 ns a call.
enum Step<T> {
    Done(T),
    Pending,
    Failed,
}

/// What a call keeps between two polls, and its error until it is answered.
enum Parked<E> {
    Failed(CallError<E>),
    Between(Failure<E>, Option<EndedBy>),
    Pausing(Failure<E>, Option<EndedBy>, Pause),
}

/// What a call needs that is not done in its first poll.
struct Rest<'p, E> {
    holding: Holding<&'p Plan>,
    deadline: Option<Instant>,
    alarm: Alarm,
    parked: Option<Parked<E>>,
}

impl<'p, E> Rest<'p, E> {
    #[inline(always)]
    fn new(plan: &'p Plan, deadline: Option<Instant>) -> Self {
        Self {
            holding: Holding::new(plan),
            deadline,
            alarm: Alarm::new(),
            parked: None,
        }
    }

    #[inline(always)]
    fn failed<T>(&mut self, error: CallError<E>) -> Step<T> {
        self.parked = Some(Parked::Failed(error));
        Step::Failed
    }

    #[inline(always)]
    fn take_error(&mut self) -> Option<CallError<E>> {
        match self.parked.take() {
            Some(Parked::Failed(error)) => Some(error),
            _ => None,
        }
    }
}

pin_project! {
    /// One call, from admission to answer.
    ///
    /// Written by hand rather than as an async block: the fields are read where they lie, whereas nested blocks copy
    /// what they pass on, in pieces of another width than they were written in. That cost 30 of 48 ns a call. For the
    /// same reason most of it is made by the first poll that does not end the call: what counts is how much is written.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the call leaves its queue. Dropped while it executes, the handler's future is dropped
    /// at its await point; what it may have done is done. Either way units and key are back at once.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Drive<'p, K, B, L, D, F, Fut, E> {
        // Declared before the holding: dropped before units and key go back.
        #[pin]
        running: Option<Fut>,
        rest: Option<Rest<'p, E>>,
        plan: &'p Plan,
        key: K,
        bounds: B,
        lend: L,
        deliver: D,
        handler: F,
        record: Record,
        stage: Stage,
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
            rest: None,
            plan,
            key,
            bounds,
            lend,
            deliver,
            handler,
            record,
            stage: Stage::Fresh,
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
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.as_mut().step(cx) {
            Step::Done(value) => Poll::Ready(Ok(value)),
            Step::Pending => Poll::Pending,
            // The step has left its error.
            Step::Failed => match self.project().rest.as_mut().and_then(Rest::take_error) {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            },
        }
    }
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
    /// Most calls find everything free and are done in their first poll: that way is all that is inlined where a call is
    /// awaited.
    #[inline(always)]
    fn step(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Step<D::Of<T>> {
        let this = self.as_mut().project();
        if *this.stage != Stage::Fresh {
            return self.go_on(Now::NotYet, cx);
        }
        let plan = *this.plan;
        // Until it is known that another poll follows.
        *this.stage = Stage::Over;
        let mut now = Now::NotYet;
        let mut begun = None;
        if let (false, Some(here)) = (this.bounds.any(), plan.counters.here()) {
            let mut first = First::new(this.running, Short::new(plan, here));
            let taken;
            (now, taken) = first.short.take(this.key.key());
            if now == Now::Held {
                let timeout = plan.timeout;
                let deadline = timeout.and_then(|timeout| plan.engine.clock.after(timeout));
                this.lend.begin(1, deadline);
                let polled = first.poll(|| (this.handler)(*this.lend), cx);
                if let Poll::Ready(Ok(value)) = polled {
                    first.drop_handler();
                    // Nothing unwinds here: what wakers panic with has ended before.
                    let answer = this.deliver.at_once(&first.short, value);
                    std::mem::forget(first);
                    return Step::Done(answer);
                }
                let (short, record) = first.kept();
                this.record.attempts = 1;
                *this.stage = Stage::Running;
                let rest = this.rest.insert(Rest::new(plan, deadline));
                short.executing(&mut rest.holding, record);
                return match polled {
                    Poll::Ready(Err(failure)) => self.erred(failure, cx),
                    _ if deadline.is_none() => Step::Pending,
                    _ => self.suspended(cx),
                };
            }
            begun = Some((first.kept().0, taken));
        }
        *this.stage = Stage::Admitting;
        let rest = this.rest.insert(Rest::new(plan, None));
        if let Some((short, taken)) = begun {
            short.move_to(&mut rest.holding, taken);
        }
        self.go_on(now, cx)
    }
}
