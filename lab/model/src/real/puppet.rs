//! The handler's side: what handlers were told to do, and futures that do it.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bursar::{
    Attempt, Classify, Failure, ManualClock, Operation, Permit, Runtime, ShutdownError, in_chain,
};

use super::BoxFuture;
use super::caller::{Ended, Input, Puppeteer, call};
use crate::scenario::{Event, Id, Lent, Move, Word};

/// What handlers and the script share.
pub(super) struct Stage {
    pub(super) runtime: Runtime,
    pub(super) clock: ManualClock,
    pub(super) epoch: Instant,
    pub(super) operations: Vec<Operation<Input, Puppeteer>>,
    pub(super) script: Mutex<Script>,
}

#[derive(Default)]
pub(super) struct Script {
    pub(super) events: Vec<Event>,
    moves: BTreeMap<Id, VecDeque<Move>>,
    /// Of the handlers that have been polled.
    wakers: BTreeMap<Id, Waker>,
    tokens: BTreeMap<Id, TokenState>,
    /// Calls that handlers have left to the script.
    pub(super) spawned: Vec<(Id, BoxFuture<'static, Ended>)>,
}

#[derive(Default)]
struct TokenState {
    fired: bool,
    waker: Option<Waker>,
}

impl Stage {
    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a handler what to do, and wakes it.
    pub(super) fn tell(&self, id: Id, what: Move) {
        let mut script = self.script();
        script.moves.entry(id).or_default().push_back(what);
        let waker = script.wakers.get(&id).cloned();
        drop(script);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn fire(&self, id: Id) {
        let mut script = self.script();
        let token = script.tokens.entry(id).or_default();
        token.fired = true;
        let waker = token.waker.take();
        drop(script);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lent(&self, attempt: &Attempt) -> Lent {
        let key = attempt.idempotency_key().and_then(|key| key.parse().ok());
        let since = |at: Instant| at.saturating_duration_since(self.epoch).as_millis();
        Lent {
            number: attempt.number(),
            deadline: attempt.deadline().map(|at| since(at) as u64),
            cancelled: attempt.is_cancelled(),
            idempotency_key: key.unwrap_or(0),
        }
    }
}

/// Completes once the script has fired it.
pub(super) struct Token {
    stage: Arc<Stage>,
    id: Id,
}

impl Token {
    pub(super) fn new(stage: &Arc<Stage>, id: Id) -> Self {
        let stage = Arc::clone(stage);
        Self { stage, id }
    }
}

impl Future for Token {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut script = self.stage.script();
        let token = script.tokens.entry(self.id).or_default();
        if token.fired {
            return Poll::Ready(());
        }
        token.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// What a scripted panic carries.
pub(super) struct Scripted;

/// A handler that does what the script told it.
pub(super) struct Puppet<'a> {
    stage: &'a Arc<Stage>,
    id: Id,
    attempt: Option<&'a Attempt>,
    /// The call it awaits.
    child: Option<(Id, BoxFuture<'static, Ended>)>,
    permits: Vec<Permit>,
}

impl<'a> Puppet<'a> {
    pub(super) fn new(stage: &'a Arc<Stage>, id: Id, attempt: Option<&'a Attempt>) -> Self {
        let (child, permits) = (None, Vec::new());
        Self {
            stage,
            id,
            attempt,
            child,
            permits,
        }
    }
}

impl Future for Puppet<'_> {
    type Output = Result<(), Failure<Word>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let stage = this.stage;
        let lent = this.attempt.map(|attempt| stage.lent(attempt));
        let mut script = stage.script();
        script.events.push(Event::Polled(this.id, lent));
        script.wakers.insert(this.id, cx.waker().clone());
        drop(script);
        loop {
            if let Some((id, child)) = &mut this.child {
                let Poll::Ready((answer, permit)) = child.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                stage.script().events.push(Event::Answered(*id, answer));
                this.child = None;
                this.permits.extend(permit);
            }
            let mut script = stage.script();
            let moves = script.moves.entry(this.id).or_default();
            let Some(next) = moves.pop_front() else {
                return Poll::Pending;
            };
            if let Move::AnswerWhenCancelled(_) = next
                && !lent.is_some_and(|lent| lent.cancelled)
            {
                moves.push_front(next);
                return Poll::Pending;
            }
            drop(script);
            match next {
                Move::Answer(word) | Move::AnswerWhenCancelled(word) => {
                    return Poll::Ready(say(word));
                }
                Move::AnswerLater(word, pause) => {
                    let pause = Duration::from_millis(pause);
                    return Poll::Ready(say(word).map_err(|failure| failure.after(pause)));
                }
                // Not `panic!`: the hook would print it.
                Move::Panic => resume_unwind(Box::new(Scripted)),
                Move::Block(time) => stage.clock.advance(Duration::from_millis(time)),
                Move::Yield => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Move::Nest(id, spec) => {
                    this.child = Some((id, call(Arc::clone(stage), id, spec)));
                }
                Move::Spawn(id, spec) => {
                    let call = in_chain(call(Arc::clone(stage), id, spec));
                    stage.script().spawned.push((id, Box::pin(call)));
                }
                Move::Drain => {
                    let drain = pin!(stage.runtime.shutdown()).poll(cx);
                    if drain == Poll::Ready(Err(ShutdownError::InsideOwnCall)) {
                        stage.script().events.push(Event::RefusedToDrain(this.id));
                    }
                }
            }
        }
    }
}

impl Drop for Puppet<'_> {
    fn drop(&mut self) {
        self.child = None;
        self.permits.clear();
        let stats = self.stage.runtime.stats();
        let in_use = stats.budgets.iter().map(|of| of.in_use).collect();
        let dropped = Event::Dropped(self.id, in_use, stats.keys);
        self.stage.script().events.push(dropped);
    }
}

fn say(word: Word) -> Result<(), Failure<Word>> {
    let failed = Err(word);
    match word {
        Word::Success => Ok(()),
        Word::Transient => failed.transient(),
        Word::Permanent => failed.permanent(),
        Word::Throttled => failed.throttled(),
        Word::Uncertain => failed.uncertain(),
        Word::Unclassified => failed.unclassified(),
    }
}
