//! E2, the exact mode: every call with its age, and how long calls waited and ran, by a clock that is turned by hand.

#![cfg(feature = "exact")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bursar::{
    Backoff, CallSnapshot, Clock, Contract, Doing, Failure, ManualClock, Policy, Quantiles, Retry,
    Runtime, Timer, Times,
};
use common::room::Room;
use common::{Answer, Script, assert_idle, ms};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

fn exact(budgets: &[(&str, u32)]) -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let mut builder = Runtime::builder().clock(clock.clone()).exact();
    for (name, capacity) in budgets {
        builder = builder.resource(*name, *capacity);
    }
    (builder.build().unwrap(), clock)
}

fn contract(runtime: &Runtime, name: &str, claims: &[&str]) -> Contract {
    let claim = |policy: Policy<_>, budget: &&str| policy.claim(*budget, 1);
    let policy = claims.iter().fold(Policy::pure(), claim);
    runtime.contract(name, policy).unwrap()
}

fn calls(runtime: &Runtime) -> Vec<CallSnapshot> {
    runtime.snapshot().calls.expect("the runtime is exact")
}

/// Operation, what it does, the budget it waits for, its key, its age and how long it has done so, in milliseconds.
type Shown<'c> = (&'c str, Doing, Option<&'c str>, Option<&'c str>, u128, u128);

fn shown(of: &CallSnapshot) -> Shown<'_> {
    let times = (of.age.as_millis(), of.doing_for.as_millis());
    (
        &of.operation,
        of.doing,
        of.budget.as_deref(),
        of.key.as_deref(),
        times.0,
        times.1,
    )
}

fn times(runtime: &Runtime, operation: usize) -> Times {
    let of = &runtime.snapshot().operations[operation];
    of.times.expect("the runtime is exact")
}

/// Told to two digits.
#[track_caller]
fn assert_about(of: Duration, milliseconds: u64) {
    let off = of.abs_diff(ms(milliseconds));
    assert!(
        off <= ms(milliseconds) / 100,
        "{of:?}, not {milliseconds} ms"
    );
}

#[test]
fn e2_exact_shows_each_holder_and_waiter_with_its_age() {
    let (runtime, clock) = exact(&[("a", 1), ("b", 1)]);
    let both = contract(&runtime, "both", &["a", "b"]);
    let last = contract(&runtime, "last", &["b"]);
    assert_eq!(calls(&runtime), []);
    let held = assert_ready_ok!(spawn(last.admit()).poll());
    clock.advance(ms(100));
    let mut keyed = both.with().key("k");
    let mut keyed = spawn(keyed.admit());
    assert_pending!(keyed.poll());
    clock.advance(ms(10));
    let mut behind = both.with().key("k");
    let mut behind = spawn(behind.admit());
    assert_pending!(behind.poll());
    clock.advance(ms(1));
    let snapshot = runtime.snapshot();
    let seen: Vec<_> = snapshot.calls.iter().flatten().map(shown).collect();
    assert_eq!(
        seen,
        [
            ("last", Doing::Executing, None, None, 111, 111),
            ("both", Doing::WaitingForUnits, Some("b"), Some("k"), 11, 11),
            ("both", Doing::WaitingForKey, None, Some("k"), 1, 1),
        ]
    );
    let [a, b] = &snapshot.budgets[..] else {
        panic!("two budgets");
    };
    assert_eq!((a.longest_wait, b.longest_wait), (None, Some(ms(11))));
    assert_eq!(b.holders[0].oldest, Some(ms(111)));
    assert_eq!(a.holders[0].oldest, None, "it waits, and does not execute");
    assert_eq!(snapshot.keys[0].holder_age, Some(ms(11)));
    let text = snapshot.to_string();
    for part in [
        "1 call waits for budget b: 1 of 1 in use, held by last 1 (for 111 ms); the longest has waited 11 ms",
        "1 call waits for key \"k\", held by both, which came 11 ms ago",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }

    drop(held);
    let permit = assert_ready_ok!(keyed.poll());
    clock.advance(ms(5));
    let seen = calls(&runtime);
    assert_eq!(
        shown(&seen[0]),
        ("both", Doing::Executing, None, Some("k"), 16, 5)
    );
    drop(permit);
    drop(behind);
    assert_eq!(calls(&runtime), []);
    assert_idle(&runtime);
}

#[test]
fn e2_exact_times_are_split_into_waiting_and_running() {
    let (runtime, clock) = exact(&[("db", 1)]);
    let backoff = Backoff::exponential(ms(64)).cap(ms(64));
    let retry = Retry::up_to(2).on_transient().backoff(backoff);
    let policy = Policy::pure().claim("db", 1).retry(retry);
    let load = runtime.contract("load", policy).unwrap();
    let other = contract(&runtime, "other", &["db"]);
    assert_eq!(times(&runtime, 0).waiting, Quantiles::default());

    let held = assert_ready_ok!(spawn(other.admit()).poll());
    let script = Script::new();
    let mut call = spawn(load.run(|| script.answer()));
    assert_pending!(call.poll());
    clock.advance(ms(100));
    drop(held);
    assert_pending!(call.poll());
    clock.advance(ms(20));
    script.say(Err(Failure::transient("again")));
    assert_pending!(call.poll());
    assert_eq!(calls(&runtime)[0].doing, Doing::Pausing);
    let held = assert_ready_ok!(spawn(other.admit()).poll());
    // The pause, which counts as neither.
    clock.advance(ms(64));
    assert_pending!(call.poll());
    assert_eq!(calls(&runtime)[0].doing, Doing::WaitingForUnits);
    clock.advance(ms(300));
    drop(held);
    assert_pending!(call.poll());
    clock.advance(ms(10));
    script.say(Ok(7));
    assert_ready_ok!(call.poll());

    let of = times(&runtime, 0);
    assert_eq!((of.waiting.count, of.running.count), (1, 1));
    assert_about(of.waiting.p50, 400);
    assert_about(of.waiting.max, 400);
    assert_about(of.running.p50, 30);
    let of = times(&runtime, 1);
    assert_eq!((of.waiting.count, of.running.count), (2, 2));
    assert_eq!(of.waiting.max, Duration::ZERO, "both found it free");
    assert_about(of.running.p50, 100);
    assert_about(of.running.max, 364);
    assert!(runtime.snapshot().to_string().contains("waited p50"));
}

#[test]
fn e2_exact_calls_that_never_ran_count_their_wait_alone() {
    let (runtime, clock) = exact(&[("db", 1)]);
    let load = contract(&runtime, "load", &["db"]);
    let held = assert_ready_ok!(spawn(load.admit()).poll());
    let mut left = spawn(load.admit());
    assert_pending!(left.poll());
    let mut bounded = load.with().within(ms(50));
    let mut bounded = spawn(bounded.admit());
    assert_pending!(bounded.poll());
    let mut withdrawn = spawn(load.admit());
    assert_pending!(withdrawn.poll());
    let mut unpolled = spawn(load.admit());
    assert_pending!(unpolled.poll());
    clock.advance(ms(50));
    drop(left);
    assert_ready_err!(bounded.poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    assert_ready_err!(withdrawn.poll());
    drop(held);
    assert_ready_ok!(drain.poll());
    assert_eq!(calls(&runtime).len(), 1, "one whose future nobody polls");
    drop(unpolled);
    assert_eq!(calls(&runtime), []);
    let of = times(&runtime, 0);
    assert_eq!((of.waiting.count, of.running.count), (5, 1));
    assert_about(of.waiting.p90, 50);
}

#[test]
fn e2_exact_changes_nothing_that_a_call_means() {
    let (runtime, _) = exact(&[("db", 2)]);
    let load = contract(&runtime, "load", &["db"]);
    let nothing = runtime.contract("nothing", Policy::pure()).unwrap();
    let room = Room::new();
    let answer = || async { Answer::Ok(7) };
    assert_ready_ok!(spawn(load.run(answer)).poll());
    assert_ready_ok!(spawn(nothing.run(answer)).poll());
    let mut keyed = load.with().key("k");
    assert_ready_ok!(spawn(keyed.run(|_| answer())).poll());
    // Held by a guard, and dropped while it executes.
    let (_, permit) = assert_ready_ok!(spawn(load.run_held(answer)).poll());
    let mut dropped = spawn(load.run(|| room.stay()));
    assert_pending!(dropped.poll());
    assert_eq!(calls(&runtime).len(), 2);
    drop((permit, dropped));
    let panics = std::panic::AssertUnwindSafe(|| {
        let panics = || async { panic!("this handler panics") };
        spawn(load.run::<_, _, u32, &str>(panics)).poll()
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(calls(&runtime), []);
    let of = runtime.stats().total();
    assert_eq!((of.admitted, of.started, of.finished), (6, 6, 6));
    let of = of.outcomes;
    assert_eq!((of.success, of.dropped, of.panicked), (4, 1, 1));
    assert_idle(&runtime);
}

#[test]
fn e2_a_runtime_that_is_not_exact_has_no_ages() {
    let (runtime, _) = common::runtime(&[("db", 1)]);
    let load = contract(&runtime, "load", &["db"]);
    let held = assert_ready_ok!(spawn(load.admit()).poll());
    let snapshot = runtime.snapshot();
    assert_eq!(snapshot.calls, None);
    assert_eq!(snapshot.operations[0].times, None);
    assert_eq!(snapshot.budgets[0].holders[0].oldest, None);
    drop(held);
}

#[test]
fn e2_exact_keeps_a_blocking_handler_until_it_has_really_ended() {
    let pool = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _inside = pool.enter();
    let (runtime, clock) = exact(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1).timeout(ms(10));
    let load = runtime.contract("load", policy).unwrap();
    let (begins, begun) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let mut call = common::Stepped::new(load.run_blocking(move |_| {
        begins.send(()).expect("the test listens");
        common::receive(&gone);
        Answer::Ok(7)
    }));
    assert_pending!(call.poll());
    common::receive(&begun);
    clock.advance(ms(10));
    assert_ready_err!(call.poll());
    clock.advance(ms(90));
    assert_eq!(shown(&calls(&runtime)[0]).4, 100);
    // The next to come gets the unit when the thread has let go of it.
    let mut next = common::Stepped::new(load.admit());
    assert_pending!(next.poll());
    go.send(()).expect("the handler waits");
    next.wait();
    let permit = assert_ready_ok!(next.poll());
    drop(permit);
    assert_about(times(&runtime, 0).running.max, 100);
}

/// Panics as soon as it is told to, until it is told not to.
#[derive(Clone)]
struct Broken(ManualClock, Arc<AtomicBool>);

impl Clock for Broken {
    fn now(&self) -> Instant {
        assert!(!self.1.load(Ordering::Relaxed), "boom");
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        self.0.sleep_until(deadline)
    }
}

#[test]
fn b8_a_clock_that_panics_while_a_watched_call_ends_loses_nothing() {
    let broken = Arc::new(AtomicBool::new(false));
    let clock = Broken(ManualClock::new(), Arc::clone(&broken));
    let builder = Runtime::builder().resource("a", 1).resource("b", 1);
    let runtime = builder.clock(clock).exact().build().unwrap();
    let both = contract(&runtime, "both", &["a", "b"]);
    let only_b = contract(&runtime, "b", &["b"]);
    let held = assert_ready_ok!(spawn(only_b.admit()).poll());
    let mut waits = spawn(both.admit());
    assert_pending!(waits.poll());
    let ends = |end: &mut dyn FnMut()| {
        broken.store(true, Ordering::Relaxed);
        let ended = catch_unwind(AssertUnwindSafe(end));
        broken.store(false, Ordering::Relaxed);
        assert!(ended.is_err(), "the clock's panic is not hidden");
    };
    let (mut waits, mut held) = (Some(waits), Some(held));
    ends(&mut || drop(waits.take()));
    ends(&mut || drop(held.take()));
    assert_idle(&runtime);
    assert_eq!(calls(&runtime), []);
}

/// A call that ends is not one that stops pausing.
#[test]
fn e2_exact_calls_that_have_ended_hide_none_that_pauses() {
    let (runtime, _) = exact(&[("db", 1)]);
    let retry = Retry::up_to(2)
        .on_transient()
        .backoff(Backoff::exponential(ms(10)));
    let load = Policy::pure().claim("db", 1).retry(retry);
    let load = runtime.contract("load", load).unwrap();
    for _ in 0..3 {
        assert_ready_ok!(spawn(load.run(|| async { Answer::Ok(7) })).poll());
    }
    let mut pauses = spawn(load.run(|| async { Answer::Err(Failure::transient("lost")) }));
    assert_pending!(pauses.poll());
    let seen = &runtime.snapshot().operations[0];
    assert_eq!((seen.executing, seen.paused, seen.waiting), (0, 1, 0));
    let text = runtime.snapshot().to_string();
    assert!(text.contains(" pauses "), "\n{text}");
    drop(pauses);
    assert!(calls(&runtime).is_empty());
    assert_idle(&runtime);
}

/// Each call has an entry of its own, whichever thread it was made on, and takes that away when it ends on another.
#[test]
#[expect(clippy::disallowed_methods, reason = "another thread is the subject")]
fn e2_exact_calls_of_several_threads_are_all_shown() {
    let (runtime, _) = exact(&[("db", 8)]);
    let load = contract(&runtime, "load", &["db"]);
    let mut held = Vec::new();
    for made in 1..=4 {
        let admit = || assert_ready_ok!(spawn(load.admit()).poll());
        held.push(admit());
        let there = std::thread::scope(|scope| scope.spawn(admit).join());
        held.push(there.expect("no check fails"));
        assert_eq!(calls(&runtime).len(), 2 * made);
    }
    for left in (0..8).rev() {
        drop(held.pop());
        assert_eq!(calls(&runtime).len(), left);
    }
    assert_eq!(times(&runtime, 0).running.count, 8);
    assert_idle(&runtime);
}

/// Nothing is said of keys for which nobody waits, nor of times of an operation that nobody has called.
#[test]
fn e2_what_has_not_happened_is_not_told() {
    let (runtime, _) = exact(&[("db", 1)]);
    let (load, _idle) = (
        contract(&runtime, "load", &["db"]),
        contract(&runtime, "idle", &[]),
    );
    let mut with = load.with().key("acme");
    let held = assert_ready_ok!(spawn(with.admit()).poll());
    let text = runtime.snapshot().to_string();
    assert!(
        !text.contains("0 calls") && !text.contains("for key"),
        "{text}"
    );
    drop(held);
    let text = runtime.snapshot().to_string();
    let heads = text.lines().position(|line| line.contains("waited p50"));
    let mut below = text.lines().skip(heads.expect("a call has ended"));
    assert!(below.all(|line| !line.starts_with("idle")), "{text}");
}

/// Whether a call ran is asked at each of its steps: one that waits twice and leaves did not.
#[test]
fn e2_exact_counts_a_run_once_everything_is_held() {
    let (runtime, _) = exact(&[("db", 1)]);
    let load = contract(&runtime, "load", &["db"]);
    let hold = contract(&runtime, "hold", &["db"]);
    let keyed = contract(&runtime, "keyed", &[]);
    let key = || {
        let mut with = keyed.with().key("k");
        assert_ready_ok!(spawn(with.admit()).poll())
    };
    for (leaves, ran) in [(true, 0), (false, 1)] {
        let (held, key) = (assert_ready_ok!(spawn(hold.admit()).poll()), key());
        let mut with = load.with().key("k");
        let mut call = spawn(with.admit());
        assert_pending!(call.poll());
        drop(key);
        assert_pending!(call.poll());
        if !leaves {
            drop(held);
            drop(assert_ready_ok!(call.poll()));
        }
        drop(call);
        let times = times(&runtime, 0);
        assert_eq!(times.running.count, ran);
        assert_eq!(times.waiting.count, ran + 1);
    }
    assert_idle(&runtime);
}

/// More threads than there are numbers for.
#[test]
#[expect(clippy::disallowed_methods, reason = "threads are the subject")]
fn e2_exact_calls_of_any_thread_are_shown() {
    let threads = 4 + 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let (runtime, _) = exact(&[("db", 1_000)]);
    let load = contract(&runtime, "load", &["db"]);
    let all_there = std::sync::Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let held = assert_ready_ok!(spawn(load.admit()).poll());
                all_there.wait();
                all_there.wait();
                drop(held);
            });
        }
        all_there.wait();
        let shown = calls(&runtime).len();
        all_there.wait();
        assert_eq!(shown, threads);
    });
    assert!(calls(&runtime).is_empty());
    assert_idle(&runtime);
}
