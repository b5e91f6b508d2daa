//! The body of a turn: user work from its grant to its end, however often it yields.
//!
//! A requester polls its work once where it stands, if it may ([`begin`]); what is left is a [`Rest`], which the executor
//! polls. Work that had to wait for its turn is a [`Queued`]. Either way user work lies in one heap cell.
//!
//! Invariants:
//! 1. User code runs in `poll` alone, under the body's name; its panics end here, with the body dropped.
//! 2. A body that is dropped before its end ends its turn (the turn lives in it).
//! 3. A queued body answers its requester when it is dropped, whether it has ended or not: whoever polled it says when.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use bursar::seam::{Chain, Standing, Tie};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use crate::frame::{self, BodyId, Due, Kept};
use crate::held::{Held, Lane};
use crate::span::Span;
use crate::strand::{Job, Strand, discard};

/// How a body ended without its own answer.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its Spot closed, or its executor shut down. True if it had begun.
    Closed(bool),
    Panicked(Box<str>),
}

pin_project! {
    #[project = StageProjected]
    #[project_replace = StageReplaced]
    enum Stage<S, M, W> where S: Send, S: 'static {
        /// No turn yet.
        Waiting { make: M },
        /// It has its turn, and nobody has polled it.
        Ready { make: M, held: Held<S> },
        Running {
            #[pin] work: W,
            kept: Option<Kept>,
        },
        Gone,
    }
}

pin_project! {
    /// See the module. `M` makes the work of the turn.
    pub(crate) struct Body<S, M, W> where S: Send, S: 'static {
        // Ends, and with it what the body's chain holds, before the stage gives anything back.
        standing: Option<Standing>,
        #[pin]
        stage: Stage<S, M, W>,
        name: BodyId,
        // What the requester ran inside of, if anything.
        chain: Chain,
    }
}

impl<S, M, W> Body<S, M, W>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
{
    pub(crate) fn waiting(make: M, chain: Chain) -> Self {
        Self {
            standing: None,
            stage: Stage::Waiting { make },
            name: 0,
            chain,
        }
    }

    fn grant(self: Pin<&mut Self>, held: Held<S>) {
        let mut this = self.project();
        *this.name = held.body();
        *this.standing = Some(held.standing());
        if let StageReplaced::Waiting { make } = this.stage.as_mut().project_replace(Stage::Gone) {
            this.stage.set(Stage::Ready { make, held });
        }
    }

    /// Drops the work before its end, and what its chain holds before that.
    fn abandon(self: Pin<&mut Self>) -> Result<W::Output, Ended> {
        let mut this = self.project();
        let began = matches!(
            this.stage.as_mut().project(),
            StageProjected::Running { .. }
        );
        *this.standing = None;
        discard(catch_unwind(AssertUnwindSafe(|| {
            this.stage.set(Stage::Gone)
        })));
        Err(Ended::Closed(began))
    }
}

impl<S, M, W> Future for Body<S, M, W>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
{
    type Output = Result<W::Output, Ended>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut work = || {
            frame::within(*this.name, || {
                catch_unwind(AssertUnwindSafe(|| poll_stage(this.stage.as_mut(), cx)))
            })
        };
        let polled = match this.standing {
            None => work(),
            Some(standing) if this.chain.is_empty() => standing.alone(work),
            Some(standing) => this.chain.scope(|| standing.here(work)),
        };
        let stage = this.stage.as_mut().project();
        let kept = match stage {
            StageProjected::Running { kept, .. } => kept.as_mut(),
            _ => None,
        };
        let ended = ready!(outcome(polled, kept));
        *this.standing = None;
        discard(catch_unwind(AssertUnwindSafe(|| {
            this.stage.set(Stage::Gone)
        })));
        Poll::Ready(ended)
    }
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

/// What is left of a body that its requester began to poll: a task's from then on.
pub(crate) struct Rest<W> {
    // Ends, and with it what the body's chain holds, before the work gives anything back.
    standing: Option<Standing>,
    work: Option<Pin<Box<W>>>,
    kept: Option<Kept>,
    name: BodyId,
}

/// Polls the work of a turn once, on the chain of whoever asked for it. Until it suspends nothing of it but the work
/// itself lies on the heap: to make and move a cell that holds the rest as well was a seventh of a request.
#[inline]
pub(crate) fn begin<S, M, W>(make: M, held: Held<S>) -> Result<Result<W::Output, Ended>, Rest<W>>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
{
    let name = held.body();
    let mut standing = held.standing();
    let (mut work, mut kept) = (None, None);
    let polled = standing.here(|| {
        frame::within(name, || {
            catch_unwind(AssertUnwindSafe(|| {
                let made;
                (made, kept) = frame::making(name, || make(held));
                // A first poll without a waker is always followed by one with the task's.
                let mut cx = Context::from_waker(Waker::noop());
                work.insert(Box::pin(made)).as_mut().poll(&mut cx)
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
        }),
    }
}

impl<W> Rest<W> {
    /// Links the body to what the caller runs inside of. It is polled here no more.
    pub(crate) fn tie(&mut self) -> Tie {
        self.standing
            .as_mut()
            .map(Standing::tie)
            .unwrap_or_default()
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
        let polled = standing.alone(|| {
            frame::within(this.name, || {
                catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)))
            })
        });
        let ended = ready!(outcome(polled, this.kept.as_mut()));
        this.standing = None;
        discard(this.work.take());
        discard(this.kept.take());
        Poll::Ready(ended)
    }
}

fn poll_stage<S, M, W>(mut stage: Pin<&mut Stage<S, M, W>>, cx: &mut Context<'_>) -> Poll<W::Output>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
{
    if let StageProjected::Ready { .. } = stage.as_mut().project() {
        if let StageReplaced::Ready { make, held } = stage.as_mut().project_replace(Stage::Gone) {
            let (work, kept) = frame::making(held.body(), || make(held));
            stage.set(Stage::Running { work, kept });
        }
    }
    match stage.project() {
        StageProjected::Running { work, .. } => work.poll(cx),
        // Polled again after its end, or before its grant: nobody does.
        _ => Poll::Pending,
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

/// Where a queued body's answer goes.
pub(crate) trait Answer<T>: Send {
    fn answer(&mut self, ended: Result<T, Ended>);
}

/// Nobody waits.
pub(crate) struct Nobody;

impl<T> Answer<T> for Nobody {
    fn answer(&mut self, ended: Result<T, Ended>) {
        if let Ok(out) = ended {
            discard(out);
        }
    }
}

/// A requester waits.
pub(crate) struct Requester<T>(Option<oneshot::Sender<Result<T, Ended>>>);

pub(crate) type Reply<T> = oneshot::Receiver<Result<T, Ended>>;

impl<T> Requester<T> {
    pub(crate) fn new() -> (Self, Reply<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(sender)), receiver)
    }
}

impl<T: Send> Answer<T> for Requester<T> {
    fn answer(&mut self, ended: Result<T, Ended>) {
        if let Some(sender) = self.0.take() {
            // Waking the requester, and dropping what it no longer wants, is user code.
            discard(catch_unwind(AssertUnwindSafe(|| sender.send(ended))));
        }
    }
}

pin_project! {
    /// A body in a queue, and then in a task.
    pub(crate) struct Queued<S, M, W, A>
    where
        S: Send,
        S: 'static,
        M: FnOnce(Held<S>) -> W,
        W: Future,
        A: Answer<W::Output>,
    {
        #[pin]
        body: Body<S, M, W>,
        span: Span,
        lane: Option<Arc<Lane<S>>>,
        answer: A,
        // What came of it, once it has ended.
        ended: Option<Result<W::Output, Ended>>,
    }

    impl<S, M, W, A> PinnedDrop for Queued<S, M, W, A>
    where
        S: Send,
        S: 'static,
        M: FnOnce(Held<S>) -> W,
        W: Future,
        A: Answer<W::Output>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let ended = match this.ended.take() {
                Some(ended) => ended,
                None => this.body.abandon(),
            };
            this.answer.answer(ended);
        }
    }
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
            body: Body::waiting(make, chain),
            span: Span::none(),
            lane,
            answer,
            ended: None,
        }
    }

    /// Has it polled in this span.
    pub(crate) fn in_span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }
}

impl<S, M, W, A> Future for Queued<S, M, W, A>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W,
    W: Future,
    A: Answer<W::Output>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        match this.span.scope(|| this.body.poll(cx)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(ended) => {
                *this.ended = Some(ended);
                Poll::Ready(())
            }
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
    fn grant(mut self: Pin<Box<Self>>, strand: &Arc<Strand<S>>, state: Option<Box<S>>) -> Due {
        let this = self.as_mut().project();
        let held = Held::new(strand, state, this.lane.take());
        this.body.grant(held);
        self
    }
}
