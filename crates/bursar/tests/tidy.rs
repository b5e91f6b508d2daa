//! Nothing is kept longer than it is needed: wakers of callers that have their answers, timers for one moment.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use bursar::{
    Backoff, Classify, Clock, Contract, ManualClock, Outcome, Policy, Retry, Runtime, Timer,
};
use common::{Answer, Gate, assert_idle, ms, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

struct Woken;

impl Wake for Woken {
    fn wake(self: Arc<Self>) {}
}

/// A waker, and what says how many there are of it.
fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken);
    (Arc::clone(&woken), Waker::from(woken))
}

/// The test has one, and a waker that was made of another.
#[track_caller]
fn assert_nobody_keeps(woken: &Arc<Woken>) {
    assert_eq!(Arc::strong_count(woken), 2, "a waker is kept");
}

#[test]
fn d1_a_drain_that_is_dropped_leaves_no_waker_behind() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = runtime
        .contract("load", Policy::pure().claim("db", 1))
        .unwrap();
    let held = assert_ready_ok!(spawn(load.admit()).poll());
    let (woken, waker) = waker();
    {
        let mut shutdown = pin!(runtime.shutdown());
        let poll = shutdown.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        assert!(Arc::strong_count(&woken) > 2, "it is to be woken");
    }
    assert_nobody_keeps(&woken);
    drop(held);
    assert_ready_ok!(spawn(runtime.shutdown()).poll());
}

#[test]
fn c10_a_call_that_has_paused_leaves_no_waker_behind() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let retry = Retry::up_to(2)
        .on_transient()
        .backoff(Backoff::exponential(ms(10)));
    let policy = Policy::pure().claim("db", 1).retry(retry);
    let load = runtime.contract("load", policy).unwrap();
    let (woken, waker) = waker();
    let mut cx = Context::from_waker(&waker);
    {
        let mut with = load.with();
        let mut call = pin!(with.run(|attempt| {
            let number = attempt.number();
            async move {
                match number {
                    1 => Err("lost").transient(),
                    _ => Ok(7),
                }
            }
        }));
        assert!(call.as_mut().poll(&mut cx).is_pending());
        clock.advance(ms(10));
        // Whoever takes the units meanwhile makes it wait for them, out of its pause.
        let held = assert_ready_ok!(spawn(load.admit()).poll());
        assert!(call.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert!(matches!(call.as_mut().poll(&mut cx), Poll::Ready(Ok(7))));
    }
    assert_nobody_keeps(&woken);
    assert_idle(&runtime);
}

/// A clock that counts the timers made of it.
#[derive(Clone)]
struct Counting {
    clock: ManualClock,
    made: Arc<AtomicU32>,
}

impl Clock for Counting {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.clock.sleep_until(deadline)
    }
}

/// An operation with a timeout of 50 ms, and its clock.
fn with_a_timeout() -> (Contract, Counting) {
    let counting = Counting {
        clock: ManualClock::new(),
        made: Arc::default(),
    };
    let builder = Runtime::builder().clock(counting.clone()).resource("db", 1);
    let runtime = builder.build().unwrap();
    let policy = Policy::pure().claim("db", 1).timeout(ms(50));
    (runtime.contract("load", policy).unwrap(), counting)
}

#[test]
fn c5_an_attempt_that_runs_out_of_time_arms_no_further_timer() {
    let (load, counting) = with_a_timeout();
    let mut call = spawn(load.run(std::future::pending::<Answer>));
    assert_pending!(call.poll());
    counting.clock.advance(ms(50));
    assert!(call.is_woken());
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.outcome(), Outcome::Uncertain);
    assert_eq!(counting.made.load(Ordering::Relaxed), 1);
}

#[test]
fn c5_one_timer_serves_every_poll_of_an_attempt() {
    let (load, counting) = with_a_timeout();
    let gate = Gate::new();
    let mut call = spawn(load.run(|| async {
        gate.wait().await;
        Answer::Ok(7)
    }));
    for _ in 0..5 {
        assert_pending!(call.poll());
    }
    assert_eq!(counting.made.load(Ordering::Relaxed), 1);
    gate.open();
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    // Nor does one that waits for its units make more.
    let held = assert_ready_ok!(spawn(load.admit()).poll());
    let mut with = load.with().within(ms(30));
    let mut waits = spawn(with.admit());
    for _ in 0..5 {
        assert_pending!(waits.poll());
    }
    assert_eq!(counting.made.load(Ordering::Relaxed), 2);
    drop(held);
    drop(assert_ready_ok!(waits.poll()));
}
