//! D2, D3: several shutdowns at once, one after another, bounded, dropped, from many threads.

#![allow(
    clippy::disallowed_methods,
    reason = "several threads that shut down at once are the subject"
)]

mod common;

use std::future::{Future, pending};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use bursar::{Contract, ManualClock, Permit, Policy, Runtime, ShutdownError};
use common::{Answer, Script, Stepped, assert_idle, counts, ms, runtime};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

fn world() -> (Runtime, ManualClock, Contract, Contract) {
    let (runtime, clock) = runtime(&[("a", 4)]);
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let free = runtime.contract("free", Policy::pure()).unwrap();
    (runtime, clock, work, free)
}

fn hold(contract: &Contract) -> Permit {
    assert_ready_ok!(task::spawn(contract.admit()).poll())
}

/// What a bounded shutdown says still runs.
fn running(error: ShutdownError) -> Vec<(String, u64)> {
    match error {
        ShutdownError::StillRunning(report) => report
            .operations
            .into_iter()
            .filter(|of| of.running > 0)
            .map(|of| (of.operation.to_string(), of.running))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn d2_an_idle_runtime_is_drained_at_the_first_poll() {
    let (runtime, clock, ..) = world();
    for _ in 0..3 {
        assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
        assert_ready_ok!(task::spawn(runtime.shutdown_within(ms(10))).poll());
        assert_ready_ok!(task::spawn(runtime.shutdown_within(Duration::ZERO)).poll());
    }
    assert_eq!(clock.timers(), 0);
}

#[test]
fn d2_every_caller_returns_once_all_is_drained() {
    let (runtime, clock, work, free) = world();
    let held = [hold(&work), hold(&free)];
    let mut plain = [(); 3].map(|()| task::spawn(runtime.shutdown()));
    let mut bounded = [(); 3].map(|()| task::spawn(runtime.shutdown_within(ms(10))));
    for shutdown in &mut plain {
        assert_pending!(shutdown.poll());
    }
    for shutdown in &mut bounded {
        assert_pending!(shutdown.poll());
    }
    assert_eq!(clock.timers(), 3, "a timer for each bound and no other");
    let [mut first, second, mut third] = plain;
    drop(second);
    let [held_work, held_free] = held;
    drop(held_work);
    assert_pending!(first.poll());
    assert_pending!(third.poll());
    drop(held_free);
    assert!(first.is_woken() && third.is_woken());
    assert_ready_ok!(first.poll());
    assert_ready_ok!(third.poll());
    for mut shutdown in bounded {
        assert!(shutdown.is_woken());
        assert_ready_ok!(shutdown.poll());
    }
    assert_eq!(clock.timers(), 0);
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
    assert_idle(&runtime);
}

#[test]
fn d2_a_shutdown_that_moves_to_another_task_is_woken_there() {
    let (runtime, _, work, _) = world();
    let held = hold(&work);
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    let mut elsewhere = task::spawn(());
    assert_pending!(elsewhere.enter(|cx, _| shutdown.enter(|_, future| future.poll(cx))));
    drop(held);
    assert!(elsewhere.is_woken() && !shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
}

#[test]
fn d2_many_threads_shut_down_at_once_while_calls_come_and_go() {
    const THREADS: usize = 4;
    for _ in 0..50 {
        let (runtime, _, work, free) = world();
        let barrier = Barrier::new(2 * THREADS);
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (runtime, barrier) = (&runtime, &barrier);
                let contract = if number % 2 == 0 { &work } else { &free };
                scope.spawn(move || {
                    barrier.wait();
                    let mut call = Stepped::new(async {
                        let mut refused = 0;
                        while refused < 3 {
                            let answer = contract.run(|| async { Answer::Ok(1) }).await;
                            refused += u32::from(answer.is_err_and(|error| error.is_stopping()));
                        }
                    });
                    while call.poll().is_pending() {
                        call.wait();
                    }
                });
                scope.spawn(move || {
                    barrier.wait();
                    let mut shutdown = Stepped::new(runtime.shutdown());
                    loop {
                        match shutdown.poll() {
                            Poll::Ready(drained) => {
                                drained.unwrap();
                                break;
                            }
                            Poll::Pending => shutdown.wait(),
                        }
                    }
                    // Whoever returns, returns to a runtime that has ended.
                    assert_idle(runtime);
                });
            }
        });
        assert_idle(&runtime);
    }
}

#[test]
fn d2_a_shutdowns_waker_may_shut_down_itself() {
    /// Begins and polls another shutdown from the wake-up of the first.
    struct Again(Runtime, AtomicU32);
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            let drained = task::spawn(self.0.shutdown()).poll().is_ready();
            self.1.fetch_add(u32::from(drained), Ordering::Relaxed);
        }
    }
    let (runtime, _, work, _) = world();
    let held = hold(&work);
    let again = Arc::new(Again(runtime.clone(), AtomicU32::new(0)));
    let waker = again.clone().into();
    let mut shutdown = Box::pin(runtime.shutdown());
    assert_pending!(shutdown.as_mut().poll(&mut Context::from_waker(&waker)));
    drop(held);
    assert_eq!(again.1.load(Ordering::Relaxed), 1);
    assert_ready_ok!(shutdown.as_mut().poll(&mut Context::from_waker(&waker)));
}

#[test]
fn d3_the_bound_passes_and_what_still_runs_is_named() {
    let (runtime, clock, work, free) = world();
    let script = Script::new();
    let mut calls = [(); 2].map(|()| task::spawn(work.run(|| script.answer())));
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let permit = hold(&free);
    let done = runtime
        .contract("done", Policy::pure().claim("a", 4))
        .unwrap();
    let mut waits = task::spawn(done.run(|| async { Answer::Ok(1) }));
    assert_pending!(waits.poll());

    let bounded = runtime.shutdown_within(ms(10));
    clock.advance(ms(100));
    // Counted from the first poll.
    let mut bounded = task::spawn(bounded);
    assert_pending!(bounded.poll());
    clock.advance(ms(9));
    assert_pending!(bounded.poll());
    clock.advance(ms(1));
    assert!(bounded.is_woken());
    let error = assert_ready_err!(bounded.poll());
    let text = error.to_string();
    assert!(
        text.contains("\"work\" (2)") && text.contains("\"free\" (1)"),
        "{text}"
    );
    // What was withdrawn does not run, polled or not.
    assert_eq!(running(error), [("work".into(), 2), ("free".into(), 1)]);

    // The drain goes on, and can be awaited again.
    assert!(assert_ready_err!(task::spawn(work.admit()).poll()).is_stopping());
    script.say(Ok(7));
    assert_eq!(
        assert_ready_ok!(calls[0].poll()),
        7,
        "and nothing was cut off"
    );
    let mut again = task::spawn(runtime.shutdown_within(ms(10)));
    assert_pending!(again.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(again.poll());
    assert_eq!(running(error), [("work".into(), 1), ("free".into(), 1)]);
    let mut to_the_end = task::spawn(runtime.shutdown());
    assert_pending!(to_the_end.poll());
    drop(permit);
    script.say(Ok(8));
    assert_ready_ok!(calls[1].poll());
    assert!(to_the_end.is_woken());
    assert_ready_ok!(to_the_end.poll());
    assert_ready_ok!(task::spawn(runtime.shutdown_within(ms(0))).poll());
    assert_idle(&runtime);
}

#[test]
fn d3_a_bound_of_zero_closes_and_tells_what_runs() {
    let (runtime, clock, work, _) = world();
    let held = hold(&work);
    let error = assert_ready_err!(task::spawn(runtime.shutdown_within(ms(0))).poll());
    assert_eq!(running(error), [("work".into(), 1)]);
    assert!(assert_ready_err!(task::spawn(work.admit()).poll()).is_stopping());
    assert_eq!(clock.timers(), 0);
    drop(held);
    assert_ready_ok!(task::spawn(runtime.shutdown_within(ms(0))).poll());
}

#[test]
fn d3_drained_and_bound_passed_together_is_drained() {
    let (runtime, clock, work, _) = world();
    let held = hold(&work);
    let mut shutdown = task::spawn(runtime.shutdown_within(ms(10)));
    assert_pending!(shutdown.poll());
    drop(held);
    clock.advance(ms(10));
    assert_ready_ok!(shutdown.poll());
}

#[test]
fn d3_a_bound_that_no_clock_can_tell_is_none() {
    let (runtime, clock, work, _) = world();
    let mut call = task::spawn(work.run(pending::<Answer>));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(runtime.shutdown_within(Duration::MAX));
    assert_pending!(shutdown.poll());
    clock.advance(Duration::from_secs(1 << 32));
    assert_pending!(shutdown.poll());
    drop(call);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_eq!(counts(&runtime, "work").finished, 1);
}

#[test]
fn d3_dropping_a_bounded_shutdown_disarms_its_timer_and_reopens_nothing() {
    let (runtime, clock, work, _) = world();
    let held = hold(&work);
    let mut shutdown = task::spawn(runtime.shutdown_within(ms(10)));
    assert_pending!(shutdown.poll());
    assert_eq!(clock.timers(), 1);
    drop(shutdown);
    assert_eq!(clock.timers(), 0);
    assert!(assert_ready_err!(task::spawn(work.admit()).poll()).is_stopping());
    drop(held);
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
}
