//! Pauses between attempts: what is held meanwhile, who may end them, and what comes after.

#![allow(
    clippy::disallowed_methods,
    reason = "a blocking handler needs a task to wait for it"
)]

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use bursar::{
    Backoff, CallError, Classify, Clock, Contract, ContractError, EndedBy, Failure, ManualClock,
    Outcome, Policy, Retry, Runtime, Timer, in_chain,
};
use common::{Answer, Error, Gate, Script, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

fn retry(attempts: u32) -> Retry {
    Retry::up_to(attempts)
        .on_transient()
        .on_throttled()
        .backoff(Backoff::exponential(ms(100)).cap(ms(1_000)))
}

/// One unit of "db", held by an operation that pauses; another operation that competes for it.
fn world() -> (Runtime, ManualClock, Contract, Contract) {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let policy = Policy::non_idempotent().claim("db", 1).retry(retry(3));
    let pausing = runtime.contract("pausing", policy).unwrap();
    let other = runtime
        .contract("other", Policy::pure().claim("db", 1))
        .unwrap();
    (runtime, clock, pausing, other)
}

fn busy(pause: u64) -> Answer {
    Err(Failure::throttled("busy").after(ms(pause)))
}

#[test]
fn c10_a_pausing_call_holds_no_units_and_queues_again_at_the_tail() {
    let (runtime, clock, pausing, other) = world();
    let script = Script::new();
    let mut call = spawn(pausing.run(|| script.answer()));
    script.say(busy(500));
    assert_pending!(call.poll());
    assert_eq!(in_use(&runtime, "db"), 0, "given back at once");
    assert_eq!(counts(&runtime, "pausing").started, 1);
    assert_eq!(counts(&runtime, "pausing").finished, 0);

    let held = assert_ready_ok!(spawn(other.admit()).poll());
    let mut next = spawn(other.admit());
    assert_pending!(next.poll());
    clock.advance(ms(499));
    assert_pending!(call.poll());
    assert_eq!(
        waiting(&runtime, "db"),
        1,
        "it does not queue before its time"
    );
    clock.advance(ms(1));
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_eq!(waiting(&runtime, "db"), 2);
    drop(held);
    assert!(next.is_woken() && !call.is_woken(), "the tail");
    drop(assert_ready_ok!(next.poll()));
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    let of = counts(&runtime, "pausing");
    assert_eq!(
        (of.admitted, of.started, of.finished, of.retried),
        (1, 1, 1, 1)
    );
    assert_idle(&runtime);
}

#[test]
fn c10_a_pausing_call_keeps_its_key() {
    let (runtime, clock, pausing, other) = world();
    let script = Script::new();
    let mut first = pausing.with().key("k");
    let mut first = spawn(first.run(|_| script.answer()));
    script.say(busy(500));
    assert_pending!(first.poll());
    let mut second = other.with().key("k");
    let mut second = spawn(second.admit());
    assert_pending!(second.poll());
    assert_eq!((in_use(&runtime, "db"), runtime.stats().keys), (0, 1));
    clock.advance(ms(500));
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(first.poll()), 7);
    assert!(second.is_woken());
    drop(assert_ready_ok!(second.poll()));
    assert_idle(&runtime);
}

#[test]
fn c10_pauses_double_up_to_the_cap_and_differ() {
    let (_, clock, _, _) = world();
    let seeded = |seed| {
        let runtime = Runtime::builder()
            .resource("db", 1)
            .clock(clock.clone())
            .seed(seed)
            .build()
            .unwrap();
        let policy = Policy::pure().claim("db", 1).retry(retry(9));
        let contract = runtime.contract("load", policy).unwrap();
        let script = Script::new();
        let mut call = spawn(contract.run(|| script.answer()));
        assert_pending!(call.poll());
        let mut pauses = Vec::new();
        for longest in [100_u64, 200, 400, 800, 1_000, 1_000, 1_000, 1_000] {
            let begun = script.begun();
            script.say(Err(Failure::transient("busy")));
            assert_pending!(call.poll());
            let mut pause = 0;
            while script.begun() == begun {
                assert!(pause <= longest, "longer than {longest}");
                clock.advance(ms(1));
                pause += 1;
                assert_pending!(call.poll());
            }
            pauses.push(pause);
        }
        pauses
    };
    assert_eq!(seeded(1), seeded(1), "the same seed, the same pauses");
    assert_ne!(seeded(1), seeded(2));
}

#[test]
fn c10_a_pushback_beyond_the_cap_ends_the_call_and_is_carried() {
    let (runtime, _, pausing, _) = world();
    let error = assert_ready_err!(spawn(pausing.run(|| async { busy(1_001) })).poll());
    assert!(matches!(error, CallError::Failed(_)), "{error:?}");
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Throttled, 1));
    assert_eq!(error.failure().unwrap().pushback(), Some(ms(1_001)));
    assert_idle(&runtime);
}

#[test]
fn c10_a_pause_that_would_outlast_the_caller_is_not_begun() {
    let (runtime, clock, pausing, _) = world();
    for (pause, ends) in [(300, true), (299, false)] {
        let mut call = pausing.with().within(ms(300));
        let script = Script::new();
        script.say(busy(pause));
        let mut run = spawn(call.run(|_| script.answer()));
        if ends {
            let error = assert_ready_err!(run.poll());
            let ran = error.attempted().unwrap();
            assert_eq!(ran.ended_by(), Some(EndedBy::CallerDeadline));
            assert_eq!((ran.outcome(), ran.attempts()), (Outcome::Throttled, 1));
        } else {
            assert_pending!(run.poll());
            clock.advance(ms(299));
            script.say(Ok(7));
            assert_eq!(assert_ready_ok!(run.poll()), 7);
        }
        assert_idle(&runtime);
    }
}

#[test]
fn c10_whoever_leaves_or_stops_ends_a_pause_at_once() {
    // The caller's token.
    let (runtime, _, pausing, _) = world();
    let gate = common::Gate::new();
    let mut call = pausing.with().until(gate.wait());
    let mut run = spawn(call.run(|_| async { busy(500) }));
    assert_pending!(run.poll());
    gate.open();
    assert!(run.is_woken());
    let error = assert_ready_err!(run.poll());
    let ran = error.attempted().unwrap();
    assert_eq!(ran.ended_by(), Some(EndedBy::CallerLeft));
    assert_eq!(ran.outcome(), Outcome::Throttled, "nothing ran meanwhile");
    assert_idle(&runtime);

    // Dropped.
    let mut run = spawn(pausing.run(|| async { busy(500) }));
    assert_pending!(run.poll());
    drop(run);
    assert_idle(&runtime);
    let of = counts(&runtime, "pausing");
    assert_eq!((of.admitted, of.finished), (2, 2));

    // Shutdown, whether the call's home is a key or the lobby.
    for key in ["", "k"] {
        let (runtime, _, pausing, _) = world();
        let mut call = pausing.with().key(key);
        let mut run = spawn(call.run(|_| async { busy(500) }));
        assert_pending!(run.poll());
        let mut drain = spawn(runtime.shutdown());
        assert_pending!(drain.poll(), "it executes until it has its answer");
        assert!(run.is_woken());
        let error = assert_ready_err!(run.poll());
        let ran = error.attempted().unwrap();
        assert_eq!(ran.ended_by(), Some(EndedBy::Stopping));
        assert_eq!(error.error(), Some(&"busy"));
        assert_ready_ok!(drain.poll());
        let of = counts(&runtime, "pausing");
        assert_eq!((of.admitted, of.finished), (1, 1));
    }
}

#[test]
fn c10_no_pause_begins_during_a_drain_and_what_waits_after_one_is_withdrawn() {
    let (runtime, clock, pausing, other) = world();
    let script = Script::new();
    let mut late = spawn(pausing.run(|| script.answer()));
    assert_pending!(late.poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    script.say(busy(500));
    let error = assert_ready_err!(late.poll());
    let ended_by = error.attempted().unwrap().ended_by();
    assert_eq!(ended_by, Some(EndedBy::Stopping));
    assert_ready_ok!(drain.poll());

    let (runtime, clock2, pausing, other2) = world();
    let mut waits = spawn(pausing.run(|| async { busy(500) }));
    assert_pending!(waits.poll());
    let held = assert_ready_ok!(spawn(other2.admit()).poll());
    clock2.advance(ms(500));
    assert_pending!(waits.poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    let error = assert_ready_err!(waits.poll());
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(EndedBy::Stopping)
    );
    drop(held);
    assert_ready_ok!(drain.poll());
    drop((clock, other));
}

#[test]
fn d1_a_nested_call_pauses_through_a_drain() {
    let (runtime, clock, pausing, _) = world();
    let outer = runtime.contract("outer", Policy::pure()).unwrap();
    let script = Script::new();
    let mut run = spawn(outer.run(|| async { pausing.run(|| script.answer()).await.permanent() }));
    script.say(busy(500));
    assert_pending!(run.poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    assert!(!run.is_woken());
    clock.advance(ms(500));
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(run.poll()), 7);
    assert_ready_ok!(drain.poll());
}

#[test]
fn d1_a_nested_call_pauses_through_a_drain_and_past_the_end_of_its_parent() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    // It claims nothing, so that it has no home but the one it paused in.
    let pausing = Policy::pure().retry(retry(2));
    let pausing = runtime.contract("pausing", pausing).unwrap();
    let outer = runtime.contract("outer", Policy::pure()).unwrap();
    let (script, gate) = (Script::new(), Gate::new());
    script.say(busy(500));
    let mut parent = spawn(outer.run(|| async {
        let mut nested = Box::pin(in_chain(pausing.run(|| script.answer())));
        let paused = poll_fn(|cx| Poll::Ready(nested.as_mut().poll(cx).is_pending()));
        assert!(paused.await);
        gate.wait().await;
        Ok::<_, Failure<Error>>(nested)
    }));
    assert!(parent.poll().is_pending());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    gate.open();
    let Poll::Ready(Ok(nested)) = parent.poll() else {
        panic!("its handler is done");
    };
    let mut nested = spawn(nested);
    assert_pending!(drain.poll(), "the nested call has not ended");
    clock.advance(ms(500));
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(nested.poll()), 7);
    assert!(drain.is_woken());
    assert_ready_ok!(drain.poll());
}

/// A call fails and pauses; then the call it is nested in ends, and after that the pause. The drain has begun before the pause,
/// or begins in it.
fn pauses_past_its_parent(key: &str, drain_comes_first: bool) -> Result<u32, CallError<Error>> {
    let (runtime, clock, pausing, _) = world();
    let outer = runtime.contract("outer", Policy::pure()).unwrap();
    let (script, parent_ends) = (Script::new(), Cell::new(false));
    let mut with = pausing.with().key(key);
    let mut nested = Some(with.run(|_| script.answer()));
    let mut parent = spawn(outer.run(|| {
        let mut nested = Box::pin(in_chain(nested.take().expect("it runs once")));
        let parent_ends = &parent_ends;
        async move {
            poll_fn(|cx| {
                assert!(nested.as_mut().poll(cx).is_pending());
                match parent_ends.get() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            Ok::<_, Failure<Error>>(nested)
        }
    }));
    let mut drain = spawn(runtime.shutdown());
    assert!(
        parent.poll().is_pending(),
        "the nested call is in its attempt"
    );
    if drain_comes_first {
        assert_pending!(drain.poll());
    }
    script.say(busy(500));
    assert!(parent.poll().is_pending(), "the nested call pauses");
    if !drain_comes_first {
        assert_pending!(drain.poll());
    }
    parent_ends.set(true);
    let Poll::Ready(Ok(nested)) = parent.poll() else {
        panic!("its handler is done");
    };
    let mut nested = spawn(nested);
    assert_pending!(nested.poll());
    assert_pending!(drain.poll(), "the nested call has not ended");
    clock.advance(ms(500));
    script.say(Ok(7));
    let Poll::Ready(answer) = nested.poll() else {
        panic!("the pause is over and nothing is held");
    };
    drop(nested);
    assert_ready_ok!(drain.poll());
    assert_idle(&runtime);
    answer
}

#[test]
fn d1_a_pause_that_began_past_the_stop_leads_to_the_next_attempt_whatever_has_ended_since() {
    for key in ["", "k"] {
        assert_eq!(pauses_past_its_parent(key, true).unwrap(), 7, "{key:?}");
        // What was not let past the stop is on its own when its parent has ended.
        let error = pauses_past_its_parent(key, false).unwrap_err();
        let ended_by = error.attempted().expect("it ran").ended_by();
        assert_eq!(ended_by, Some(EndedBy::Stopping), "{key:?}");
    }
}

#[test]
fn c10_a_refusal_after_a_pause_returns_the_last_failure() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1).reject().retry(retry(3));
    let rejecting = runtime.contract("rejecting", policy).unwrap();
    let other = runtime
        .contract("other", Policy::pure().claim("db", 1))
        .unwrap();
    let mut run = spawn(rejecting.run(|| async { busy(500) }));
    assert_pending!(run.poll());
    let held = assert_ready_ok!(spawn(other.admit()).poll());
    clock.advance(ms(500));
    let error = assert_ready_err!(run.poll());
    assert!(matches!(error, CallError::Failed(_)), "{error:?}");
    let ran = error.attempted().unwrap();
    assert_eq!(ran.ended_by(), Some(EndedBy::Overload));
    assert_eq!((ran.attempts(), error.error()), (1, Some(&"busy")));
    let of = counts(&runtime, "rejecting");
    assert_eq!((of.admitted, of.rejected, of.finished), (1, 0, 1));
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn c10_a_call_without_units_or_key_pauses_in_the_lobby() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let contract = runtime
        .contract("free", Policy::pure().retry(retry(2)))
        .unwrap();
    let script = Script::new();
    script.say(busy(500));
    let mut run = spawn(contract.run(|| script.answer()));
    assert_pending!(run.poll());
    let mut bounded = spawn(runtime.shutdown_within(ms(0)));
    assert_ready_err!(bounded.poll());
    let error = assert_ready_err!(run.poll());
    assert_eq!(error.attempts(), 1);
    assert_ready_ok!(spawn(runtime.shutdown()).poll());
    drop(clock);
}

#[test]
fn a6_a_backoff_is_checked_at_construction() {
    let (runtime, _) = runtime(&[("db", 1)]);
    for (backoff, setting) in [
        (Backoff::exponential(Duration::ZERO), "backoff base"),
        (Backoff::exponential(ms(100)).cap(ms(99)), "backoff cap"),
    ] {
        let policy = Policy::pure().retry(Retry::up_to(2).on_transient().backoff(backoff));
        match runtime.contract("load", policy).unwrap_err() {
            ContractError::InvalidDuration { setting: found, .. } => assert_eq!(found, setting),
            other => panic!("{other}"),
        }
    }
    let huge = Backoff::exponential(Duration::MAX).cap(Duration::MAX);
    let policy = Policy::pure().retry(Retry::up_to(2).on_transient().backoff(huge));
    assert!(runtime.contract("load", policy).is_ok());
}

#[test]
fn a4_throttled_may_be_retried_with_a_backoff_alone() {
    let (runtime, clock, pausing, _) = world();
    let policy = Policy::pure().retry(Retry::up_to(2).on_throttled());
    let error = runtime.contract("load", policy).unwrap_err();
    assert!(matches!(
        error,
        ContractError::InvalidRetry {
            outcome: Outcome::Throttled,
            ..
        }
    ));
    // With one it is, whatever the effect: it was refused.
    let attempts = AtomicU32::new(0);
    let mut run = spawn(pausing.run(|| async {
        match attempts.fetch_add(1, Ordering::Relaxed) {
            0 => Err::<u32, Error>("busy").throttled(),
            _ => Ok(7),
        }
    }));
    assert_pending!(run.poll());
    clock.advance(ms(100));
    assert_eq!(assert_ready_ok!(run.poll()), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn c10_a_blocking_handler_pauses_too() {
    let (runtime, clock, pausing, other) = world();
    let attempts = std::sync::Arc::new(AtomicU32::new(0));
    let handler = {
        let attempts = attempts.clone();
        move |_: &bursar::Attempt| match attempts.fetch_add(1, Ordering::Relaxed) {
            0 => busy(500),
            _ => Ok(7),
        }
    };
    let pauses = tokio::spawn(async move { pausing.run_blocking(handler).await });
    // The unit comes back when the pause begins, and its timer is armed in the poll that follows.
    while clock.timers() == 0 {
        tokio::task::yield_now().await;
    }
    drop(assert_ready_ok!(spawn(other.admit()).poll()));
    clock.advance(ms(500));
    assert_eq!(pauses.await.unwrap().unwrap(), 7);
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
    assert_idle(&runtime);
}

/// A timer is a future like any other: an async block, say, which must not be polled once it has completed.
#[test]
fn c10_a_timer_that_has_completed_is_not_polled_again() {
    struct Immediate(std::time::Instant);
    impl Clock for Immediate {
        fn now(&self) -> std::time::Instant {
            self.0
        }

        fn sleep_until(&self, _: std::time::Instant) -> Timer {
            Box::pin(async {})
        }
    }
    let clock = Immediate(ManualClock::new().now());
    let builder = Runtime::builder().resource("db", 1).clock(clock);
    let runtime = builder.build().unwrap();
    let policy = Policy::pure().claim("db", 1).retry(retry(3));
    let contract = runtime.contract("work", policy).unwrap();
    let script = Script::new();
    script.say(Err(Failure::transient("again")));
    script.say(Ok(7));
    let mut call = spawn(contract.run(|| script.answer()));
    assert_pending!(call.poll());
    assert!(call.is_woken(), "the pause was over at once");
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    assert_idle(&runtime);
}

#[test]
fn c10_a_pause_that_no_clock_can_tell_ends_the_call() {
    let (runtime, _clock) = runtime(&[("db", 1)]);
    let backoff = Backoff::exponential(ms(1)).cap(Duration::MAX);
    let retry = Retry::up_to(2).on_throttled().backoff(backoff);
    let policy = Policy::pure().claim("db", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let mut call =
        spawn(contract.run(|| async {
            Err::<(), _>(Failure::throttled("never again").after(Duration::MAX))
        }));
    let error = assert_ready_err!(call.poll());
    let ran = error.attempted().unwrap();
    assert_eq!(ran.attempts(), 1);
    assert_eq!(ran.ended_by(), Some(EndedBy::WaitTooLong));
    assert_eq!(ran.failure().pushback(), Some(Duration::MAX));
    drop(call);
    assert_idle(&runtime);
}

#[test]
fn c5_the_callers_deadline_bounds_the_wait_behind_a_pause_too() {
    let (runtime, clock, pausing, other) = world();
    let script = Script::new();
    script.say(busy(500));
    let mut within = pausing.with().within(ms(600));
    let mut call = spawn(within.run(|_| script.answer()));
    assert_pending!(call.poll());
    let held = assert_ready_ok!(spawn(other.admit()).poll());
    clock.advance(ms(500));
    assert_pending!(call.poll(), "it queues again");
    assert_eq!(waiting(&runtime, "db"), 1);
    clock.advance(ms(100));
    let error = assert_ready_err!(call.poll());
    let ran = error.attempted().expect("it ran");
    assert_eq!(
        (ran.attempts(), ran.ended_by()),
        (1, Some(EndedBy::CallerDeadline))
    );
    assert_eq!(waiting(&runtime, "db"), 0);
    drop((call, held));
    assert_idle(&runtime);
}
