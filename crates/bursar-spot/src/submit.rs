//! How work gets in: requests, which wait for its result, and sends, which wait until it is accepted.
//!
//! A request on an idle Spot, made in the host's own executor, is polled in the requester's own poll from one heap cell;
//! at its first suspension the executor takes that cell over. Otherwise it is queued, and started by whoever ends the
//! turn before it. Either way accepted work runs whether or not the requester stays.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bursar::Timer;

use crate::body::{Body, Ended, Nobody, Queued, Reply, Requester};
use crate::error::{SpotError, SpotErrorKind};
use crate::exec::Join;
use crate::frame;
use crate::gate::Place;
use crate::held::{Held, Lane};
use crate::line::Ticket;
use crate::strand::{Handed, Strand, discard};

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

    fn ended<T>(self, ended: Result<T, Ended>) -> Result<T, SpotError> {
        ended.map_err(|ended| match ended {
            Ended::Closed(began) => SpotError::closed(&self.strand.name, began),
            Ended::Panicked(said) => self.error(SpotErrorKind::Panicked).saying(said),
        })
    }
}

/// Waits for space in a full queue, at most as long as the Spot's send timeout.
struct Space {
    ticket: Ticket,
    alarm: Option<Timer>,
}

enum Waits {
    /// Accepted: whatever happens to it now.
    Accepted,
    Closed,
    TimedOut,
}

impl Space {
    const fn new(ticket: Ticket) -> Self {
        Self {
            ticket,
            alarm: None,
        }
    }

    fn poll<S: Send + 'static>(&mut self, to: Target<'_, S>, cx: &mut Context<'_>) -> Poll<Waits> {
        let strand = to.strand;
        strand.rewake(self.ticket, cx.waker());
        match strand.place(self.ticket) {
            Some(Place::Space) => {}
            Some(Place::Closed) => {
                strand.quit(self.ticket);
                return Poll::Ready(Waits::Closed);
            }
            _ => return Poll::Ready(Waits::Accepted),
        }
        let common = &strand.common;
        let alarm = self.alarm.get_or_insert_with(|| {
            let now = common.shared.clock.now();
            let deadline = now.checked_add(common.send_timeout);
            common
                .shared
                .clock
                .sleep_until(deadline.unwrap_or(now + FAR))
        });
        if alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(if strand.cancel(self.ticket) {
            Waits::TimedOut
        } else {
            Waits::Accepted
        })
    }
}

/// Stands for no bound: about a thousand years.
const FAR: std::time::Duration = std::time::Duration::from_secs(1 << 35);

enum Asking<M, T> {
    New(M),
    Full(Space, Reply<T>),
    Queued(Reply<T>),
    Running(Join<Result<T, Ended>>),
    Done,
}

/// A request; see the module.
#[must_use = "nothing is requested unless this is awaited"]
pub(crate) struct Asked<'s, S: Send + 'static, M, W: Future> {
    to: Target<'s, S>,
    asking: Asking<M, W::Output>,
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
            asking: Asking::New(make),
        }
    }

    /// Polls the work where it stands, if nothing is before it and this is a place for that.
    fn inline(&mut self, make: M) -> Result<Result<W::Output, Ended>, Option<M>> {
        let exec = &self.to.strand.common.shared.exec;
        if !exec.is_current() {
            return Err(Some(make));
        }
        let Some(held) = self.to.strand.take(self.to.lane) else {
            return Err(Some(make));
        };
        let mut body = Box::pin(Body::ready(make, held));
        // A first poll without a waker is always followed by one with the task's.
        let mut cx = Context::from_waker(Waker::noop());
        match body.as_mut().poll(&mut cx) {
            Poll::Ready(ended) => Ok(ended),
            Poll::Pending => {
                self.asking = Asking::Running(exec.spawn(frame::task(body)));
                Err(None)
            }
        }
    }

    fn hand_in(&mut self, make: M, waker: &Waker) -> Result<(), SpotError> {
        let Target { strand, lane } = self.to;
        let (requester, reply) = Requester::new();
        let job = Box::pin(Queued::new(
            &strand.common.shared.exec,
            lane.cloned(),
            make,
            requester,
        ));
        let index = lane.map(|lane| lane.index());
        self.asking = match strand.receive(job, index, true, Some(waker)) {
            Handed::Started | Handed::Queued(_) => Asking::Queued(reply),
            Handed::Full(ticket) => Asking::Full(Space::new(ticket), reply),
            Handed::Refused(job) | Handed::Closed(job) => {
                discard(job);
                return Err(SpotError::closed(&strand.name, false));
            }
        };
        Ok(())
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
        if let Asking::New(_) = this.asking {
            if let Asking::New(make) = std::mem::replace(&mut this.asking, Asking::Done) {
                match this.inline(make) {
                    Ok(ended) => return Poll::Ready(this.to.ended(ended)),
                    Err(None) => {}
                    Err(Some(make)) => this.hand_in(make, cx.waker())?,
                }
            }
        }
        loop {
            let ended = match &mut this.asking {
                Asking::Full(space, reply) => {
                    let waits = std::task::ready!(space.poll(this.to, cx));
                    match waits {
                        Waits::Accepted => {
                            let (_, closed) = tokio::sync::oneshot::channel();
                            let reply = std::mem::replace(reply, closed);
                            this.asking = Asking::Queued(reply);
                            continue;
                        }
                        Waits::Closed => Err(Ended::Closed(false)),
                        Waits::TimedOut => {
                            this.asking = Asking::Done;
                            let error = this.to.error(SpotErrorKind::DeadlineExceeded);
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                Asking::Queued(reply) => match std::task::ready!(Pin::new(reply).poll(cx)) {
                    Ok(ended) => ended,
                    Err(_dropped) => Err(Ended::Closed(false)),
                },
                Asking::Running(join) => match std::task::ready!(Pin::new(join).poll(cx)) {
                    Ok(ended) => ended,
                    Err(_lost) => Err(Ended::Closed(true)),
                },
                Asking::New(_) | Asking::Done => return Poll::Pending,
            };
            this.asking = Asking::Done;
            return Poll::Ready(this.to.ended(ended));
        }
    }
}

impl<S: Send + 'static, M, W: Future> Drop for Asked<'_, S, M, W> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.asking, Asking::Done) {
            // Not accepted: it goes with the one who asked.
            Asking::Full(space, _) => {
                if !self.to.strand.cancel(space.ticket) {
                    forget_space(self.to.strand, space.ticket);
                }
            }
            Asking::Running(join) => join.detach(),
            Asking::New(_) | Asking::Queued(_) | Asking::Done => {}
        }
    }
}

/// Frees the record of one who waited for space when its Spot closed.
fn forget_space<S: Send + 'static>(strand: &Arc<Strand<S>>, ticket: Ticket) {
    if strand.place(ticket) == Some(Place::Closed) {
        strand.quit(ticket);
    }
}

enum Sending<M> {
    New(M),
    Full(Space),
    Done,
}

/// A one-way submission; see the module.
#[must_use = "nothing is sent unless this is awaited"]
pub(crate) struct Sent<'s, S: Send + 'static, M> {
    to: Target<'s, S>,
    sending: Sending<M>,
}

impl<S: Send + 'static, M> Unpin for Sent<'_, S, M> {}

impl<'s, S: Send + 'static, M> Sent<'s, S, M> {
    pub(crate) fn new(to: Target<'s, S>, make: M) -> Self {
        Self {
            to,
            sending: Sending::New(make),
        }
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
        if let Sending::New(_) = this.sending {
            let new = std::mem::replace(&mut this.sending, Sending::Done);
            if let Sending::New(make) = new {
                let Target { strand, lane } = this.to;
                let job = Box::pin(Queued::new(
                    &strand.common.shared.exec,
                    lane.cloned(),
                    make,
                    Nobody,
                ));
                let index = lane.map(|lane| lane.index());
                match strand.receive(job, index, true, Some(cx.waker())) {
                    Handed::Started | Handed::Queued(_) => return Poll::Ready(Ok(())),
                    Handed::Full(ticket) => this.sending = Sending::Full(Space::new(ticket)),
                    Handed::Refused(job) | Handed::Closed(job) => {
                        discard(job);
                        return Poll::Ready(Err(SpotError::closed(&strand.name, false)));
                    }
                }
            }
        }
        let Sending::Full(space) = &mut this.sending else {
            return Poll::Pending;
        };
        let waits = std::task::ready!(space.poll(this.to, cx));
        this.sending = Sending::Done;
        Poll::Ready(match waits {
            Waits::Accepted => Ok(()),
            Waits::Closed => Err(SpotError::closed(&this.to.strand.name, false)),
            Waits::TimedOut => Err(this.to.error(SpotErrorKind::DeadlineExceeded)),
        })
    }
}

impl<S: Send + 'static, M> Drop for Sent<'_, S, M> {
    fn drop(&mut self) {
        if let Sending::Full(space) = &self.sending {
            if !self.to.strand.cancel(space.ticket) {
                forget_space(self.to.strand, space.ticket);
            }
        }
    }
}
