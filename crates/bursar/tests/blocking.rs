//! C7: a handler on a thread of its own cannot be stopped. What its caller is told, what it goes on holding, and what
//! becomes of an answer that comes late, in time, or never begins. Real threads, gated by channels.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;

use bursar::{CallError, Contract, EndedBy, Failure, ManualClock, Outcome, Policy, Retry, Runtime};
use common::{
    Answer, Error, Gate, Stepped, assert_idle, counts, in_use, ms, receive, runtime, waiting,
};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

/// A pool of `threads` blocking threads.
fn pool(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(threads)
        .build()
        .unwrap()
}

/// The test's side of a handler that says when it begins, waits to be let go, and says when its value is dropped.
struct Reins {
    begun: mpsc::Receiver<u32>,
    go: mpsc::Sender<Answer>,
    dropped: Arc<AtomicBool>,
}

struct Work {
    begun: mpsc::Sender<u32>,
    go: mpsc::Receiver<Answer>,
    dropped: Arc<AtomicBool>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

impl Work {
    fn new() -> (Self, Reins) {
        let ((begin, begun), (go, gone)) = (mpsc::channel(), mpsc::channel());
        let dropped = Arc::new(AtomicBool::new(false));
        let work = Self {
            begun: begin,
            go: gone,
            dropped: dropped.clone(),
        };
        (work, Reins { begun, go, dropped })
    }

    fn perform(&self, attempt: &bursar::Attempt) -> Answer {
        self.begun.send(attempt.number()).expect("the test listens");
        receive(&self.go)
    }
}

impl Reins {
    fn dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

fn one_unit() -> (Runtime, ManualClock, Contract) {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let policy = Policy::idempotent()
        .claim("a", 1)
        .timeout(ms(10))
        .retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    (runtime, clock, contract)
}

#[test]
fn c7_answered_uncertain_at_the_deadline_while_the_work_keeps_units_and_key() {
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit());
    let _inside = pool.enter();
    let (work, reins) = Work::new();
    let mut builder = contract.with().key("k");
    let mut call = task::spawn(builder.run_blocking(move |attempt| work.perform(attempt)));
    assert_pending!(call.poll());
    assert_eq!(receive(&reins.begun), 1);
    clock.advance(ms(9));
    assert_pending!(call.poll());
    clock.advance(ms(1));
    assert!(call.is_woken());
    let error = assert_ready_err!(call.poll());
    drop(call);
    assert!(matches!(error, CallError::TimedOut(_)), "{error:?}");
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(EndedBy::AttemptTimeout)
    );
    // No further attempt, though the policy asks for it: the first still runs.
    assert_eq!(counts(&runtime, "work").retried, 0);

    assert_eq!((in_use(&runtime, "a"), runtime.stats().keys), (1, 1));
    assert_eq!(counts(&runtime, "work").finished, 0);
    let mut same_key = contract.with().key("k");
    let mut same_key = Stepped::new(same_key.admit());
    let mut other = Stepped::new(contract.admit());
    assert_pending!(same_key.poll());
    assert_pending!(other.poll());
    assert!(!reins.dropped());

    reins.go.send(Ok(7)).unwrap();
    other.wait();
    drop(assert_ready_ok!(other.poll()));
    same_key.wait();
    let permit = match same_key.poll() {
        Poll::Ready(permit) => permit.unwrap(),
        Poll::Pending => {
            // It had the key before `other` gave its unit back.
            same_key.wait();
            assert_ready_ok!(same_key.poll())
        }
    };
    assert!(
        reins.dropped(),
        "handler and answer end before units and key pass on"
    );
    drop(permit);
    assert_idle(&runtime);
}

#[test]
fn c7_a_late_answer_is_discarded_whatever_it_is() {
    struct Late(mpsc::Sender<u32>, Runtime);
    impl Drop for Late {
        fn drop(&mut self) {
            let _ = self.0.send(in_use(&self.1, "a"));
        }
    }
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit());
    let _inside = pool.enter();
    for way in ["value", "error", "panic"] {
        let (dropped, drops) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let within = runtime.clone();
        let mut call = Stepped::new(contract.run_blocking(move |_| {
            begin.send(()).unwrap();
            let _ = gone.recv();
            let late = Late(dropped.clone(), within.clone());
            match way {
                "value" => Ok(late),
                "error" => Err(Failure::transient(late)),
                _ => std::panic::panic_any(late),
            }
        }));
        assert!(call.poll().is_pending());
        receive(&begun);
        clock.advance(ms(10));
        let Poll::Ready(Err(error)) = call.poll() else {
            panic!("the caller is answered")
        };
        assert!(error.error().is_none() && error.outcome() == Outcome::Uncertain);
        drop(call);
        go.send(()).unwrap();
        // Once, on its own thread, and before its unit goes back.
        assert_eq!(receive(&drops), 1);
        assert!(drops.recv().is_err());
        pool.block_on(contract.admit()).map(drop).unwrap();
    }
    assert_idle(&runtime);
}

/// A call whose thread has answered `answer`, and whose caller has not been polled since.
fn in_hand<R>(
    answer: Answer,
    then: impl FnOnce(&ManualClock, &Gate, &mut dyn FnMut() -> Poll<Result<u32, CallError<Error>>>) -> R,
) -> R {
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit());
    let _inside = pool.enter();
    let (work, reins) = Work::new();
    let token = Gate::new();
    let mut builder = contract.with().key("k").within(ms(20)).until(token.wait());
    let mut call = Stepped::new(builder.run_blocking(move |attempt| work.perform(attempt)));
    assert_pending!(call.poll());
    receive(&reins.begun);
    reins.go.send(answer).unwrap();
    call.wait();
    let result = then(&clock, &token, &mut || call.poll());
    assert!(reins.dropped());
    drop(call);
    assert_idle(&runtime);
    result
}

#[test]
fn c7_a_success_in_hand_stands_when_nobody_has_been_answered() {
    in_hand(Ok(7), |clock, _, poll| {
        clock.advance(ms(10));
        assert_eq!(assert_ready_ok!(poll()), 7, "past the attempt's timeout");
    });
    in_hand(Ok(7), |clock, _, poll| {
        clock.advance(ms(1_000));
        assert_eq!(assert_ready_ok!(poll()), 7, "past the caller's deadline");
    });
    in_hand(Ok(7), |_, token, poll| {
        token.open();
        assert_eq!(
            assert_ready_ok!(poll()),
            7,
            "after the caller's token fired"
        );
    });
}

#[test]
fn c7_an_error_in_hand_is_judged_by_what_is_known() {
    in_hand(Err(Failure::permanent("own")), |clock, _, poll| {
        clock.advance(ms(10));
        let error = assert_ready_err!(poll());
        assert_eq!(
            (error.outcome(), error.error()),
            (Outcome::Permanent, Some(&"own"))
        );
    });
    in_hand(Err(Failure::permanent("own")), |_, token, poll| {
        token.open();
        let error = assert_ready_err!(poll());
        assert!(matches!(error, CallError::Cancelled(_)), "{error:?}");
        assert_eq!(
            (error.outcome(), error.error()),
            (Outcome::Uncertain, Some(&"own"))
        );
        assert_eq!(error.attempts(), 1);
    });
}

#[test]
fn c6_an_unclassified_answer_of_a_thread_past_the_deadline_is_uncertain() {
    // Past the attempt's timeout: retried, being idempotent.
    in_hand(Err(Failure::unclassified("late")), |clock, token, poll| {
        clock.advance(ms(10));
        assert_pending!(poll());
        token.open();
        let error = assert_ready_err!(poll());
        assert_eq!(
            (error.outcome(), error.error()),
            (Outcome::Uncertain, Some(&"late"))
        );
        assert_eq!(
            error.attempted().unwrap().ended_by(),
            Some(EndedBy::CallerLeft)
        );
    });
}

#[test]
fn c6_an_unclassified_answer_of_a_thread_past_the_callers_deadline_is_uncertain() {
    let (pool, (runtime, clock)) = (pool(1), runtime(&[("a", 1)]));
    let _inside = pool.enter();
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let (work, reins) = Work::new();
    let mut builder = contract.with().within(ms(10));
    let mut call = Stepped::new(builder.run_blocking(move |attempt| work.perform(attempt)));
    assert_pending!(call.poll());
    reins.go.send(Err(Failure::unclassified("late"))).unwrap();
    call.wait();
    clock.advance(ms(10));
    let error = assert_ready_err!(call.poll());
    assert_eq!(
        (error.outcome(), error.error()),
        (Outcome::Uncertain, Some(&"late"))
    );
}

/// Occupies the only thread of a pool until it is dropped.
struct Occupied {
    _go: mpsc::Sender<()>,
}

impl Occupied {
    fn new(pool: &tokio::runtime::Runtime) -> Self {
        let (go, gone) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        pool.spawn_blocking(move || {
            begin.send(()).unwrap();
            let _ = gone.recv();
        });
        receive(&begun);
        Self { _go: go }
    }
}

#[test]
fn c7_a_handler_that_no_thread_took_up_in_time_never_ran() {
    for way in ["timeout", "caller's deadline", "token", "dropped"] {
        let (pool, (runtime, clock, contract)) = (pool(1), one_unit());
        let _inside = pool.enter();
        let occupied = Occupied::new(&pool);
        let (work, reins) = Work::new();
        let token = Gate::new();
        let within = if way == "timeout" { ms(1_000) } else { ms(5) };
        let mut builder = contract.with().key("k").within(within).until(token.wait());
        let mut call = task::spawn(builder.run_blocking(move |attempt| work.perform(attempt)));
        assert_pending!(call.poll());
        assert_eq!((in_use(&runtime, "a"), runtime.stats().keys), (1, 1));
        match way {
            "timeout" => clock.advance(ms(10)),
            "caller's deadline" => clock.advance(ms(5)),
            "token" => token.open(),
            _ => {}
        }
        if way != "dropped" {
            let error = assert_ready_err!(call.poll());
            let right = match way {
                "token" => matches!(error, CallError::Withdrawn(_)),
                _ => matches!(error, CallError::AdmissionTimedOut(_)),
            };
            assert!(right, "{way}: {error:?}");
            assert_eq!((error.outcome(), error.attempts()), (Outcome::Throttled, 0));
            assert!(
                error.never_ran() && error.to_string().contains("thread"),
                "{error}"
            );
        }
        drop(call);
        assert!(reins.dropped(), "{way}: called off for good");
        assert_idle(&runtime);
        // The thread comes free, meets what was called off, and goes on to the next.
        drop(occupied);
        let next = pool.block_on(contract.run_blocking(|_| Answer::Ok(8)));
        assert_eq!(next.unwrap(), 8);
        assert!(reins.begun.recv().is_err(), "{way}: it never ran");
    }
}

/// The executor goes while it still holds what was called off: that is over already and ends once.
#[test]
fn c7_an_executor_that_goes_after_the_caller_loses_nothing() {
    let (pool, (runtime, _, contract)) = (pool(1), one_unit());
    let handle = pool.handle().clone();
    let _inside = handle.enter();
    let occupied = Occupied::new(&pool);
    let (work, reins) = Work::new();
    let mut call = Stepped::new(contract.run_blocking(move |attempt| work.perform(attempt)));
    assert_pending!(call.poll());
    drop(call);
    assert!(reins.dropped(), "called off for good");
    assert_idle(&runtime);
    pool.shutdown_background();
    drop(occupied);
    assert!(reins.begun.recv().is_err(), "it never ran");
    assert_eq!(counts(&runtime, "work").outcomes.dropped, 1);
    assert_idle(&runtime);
}

#[test]
fn c7_a_handler_whose_executor_is_gone_never_ran() {
    let (pool, (runtime, _, contract)) = (pool(1), one_unit());
    let handle = pool.handle().clone();
    let _inside = handle.enter();
    let (work, reins) = Work::new();
    let (first, first_reins) = Work::new();
    let mut again = Stepped::new(contract.run_blocking(move |attempt| first.perform(attempt)));
    assert_pending!(again.poll());
    let own = Failure::transient("own");
    first_reins.go.send(Err(own)).unwrap();
    again.wait();
    assert_pending!(again.poll(), "the second attempt follows after a yield");
    pool.shutdown_background();

    // The second attempt never ran: the first one's failure stands.
    let error = assert_ready_err!(again.poll());
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 1));
    assert_eq!(error.error(), Some(&"own"));
    let mut builder = contract.with().key("k");
    let mut call = Stepped::new(builder.run_blocking(move |attempt| work.perform(attempt)));
    let error = assert_ready_err!(call.poll());
    assert!(error.is_stopping() && error.never_ran(), "{error:?}");
    assert!(reins.dropped() && reins.begun.recv().is_err());
    assert_idle(&runtime);
}

#[test]
fn c7_a_caller_that_goes_away_leaves_the_work_with_what_it_holds() {
    let (pool, (runtime, _, contract)) = (pool(1), one_unit());
    let _inside = pool.enter();
    let (begin, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (told, was_told) = mpsc::channel();
    let mut call = task::spawn(contract.run_blocking(move |attempt| {
        begin.send(attempt.is_cancelled()).unwrap();
        let _ = gone.recv();
        told.send(attempt.is_cancelled()).unwrap();
        Answer::Ok(7)
    }));
    assert_pending!(call.poll());
    assert!(!receive(&begun));
    drop(call);
    assert_eq!(
        (in_use(&runtime, "a"), counts(&runtime, "work").finished),
        (1, 0)
    );
    go.send(()).unwrap();
    assert!(receive(&was_told), "the handler is told");
    pool.block_on(runtime.shutdown()).unwrap();
    assert_idle(&runtime);
}

#[test]
fn c9_a_panic_on_a_thread_goes_on_to_the_caller_after_everything_is_back() {
    let (pool, (runtime, clock, contract)) = (pool(1), one_unit());
    let _inside = pool.enter();
    // In time, and in hand when the caller's deadline has passed.
    for late in [false, true] {
        let (go, gone) = mpsc::channel::<()>();
        let mut builder = contract.with().key("k").within(ms(10));
        let mut call = Stepped::new(builder.run_blocking(move |attempt| {
            let _ = gone.recv();
            assert!(attempt.number() == 0, "boom");
            Answer::Ok(7)
        }));
        assert_pending!(call.poll());
        go.send(()).unwrap();
        call.wait();
        if late {
            clock.advance(ms(10));
        }
        let unwound = catch_unwind(AssertUnwindSafe(|| call.poll().is_ready()));
        let payload = unwound.expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"boom"));
        assert_idle(&runtime);
        assert_eq!(counts(&runtime, "work").retried, 0);
    }
}

#[test]
fn c9_a_blocking_call_outside_an_executor_panics_and_holds_nothing() {
    let (runtime, _, contract) = one_unit();
    let mut builder = contract.with().key("k");
    let mut call = task::spawn(builder.run_blocking(|_| Answer::Ok(7)));
    assert!(catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err());
    assert_idle(&runtime);
}

#[test]
fn c7_a_waiting_call_has_no_thread_yet() {
    let (pool, (runtime, _, contract)) = (pool(1), one_unit());
    let _inside = pool.enter();
    let held = assert_ready_ok!(task::spawn(contract.admit()).poll());
    let (work, reins) = Work::new();
    let mut call = Stepped::new(contract.run_blocking(move |attempt| work.perform(attempt)));
    assert_pending!(call.poll());
    assert_eq!(waiting(&runtime, "a"), 1);
    drop(held);
    // Granted, but the thread is taken when the call notices.
    assert!(matches!(
        reins.begun.try_recv(),
        Err(mpsc::TryRecvError::Empty)
    ));
    call.wait();
    assert_pending!(call.poll());
    receive(&reins.begun);
    reins.go.send(Ok(7)).unwrap();
    call.wait();
    assert_eq!(assert_ready!(call.poll()).unwrap(), 7);
    assert_idle(&runtime);
}
