//! What the scenarios share: a runtime whose operations tell a ledger who is inside, and ways to wait and to leave.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use bursar::{CallError, Contract, Failure, ManualClock, Policy, Runtime, RuntimeBuilder};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::ledger::{Claims, Ledger};

/// Budgets "a", "b" and "z", in the order a call takes them.
const CAPACITIES: [(&str, u32); 3] = [("a", 2), ("b", 1), ("z", 1)];

/// A runtime, its clock, and what its handlers say.
pub struct World {
    pub runtime: Runtime,
    pub clock: ManualClock,
    pub ledger: Ledger,
    drained: AtomicBool,
}

/// An operation and what it claims.
pub struct Operation {
    pub contract: Contract,
    pub claims: Claims,
}

impl World {
    pub fn new() -> Arc<Self> {
        Self::built(|builder| builder)
    }

    pub fn built(with: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Arc<Self> {
        let clock = ManualClock::new();
        let builder = CAPACITIES
            .into_iter()
            .fold(Runtime::builder(), |builder, (name, capacity)| {
                builder.resource(name, capacity)
            });
        Arc::new(Self {
            runtime: with(builder)
                .clock(clock.clone())
                .build()
                .expect("valid budgets"),
            clock,
            ledger: Ledger::new(&CAPACITIES.map(|(_, capacity)| capacity)),
            drained: AtomicBool::new(false),
        })
    }

    pub fn operation(&self, name: &str, claims: Claims, rejects: bool) -> Operation {
        let policy = claims
            .iter()
            .fold(Policy::pure(), |policy, (budget, units)| {
                policy.claim(CAPACITIES[*budget].0, *units)
            });
        let policy = if rejects { policy.reject() } else { policy };
        self.operation_of(name, policy, claims)
    }

    /// An operation with a policy that has these claims.
    pub fn operation_of<E>(&self, name: &str, policy: Policy<E>, claims: Claims) -> Operation {
        Operation {
            contract: self.runtime.contract(name, policy).expect("a valid policy"),
            claims,
        }
    }

    /// Drained: nobody inside, nothing held.
    pub async fn drain(&self) {
        self.runtime.shutdown().await.expect("from outside");
        self.drained.store(true, Ordering::SeqCst);
        let stats = self.runtime.stats();
        assert_eq!(stats.keys, 0, "drained too early: {stats}");
        for budget in &stats.budgets {
            assert_eq!(budget.in_use, 0, "drained too early: {stats}");
        }
        assert_eq!(self.ledger.empty(), Ok(()), "drained too early");
    }

    /// Said by a handler: no drain has ended yet.
    pub fn assert_not_drained(&self) {
        assert!(!self.drained.load(Ordering::SeqCst), "drained too early");
    }

    /// As [`drain`](Self::drain); and every call that was admitted is counted finished at this very moment.
    pub async fn drain_and_count(&self) {
        self.drain().await;
        let total = self.runtime.stats().total();
        assert_eq!(total.admitted, total.finished, "drained too early");
    }

    /// Nothing is held, nobody waits, every call has ended, no timer is left, nothing was broken.
    pub fn assert_idle(&self) {
        let stats = self.runtime.stats();
        let total = stats.total();
        assert_eq!(total.admitted, total.finished, "{stats}");
        assert!(total.started <= total.admitted, "{stats}");
        assert_eq!(stats.keys, 0, "{stats}");
        for budget in &stats.budgets {
            assert_eq!((budget.in_use, budget.waiting), (0, 0), "{stats}");
        }
        assert_eq!(self.clock.timers(), 0, "timers are left");
        assert_eq!(self.ledger.empty(), Ok(()));
    }
}

/// A number below `bound`, chosen by the schedule.
pub fn choose(bound: u32) -> u32 {
    thread_rng().gen_range(0..bound)
}

/// Another thread may run here.
pub fn pause() {
    thread::yield_now();
}

/// One turn of the executor.
pub async fn turn() {
    let mut turned = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut turned, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls a future this often at most, then drops it.
pub async fn leave_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if left == 0 {
            // It leaves in a poll of its own, when others may have run meanwhile.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// Polls a future to its end, turning the clock by a millisecond whenever it is pending and timers are armed. With the
/// runtime's other clock standing still, whoever waits for a moment comes to it, and nobody has to turn for ever.
pub async fn turning<F: Future>(clock: &ManualClock, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let poll = future.as_mut().poll(cx);
        if poll.is_pending() && clock.timers() > 0 {
            clock.advance(Duration::from_millis(1));
        }
        poll
    })
    .await
}

/// A flag that another thread raises: a caller's token.
#[derive(Clone, Default)]
pub struct Flag(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Flag {
    pub fn raise(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        let waker = self.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub async fn raised(self) {
        poll_fn(|cx| {
            *self.waker() = Some(cx.waker().clone());
            if self.0.0.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a handler of these scenarios fails with.
pub type Fails = Failure<&'static str>;

/// The errors a caller may see; a call that never ran made no attempt.
pub fn judge<T>(answer: &Result<T, CallError<&'static str>>) {
    if let Err(error) = answer {
        assert_eq!(error.never_ran(), error.attempts() == 0, "{error}");
    }
}
