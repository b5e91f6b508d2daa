//! Capacities that change while calls are served, retry budgets, and what a drain reports.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Context;

use bursar::{
    Backoff, ContractError, EndedBy, Failure, Policy, Retry, RetryBudget, Runtime, ShutdownError,
};
use common::room::{on_wake, watched};
use common::{Answer, Error, Gate, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

#[test]
fn b12_growing_grants_waiters_at_once_in_their_order() {
    let (runtime, _) = runtime(&[("db", 2)]);
    let one = runtime
        .contract("one", Policy::pure().claim("db", 1))
        .unwrap();
    let two = runtime
        .contract("two", Policy::pure().claim("db", 2))
        .unwrap();
    let held = assert_ready_ok!(spawn(two.admit()).poll());
    let mut first = spawn(one.admit());
    let mut heavy = spawn(two.admit());
    let mut last = spawn(one.admit());
    for waiter in [&mut first, &mut last] {
        assert_pending!(waiter.poll());
    }
    assert_pending!(heavy.poll());
    runtime.resize("db", 4).unwrap();
    assert!(first.is_woken());
    assert!(last.is_woken(), "it came before the heavy one");
    assert!(!heavy.is_woken());
    runtime.resize("db", 6).unwrap();
    assert!(heavy.is_woken());
    drop((held, first, last));
    drop(assert_ready_ok!(heavy.poll()));
    assert_idle(&runtime);
    assert_eq!(runtime.stats().budgets[0].capacity, 6);
}

#[test]
fn b12_shrinking_revokes_nothing_and_grants_nothing_above_the_new_capacity() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let one = runtime
        .contract("one", Policy::pure().claim("db", 1))
        .unwrap();
    let mut held: Vec<_> = (0..4)
        .map(|_| assert_ready_ok!(spawn(one.admit()).poll()))
        .collect();
    runtime.resize("db", 2).unwrap();
    assert_eq!(in_use(&runtime, "db"), 4, "nothing is revoked");
    let mut waits = spawn(one.admit());
    assert_pending!(waits.poll());
    held.pop();
    held.pop();
    assert_pending!(waits.poll(), "two of two are held");
    held.pop();
    assert!(waits.is_woken());
    drop(assert_ready_ok!(waits.poll()));
    drop(held);
    assert_idle(&runtime);
    // And back again.
    runtime.resize("db", 4).unwrap();
    let held: Vec<_> = (0..4)
        .map(|_| assert_ready_ok!(spawn(one.admit()).poll()))
        .collect();
    assert_pending!(spawn(one.admit()).poll());
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b12_a_capacity_that_some_claim_would_not_fit_is_refused() {
    let (runtime, _) = runtime(&[("a", 4), ("db", 4)]);
    let _three = runtime
        .contract("three", Policy::pure().claim("db", 3))
        .unwrap();
    let error = runtime.resize("db", 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "budget \"db\" cannot shrink to 2: operation \"three\" claims 3 of it"
    );
    assert!(matches!(
        runtime.resize("db", 0).unwrap_err(),
        ContractError::InvalidCapacity { .. }
    ));
    assert!(matches!(
        runtime.resize("net", 1).unwrap_err(),
        ContractError::NoSuchBudget { .. }
    ));
    runtime.resize("db", 3).unwrap();
    runtime.resize("a", 1).unwrap();
    // What is built later is checked against the capacity there is now.
    let late = runtime.contract("late", Policy::pure().claim("db", 4));
    assert!(matches!(
        late.unwrap_err(),
        ContractError::InvalidUnits { capacity: 3, .. }
    ));
}

#[test]
fn b12_a_drain_ends_at_whatever_capacity_there_is_then() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let one = runtime
        .contract("one", Policy::pure().claim("db", 1))
        .unwrap();
    let held = assert_ready_ok!(spawn(one.admit()).poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    runtime.resize("db", 3).unwrap();
    assert_pending!(drain.poll(), "one unit of three is held");
    runtime.resize("db", 8).unwrap();
    drop(held);
    assert!(drain.is_woken());
    assert_ready_ok!(drain.poll());
    assert_eq!(waiting(&runtime, "db"), 0);
}

#[test]
fn b12_whoever_is_woken_by_a_resize_may_look_at_the_runtime() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let one = Policy::pure().claim("db", 1);
    let one = runtime.contract("one", one).unwrap();
    let held = assert_ready_ok!(spawn(one.admit()).poll());
    let looks = Arc::new(AtomicU32::new(0));
    let (at, seen) = (runtime.clone(), Arc::clone(&looks));
    let waker = on_wake(move || {
        assert_eq!(at.snapshot().budgets[0].capacity, 2);
        assert_eq!(at.stats().budgets[0].in_use, 2);
        at.contract("made meanwhile", Policy::pure()).unwrap();
        seen.fetch_add(1, Ordering::Relaxed);
    });
    let mut waits = Box::pin(one.admit());
    assert_pending!(waits.as_mut().poll(&mut Context::from_waker(&waker)));
    watched(&runtime, || runtime.resize("db", 2).unwrap());
    assert_eq!(looks.load(Ordering::Relaxed), 1);
    drop((held, waits));
    assert_idle(&runtime);
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "one thread resizes while another reads"
)]
fn b12_counters_read_beside_a_resize_never_show_units_that_nobody_holds() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let _one = runtime
        .contract("one", Policy::pure().claim("db", 1))
        .unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000_u32 {
                runtime.resize("db", 1 + round % 8).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert_eq!(in_use(&runtime, "db"), 0);
        }
    });
}

fn failing(runtime: &Runtime, policy: Policy<bursar::Pure>) -> bursar::Contract {
    runtime
        .contract(
            "failing",
            policy.retry(
                Retry::up_to(4)
                    .on_transient()
                    .backoff(Backoff::exponential(ms(1)).cap(ms(1))),
            ),
        )
        .unwrap()
}

async fn down() -> Answer {
    Err(Failure::transient("down"))
}

#[test]
fn c11_a_denied_retry_returns_the_attempts_own_failure_and_is_counted() {
    let clock = bursar::ManualClock::new();
    let runtime = Runtime::builder()
        .resource("db", 1)
        .clock(clock.clone())
        .retry_budget(RetryBudget::new(2).percent(0))
        .build()
        .unwrap();
    let contract = failing(&runtime, Policy::pure());
    let mut run = spawn(contract.run(down));
    for _ in 0..2 {
        assert_pending!(run.poll());
        clock.advance(ms(1));
    }
    let error = assert_ready_err!(run.poll());
    let ran = error.attempted().unwrap();
    assert_eq!(ran.ended_by(), Some(EndedBy::RetryBudget));
    assert_eq!((ran.attempts(), error.error()), (3, Some(&"down")));
    let of = counts(&runtime, "failing");
    assert_eq!((of.retried, of.denied), (2, 1));
    assert_idle(&runtime);
}

#[tokio::test]
async fn c11_a_blocking_handlers_retry_is_denied_like_any_other() {
    let runtime = Runtime::builder()
        .resource("db", 1)
        .retry_budget(RetryBudget::new(1).percent(0))
        .build()
        .unwrap();
    let contract = failing(&runtime, Policy::pure().claim("db", 1));
    let blocking = || contract.run_blocking(|_| Answer::Err(Failure::transient("down")));
    let error = blocking().await.unwrap_err();
    let ran = error.attempted().expect("it ran");
    assert_eq!(
        (ran.attempts(), ran.ended_by()),
        (2, Some(EndedBy::RetryBudget))
    );
    assert_eq!(ran.failure().error(), Some(&"down"));
    assert_eq!(counts(&runtime, "failing").denied, 1);
    assert_idle(&runtime);
}

#[test]
fn c11_a_retry_that_is_never_made_costs_nothing() {
    let clock = bursar::ManualClock::new();
    let builder = Runtime::builder().resource("db", 1).clock(clock.clone());
    let runtime = builder.retry_budget(RetryBudget::new(1).percent(0));
    let runtime = runtime.build().unwrap();
    let retry = || Retry::up_to(2).on_transient();
    let policy = Policy::pure().claim("db", 1).retry(retry());
    let at_once = runtime.contract("at once", policy).unwrap();
    let backoff = Backoff::exponential(ms(10)).cap(ms(10));
    let policy = Policy::pure()
        .claim("db", 1)
        .retry(retry().backoff(backoff));
    let pausing = runtime.contract("pausing", policy).unwrap();
    let later = || async { Err::<u32, _>(Failure::<Error>::transient("down").after(ms(10))) };
    // The pause does not fit before the deadline; the caller leaves in it, one way or another, or between attempts.
    let mut call = pausing.with().within(ms(5));
    let error = assert_ready_err!(spawn(call.run(|_| later())).poll());
    let ran = error.attempted().unwrap();
    assert_eq!(ran.ended_by(), Some(EndedBy::CallerDeadline));
    for (contract, within) in [(&pausing, None), (&pausing, Some(15)), (&at_once, None)] {
        let token = Gate::new();
        let mut call = contract.with().until(token.wait());
        if let Some(within) = within {
            call = call.within(ms(within));
        }
        let pauses = within.is_some();
        let mut run = spawn(call.run(|_| async move {
            match pauses {
                true => later().await,
                false => down().await,
            }
        }));
        assert_pending!(run.poll());
        if within.is_some() {
            // The units that the pause gave back are held when it ends.
            let held = assert_ready_ok!(spawn(at_once.admit()).poll());
            clock.advance(ms(10));
            assert_pending!(run.poll());
            clock.advance(ms(5));
            assert_ready_err!(run.poll());
            drop(held);
        } else {
            token.open();
            assert_ready_err!(run.poll());
        }
    }
    for contract in [&pausing, &at_once] {
        let mut run = spawn(contract.run(down));
        assert_pending!(run.poll());
        drop(run);
    }
    // What nobody used is still there, once.
    let mut run = spawn(at_once.run(down));
    assert_pending!(run.poll());
    assert_eq!(assert_ready_err!(run.poll()).attempts(), 2);
    drop(run);
    let error = assert_ready_err!(spawn(at_once.run(down)).poll());
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(EndedBy::RetryBudget)
    );
    assert_idle(&runtime);
}

#[test]
fn c11_ten_minutes_of_failure_add_no_more_than_burst_and_share_and_first_attempts_go_on() {
    let clock = bursar::ManualClock::new();
    let runtime = Runtime::builder()
        .resource("db", 8)
        .clock(clock.clone())
        .retry_budget(RetryBudget::new(10).percent(20))
        .build()
        .unwrap();
    let contract = failing(&runtime, Policy::pure().claim("db", 1));
    let mut begun = 0_u64;
    let mut calls = 0_u64;
    // Ten calls a second for ten minutes, all of them failing.
    for _ in 0..6_000 {
        calls += 1;
        let mut run = spawn(contract.run(|| {
            begun += 1;
            down()
        }));
        while run.poll().is_pending() {
            clock.advance(ms(1));
        }
        drop(run);
        clock.advance(ms(100));
    }
    assert_eq!(begun - calls, counts(&runtime, "failing").retried);
    assert!(begun - calls <= 10 + calls / 5, "{begun} of {calls}");
    assert!(begun - calls >= calls / 5, "the share is really lent");
    // After recovery no first attempt is refused.
    for _ in 0..1_000 {
        let mut run = spawn(contract.run(|| async { Ok::<u32, Failure<Error>>(7) }));
        assert_ready_ok!(run.poll());
    }
    assert_idle(&runtime);
}

#[test]
fn c11_groups_have_budgets_of_their_own() {
    let clock = bursar::ManualClock::new();
    let builder = || Runtime::builder().resource("db", 1).clock(clock.clone());
    let runtime = builder()
        .retry_budget(RetryBudget::new(0).percent(0))
        .retry_group("vital", RetryBudget::new(1).percent(0))
        .build()
        .unwrap();
    let common = failing(&runtime, Policy::pure());
    let vital = failing(&runtime, Policy::pure().retry_group("vital"));
    assert_eq!(
        assert_ready_err!(spawn(common.run(down)).poll()).attempts(),
        1
    );
    let mut run = spawn(vital.run(down));
    assert_pending!(run.poll());
    clock.advance(ms(1));
    assert_eq!(assert_ready_err!(run.poll()).attempts(), 2);

    let unknown = runtime.contract("other", Policy::pure().retry_group("vitl"));
    assert!(matches!(
        unknown.unwrap_err(),
        ContractError::UnknownRetryGroup { .. }
    ));
    let twice = builder()
        .retry_group("vital", RetryBudget::new(1))
        .retry_group("vital", RetryBudget::new(2))
        .build();
    assert!(matches!(
        twice.unwrap_err(),
        ContractError::InvalidRetryGroup { .. }
    ));
}

#[test]
fn d5_a_drain_reports_what_ended_was_withdrawn_and_still_runs() {
    let (runtime, clock) = runtime(&[("db", 2)]);
    let one = runtime
        .contract("one", Policy::pure().claim("db", 1))
        .unwrap();
    let other = runtime.contract("other", Policy::pure()).unwrap();
    // Before the drain: not its business.
    drop(assert_ready_ok!(spawn(one.admit()).poll()));
    let first = assert_ready_ok!(spawn(one.admit()).poll());
    let second = assert_ready_ok!(spawn(one.admit()).poll());
    let mut waits = [spawn(one.admit()), spawn(one.admit()), spawn(one.admit())];
    for waiter in &mut waits {
        assert_pending!(waiter.poll());
    }
    let mut bounded = spawn(runtime.shutdown_within(ms(10)));
    assert_pending!(bounded.poll());
    drop(first);
    clock.advance(ms(10));
    let error = assert_ready_err!(bounded.poll());
    let ShutdownError::StillRunning(report) = error else {
        panic!("{error}");
    };
    let of = |report: &bursar::DrainReport, at: usize| {
        let of = &report.operations[at];
        (of.ended, of.withdrawn, of.running)
    };
    assert_eq!((of(&report, 0), of(&report, 1)), ((1, 3, 1), (0, 0, 0)));
    assert_eq!(report.running(), 1);
    drop(second);
    let report = assert_ready_ok!(spawn(runtime.shutdown()).poll());
    assert_eq!((of(&report, 0), of(&report, 1)), ((2, 3, 0), (0, 0, 0)));
    assert_eq!(
        report.to_string(),
        "operation       ended   withdrawn     running\n\
         one                 2           3           0\n\
         other               0           0           0"
    );
    drop((waits, other));
}

/// A withdrawn call that holds something still runs, until it has seen it.
#[test]
fn d5_a_call_is_withdrawn_when_it_has_ended_and_not_before() {
    let (runtime, clock) = runtime(&[("a", 2), ("b", 1)]);
    let both = Policy::pure().claim("a", 1).claim("b", 1);
    let both = runtime.contract("both", both).unwrap();

    let first = assert_ready_ok!(spawn(both.admit()).poll());
    let mut holds = spawn(both.admit());
    assert_pending!(holds.poll());
    let mut bounded = spawn(runtime.shutdown_within(ms(10)));
    assert_pending!(bounded.poll());
    drop(first);
    clock.advance(ms(10));
    let of = |report: &bursar::DrainReport, at: usize| {
        let of = &report.operations[at];
        (of.ended, of.withdrawn, of.running)
    };
    let ShutdownError::StillRunning(report) = assert_ready_err!(bounded.poll()) else {
        panic!("asked for from outside");
    };
    assert_eq!(of(&report, 0), (1, 0, 1), "it holds a unit of \"a\"");
    assert!(assert_ready_err!(holds.poll()).is_stopping());
    let report = assert_ready_ok!(spawn(runtime.shutdown()).poll());
    assert_eq!(of(&report, 0), (1, 1, 0));
}

#[test]
fn d5_a_call_granted_in_part_and_turned_away_from_the_rest_was_withdrawn() {
    let (runtime, _clock) = runtime(&[("a", 1), ("b", 1)]);
    let both = Policy::pure().claim("a", 1).claim("b", 1);
    let both = runtime.contract("both", both).unwrap();
    let first = assert_ready_ok!(spawn(both.admit()).poll());
    let mut granted = spawn(both.admit());
    assert_pending!(granted.poll());
    drop(first);
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    assert!(assert_ready_err!(granted.poll()).is_stopping());
    let report = assert_ready_ok!(drain.poll());
    let of = &report.operations[0];
    assert_eq!((of.ended, of.withdrawn, of.running), (0, 1, 0));
}
