//! The real runtime under a script: the same steps as the model takes, on one thread and a clock turned by hand.
//!
//! Every future is polled with a waker of its own that only notes that it was woken. Handlers do what the script told
//! them when they are polled (puppet.rs); calls are made through the handle that their spec names (caller.rs).

mod caller;
mod picture;
mod puppet;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar::{Clock, DrainReport, ManualClock, Permit, RetryBudget, Runtime, ShutdownError};

use self::caller::{Ended, at_of, call, operation};
use self::picture::reading;
use self::puppet::{Scripted, Stage};
use crate::draws::SEED;
use crate::scenario::{Config, Ends, Event, Id, NAMES, Reading, Retries, Step};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A runtime and the futures of its callers.
pub struct Real {
    stage: Arc<Stage>,
    kept: BTreeMap<Id, Kept>,
}

/// What a caller has.
struct Kept {
    what: What,
    woken: Arc<Woken>,
}

enum What {
    Call(BoxFuture<'static, Ended>),
    Drain(BoxFuture<'static, Result<DrainReport, ShutdownError>>),
    Permit(#[expect(dead_code, reason = "held for its drop")] Permit),
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Real {
    pub fn new(config: &Config) -> Self {
        let clock = ManualClock::new();
        let mut builder = Runtime::builder().clock(clock.clone()).seed(SEED);
        for (at, capacity) in config.budgets.iter().enumerate() {
            builder = builder.resource(NAMES[at], *capacity);
        }
        if let Some(of) = config.retries {
            builder = builder.retry_budget(retry_budget(of));
        }
        if let Some(longest) = config.nested_wait {
            builder = builder.nested_wait(Duration::from_millis(longest));
        }
        for (at, of) in config.groups.iter().enumerate() {
            builder = builder.retry_group(NAMES[at], retry_budget(*of));
        }
        let runtime = builder.build().expect("the budgets are right");
        let operations = config.operations.iter().enumerate();
        let operations = operations.map(|(at, op)| operation(&runtime, at, op));
        let stage = Stage {
            operations: operations.collect(),
            epoch: clock.now(),
            runtime,
            clock,
            script: Default::default(),
        };
        Self {
            stage: Arc::new(stage),
            kept: BTreeMap::new(),
        }
    }

    /// What was seen to happen.
    pub fn step(&mut self, step: &Step) -> Vec<Event> {
        match step {
            Step::Call(id, spec) => {
                let call = call(Arc::clone(&self.stage), *id, spec.clone());
                self.keep(*id, What::Call(call));
            }
            Step::Drain(id, bound) => {
                let runtime = self.stage.runtime.clone();
                let bound = bound.map(Duration::from_millis);
                let drain = Box::pin(async move {
                    match bound {
                        Some(bound) => runtime.shutdown_within(bound).await,
                        None => runtime.shutdown().await,
                    }
                });
                self.keep(*id, What::Drain(drain));
            }
            Step::Poll(id) => self.poll(*id),
            Step::Drop(id) => drop(self.kept.remove(id)),
            Step::Tell(id, what) => self.stage.tell(*id, what.clone()),
            Step::Advance(by) => self.stage.clock.advance(Duration::from_millis(*by)),
            Step::Resize(budget, capacity) => {
                let resized = self.stage.runtime.resize(NAMES[*budget], *capacity);
                let event = Event::Resized(*budget, resized.is_ok());
                self.stage.script().events.push(event);
            }
            Step::Fire(id) => self.stage.fire(*id),
        }
        let spawned = std::mem::take(&mut self.stage.script().spawned);
        for (id, call) in spawned {
            self.keep(id, What::Call(call));
        }
        std::mem::take(&mut self.stage.script().events)
    }

    pub fn reading(&self) -> Reading {
        reading(&self.stage.runtime)
    }

    /// Whether the future has been woken since it was last polled.
    pub fn woken(&self, id: Id) -> bool {
        let kept = self.kept.get(&id);
        kept.is_some_and(|kept| kept.woken.0.load(Ordering::Relaxed))
    }

    /// Timers that the clock still knows.
    pub fn timers(&self) -> usize {
        self.stage.clock.timers()
    }

    fn keep(&mut self, id: Id, what: What) {
        let woken = Arc::default();
        self.kept.insert(id, Kept { what, woken });
    }

    fn poll(&mut self, id: Id) {
        let Some(Kept { what, woken }) = self.kept.get_mut(&id) else {
            return;
        };
        woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(woken));
        let mut cx = Context::from_waker(&waker);
        let event = match what {
            What::Permit(_) => return,
            What::Drain(drain) => {
                let Poll::Ready(ended) = drain.as_mut().poll(&mut cx) else {
                    return;
                };
                self.kept.remove(&id);
                drained(id, ended)
            }
            What::Call(call) => {
                match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut cx))) {
                    Ok(Poll::Pending) => return,
                    Ok(Poll::Ready((answer, permit))) => {
                        match permit {
                            Some(permit) => *what = What::Permit(permit),
                            None => drop(self.kept.remove(&id)),
                        }
                        Event::Answered(id, answer)
                    }
                    Err(panic) if panic.is::<Scripted>() => {
                        self.kept.remove(&id);
                        Event::Panicked(id)
                    }
                    Err(panic) => resume_unwind(panic),
                }
            }
        };
        self.stage.script().events.push(event);
    }
}

fn retry_budget(of: Retries) -> RetryBudget {
    RetryBudget::new(of.burst).percent(of.percent)
}

fn drained(id: Id, ended: Result<DrainReport, ShutdownError>) -> Event {
    let drained = ended.is_ok();
    let report = match ended {
        Ok(report) | Err(ShutdownError::StillRunning(report)) => report.operations,
        // No model says so of a drain awaited from outside.
        Err(_) => Vec::new(),
    };
    let ends = report.iter().map(|of| Ends {
        name: at_of(&of.operation),
        ended: of.ended,
        withdrawn: of.withdrawn,
        running: of.running,
    });
    Event::Drained(id, drained, ends.collect())
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Real")
            .field("kept", &self.kept.keys())
            .finish_non_exhaustive()
    }
}
