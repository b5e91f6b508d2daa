//! C4, C5, C7: retries, grace and cancellation of a handler on a thread. Real threads, gated by channels.

#![allow(
    clippy::disallowed_methods,
    reason = "handlers that block their thread on a future are the subject"
)]

mod common;

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Context;
use std::time::{Duration, Instant};

use bursar::{
    CallError, Clock, Contract, EndedBy, Failure, ManualClock, Outcome, Policy, Retry, Runtime,
    Timer,
};
use common::{
    Answer, Error, Gate, Stepped, assert_idle, bell, counts, in_use, lock, ms, receive, runtime,
};
use tokio::runtime::Handle;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

fn pool(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(threads)
        .build()
        .unwrap()
}

/// A blocking handler's two ends: it reports each attempt's number and what is left of its time, then waits for its
/// answer.
type Report = (u32, Option<Duration>, bool);

fn reined() -> (
    impl FnMut(&bursar::Attempt) -> Answer + Send + 'static,
    mpsc::Receiver<Report>,
    mpsc::Sender<Answer>,
) {
    let ((report, reports), (say, said)) = (mpsc::channel(), mpsc::channel());
    let handler = move |attempt: &bursar::Attempt| {
        let now = (
            attempt.number(),
            attempt.remaining(),
            attempt.is_cancelled(),
        );
        report.send(now).expect("the test listens");
        receive(&said)
    };
    (handler, reports, say)
}

fn one_unit(timeout: u64, grace: u64) -> (Runtime, ManualClock, Contract) {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let mut policy = Policy::idempotent().claim("a", 1).retry(retry);
    policy = policy.timeout(ms(timeout)).grace(ms(grace));
    let contract = runtime.contract("work", policy).unwrap();
    (runtime, clock, contract)
}

#[test]
fn c4_attempts_on_threads_follow_each_other_under_the_same_key_and_units() {
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit(10, 0));
    let _inside = pool.enter();
    let (handler, reports, say) = reined();
    let mut builder = contract.with().key("k");
    let mut call = Stepped::new(builder.run_blocking(handler));
    assert_pending!(call.poll());
    let mut behind = task::spawn(contract.admit());
    assert_pending!(behind.poll());
    for number in 1..=2 {
        assert_eq!(
            receive(&reports),
            (number, Some(ms(10)), false),
            "a fresh deadline"
        );
        clock.advance(ms(9));
        say.send(Err(Failure::transient("again"))).unwrap();
        call.wait();
        assert_pending!(call.poll());
        call.wait();
        assert_eq!(
            (in_use(&runtime, "a"), runtime.stats().keys),
            (1, 1),
            "between attempts"
        );
        assert!(!behind.is_woken());
        assert_pending!(call.poll());
    }
    assert_eq!(receive(&reports), (3, Some(ms(10)), false));
    say.send(Ok(7)).unwrap();
    call.wait();
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    assert_eq!(counts(&runtime, "work").retried, 2);
    assert!(behind.is_woken());
    drop(assert_ready_ok!(behind.poll()));
    assert_idle(&runtime);
}

#[test]
fn c4_a_caller_that_leaves_between_attempts_on_threads_gets_no_other() {
    for fires in [true, false] {
        let (pool, (runtime, clock, contract)) = (pool(1), one_unit(10, 0));
        let _inside = pool.enter();
        let (handler, reports, say) = reined();
        let token = Gate::new();
        let mut builder = contract.with().within(ms(10)).until(token.wait());
        let mut call = Stepped::new(builder.run_blocking(handler));
        assert_pending!(call.poll());
        receive(&reports);
        say.send(Err(Failure::transient("own"))).unwrap();
        call.wait();
        assert_pending!(call.poll());
        if fires {
            token.open();
        } else {
            clock.advance(ms(10));
        }
        let error = assert_ready_err!(call.poll());
        let by = if fires {
            EndedBy::CallerLeft
        } else {
            EndedBy::CallerDeadline
        };
        assert_eq!(error.attempted().unwrap().ended_by(), Some(by));
        assert_eq!(
            (error.outcome(), error.error()),
            (Outcome::Transient, Some(&"own"))
        );
        assert!(reports.recv().is_err(), "the handler is gone");
        assert_idle(&runtime);
    }
}

#[test]
fn c7_a_next_attempt_that_no_thread_takes_up_is_none() {
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit(10, 0));
    let _inside = pool.enter();
    let (handler, reports, say) = reined();
    let mut call = Stepped::new(contract.run_blocking(handler));
    assert_pending!(call.poll());
    receive(&reports);
    // Another call's work is the next that the only thread takes up.
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let other = runtime.contract("other", Policy::pure()).unwrap();
    let mut other = Stepped::new(other.run_blocking(move |_| {
        begin.send(()).unwrap();
        let _ = gone.recv();
        Answer::Ok(1)
    }));
    assert_pending!(other.poll());
    say.send(Err(Failure::transient("own"))).unwrap();
    call.wait();
    receive(&begun);
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(call.poll());
    assert_eq!(
        (error.attempts(), error.error()),
        (1, Some(&"own")),
        "the last failure"
    );
    assert_eq!(error.outcome(), Outcome::Transient);
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(EndedBy::AttemptTimeout)
    );
    assert!(reports.recv().is_err());
    assert_eq!(in_use(&runtime, "a"), 0);
    go.send(()).unwrap();
    other.wait();
    assert_ready_ok!(other.poll());
    assert_idle(&runtime);
    assert_eq!(
        counts(&runtime, "work").retried,
        0,
        "retried: attempts made after the first"
    );
}

#[test]
fn c7_a_first_attempt_that_no_thread_takes_up_in_time_never_runs() {
    // A grace is for a handler that has begun; and a thread that comes before the caller looks is too late as well.
    for (grace, first) in [(0, "caller"), (20, "caller"), (0, "thread"), (20, "thread")] {
        let (pool, (runtime, clock, contract)) = (pool(1), one_unit(10, grace));
        let _inside = pool.enter();
        let (begin, begun) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let other = runtime.contract("other", Policy::pure()).unwrap();
        let mut other = Stepped::new(other.run_blocking(move |_| {
            begin.send(()).unwrap();
            let _ = gone.recv();
            Answer::Ok(1)
        }));
        assert_pending!(other.poll());
        receive(&begun);
        let (handler, reports, say) = reined();
        say.send(Ok(7)).unwrap();
        let mut call = Stepped::new(contract.run_blocking(handler));
        assert_pending!(call.poll());
        clock.advance(ms(10));
        let free = || {
            go.send(()).unwrap();
            // What the only thread is given next it takes up when it has dealt with the call.
            pool.block_on(pool.spawn_blocking(|| ())).unwrap();
        };
        let error = if first == "thread" {
            free();
            assert_ready_err!(call.poll())
        } else {
            let error = assert_ready_err!(call.poll());
            free();
            error
        };
        assert!(
            matches!(error, CallError::AdmissionTimedOut(_)),
            "{first} {grace}: {error:?}"
        );
        assert_eq!((error.outcome(), error.attempts()), (Outcome::Throttled, 0));
        assert!(
            reports.recv().is_err(),
            "the handler is gone, and never ran"
        );
        other.wait();
        assert_ready_ok!(other.poll());
        assert_idle(&runtime);
    }
}

#[test]
fn c5_a_blocking_handler_is_told_at_its_deadline_and_may_answer_within_its_grace() {
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit(10, 20));
    let _inside = pool.enter();
    for (after, answers) in [(ms(19), true), (ms(20), false)] {
        let (begin, begun) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let mut call = Stepped::new(contract.run_blocking(move |attempt| {
            begin.send(()).unwrap();
            Handle::current().block_on(attempt.cancelled());
            tell.send((attempt.is_cancelled(), attempt.remaining()))
                .unwrap();
            let _ = gone.recv();
            Answer::Err(Failure::permanent("stopped, as asked"))
        }));
        assert_pending!(call.poll());
        receive(&begun);
        clock.advance(ms(10));
        call.wait();
        assert_pending!(call.poll());
        assert_eq!(receive(&told), (true, Some(ms(0))));
        clock.advance(after);
        if answers {
            go.send(()).unwrap();
            call.wait();
            let error = assert_ready_err!(call.poll());
            assert_eq!(error.error(), Some(&"stopped, as asked"));
            assert_eq!(error.outcome(), Outcome::Permanent);
        } else {
            call.wait();
            let error = assert_ready_err!(call.poll());
            assert!(matches!(error, CallError::TimedOut(_)));
            assert_eq!(
                (error.outcome(), in_use(&runtime, "a")),
                (Outcome::Uncertain, 1)
            );
            go.send(()).unwrap();
        }
        drop(call);
        drop(pool.block_on(contract.admit()).unwrap());
    }
    assert_idle(&runtime);
}

#[test]
fn c5_a_blocking_handler_is_told_when_its_caller_is_answered() {
    for way in ["timeout", "caller's deadline", "token"] {
        let (pool, (runtime, clock, contract)) = (pool(1), one_unit(10, 0));
        let _inside = pool.enter();
        let (begin, begun) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let token = Gate::new();
        let within = if way == "timeout" { 50 } else { 5 };
        let mut builder = contract.with().within(ms(within)).until(token.wait());
        let mut call = Stepped::new(builder.run_blocking(move |attempt| {
            begin.send(attempt.is_cancelled()).unwrap();
            let _ = gone.recv();
            tell.send(attempt.is_cancelled()).unwrap();
            Answer::Ok(7)
        }));
        assert_pending!(call.poll());
        assert!(!receive(&begun));
        match way {
            "timeout" => clock.advance(ms(10)),
            "token" => token.open(),
            _ => clock.advance(ms(5)),
        }
        assert_eq!(assert_ready_err!(call.poll()).outcome(), Outcome::Uncertain);
        go.send(()).unwrap();
        assert!(receive(&told), "{way}");
        pool.block_on(runtime.shutdown()).unwrap();
    }
}

/// A clock whose timers, asked at their moment, first let the work end: so deadline and answer come together.
#[derive(Clone)]
struct Racing {
    clock: ManualClock,
    let_go: Arc<Mutex<Option<LetGo>>>,
}

type LetGo = Box<dyn FnOnce() + Send>;

impl Clock for Racing {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        let (racing, mut timer) = (self.clone(), self.clock.sleep_until(deadline));
        Box::pin(poll_fn(move |cx| {
            let polled = timer.as_mut().poll(cx);
            if polled.is_ready() {
                if let Some(let_go) = lock(&racing.let_go).take() {
                    let_go();
                }
            }
            polled
        }))
    }
}

/// The outcome of a call whose thread answers at the very moment at which its deadline is noticed.
fn racing(answer: Answer) -> Result<u32, CallError<Error>> {
    let pool = pool(1);
    let _inside = pool.enter();
    let clock = Racing {
        clock: ManualClock::new(),
        let_go: Arc::default(),
    };
    let builder = Runtime::builder().resource("a", 1).clock(clock.clone());
    let runtime = builder.build().unwrap();
    let policy = Policy::non_idempotent().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let (handler, reports, say) = reined();
    let (waker, rung) = bell();
    let mut call = Box::pin(contract.run_blocking(handler));
    let mut poll = || call.as_mut().poll(&mut Context::from_waker(&waker));
    assert_pending!(poll());
    receive(&reports);
    clock.clock.advance(ms(10));
    receive(&rung);
    *lock(&clock.let_go) = Some(Box::new(move || {
        say.send(answer).unwrap();
        receive(&rung);
    }));
    let answered = assert_ready!(poll());
    assert_idle(&runtime);
    answered
}

#[test]
fn c7_an_answer_that_comes_in_with_the_deadline_is_the_answer() {
    assert_eq!(racing(Ok(7)).unwrap(), 7);
    for (failure, outcome) in [
        (Failure::throttled("own"), Outcome::Throttled),
        (Failure::transient("own"), Outcome::Transient),
        (Failure::unclassified("own"), Outcome::Uncertain),
    ] {
        let error = racing(Err(failure)).unwrap_err();
        assert_eq!((error.outcome(), error.attempts()), (outcome, 1));
        assert_eq!(error.error(), Some(&"own"));
    }
}
