//! C5: an attempt's own timeout. When it begins, what the handler is told and in which order, whose word stands, what
//! a grace adds, and how the timer is armed.

mod common;

use std::future::{Future, pending, poll_fn};
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use bursar::{Attempt, CallError, Clock, EndedBy, Failure, ManualClock, Outcome, Policy, Retry};
use common::{Answer, Gate, Script, assert_idle, counts, in_use, lock, ms, runtime};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

/// Suspends for ever, noting at each poll whether the attempt is cancelled, and the drop as `None`.
fn watched<'a>(
    attempt: &'a Attempt,
    seen: &'a Mutex<Vec<Option<bool>>>,
) -> impl Future<Output = Answer> {
    struct Dropped<'a>(&'a Mutex<Vec<Option<bool>>>);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            lock(self.0).push(None);
        }
    }
    let dropped = Dropped(seen);
    poll_fn(move |_| {
        let dropped = &dropped;
        lock(dropped.0).push(Some(attempt.is_cancelled()));
        Poll::Pending
    })
}

#[test]
fn c5_no_timer_is_armed_before_the_handler_first_suspends() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();

    let mut instant = task::spawn(contract.run(|| async {
        assert_eq!(clock.timers(), 0);
        Answer::Ok(1)
    }));
    assert_ready_ok!(instant.poll());
    assert_eq!(clock.timers(), 0, "a handler that never suspends");

    let held = assert_ready_ok!(task::spawn(contract.admit()).poll());
    let script = Script::new();
    let mut call = task::spawn(contract.run(|| script.answer()));
    assert_pending!(call.poll());
    assert_eq!(clock.timers(), 0, "a call that waits");
    drop(held);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_eq!((script.begun(), clock.timers()), (1, 1), "a suspended one");
    assert_pending!(call.poll());
    assert_eq!(clock.timers(), 1, "one timer, however often it is polled");
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    drop(call);
    assert_eq!(clock.timers(), 0);
}

#[test]
fn c5_without_a_timeout_no_timer_is_armed() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime.contract("work", Policy::pure()).unwrap();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| async move {
        assert_eq!((attempt.deadline(), attempt.remaining()), (None, None));
        pending::<Answer>().await
    }));
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(1_000_000));
    assert_pending!(call.poll());
    assert_eq!(clock.timers(), 0);
}

#[test]
fn c5_the_timeout_counts_from_the_handlers_first_poll() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let held = assert_ready_ok!(task::spawn(contract.admit()).poll());
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        assert_eq!(attempt.remaining(), Some(ms(10)));
        assert_eq!(attempt.deadline(), Some(clock.now() + ms(10)));
        pending::<Answer>()
    }));
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(3_600));
    drop(held);
    clock.advance(Duration::from_secs(3_600));
    assert_pending!(call.poll());
    clock.advance(ms(9));
    assert!(!call.is_woken());
    assert_pending!(call.poll());
    clock.advance(ms(1));
    assert!(call.is_woken());
    let error = assert_ready_err!(call.poll());
    assert!(matches!(error, CallError::TimedOut(_)), "{error:?}");
}

#[test]
fn c5_the_flag_is_set_at_the_deadline_and_the_handler_polled_once_more() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let seen = Mutex::new(Vec::new());
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| watched(attempt, &seen)));
    assert_pending!(call.poll());
    assert_eq!(*lock(&seen), [Some(false)]);

    clock.advance(ms(10));
    let error = assert_ready_err!(call.poll());
    // Once because the task was woken, once more because it is told; then it is dropped, and so never polled again.
    assert_eq!(
        *lock(&seen),
        [Some(false), Some(false), Some(true), None],
        "false: polled, true: polled and told, none: dropped"
    );
    assert_eq!(error.outcome(), Outcome::Uncertain);
    assert!(error.failure().is_some() && error.error().is_none());
    let attempted = error.attempted().unwrap();
    assert_eq!(attempted.ended_by(), Some(EndedBy::AttemptTimeout));
    assert_eq!(attempted.attempts(), 1);
    assert_idle(&runtime);
}

#[test]
fn c5_a_deadline_passed_in_the_first_poll_is_seen_at_the_first_suspension() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        let clock = clock.clone();
        async move {
            clock.advance(ms(11));
            assert!(!attempt.is_cancelled(), "nobody looked at the clock yet");
            attempt.cancelled().await;
            Answer::Err(Failure::permanent("stopped in time"))
        }
    }));
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.error(), Some(&"stopped in time"));
    assert_eq!(error.outcome(), Outcome::Permanent);
    assert_eq!(clock.timers(), 0);
}

#[test]
fn c5_cancelled_wakes_children_that_have_wakers_of_their_own() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| async move {
        let mut children: FuturesUnordered<_> = (1..=3)
            .map(|number| async move {
                attempt.cancelled().await;
                number
            })
            .collect();
        let mut sum = 0;
        while let Some(number) = children.next().await {
            sum += number;
        }
        Answer::Ok(sum)
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_eq!(assert_ready_ok!(call.poll()), 6);
}

#[test]
fn c5_cancelled_wakes_the_latest_waker_and_forgets_what_is_dropped() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().timeout(ms(10)).grace(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| async move {
        let mut first = task::spawn(attempt.cancelled());
        let mut moved = task::spawn(attempt.cancelled());
        assert_pending!(first.poll());
        assert_pending!(moved.poll());
        let mut elsewhere = task::spawn(());
        let count = elsewhere.waker_ref_count();
        assert_pending!(elsewhere.enter(|cx, _| moved.enter(|_, child| child.poll(cx))));
        let mut dropped = Box::pin(attempt.cancelled());
        assert_pending!(elsewhere.enter(|cx, _| dropped.as_mut().poll(cx)));
        assert_eq!(elsewhere.waker_ref_count(), count + 2);
        drop(dropped);
        assert_eq!(elsewhere.waker_ref_count(), count + 1);
        attempt.cancelled().await;
        assert!(first.is_woken() && elsewhere.is_woken());
        assert!(!moved.is_woken(), "its waker had been replaced");
        assert_ready!(first.poll());
        assert_ready!(task::spawn(attempt.cancelled()).poll());
        Answer::Ok(1)
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_ready_ok!(call.poll());
}

/// Runs a handler that answers `last` when it is told to stop, and nothing before.
fn answering_at_the_deadline(last: Answer) -> Result<u32, CallError<common::Error>> {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::non_idempotent().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let mut last = Some(last);
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        let last = last.take().unwrap();
        async move {
            attempt.cancelled().await;
            last
        }
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert!(call.is_woken());
    let answer = assert_ready!(call.poll());
    assert_idle(&runtime);
    answer
}

#[test]
fn c5_a_success_in_the_last_poll_stands() {
    assert_eq!(answering_at_the_deadline(Ok(7)).unwrap(), 7);
}

#[test]
fn c5_the_handlers_own_words_in_the_last_poll_stand() {
    for (failure, outcome) in [
        (Failure::transient("own"), Outcome::Transient),
        (Failure::permanent("own"), Outcome::Permanent),
        (Failure::throttled("own"), Outcome::Throttled),
        (Failure::uncertain("own"), Outcome::Uncertain),
    ] {
        let error = answering_at_the_deadline(Err(failure)).unwrap_err();
        assert_eq!((error.outcome(), error.error()), (outcome, Some(&"own")));
        assert!(matches!(error, CallError::Failed(_)), "{error:?}");
    }
}

#[test]
fn c5_each_attempt_has_a_fresh_deadline() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::idempotent()
        .timeout(ms(10))
        .retry(Retry::up_to(2).on_uncertain());
    let contract = runtime.contract("work", policy).unwrap();
    let begun = Mutex::new(Vec::new());
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        lock(&begun).push((
            attempt.number(),
            attempt.remaining(),
            attempt.is_cancelled(),
        ));
        pending::<Answer>()
    }));
    assert_pending!(call.poll());
    // The executor is late, twice: at the deadline, and between the attempts.
    clock.advance(ms(13));
    assert_pending!(call.poll());
    assert!(call.is_woken(), "one yield between attempts");
    assert_eq!(lock(&begun).len(), 1);
    clock.advance(ms(40));
    assert_pending!(call.poll());
    assert_eq!(
        *lock(&begun),
        [(1, Some(ms(10)), false), (2, Some(ms(10)), false)]
    );
    assert_eq!(clock.timers(), 1);
    clock.advance(ms(9));
    assert_pending!(call.poll());
    clock.advance(ms(1));
    let error = assert_ready_err!(call.poll());
    assert_eq!(error.attempts(), 2);
    assert_eq!(counts(&runtime, "work").retried, 1);
}

/// A call whose handler has been told and goes on within its grace of 20 ms, after a timeout of 10 ms.
fn in_grace(answer: Option<Answer>, after: Duration) -> Result<u32, CallError<common::Error>> {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::non_idempotent()
        .claim("a", 1)
        .timeout(ms(10))
        .grace(ms(20));
    let contract = runtime.contract("work", policy).unwrap();
    let script = Script::new();
    let seen = Mutex::new(Vec::new());
    let mut builder = contract.with();
    let mut call = task::spawn(builder.run(|attempt| {
        let (script, seen, clock) = (&script, &seen, clock.clone());
        let deadline = clock.now() + ms(10);
        async move {
            let answer = script.answer();
            tokio::pin!(answer);
            poll_fn(|cx| {
                lock(seen).push(attempt.is_cancelled());
                assert_eq!(attempt.deadline(), Some(deadline));
                let left = deadline.saturating_duration_since(clock.now());
                assert_eq!(attempt.remaining(), Some(left));
                answer.as_mut().poll(cx)
            })
            .await
        }
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_pending!(call.poll());
    assert_eq!(*lock(&seen), [false, false, true]);
    assert_eq!((in_use(&runtime, "a"), clock.timers()), (1, 1));
    clock.advance(after);
    if let Some(answer) = answer {
        script.say(answer);
    }
    assert!(call.is_woken());
    let answer = assert_ready!(call.poll());
    assert_eq!(
        *lock(&seen),
        [false, false, true, true],
        "polled on, not told again"
    );
    assert_idle(&runtime);
    answer
}

#[test]
fn c5_a_success_within_the_grace_stands() {
    assert_eq!(in_grace(Some(Ok(7)), ms(19)).unwrap(), 7);
    // Polled at the very end, it may still answer.
    assert_eq!(in_grace(Some(Ok(7)), ms(20)).unwrap(), 7);
}

#[test]
fn c5_the_handlers_own_words_within_the_grace_stand() {
    let error = in_grace(Some(Err(Failure::transient("own"))), ms(5)).unwrap_err();
    assert_eq!(
        (error.outcome(), error.error()),
        (Outcome::Transient, Some(&"own"))
    );
    let error = in_grace(Some(Err(Failure::unclassified("own"))), ms(5)).unwrap_err();
    assert_eq!(
        (error.outcome(), error.error()),
        (Outcome::Uncertain, Some(&"own"))
    );
}

#[test]
fn c5_the_grace_ends() {
    let error = in_grace(None, ms(20)).unwrap_err();
    assert!(matches!(error, CallError::TimedOut(_)), "{error:?}");
    assert_eq!((error.outcome(), error.error()), (Outcome::Uncertain, None));
}

#[test]
fn c5_a_retry_after_an_answer_in_the_grace_begins_afresh() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::non_idempotent()
        .timeout(ms(10))
        .grace(ms(20))
        .retry(Retry::up_to(2).on_transient());
    let contract = runtime.contract("work", policy).unwrap();
    let script = Script::new();
    let mut builder = contract.with();
    let told = Gate::new();
    let mut call = task::spawn(builder.run(|attempt| {
        assert!(!attempt.is_cancelled());
        assert_eq!(attempt.remaining(), Some(ms(10)));
        let told = told.clone();
        let answer = script.answer();
        async move {
            if attempt.number() == 2 {
                attempt.cancelled().await;
                told.open();
            }
            answer.await
        }
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_pending!(call.poll());
    script.say(Err(Failure::transient("not yet")));
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    clock.advance(ms(9));
    assert_pending!(call.poll());
    assert_pending!(task::spawn(told.wait()).poll());
    // The second attempt has a timeout and a whole grace of its own.
    clock.advance(ms(1));
    assert_pending!(call.poll());
    assert_ready!(task::spawn(told.wait()).poll());
    clock.advance(ms(19));
    assert_pending!(call.poll());
    clock.advance(ms(1));
    assert_eq!(assert_ready_err!(call.poll()).attempts(), 2);
}

#[test]
fn c5_a_handler_that_blocks_through_its_grace_is_polled_no_more() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().timeout(ms(10)).grace(ms(20));
    let contract = runtime.contract("work", policy).unwrap();
    let polls = Mutex::new(0);
    let mut call = task::spawn(contract.run(|| {
        poll_fn(|_| {
            *lock(&polls) += 1;
            clock.advance(ms(15));
            Poll::<Answer>::Pending
        })
    }));
    // 15 ms: told; 30 ms: the grace is over too.
    assert_ready_err!(call.poll());
    assert_eq!(*lock(&polls), 2);
}

#[test]
fn c5_a_timeout_too_long_to_tell_is_none() {
    const YEARS: u64 = 365 * 24 * 3_600;
    let clock = ManualClock::new();
    let runtime = bursar::Runtime::builder()
        .resource("a", 1)
        .clock(clock.clone())
        .build()
        .unwrap();
    for timeout in [
        Duration::MAX,
        Duration::from_secs(u64::MAX / 4),
        Duration::from_secs(600 * YEARS),
    ] {
        let policy = Policy::pure()
            .claim("a", 1)
            .timeout(timeout)
            .grace(Duration::MAX);
        let contract = runtime.contract("work", policy).unwrap();
        let script = Script::new();
        let mut builder = contract.with().within(timeout);
        let mut call = task::spawn(builder.run(|attempt| {
            let long = Duration::from_secs(100 * YEARS);
            assert!(attempt.remaining().is_none_or(|left| left > long));
            script.answer()
        }));
        assert_pending!(call.poll());
        clock.advance(Duration::from_secs(10 * YEARS));
        assert_pending!(call.poll());
        script.say(Ok(7));
        assert_eq!(assert_ready_ok!(call.poll()), 7);
    }
    // A grace that no clock can tell leaves the timeout as it was.
    let policy = Policy::pure().timeout(ms(10)).grace(Duration::MAX);
    let contract = runtime.contract("patient", policy).unwrap();
    let script = Script::new();
    let mut call = task::spawn(contract.run(|| script.answer()));
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(10 * YEARS));
    assert_pending!(call.poll());
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
}

#[test]
fn c5_the_earlier_of_timeout_and_callers_bound_is_lent() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().timeout(ms(10)))
        .unwrap();
    for (within, lent) in [(ms(4), ms(4)), (ms(40), ms(10))] {
        let mut builder = contract.with().within(within);
        let mut call = task::spawn(builder.run(|attempt| {
            let lent = attempt.remaining();
            async move { Ok::<_, Failure<common::Error>>(lent) }
        }));
        assert_eq!(assert_ready_ok!(call.poll()), Some(lent));
    }
    // Of `within` and `deadline` the earlier counts.
    let mut builder = contract.with().within(ms(6)).deadline(clock.now() + ms(5));
    let mut call = task::spawn(builder.run(|attempt| {
        let lent = attempt.remaining();
        async move { Ok::<_, Failure<common::Error>>(lent) }
    }));
    assert_eq!(assert_ready_ok!(call.poll()), Some(ms(5)));
}
