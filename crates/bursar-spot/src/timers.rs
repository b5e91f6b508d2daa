//! One timer: its generations, and the turns that its ticks are.
//!
//! A timer is a lane of its Spot, so two of its ticks never run at once, also when one yields and another generation is due
//! meanwhile. It costs no task: it waits as one of its host's [`Moments`], and when that rings, a tick is queued as a turn.
//!
//! Invariants:
//! 1. Of one generation there is at most one tick at a time anywhere: armed, queued, or running.
//! 2. What carries another generation than its timer's does nothing. Registering a name again, cancelling and closing all
//!    raise the generation.
//! 3. A timer that will not tick again is forgotten once nothing of it runs: a name costs nothing after its last tick.
//!
//! Lock order: what the Spot has beside its gate (`beside.rs`), one timer, the host's moments. No user code runs under any of
//! them: handlers are called and dropped after all.

mod face;

pub use face::TimerTurn;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use bursar::seam::Chain;

use crate::beside;
use crate::body::{Nobody, Queued};
use crate::contain::discard;
use crate::due::{Moment, Nudge, Ring};
use crate::held::{Held, Lane};
use crate::line::Ticket;
use crate::schedule::{Tick, Ticks};
use crate::strand::Strand;
use crate::sync::{Mutex, MutexGuard, lock};

/// What a timer does.
pub(crate) trait Handle<S: Send + 'static>: Send + Sync {
    /// Queues a tick of this generation. `None` if the Spot has closed.
    fn submit(self: Arc<Self>, timer: &Arc<Timer<S>>, generation: u64) -> Option<Ticket>;
}

/// A handler, by the function that makes a tick's work.
pub(crate) struct Handler<F, W>(F, PhantomData<fn() -> W>);

impl<F, W> Handler<F, W> {
    pub(crate) fn new(work: F) -> Self {
        Self(work, PhantomData)
    }
}

impl<S, F, W> Handle<S> for Handler<F, W>
where
    S: Send + 'static,
    F: Fn(Held<S>, Tick) -> W + Send + Sync + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    fn submit(self: Arc<Self>, timer: &Arc<Timer<S>>, generation: u64) -> Option<Ticket> {
        let lane = &timer.lane;
        let ticks = Arc::clone(timer);
        let work = move |held| {
            // Called here, where a turn that the handler takes no notice of is kept for its body.
            let begun = ticks.begin(generation);
            let begun = begun.map(|(running, tick)| ((self.0)(held, tick), running));
            async move {
                if let Some((tick, running)) = begun {
                    tick.await;
                    drop(running);
                }
            }
        };
        let strand = lane.strand();
        let job = Queued::new(Some(Arc::clone(lane)), Chain::default(), work, Nobody);
        strand.submit(Box::new(job), Some(lane.index()))
    }
}

/// One timer of a Spot.
pub(crate) struct Timer<S: Send + 'static> {
    lane: Arc<Lane<S>>,
    pub(crate) name: Box<str>,
    state: Mutex<State<S>>,
}

struct State<S: Send + 'static> {
    generation: u64,
    /// `None` once cancelled.
    ticks: Option<Ticks>,
    handler: Option<Arc<dyn Handle<S>>>,
    next: Next,
    /// Whether a tick of some generation runs.
    running: bool,
}

/// Where the next tick of the present generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nowhere: it runs, or there is none.
    Nowhere,
    Armed(Moment),
    /// On its way to the queue.
    Submitted,
    Queued(Ticket),
}

/// What is dropped, or taken back, once no lock is held.
#[must_use = "it holds a user's values, and wakes the driver: let it go after the lock"]
pub(crate) struct Old<S: Send + 'static> {
    handler: Option<Arc<dyn Handle<S>>>,
    ringer: Option<Arc<dyn Ring>>,
    queued: Option<Ticket>,
    nudge: Option<Nudge>,
}

impl<S: Send + 'static> Old<S> {
    pub(crate) fn leave(self, strand: &Arc<Strand<S>>) {
        if let Some(ticket) = self.queued {
            strand.cancel(ticket);
        }
        discard((self.handler, self.ringer, self.nudge));
    }
}

impl<S: Send + 'static> Timer<S> {
    /// A timer that has nothing to do yet.
    pub(crate) fn new(lane: Arc<Lane<S>>, name: &str) -> Arc<Self> {
        Arc::new(Self {
            lane,
            name: name.into(),
            state: Mutex::new(State {
                generation: 0,
                ticks: None,
                handler: None,
                next: Next::Nowhere,
                running: false,
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        lock(&self.state)
    }

    fn strand(&self) -> &Arc<Strand<S>> {
        self.lane.strand()
    }

    fn now(&self) -> Instant {
        self.strand().common.shared.moments.now()
    }

    /// Begins a generation; what comes back is for after the lock.
    pub(crate) fn register(self: &Arc<Self>, ticks: Ticks, handler: Arc<dyn Handle<S>>) -> Old<S> {
        let mut state = self.lock();
        let mut old = state.end_generation(self);
        state.handler = Some(handler);
        state.ticks = Some(ticks);
        old.nudge = self.arm(&mut state, ticks.due());
        old
    }

    /// Ends the present generation; what comes back is for after the lock. The second is whether it had a tick to come.
    pub(crate) fn cancel(&self) -> (Old<S>, bool) {
        let mut state = self.lock();
        let stopped = state.ticks.is_some();
        (state.end_generation(self), stopped)
    }

    /// Whether it will not tick again, and nothing of it runs.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    fn arm(self: &Arc<Self>, state: &mut State<S>, due: Option<Instant>) -> Option<Nudge> {
        let at = due?;
        let ringer: Arc<dyn Ring> = Arc::<Self>::clone(self);
        let (moment, nudge) = self.strand().common.shared.moments.arm(at, ringer);
        state.next = Next::Armed(moment);
        Some(nudge)
    }

    /// Queues the tick that `next` says is on its way.
    fn submit(self: &Arc<Self>, handler: Arc<dyn Handle<S>>, generation: u64) {
        let Some(ticket) = handler.submit(self, generation) else {
            return;
        };
        let mut state = self.lock();
        if state.generation == generation {
            if state.next == Next::Submitted {
                state.next = Next::Queued(ticket);
            }
            return;
        }
        drop(state);
        self.strand().cancel(ticket);
    }

    /// A queued tick has its turn. `None` if it belongs to an earlier generation.
    fn begin(self: Arc<Self>, generation: u64) -> Option<(Running<S>, Tick)> {
        let now = self.now();
        let mut state = self.lock();
        if state.generation != generation {
            return None;
        }
        let tick = state.ticks.as_mut()?.start(now);
        state.next = Next::Nowhere;
        state.running = true;
        drop(state);
        let running = Running {
            timer: self,
            generation,
        };
        Some((running, tick))
    }
}

impl<S: Send + 'static> Ring for Timer<S> {
    fn ring(self: Arc<Self>, moment: Moment) {
        let mut state = self.lock();
        if state.next != Next::Armed(moment) {
            return;
        }
        let Some(handler) = state.handler.clone() else {
            return;
        };
        state.next = Next::Submitted;
        let generation = state.generation;
        drop(state);
        self.submit(handler, generation);
    }
}

impl<S: Send + 'static> State<S> {
    /// Nothing of the present generation happens any more, except what runs already.
    fn end_generation(&mut self, timer: &Timer<S>) -> Old<S> {
        self.generation += 1;
        self.ticks = None;
        let mut old = Old {
            handler: self.handler.take(),
            ringer: None,
            queued: None,
            nudge: None,
        };
        match std::mem::replace(&mut self.next, Next::Nowhere) {
            Next::Armed(moment) => old.ringer = timer.strand().common.shared.moments.disarm(moment),
            Next::Queued(ticket) => old.queued = Some(ticket),
            Next::Nowhere | Next::Submitted => {}
        }
        old
    }

    fn is_over(&self) -> bool {
        !self.running && self.next == Next::Nowhere
    }
}

/// A tick that runs: when this is dropped, however the handler ended, the next one is due.
struct Running<S: Send + 'static> {
    timer: Arc<Timer<S>>,
    generation: u64,
}

impl<S: Send + 'static> Drop for Running<S> {
    fn drop(&mut self) {
        let timer = &self.timer;
        let now = timer.now();
        let mut state = timer.lock();
        state.running = false;
        let mut late = None;
        let mut nudge = None;
        let present = state.generation == self.generation;
        let ticks = state.ticks.as_mut().filter(|_| present);
        let due = ticks.and_then(|ticks| {
            ticks.end(now);
            ticks.due()
        });
        match due {
            Some(due) if due <= now => {
                state.next = Next::Submitted;
                late = state.handler.clone();
            }
            due => nudge = timer.arm(&mut state, due),
        }
        let over = state.is_over();
        drop(state);
        drop(nudge);
        if let Some(handler) = late {
            timer.submit(handler, self.generation);
        }
        if over {
            beside::forget(timer.strand(), timer);
        }
    }
}
