//! The body of a turn: user work from its grant to its end, however often it yields.
//!
//! All work begins in [`begin`], which polls it once: where its requester stands, or, if it had to wait for its turn, where
//! due work is started ([`Queued`]). What suspends goes on as a [`Rest`], which the executor polls. Until then nothing of it
//! but the user's future lies on the heap, in a cell made by whoever polls it first.
//!
//! Invariants:
//! 1. User code runs in `begin` and in polls of a rest, under the body's name; its panics end there, with the body dropped.
//! 2. A body that is dropped before its end ends its turn (the turn lives in it).
//! 3. Queued work answers exactly once: when it has ended, or when it is dropped instead. Whoever started it wakes the
//!    requester, and says when.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use bursar::seam::{Chain, Standing, Tie};

use crate::contain::{discard, wake};
use crate::frame::{self, Begun, BodyId, Due, Kept, Start};
use crate::held::{Held, Lane};
use crate::reply::Requester;
use crate::span::Span;
use crate::strand::{Job, Strand};

/// How a body ended without its own answer.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its Spot closed, or its executor shut down. True if it had begun.
    Closed(bool),
    Panicked(Box<str>),
}

/// What came of a poll, and whether the body is to be abandoned; ready if it was the last.
#[inline]
fn outcome<T>(
    (polled, abandoned): (thread::Result<Poll<T>>, bool),
    kept: Option<&mut Kept>,
) -> Poll<Result<T, Ended>> {
    Poll::Ready(match polled {
        Ok(Poll::Pending) if !abandoned => return Poll::Pending,
        Ok(Poll::Pending) => Err(Ended::Closed(true)),
        Ok(Poll::Ready(out)) => Ok(out),
        Err(panic) => {
            if let Some(turn) = kept {
                turn.panicked();
            }
            Err(Ended::Panicked(message(panic)))
        }
    })
}

/// What a body stands in while it is polled.
trait Stand {
    fn run<R>(&self, standing: &mut Standing, poll: impl FnOnce() -> R) -> R;
}

/// What its requester runs inside of, here and now.
struct Here;

impl Stand for Here {
    #[inline]
    fn run<R>(&self, standing: &mut Standing, poll: impl FnOnce() -> R) -> R {
        standing.here(poll)
    }
}

/// What its requester ran inside of when it asked.
impl Stand for Chain {
    #[inline]
    fn run<R>(&self, standing: &mut Standing, poll: impl FnOnce() -> R) -> R {
        if self.is_empty() {
            return standing.alone(poll);
        }
        self.scope(|| standing.here(poll))
    }
}

/// What is left of a body after its first poll: a task's from then on.
pub(crate) struct Rest<W> {
    // Ends, and with it what the body's chain holds, before the work gives anything back.
    standing: Option<Standing>,
    work: Option<Pin<Box<W>>>,
    kept: Option<Kept>,
    name: BodyId,
    // What the requester ran inside of, if the work had to wait and that was anything.
    chain: Chain,
}

/// Polls the work of a turn once, on the chain of whoever asks for it here.
#[inline]
pub(crate) fn begin<S, M, W>(make: M, held: Held<S>) -> Result<Result<W::Output, Ended>, Rest<W>>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
{
    // A first poll without a waker is always followed by one with the task's.
    let mut cx = Context::from_waker(Waker::noop());
    begin_in(&Here, make, held, &mut cx)
}

/// To make and move a cell that holds more than the work was a seventh of a request.
#[inline]
fn begin_in<S, M, W>(
    stand: &impl Stand,
    make: M,
    held: Held<S>,
    cx: &mut Context<'_>,
) -> Result<Result<W::Output, Ended>, Rest<W>>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
{
    let name = held.body();
    let mut standing = held.standing();
    // Lent to what runs it, layer by layer: each layer would copy it.
    let mut parts = Some((make, held));
    let (mut work, mut kept) = (None, None);
    let polled = stand.run(&mut standing, || {
        frame::within(name, || {
            catch_unwind(AssertUnwindSafe(|| {
                let Some((make, held)) = parts.take() else {
                    // It runs once.
                    return Poll::Pending;
                };
                let made;
                (made, kept) = frame::making(name, || Box::pin(make(held)));
                work.insert(made).as_mut().poll(cx)
            }))
        })
    });
    match outcome(polled, kept.as_mut()) {
        Poll::Ready(ended) => {
            drop(standing);
            discard(work);
            if kept.is_some() {
                discard(kept);
            }
            Ok(ended)
        }
        Poll::Pending => Err(Rest {
            standing: Some(standing),
            work,
            kept,
            name,
            chain: Chain::default(),
        }),
    }
}

impl<W: Future> Rest<W> {
    /// Work that answers so.
    pub(crate) fn answering<A: Answer<W::Output>>(self, answer: A) -> impl Future<Output = ()> {
        Answering {
            rest: self,
            answer: Some(answer),
        }
    }

    /// Links the body to what the caller runs inside of. It is polled here no more.
    pub(crate) fn tie(&mut self) -> Tie {
        self.standing
            .as_mut()
            .map(Standing::tie)
            .unwrap_or_default()
    }

    /// Drops the work, and what its chain holds before that.
    fn end(&mut self) {
        self.standing = None;
        discard(self.work.take());
        discard(self.kept.take());
    }
}

impl<W: Future> Future for Rest<W> {
    type Output = Result<W::Output, Ended>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let (Some(standing), Some(work)) = (&mut this.standing, &mut this.work) else {
            // Polled again after its end: nobody does.
            return Poll::Pending;
        };
        let polled = this.chain.run(standing, || {
            frame::within(this.name, || {
                catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)))
            })
        });
        let ended = ready!(outcome(polled, this.kept.as_mut()));
        this.end();
        Poll::Ready(ended)
    }
}

/// What a panic said.
fn message(panic: Box<dyn Any + Send>) -> Box<str> {
    let said: Box<str> = match (
        panic.downcast_ref::<&'static str>(),
        panic.downcast_ref::<String>(),
    ) {
        (Some(said), _) => (*said).into(),
        (None, Some(said)) => said.as_str().into(),
        (None, None) => "a panic without words".into(),
    };
    // Whatever it was may panic again when it is dropped.
    discard(panic);
    said
}

/// Where the answer of queued work goes.
pub(crate) trait Answer<T>: Send {
    /// Whom to wake for it.
    #[must_use = "somebody may wait for the answer"]
    fn answer(self, ended: Result<T, Ended>) -> Option<Waker>;
}

/// Nobody waits.
pub(crate) struct Nobody;

impl<T> Answer<T> for Nobody {
    fn answer(self, ended: Result<T, Ended>) -> Option<Waker> {
        discard(ended);
        None
    }
}

impl<T: Send> Answer<T> for Requester<T> {
    fn answer(self, ended: Result<T, Ended>) -> Option<Waker> {
        self.tell(ended)
    }
}

/// Work in a queue, and then with its turn, until somebody starts it.
pub(crate) struct Queued<S, M, W, A>
where
    S: Send + 'static,
    W: Future,
    A: Answer<W::Output>,
{
    /// There until it is started, as is the answer's way.
    make: Option<M>,
    answer: Option<A>,
    held: Option<Held<S>>,
    lane: Option<Arc<Lane<S>>>,
    chain: Chain,
    span: Span,
    work: PhantomData<fn() -> W>,
}

impl<S, M, W, A> Queued<S, M, W, A>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
    A: Answer<W::Output>,
{
    pub(crate) fn new(lane: Option<Arc<Lane<S>>>, chain: Chain, make: M, answer: A) -> Self {
        Self {
            make: Some(make),
            answer: Some(answer),
            held: None,
            lane,
            chain,
            span: Span::none(),
            work: PhantomData,
        }
    }

    /// Has it polled in this span.
    pub(crate) fn in_span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }
}

impl<S, M, W, A> Drop for Queued<S, M, W, A>
where
    S: Send + 'static,
    W: Future,
    A: Answer<W::Output>,
{
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            discard(self.make.take());
            discard(self.held.take());
            wake(answer.answer(Err(Ended::Closed(false))));
        }
    }
}

impl<S, M, W, A> Job<S> for Queued<S, M, W, A>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W + Send + 'static,
    W: Future<Output: Send> + Send + 'static,
    A: Answer<W::Output> + 'static,
{
    fn grant(mut self: Box<Self>, strand: &Arc<Strand<S>>, state: Option<Box<S>>) -> Due {
        self.held = Some(Held::new(strand, state, self.lane.take()));
        self
    }
}

impl<S, M, W, A> Start for Queued<S, M, W, A>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W + Send + 'static,
    W: Future<Output: Send> + Send + 'static,
    A: Answer<W::Output> + 'static,
{
    fn start(mut self: Box<Self>, cx: &mut Context<'_>) -> Begun {
        let (Some(make), Some(held)) = (self.make.take(), self.held.take()) else {
            // Started before its grant: nobody does.
            return Begun::Ended(None);
        };
        let begun = self.span.scope(|| begin_in(&self.chain, make, held, cx));
        let answer = self.answer.take();
        match begun {
            Ok(ended) => Begun::Ended(answer.and_then(|answer| answer.answer(ended))),
            Err(mut rest) => {
                rest.chain = std::mem::take(&mut self.chain);
                let span = std::mem::replace(&mut self.span, Span::none());
                Begun::Suspended(Box::pin(span.carry(Answering { rest, answer })))
            }
        }
    }
}

/// Queued work that has begun and suspended.
struct Answering<W: Future, A: Answer<W::Output>> {
    rest: Rest<W>,
    answer: Option<A>,
}

impl<W: Future, A: Answer<W::Output>> Unpin for Answering<W, A> {}

impl<W: Future, A: Answer<W::Output>> Answering<W, A> {
    fn tell(&mut self, ended: Result<W::Output, Ended>) {
        if let Some(answer) = self.answer.take() {
            wake(answer.answer(ended));
        }
    }
}

impl<W: Future, A: Answer<W::Output>> Future for Answering<W, A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let ended = ready!(Pin::new(&mut self.rest).poll(cx));
        self.tell(ended);
        Poll::Ready(())
    }
}

impl<W: Future, A: Answer<W::Output>> Drop for Answering<W, A> {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.rest.end();
            self.tell(Err(Ended::Closed(true)));
        }
    }
}
