//! How work gets in: requests, which wait for its result, and sends, which wait until it is accepted.
//!
//! A request on an idle Spot, made in the host's own executor with nothing held above it, is polled in the requester's
//! own poll from one heap cell; at its first suspension the executor takes that cell over. Otherwise it is queued, and
//! started by whoever ends the turn before it. Either way accepted work runs whether or not the requester stays.
//!
//! Invariants:
//! 1. What could never begin, because the asker's own chain holds what it needs, is refused before anything is handed in.
//! 2. While the asker waits, what it handed in is tied to the asker's chain; the tie is cut when the asker goes.
//! 3. Work that was refused, timed out or taken back never runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bursar::seam::{Chain, Tie, holds_something};

use crate::body::{Ended, Nobody, Queued, begin};
use crate::bound::Bound;
use crate::contain::discard;
use crate::error::{SpotError, SpotErrorKind};
use crate::frame;
use crate::gate::Phase;
use crate::held::{Held, Lane};
use crate::line::Ticket;
use crate::reply::{Reply, Requester};
use crate::resident;
use crate::space::{Space, Waits};
use crate::span::Span;
use crate::strand::{BoxJob, Handed, Strand};

/// Where work goes: a Spot's own line, or a lane of it.
#[derive(Debug)]
pub(crate) struct Target<'s, S: Send + 'static> {
    pub(crate) strand: &'s Arc<Strand<S>>,
    pub(crate) lane: Option<&'s Arc<Lane<S>>>,
}

impl<S: Send + 'static> Clone for Target<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Send + 'static> Copy for Target<'_, S> {}

impl<S: Send + 'static> Target<'_, S> {
    fn error(self, kind: SpotErrorKind) -> SpotError {
        SpotError::new(kind, &self.strand.name)
    }

    #[inline]
    fn ended<T>(self, ended: Result<T, Ended>) -> Result<T, SpotError> {
        ended.map_err(|ended| match ended {
            Ended::Closed(false) => self.strand.never_ran(),
            Ended::Closed(true) => SpotError::closed(&self.strand.name, true),
            Ended::Panicked(said) => self.error(SpotErrorKind::Panicked).saying(said),
        })
    }

    fn would_wait_for_itself(self) -> SpotError {
        self.error(SpotErrorKind::InvalidOperation).saying(
            "the turn that asks holds what this needs, and would wait for itself: await it in `yield_on`, or send it",
        )
    }

    fn waited_too_long(self) -> SpotError {
        self.error(SpotErrorKind::DeadlineExceeded)
            .saying("its asker holds something that others may wait for")
    }

    fn stayed_full(self) -> SpotError {
        self.error(SpotErrorKind::DeadlineExceeded)
            .saying("its queue stayed full")
    }

    fn index(self) -> Option<u32> {
        self.lane.map(|lane| lane.index())
    }
}

impl<S: Send + 'static> Strand<S> {
    /// Why this Spot takes nothing in, or let go what it had taken.
    pub(crate) fn never_ran(&self) -> SpotError {
        if self.look(|gate| gate.phase()) == Phase::Open {
            return SpotError::new(SpotErrorKind::ShuttingDown, &self.name);
        }
        match self.failure() {
            Some(why) => SpotError::new(SpotErrorKind::ActivationFailed, &self.name).saying(why),
            None => SpotError::closed(&self.name, false),
        }
    }
}

/// Work that a Spot which closes has not taken in; another incarnation of it may.
pub(crate) struct Turned<S: Send + 'static, T> {
    job: BoxJob<S>,
    reply: Reply<T>,
    tie: Tie,
}

/// How an offer of work ended. `None` if the Spot does not take it in because it closes.
pub(crate) type Offered<T> = Option<Result<T, SpotError>>;

/// What an asker waits for.
struct Waiting<T> {
    reply: Reply<T>,
    ticket: Option<Ticket>,
    tie: Tie,
    /// Few wait with a bound, and an asker is moved with all that it may hold.
    bounds: Option<Box<Bounds>>,
}

struct Bounds {
    space: Option<Space>,
    nested: Option<Bound>,
}

enum Asking<S: Send + 'static, T> {
    /// Not begun, if there is something to make it of; or done.
    Idle,
    Turned(Turned<S, T>),
    Waiting(Waiting<T>),
}

/// A request; see the module.
#[must_use = "nothing is requested unless this is awaited"]
pub(crate) struct Asked<'s, S: Send + 'static, M, W: Future> {
    to: Target<'s, S>,
    make: Option<M>,
    asking: Asking<S, W::Output>,
}

impl<S: Send + 'static, M, W: Future> Unpin for Asked<'_, S, M, W> {}

impl<'s, S, M, W> Asked<'s, S, M, W>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W + Send + 'static,
    W: Future<Output: Send + 'static> + Send + 'static,
{
    pub(crate) fn new(to: Target<'s, S>, make: M) -> Self {
        Self {
            to,
            make: Some(make),
            asking: Asking::Idle,
        }
    }

    /// Hands in again what another Spot has turned away.
    pub(crate) fn again(to: Target<'s, S>, turned: Turned<S, W::Output>) -> Self {
        Self {
            to,
            make: None,
            asking: Asking::Turned(turned),
        }
    }

    /// Begins: `Ready` if that was all.
    #[inline]
    fn begin(&mut self, make: M, waker: &Waker) -> Poll<Offered<W::Output>> {
        let to = self.to;
        if to.strand.is_held_above(to.lane) {
            discard(make);
            return Poll::Ready(Some(Err(to.would_wait_for_itself())));
        }
        let exec = &to.strand.common.shared.exec;
        if !holds_something() && frame::may_descend() && exec.is_current() {
            if let Some(taken) = to.strand.take_soon(to.index()) {
                let held = Held::new(to.strand, taken.state, to.lane.cloned());
                return match frame::descend(|| begin(make, held)) {
                    Ok(ended) => Poll::Ready(Some(to.ended(ended))),
                    Err(mut cell) => {
                        let (requester, reply) = Requester::new(waker.clone());
                        let tie = cell.as_mut().leave(requester);
                        resident::give(exec, Span::current().work(cell));
                        self.asking = Asking::Waiting(Waiting {
                            reply,
                            ticket: None,
                            tie,
                            bounds: None,
                        });
                        Poll::Pending
                    }
                };
            }
        }
        self.queue(make, waker)
    }

    fn queue(&mut self, make: M, waker: &Waker) -> Poll<Offered<W::Output>> {
        let (chain, tie) = Chain::tied();
        let (requester, reply) = Requester::new(waker.clone());
        let queued = Queued::new(self.to.lane.cloned(), chain, make, requester);
        let job = Box::new(queued.in_span(Span::current()));
        self.hand_in(Turned { job, reply, tie }, waker)
    }

    fn hand_in(&mut self, turned: Turned<S, W::Output>, waker: &Waker) -> Poll<Offered<W::Output>> {
        let to = self.to;
        let Turned { job, reply, tie } = turned;
        let (ticket, space) = match to.strand.receive(job, to.index(), true, Some(waker)) {
            Handed::Started => (None, None),
            Handed::Queued(ticket) => (Some(ticket), None),
            Handed::Full(ticket) => (Some(ticket), Some(Space::new(to.strand, ticket))),
            Handed::Refused(job) | Handed::Closed(job) => {
                self.asking = Asking::Turned(Turned { job, reply, tie });
                return Poll::Ready(None);
            }
        };
        let nested = ticket.and_then(|_| Bound::of_chain(&to.strand.common.shared));
        let bounds =
            (space.is_some() || nested.is_some()).then(|| Box::new(Bounds { space, nested }));
        self.asking = Asking::Waiting(Waiting {
            reply,
            ticket,
            tie,
            bounds,
        });
        Poll::Pending
    }

    /// What its Spot has turned away, for [`again`](Self::again).
    pub(crate) fn turned(mut self) -> Option<Turned<S, W::Output>> {
        match std::mem::replace(&mut self.asking, Asking::Idle) {
            Asking::Turned(turned) => Some(turned),
            other => {
                self.asking = other;
                None
            }
        }
    }

    /// Ready with the result, or when the Spot turns the work away.
    #[inline]
    pub(crate) fn poll_offer(&mut self, cx: &mut Context<'_>) -> Poll<Offered<W::Output>> {
        if let Some(make) = self.make.take() {
            if let all @ Poll::Ready(_) = self.begin(make, cx.waker()) {
                return all;
            }
            if let Asking::Waiting(Waiting { bounds: None, .. }) = &self.asking {
                // The waker is there with the work.
                return Poll::Pending;
            }
        } else if matches!(self.asking, Asking::Turned(_)) {
            if let Asking::Turned(turned) = std::mem::replace(&mut self.asking, Asking::Idle) {
                if let all @ Poll::Ready(_) = self.hand_in(turned, cx.waker()) {
                    return all;
                }
            }
        }
        let result = match &mut self.asking {
            Asking::Waiting(waiting) => ready!(waiting.poll(self.to, cx)),
            Asking::Idle | Asking::Turned(_) => return Poll::Pending,
        };
        self.asking = Asking::Idle;
        Poll::Ready(Some(result))
    }
}

impl<T> Waiting<T> {
    fn poll<S: Send + 'static>(
        &mut self,
        to: Target<'_, S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, SpotError>> {
        if let Some(bounds) = &mut self.bounds {
            let waits = bounds.space.as_mut().map(|space| space.poll(to.strand, cx));
            match waits.unwrap_or(Poll::Ready(Waits::Accepted)) {
                Poll::Pending => return self.poll_nested(to, cx),
                Poll::Ready(Waits::Accepted) => bounds.space = None,
                Poll::Ready(Waits::Closed) => return Poll::Ready(Err(to.strand.never_ran())),
                Poll::Ready(Waits::TimedOut) => {
                    return Poll::Ready(Err(to.stayed_full()));
                }
            }
        }
        match self.reply.poll(cx) {
            Poll::Ready(ended) => Poll::Ready(to.ended(ended)),
            Poll::Pending => self.poll_nested(to, cx),
        }
    }

    fn poll_nested<S: Send + 'static>(
        &mut self,
        to: Target<'_, S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, SpotError>> {
        let (Some(bounds), Some(ticket)) = (&mut self.bounds, self.ticket) else {
            return Poll::Pending;
        };
        let Some(nested) = &mut bounds.nested else {
            return Poll::Pending;
        };
        ready!(nested.poll(&to.strand.common.shared, cx));
        bounds.nested = None;
        if to.strand.cancel(ticket) {
            return Poll::Ready(Err(to.waited_too_long()));
        }
        Poll::Pending
    }
}

impl<S, M, W> Future for Asked<'_, S, M, W>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W + Send + 'static,
    W: Future<Output: Send + 'static> + Send + 'static,
{
    type Output = Result<W::Output, SpotError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        Poll::Ready(match ready!(this.poll_offer(cx)) {
            Some(result) => result,
            None => {
                discard(std::mem::replace(&mut this.asking, Asking::Idle));
                Err(this.to.strand.never_ran())
            }
        })
    }
}

impl<S: Send + 'static, M, W: Future> Drop for Asked<'_, S, M, W> {
    #[inline]
    fn drop(&mut self) {
        match &self.asking {
            Asking::Waiting(waiting) => {
                let space = waiting
                    .bounds
                    .as_ref()
                    .and_then(|bounds| bounds.space.as_ref());
                if let Some(space) = space {
                    space.leave(self.to.strand);
                }
                waiting.tie.cut();
            }
            Asking::Idle | Asking::Turned(_) => {}
        }
    }
}

enum Sending<S: Send + 'static, M> {
    New(M),
    Turned(BoxJob<S>),
    Full(Space),
    Done,
}

/// A one-way submission; see the module.
#[must_use = "nothing is sent unless this is awaited"]
pub(crate) struct Sent<'s, S: Send + 'static, M> {
    to: Target<'s, S>,
    sending: Sending<S, M>,
}

impl<S: Send + 'static, M> Unpin for Sent<'_, S, M> {}

impl<'s, S: Send + 'static, M, W> Sent<'s, S, M>
where
    M: FnOnce(Held<S>) -> W + Send + 'static,
    W: Future<Output: Send> + Send + 'static,
{
    pub(crate) fn new(to: Target<'s, S>, make: M) -> Self {
        Self {
            to,
            sending: Sending::New(make),
        }
    }

    /// Hands in again what another Spot has turned away.
    pub(crate) fn again(to: Target<'s, S>, job: BoxJob<S>) -> Self {
        Self {
            to,
            sending: Sending::Turned(job),
        }
    }

    /// Ready once it is accepted, or with the work when the Spot does not take it in because it closes.
    pub(crate) fn poll_turned(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Result<(), SpotError>, BoxJob<S>>> {
        let to = self.to;
        let job = match std::mem::replace(&mut self.sending, Sending::Done) {
            Sending::New(make) => {
                let (lane, chain) = (to.lane.cloned(), Chain::default());
                let queued = Queued::new(lane, chain, make, Nobody);
                let job: BoxJob<S> = Box::new(queued.in_span(Span::current()));
                Some(job)
            }
            Sending::Turned(job) => Some(job),
            begun => {
                self.sending = begun;
                None
            }
        };
        if let Some(job) = job {
            // Whoever holds the gate would wait in vain for its own queue to move.
            let own = to.strand.is_held_above(to.lane);
            let space = (!own).then(|| cx.waker());
            match to.strand.receive(job, to.index(), true, space) {
                Handed::Started | Handed::Queued(_) => return Poll::Ready(Ok(Ok(()))),
                Handed::Full(ticket) => self.sending = Sending::Full(Space::new(to.strand, ticket)),
                Handed::Closed(job) => return Poll::Ready(Err(job)),
                Handed::Refused(job) => {
                    discard(job);
                    let error = to.error(SpotErrorKind::CapacityExceeded);
                    return Poll::Ready(Ok(Err(error)));
                }
            }
        }
        let Sending::Full(space) = &mut self.sending else {
            return Poll::Pending;
        };
        let waits = ready!(space.poll(to.strand, cx));
        self.sending = Sending::Done;
        Poll::Ready(Ok(match waits {
            Waits::Accepted => Ok(()),
            Waits::Closed => Err(to.strand.never_ran()),
            Waits::TimedOut => Err(to.stayed_full()),
        }))
    }
}

impl<S, M, W> Future for Sent<'_, S, M>
where
    S: Send + 'static,
    M: FnOnce(Held<S>) -> W + Send + 'static,
    W: Future<Output: Send> + Send + 'static,
{
    type Output = Result<(), SpotError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        Poll::Ready(match ready!(this.poll_turned(cx)) {
            Ok(result) => result,
            Err(job) => {
                discard(job);
                Err(this.to.strand.never_ran())
            }
        })
    }
}

impl<S: Send + 'static, M> Drop for Sent<'_, S, M> {
    fn drop(&mut self) {
        if let Sending::Full(space) = &self.sending {
            space.leave(self.to.strand);
        }
    }
}
