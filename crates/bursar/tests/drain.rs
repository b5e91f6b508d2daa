//! D1: from the first poll of a shutdown nothing new is admitted, what waits is withdrawn, what executes runs to its
//! end. Calls made from outside; those made from inside live work are in `nested.rs`.

mod common;

use std::future::pending;

use bursar::{Contract, EndedBy, Failure, Outcome, Policy, Retry, Runtime};
use common::{Answer, Gate, Script, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

/// Budgets `a` and `b` of one unit; `work` claims both, `free` claims nothing.
fn two_budgets() -> (Runtime, Contract, Contract) {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let policy = Policy::pure().claim("a", 1).claim("b", 1);
    let work = runtime.contract("work", policy).unwrap();
    let free = runtime.contract("free", Policy::pure()).unwrap();
    (runtime, work, free)
}

fn holder(runtime: &Runtime, budget: &str) -> Contract {
    let policy = Policy::pure().claim(budget, 1);
    runtime.contract("holder", policy).unwrap()
}

async fn one() -> Answer {
    Ok(1)
}

#[test]
fn d1_the_gate_closes_at_the_first_poll_and_no_sooner() {
    let (runtime, work, free) = two_budgets();
    let unpolled = runtime.shutdown();
    for contract in [&work, &free] {
        assert_ready_ok!(task::spawn(contract.run(one)).poll());
    }
    drop(unpolled);
    assert_ready_ok!(task::spawn(work.run(one)).poll());
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
    for contract in [&work, &free] {
        let error = assert_ready_err!(task::spawn(contract.run(one)).poll());
        assert!(error.is_stopping(), "{error:?}");
        let error = assert_ready_err!(task::spawn(contract.with().key("k").admit()).poll());
        assert!(error.is_stopping() && error.never_ran(), "{error:?}");
        assert_eq!(error.outcome(), Outcome::Throttled);
    }
    let (of_work, of_free) = (counts(&runtime, "work"), counts(&runtime, "free"));
    assert_eq!(
        (of_work.admitted, of_work.rejected),
        (2, 2),
        "refused at the gate: rejected only"
    );
    assert_eq!((of_free.admitted, of_free.rejected), (1, 2));
    assert_idle(&runtime);
}

#[test]
fn d1_the_gate_comes_before_the_callers_bounds_and_before_a_rejection() {
    let (runtime, work, _) = two_budgets();
    let policy = Policy::pure().claim("a", 1).reject();
    let reject = runtime.contract("reject", policy).unwrap();
    let held = assert_ready_ok!(task::spawn(work.admit()).poll());
    assert_pending!(task::spawn(runtime.shutdown()).poll());
    let mut expired = work.with().within(ms(0)).until(async {});
    let error = assert_ready_err!(task::spawn(expired.admit()).poll());
    assert!(error.is_stopping(), "{error:?}");
    let error = assert_ready_err!(task::spawn(reject.admit()).poll());
    assert!(error.is_stopping(), "{error:?}");
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn d1_what_waits_is_woken_with_stopping_and_everything_is_back() {
    let (runtime, work, _) = two_budgets();
    let held = assert_ready_ok!(task::spawn(holder(&runtime, "b").with().key("k").admit()).poll());
    let mut at_second = task::spawn(work.admit());
    assert_pending!(at_second.poll());
    let mut at_first = task::spawn(work.admit());
    assert_pending!(at_first.poll());
    let mut keyed = work.with().key("k");
    let mut at_key = task::spawn(keyed.admit());
    assert_pending!(at_key.poll());
    let mut other = work.with().key("another");
    let mut with_key = task::spawn(other.admit());
    assert_pending!(with_key.poll());
    assert_eq!(
        (
            in_use(&runtime, "a"),
            waiting(&runtime, "a"),
            waiting(&runtime, "b")
        ),
        (1, 2, 1)
    );
    assert_eq!(runtime.stats().keys, 2);

    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert_eq!((waiting(&runtime, "a"), waiting(&runtime, "b")), (0, 0));
    for woken in [
        at_second.is_woken(),
        at_first.is_woken(),
        at_key.is_woken(),
        with_key.is_woken(),
    ] {
        assert!(woken);
    }
    let error = assert_ready_err!(at_second.poll());
    assert_eq!(
        error.refusal().unwrap().budget(),
        Some("b"),
        "where it waited: {error:?}"
    );
    assert!(error.is_stopping());
    assert_eq!(in_use(&runtime, "a"), 0, "back when the error is seen");
    let error = assert_ready_err!(with_key.poll());
    assert!(error.is_stopping());
    assert_eq!(runtime.stats().keys, 1);
    let error = assert_ready_err!(at_first.poll());
    assert_eq!(error.refusal().unwrap().budget(), Some("a"));
    let error = assert_ready_err!(at_key.poll());
    assert!(error.refusal().unwrap().is_key() && error.is_stopping());

    assert_pending!(shutdown.poll(), "the holder still executes");
    drop(held);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    let of = counts(&runtime, "work");
    assert_eq!(
        (of.admitted, of.started, of.finished, of.rejected),
        (4, 0, 4, 0)
    );
    assert_idle(&runtime);
}

#[test]
fn d1_withdrawn_waiters_that_nobody_polls_block_no_drain() {
    let (runtime, work, _) = two_budgets();
    let held = assert_ready_ok!(task::spawn(work.with().key("k").admit()).poll());
    let mut keyed = work.with().key("k");
    let mut at_key = task::spawn(keyed.admit());
    assert_pending!(at_key.poll());
    let mut at_first = task::spawn(work.admit());
    assert_pending!(at_first.poll());
    let mut dropped = task::spawn(work.admit());
    assert_pending!(dropped.poll());

    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    // Counted there and then, though their futures lie about.
    let of = counts(&runtime, "work");
    assert_eq!((of.admitted, of.started, of.finished), (4, 1, 3));
    drop(held);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);

    drop(dropped);
    assert!(assert_ready_err!(at_key.poll()).is_stopping());
    assert!(assert_ready_err!(at_first.poll()).is_stopping());
    drop((at_key, at_first));
    assert_idle(&runtime);
    assert_eq!(counts(&runtime, "work").finished, 4, "counted once");
}

#[test]
fn d1_a_withdrawn_waiter_that_holds_something_ends_when_it_is_polled_or_dropped() {
    for polled in [true, false] {
        let (runtime, work, _) = two_budgets();
        let held = assert_ready_ok!(task::spawn(holder(&runtime, "b").admit()).poll());
        let mut waits = task::spawn(work.admit());
        assert_pending!(waits.poll());
        let mut shutdown = task::spawn(runtime.shutdown());
        assert_pending!(shutdown.poll());
        drop(held);
        assert_pending!(shutdown.poll());
        assert_eq!(in_use(&runtime, "a"), 1);
        if polled {
            assert!(assert_ready_err!(waits.poll()).is_stopping());
        } else {
            drop(waits);
        }
        assert!(shutdown.is_woken());
        assert_ready_ok!(shutdown.poll());
        assert_idle(&runtime);
    }
}

#[test]
fn d1_what_executes_runs_to_its_end_with_the_retries_that_follow_at_once() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(4).on_transient().on_uncertain();
    let policy = Policy::pure().claim("a", 1).timeout(ms(10)).retry(retry);
    let work = runtime.contract("work", policy).unwrap();
    let script = Script::new();
    let mut call = task::spawn(work.run(|| script.answer()));
    script.say(Err(Failure::transient("again")));
    assert_pending!(call.poll());
    // Between two attempts.
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert_pending!(call.poll());
    assert_eq!(script.begun(), 2);
    script.say(Err(Failure::transient("again")));
    assert_pending!(call.poll_until_idle());
    clock.advance(ms(10));
    assert_pending!(call.poll_until_idle());
    assert_eq!(script.begun(), 4);
    assert!(!shutdown.is_woken());
    script.say(Ok(7));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    let of = counts(&runtime, "work");
    assert_eq!((of.started, of.finished, of.retried), (1, 1, 3));
    assert_idle(&runtime);
}

#[test]
fn d1_draining_is_not_cancelling_each_call_gets_its_own_result() {
    let (runtime, _) = runtime(&[("a", 4)]);
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let token = Gate::new();
    let scripts = [(); 4].map(|()| Script::new());
    let mut builders = scripts.each_ref().map(|_| work.with().until(token.wait()));
    let mut calls: Vec<_> = builders
        .iter_mut()
        .zip(&scripts)
        .map(|(builder, script)| task::spawn(builder.run(|_| script.answer())))
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    for call in &calls {
        assert!(!call.is_woken(), "nothing is told to a call that executes");
    }
    scripts[0].say(Ok(7));
    scripts[1].say(Err(Failure::permanent("own")));
    scripts[2].say(Err(Failure::unclassified("own")));
    assert_eq!(assert_ready_ok!(calls[0].poll()), 7);
    assert_eq!(
        assert_ready_err!(calls[1].poll()).outcome(),
        Outcome::Permanent
    );
    assert_eq!(assert_ready_err!(calls[2].poll()).error(), Some(&"own"));
    assert_pending!(shutdown.poll());
    token.open();
    let error = assert_ready_err!(calls[3].poll());
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(EndedBy::CallerLeft)
    );
    assert_ready_ok!(shutdown.poll());
    drop(calls);
    assert_idle(&runtime);
}

#[test]
fn d1_a_grant_before_the_stop_stands() {
    // The last budget, and a key where no budget is claimed.
    let (runtime, work, free) = two_budgets();
    let held_b = assert_ready_ok!(task::spawn(holder(&runtime, "b").admit()).poll());
    let held_k = assert_ready_ok!(task::spawn(free.with().key("k").admit()).poll());
    let mut at_budget = task::spawn(work.run(one));
    assert_pending!(at_budget.poll());
    let mut keyed = free.with().key("k");
    let mut at_key = task::spawn(keyed.run(|_| one()));
    assert_pending!(at_key.poll());
    drop((held_b, held_k));
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert_ready_ok!(at_budget.poll());
    assert_ready_ok!(at_key.poll());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

#[test]
fn d1_a_grant_before_the_stop_is_no_admission_while_more_is_needed() {
    let (runtime, work, free) = two_budgets();
    let held_a = assert_ready_ok!(task::spawn(holder(&runtime, "a").admit()).poll());
    let held_k = assert_ready_ok!(task::spawn(free.with().key("k").admit()).poll());
    let mut has_a = task::spawn(work.run(one));
    assert_pending!(has_a.poll());
    let mut keyed = work.with().key("k");
    let mut has_key = task::spawn(keyed.run(|_| one()));
    assert_pending!(has_key.poll());
    drop((held_a, held_k));
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert!(assert_ready_err!(has_a.poll()).is_stopping());
    assert!(assert_ready_err!(has_key.poll()).is_stopping());
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    let of = counts(&runtime, "work");
    assert_eq!(
        (of.admitted, of.started, of.finished, of.rejected),
        (2, 0, 2, 0)
    );
    assert_idle(&runtime);
}

#[test]
fn d1_a_call_without_key_or_budget_holds_the_drain_up() {
    let (runtime, _, free) = two_budgets();
    let script = Script::new();
    let mut calls = [(); 3].map(|()| task::spawn(free.run(|| script.answer())));
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    let permit = assert_ready_ok!(task::spawn(free.admit()).poll());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    let [mut first, second, third] = calls;
    script.say(Ok(1));
    assert_ready_ok!(first.poll());
    drop((second, permit));
    assert_pending!(shutdown.poll());
    drop(third);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

#[test]
fn d1_a_permit_holds_the_drain_up_and_so_does_one_that_came_with_a_value() {
    let (runtime, work, _) = two_budgets();
    let (_, held) = assert_ready_ok!(task::spawn(work.run_held(one)).poll());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    // What is done under a permit is outside.
    assert!(assert_ready_err!(task::spawn(work.admit()).poll()).is_stopping());
    drop(held);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

#[test]
fn d1_a_refused_call_that_has_not_been_answered_blocks_no_drain() {
    let (runtime, work, _) = two_budgets();
    let policy = Policy::pure().claim("a", 1).claim("b", 1).reject();
    let reject = runtime.contract("reject", policy).unwrap();
    let held = assert_ready_ok!(task::spawn(work.admit()).poll());
    let mut builder = reject.with().key("k");
    let mut refused = task::spawn(builder.run(|_| one()));
    assert_pending!(refused.poll());
    drop(held);
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
    assert_idle(&runtime);
    assert!(assert_ready_err!(refused.poll()).is_overloaded());
    assert_eq!(counts(&runtime, "reject").finished, 1);
}

#[test]
fn d1_dropping_the_shutdown_does_not_reopen() {
    let (runtime, work, free) = two_budgets();
    let mut call = task::spawn(work.run(pending::<Answer>));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    drop(shutdown);
    for contract in [&work, &free] {
        assert!(assert_ready_err!(task::spawn(contract.run(one)).poll()).is_stopping());
    }
    let clone = runtime.clone();
    let later = clone.contract("later", Policy::pure()).unwrap();
    assert!(assert_ready_err!(task::spawn(later.run(one)).poll()).is_stopping());
    // And it can be awaited again.
    let mut again = task::spawn(clone.shutdown());
    assert_pending!(again.poll());
    drop(call);
    assert!(again.is_woken());
    assert_ready_ok!(again.poll());
    assert_idle(&runtime);
}

#[test]
fn d1_two_runtimes_share_nothing() {
    let (closed, work, _) = two_budgets();
    let (_open, other, _) = two_budgets();
    assert_ready_ok!(task::spawn(closed.shutdown()).poll());
    assert!(assert_ready_err!(task::spawn(work.run(one)).poll()).is_stopping());
    assert_ready_ok!(task::spawn(other.run(one)).poll());
}
