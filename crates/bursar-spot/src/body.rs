//! The body of a turn: user work from its grant to its end, however often it yields.
//!
//! All work begins in [`begin`], which polls it once: where its requester stands, or, if it had to wait for its turn, where
//! due work is started ([`Queued`]). It lies in a heap cell made by whoever polls it first ([`Cell`]). What suspends goes on in
//! it, polled by the executor; until then what surrounds the user's future is not there.
//!
//! Invariants:
//! 1. User code runs in `begin` and in polls of a cell, under the body's name; its panics end there, with the body dropped.
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
use pin_project_lite::pin_project;

use crate::contain::{contained, discard, forget, wake};
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
fn outcome<T>((polled, abandoned): (thread::Result<Poll<T>>, bool)) -> Poll<Result<T, Ended>> {
    Poll::Ready(match polled {
        Ok(Poll::Pending) if !abandoned => return Poll::Pending,
        Ok(Poll::Pending) => Err(Ended::Closed(true)),
        Ok(Poll::Ready(out)) => Ok(out),
        Err(panic) => Err(Ended::Panicked(message(panic))),
    })
}

/// Drops what is left of a body.
#[inline]
fn bury<T>(body: BodyId, ended: &Result<T, Ended>, end: impl FnOnce()) {
    let panicked = matches!(ended, Err(Ended::Panicked(_)));
    if panicked || thread::panicking() {
        frame::ending(body, panicked, end);
    } else {
        contained(end);
    }
}

/// What a body stands in while it is polled.
pub(crate) trait Stand {
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

/// Nothing of the thread that polls.
#[derive(Default)]
pub(crate) struct Alone;

impl Stand for Alone {
    #[inline]
    fn run<R>(&self, standing: &mut Standing, poll: impl FnOnce() -> R) -> R {
        standing.alone(poll)
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

pin_project! {
    /// User work in its heap cell. What surrounds it joins it there when it suspends: until then that lies on the stack of
    /// its first poll.
    pub(crate) struct Cell<W, C, A>
    where
        W: Future,
        A: Answer<W::Output>,
    {
        // Ends, and with it what the body's chain holds, before the work gives anything back.
        standing: Option<Standing>,
        #[pin]
        work: Option<W>,
        kept: Option<Kept>,
        name: BodyId,
        stand: C,
        // There from when it suspends until it is given.
        answer: Option<A>,
    }

    impl<W, C, A> PinnedDrop for Cell<W, C, A>
    where
        W: Future,
        A: Answer<W::Output>,
    {
        fn drop(mut this: Pin<&mut Self>) {
            if this.answer.is_some() {
                wake(this.as_mut().end(Err(Ended::Closed(true))));
            }
        }
    }
}

/// What comes of a first poll: the end, or what suspended.
type Begins<W, C, A> = Result<Result<<W as Future>::Output, Ended>, Pin<Box<Cell<W, C, A>>>>;

/// Polls the work of a turn once, on the chain of whoever asks for it here. What suspended is to be completed.
#[inline]
pub(crate) fn begin<S, M, W, A>(make: M, held: Held<S>) -> Begins<W, Alone, A>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
    A: Answer<W::Output>,
{
    // A first poll without a waker is always followed by one with the task's.
    let mut cx = Context::from_waker(Waker::noop());
    begin_in(&Here, || Alone, make, held, &mut cx)
}

#[inline]
fn begin_in<S, M, W, C, A>(
    stand: &impl Stand,
    later: impl FnOnce() -> C,
    make: M,
    held: Held<S>,
    cx: &mut Context<'_>,
) -> Begins<W, C, A>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
    C: Default,
    A: Answer<W::Output>,
{
    let name = held.body();
    let mut standing = held.standing();
    // Lent to what runs it, layer by layer: each would copy it.
    let mut parts = Some((make, held));
    let mut kept = None;
    // Made where it lies: what is made elsewhere and moved costs a sixth of a request.
    let mut cell: Pin<Box<Cell<W, C, A>>> = Box::into_pin(Box::default());
    let polled = stand.run(&mut standing, || {
        frame::within(name, || {
            catch_unwind(AssertUnwindSafe(|| {
                let mut work = cell.as_mut().project().work;
                if let Some((make, held)) = parts.take() {
                    ((), kept) = frame::making(name, || work.set(Some(make(held))));
                }
                work.as_pin_mut()
                    .map_or(Poll::Pending, |work| work.poll(cx))
            }))
        })
    });
    match outcome(polled) {
        Poll::Ready(ended) => {
            drop(standing);
            bury(name, &ended, || drop(cell));
            if kept.is_some() {
                bury(name, &ended, || drop(kept));
            }
            Ok(ended)
        }
        Poll::Pending => {
            let parts = cell.as_mut().project();
            *parts.standing = Some(standing);
            *parts.kept = kept;
            *parts.name = name;
            *parts.stand = later();
            Err(cell)
        }
    }
}

impl<W, C, A> Default for Cell<W, C, A>
where
    W: Future,
    C: Default,
    A: Answer<W::Output>,
{
    #[inline]
    fn default() -> Self {
        Self {
            standing: None,
            work: None,
            kept: None,
            name: 0,
            stand: C::default(),
            answer: None,
        }
    }
}

impl<W, C, A> Cell<W, C, A>
where
    W: Future,
    A: Answer<W::Output>,
{
    /// Links the body to what the caller runs inside of, and says where its answer goes. It is polled here no more.
    pub(crate) fn leave(self: Pin<&mut Self>, answer: A) -> Tie {
        let this = self.project();
        *this.answer = Some(answer);
        this.standing
            .as_mut()
            .map(Standing::tie)
            .unwrap_or_default()
    }

    /// Drops the work, and what its chain holds before that, and answers.
    fn end(self: Pin<&mut Self>, ended: Result<W::Output, Ended>) -> Option<Waker> {
        let mut this = self.project();
        *this.standing = None;
        bury(*this.name, &ended, || this.work.set(None));
        bury(*this.name, &ended, || *this.kept = None);
        this.answer.take().and_then(|answer| answer.answer(ended))
    }
}

impl<W, C, A> Future for Cell<W, C, A>
where
    W: Future,
    C: Stand,
    A: Answer<W::Output>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.as_mut().project();
        let (Some(standing), Some(work)) = (this.standing, this.work.as_pin_mut()) else {
            // Polled again after its end: nobody does.
            return Poll::Pending;
        };
        let polled = this.stand.run(standing, || {
            frame::within(*this.name, || {
                catch_unwind(AssertUnwindSafe(|| work.poll(cx)))
            })
        });
        let ended = ready!(outcome(polled));
        frame::tell(self.end(ended));
        Poll::Ready(())
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
    forget(panic);
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
            let began = self.make.is_none();
            discard(self.make.take());
            discard(self.held.take());
            wake(answer.answer(Err(Ended::Closed(began))));
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
        let later = || self.chain.clone();
        let begun = self
            .span
            .scope(|| begin_in(&self.chain, later, make, held, cx));
        // Until here it is in this work: should a subscriber panic in the span, the answer goes with that.
        let answer = self.answer.take();
        match begun {
            Ok(ended) => Begun::Ended(answer.and_then(|answer: A| answer.answer(ended))),
            Err(mut cell) => {
                *cell.as_mut().project().answer = answer;
                let span = std::mem::replace(&mut self.span, Span::none());
                Begun::Suspended(span.work(cell))
            }
        }
    }
}
