//! E1, E2: what became of calls is counted, each in one place, and the places add up.

mod common;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use bursar::{Backoff, Carry, Contract, Failure, Outcomes, Policy, Pure, Retry, Runtime};
use common::room::{Room, ends, on_wake};
use common::{Error, Gate, Script, Stepped, assert_idle, counts, lock, ms, receive, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

async fn seven() -> Result<u32, Failure<Error>> {
    Ok(7)
}

/// Success, transient, permanent, throttled, uncertain, never ran, dropped, panicked.
fn eight(of: &Outcomes) -> [u64; 8] {
    [
        of.success,
        of.transient,
        of.permanent,
        of.throttled,
        of.uncertain,
        of.never_ran,
        of.dropped,
        of.panicked,
    ]
}

/// What became of the calls of "load", which claims the one unit of "db".
#[track_caller]
fn ended(policy: fn(Policy<Pure>) -> Policy<Pure>, end: fn(&Runtime, &Contract)) -> [u64; 8] {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = policy(Policy::pure().claim("db", 1));
    let load = runtime.contract("load", load).unwrap();
    end(&runtime, &load);
    assert_idle(&runtime);
    let of = counts(&runtime, "load");
    assert_eq!(of.outcomes.all(), of.finished, "{of:?}");
    assert_eq!(runtime.stats().total().outcomes, of.outcomes);
    eight(&of.outcomes)
}

fn fails(with: fn() -> Failure<Error>) -> impl Fn(&Contract) {
    move |load| {
        let fails = || async move { Err::<(), _>(with()) };
        assert_ready_err!(spawn(load.run(fails)).poll());
    }
}

#[test]
fn e2_what_became_of_a_call_is_counted_once() {
    ends(|| {
        let plain = |policy| policy;
        let success = [1, 0, 0, 0, 0, 0, 0, 0];
        let never_ran = [0, 0, 0, 0, 0, 1, 0, 0];
        let dropped = [0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(
            ended(plain, |_, load| {
                assert_ready_ok!(spawn(load.run(seven)).poll());
            }),
            success
        );
        assert_eq!(
            ended(plain, |_, load| {
                drop(assert_ready_ok!(spawn(load.admit()).poll()));
            }),
            success,
            "a permit that is dropped"
        );
        assert_eq!(
            ended(plain, |_, load| {
                drop(assert_ready_ok!(spawn(load.run_held(seven)).poll()));
            }),
            success,
            "a permit that came with a value"
        );
        assert_eq!(
            ended(plain, |_, load| fails(|| Failure::transient("bad"))(load)),
            [0, 1, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            ended(plain, |_, load| fails(|| Failure::permanent("bad"))(load)),
            [0, 0, 1, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            ended(plain, |_, load| fails(|| Failure::throttled("bad"))(load)),
            [0, 0, 0, 1, 0, 0, 0, 0]
        );
        assert_eq!(
            ended(plain, |_, load| fails(|| Failure::uncertain("bad"))(load)),
            [0, 0, 0, 0, 1, 0, 0, 0]
        );
        assert_eq!(
            ended(Policy::reject, |_, load| {
                let held = assert_ready_ok!(spawn(load.admit()).poll());
                let mut refused = spawn(load.run(seven));
                assert_pending!(refused.poll(), "one turn of the executor");
                assert_ready_err!(refused.poll());
                drop(held);
            }),
            [1, 0, 0, 0, 0, 1, 0, 0],
            "turned away"
        );
        assert_eq!(
            ended(plain, |_, load| {
                let mut call = load.with().within(ms(0));
                assert_ready_err!(spawn(call.run(|_| seven())).poll());
            }),
            never_ran,
            "out of time"
        );
        assert_eq!(
            ended(plain, |_, load| {
                let held = assert_ready_ok!(spawn(load.admit()).poll());
                let mut keyed = load.with().key("k");
                let mut keyed = spawn(keyed.admit());
                assert_pending!(keyed.poll());
                let mut behind = load.with().key("k");
                let mut behind = spawn(behind.admit());
                assert_pending!(behind.poll());
                let mut plain = spawn(load.run(seven));
                assert_pending!(plain.poll());
                drop((behind, keyed, plain));
                drop(held);
            }),
            [1, 0, 0, 0, 0, 3, 0, 0],
            "left, waiting for a unit with a key and without, and for a key"
        );
        assert_eq!(
            ended(plain, |runtime, load| {
                let held = assert_ready_ok!(spawn(load.admit()).poll());
                let mut waits = spawn(load.run(seven));
                assert_pending!(waits.poll());
                let mut drain = spawn(runtime.shutdown());
                assert_pending!(drain.poll());
                assert_ready_err!(waits.poll());
                drop(held);
                assert_ready_ok!(drain.poll());
            }),
            [1, 0, 0, 0, 0, 1, 0, 0],
            "withdrawn by shutdown"
        );
        assert_eq!(
            ended(plain, |_, load| {
                let room = Room::new();
                assert_pending!(spawn(load.run(|| room.stay())).poll());
            }),
            dropped
        );
        assert_eq!(
            ended(plain, |_, load| {
                let mut run = spawn(load.run(|| async {
                    assert!(std::hint::black_box(false), "this handler panics");
                    seven().await
                }));
                assert!(catch_unwind(AssertUnwindSafe(|| run.poll())).is_err());
            }),
            [0, 0, 0, 0, 0, 0, 0, 1]
        );
    });
}

#[test]
fn e2_refused_at_the_gate_a_call_has_no_outcome() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    assert_ready_ok!(spawn(runtime.shutdown()).poll());
    assert_ready_err!(spawn(load.run(seven)).poll());
    let of = counts(&runtime, "load");
    assert_eq!((of.rejected, of.outcomes), (1, Outcomes::default()));
}

/// A call that ends is not one that stops pausing.
#[test]
fn e2_calls_that_have_ended_hide_none_that_pauses() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let retry = Retry::up_to(2)
        .on_transient()
        .backoff(Backoff::exponential(ms(10)));
    let load = Policy::pure().claim("db", 1).retry(retry);
    let load = runtime.contract("load", load).unwrap();
    for _ in 0..3 {
        assert_ready_ok!(spawn(load.run(seven)).poll());
    }
    let fails = || async { Err::<(), _>(Failure::<Error>::transient("lost")) };
    let mut pauses = spawn(load.run(fails));
    assert_pending!(pauses.poll());
    let seen = &runtime.snapshot().operations[0];
    assert_eq!((seen.executing, seen.paused, seen.waiting), (0, 1, 0));
}

/// Past the stop a call that waits for its key holds a place where the drain finds it, and ends by giving that back.
#[test]
fn e2_a_nested_call_that_leaves_the_queue_of_its_key_during_a_drain_never_ran() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let outer = runtime.contract("outer", Policy::pure()).unwrap();
    let inner = runtime.contract("inner", Policy::pure()).unwrap();
    let gate = Gate::default();
    let mut with = inner.with().key("k");
    let mut holder = spawn(with.run(|_| std::future::pending::<Result<(), Failure<Error>>>()));
    assert_pending!(holder.poll());
    let mut call = spawn(outer.run(|| async {
        gate.wait().await;
        inner.with().key("k").run(|_| seven()).await.carry()
    }));
    assert_pending!(call.poll());
    let mut shutdown = spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    gate.open();
    assert_pending!(call.poll());
    assert_eq!(runtime.snapshot().operations[1].waiting, 1);
    drop(call);
    assert_eq!(runtime.snapshot().operations[1].waiting, 0);
    drop(holder);
    assert_ready_ok!(shutdown.poll());
    let of = counts(&runtime, "inner");
    assert_eq!(eight(&of.outcomes), [0, 0, 0, 0, 0, 1, 1, 0]);
    assert_idle(&runtime);
}

#[test]
fn e2_a_call_has_the_outcome_of_all_its_attempts() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let backoff = Backoff::exponential(ms(10)).cap(ms(10));
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let policy = Policy::idempotent().claim("db", 1);
    let policy = policy.retry(retry.backoff(backoff));
    let load = runtime.contract("load", policy).unwrap();
    let script = Script::new();
    for answers in [
        // Uncertain once, uncertain it stays.
        vec![
            Err(Failure::uncertain("?")),
            Err(Failure::transient("!")),
            Err(Failure::transient("!")),
        ],
        vec![Err(Failure::uncertain("?")), Ok(7)],
    ] {
        let mut call = spawn(load.run(|| script.answer()));
        let last = answers.len() - 1;
        for (at, answer) in answers.into_iter().enumerate() {
            script.say(answer);
            assert_eq!(call.poll().is_ready(), at == last);
            clock.advance(ms(10));
        }
    }
    // Dropped while it pauses, and while it waits for its unit again.
    for waits in [false, true] {
        let mut call = spawn(load.run(|| script.answer()));
        script.say(Err(Failure::transient("!")));
        assert_pending!(call.poll());
        let held = assert_ready_ok!(spawn(load.admit()).poll());
        if waits {
            clock.advance(ms(10));
            assert_pending!(call.poll());
        }
        drop(call);
        drop(held);
    }
    let of = counts(&runtime, "load");
    assert_eq!(eight(&of.outcomes), [3, 0, 0, 0, 1, 0, 2, 0]);
    assert_eq!(of.outcomes.all(), of.finished);
    assert_idle(&runtime);
}

#[test]
fn e2_calls_that_waited_are_counted_once() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let policy = Policy::pure().claim("a", 1).claim("b", 1);
    let load = runtime.contract("load", policy).unwrap();
    let mut key = load.with().key("k");
    let held = assert_ready_ok!(spawn(key.admit()).poll());
    let a = runtime.contract("a", Policy::pure().claim("a", 1)).unwrap();
    let b = runtime.contract("b", Policy::pure().claim("b", 1)).unwrap();
    let mut call = load.with().key("k");
    let mut waits = spawn(call.run(|_| seven()));
    assert_pending!(waits.poll(), "for the key");
    let (mut next_a, mut next_b) = (spawn(a.admit()), spawn(b.admit()));
    assert_pending!(next_a.poll());
    assert_pending!(next_b.poll());
    drop(held);
    let (next_a, next_b) = (
        assert_ready_ok!(next_a.poll()),
        assert_ready_ok!(next_b.poll()),
    );
    assert_pending!(waits.poll(), "for a");
    drop(next_a);
    assert_pending!(waits.poll(), "for b");
    drop(next_b);
    assert_ready_ok!(waits.poll());
    let of = counts(&runtime, "load");
    assert_eq!((of.waited, of.admitted), (1, 2));
    assert_eq!(counts(&runtime, "a").waited, 1);
    assert_eq!(runtime.stats().total().waited, 3);
}

#[test]
fn e2_a_handler_that_blocks_is_counted_by_its_answer_and_seen_running_on() {
    let pool = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let _inside = pool.enter();
    let (runtime, clock) = runtime(&[("db", 4)]);
    let policy = Policy::pure().claim("db", 1).timeout(ms(10));
    let load = runtime.contract("load", policy).unwrap();
    let (begins, begun) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel();
    let mut call = Stepped::new(load.run_blocking(move |_| {
        begins.send(()).expect("the test listens");
        receive(&gone);
        Ok::<_, Failure<Error>>(7)
    }));
    assert_pending!(call.poll());
    receive(&begun);
    clock.advance(ms(10));
    assert_ready_err!(call.poll());
    let adrift = runtime.snapshot().operations[0].clone();
    assert_eq!((adrift.executing, adrift.adrift), (1, 1));
    let of = &adrift.stats;
    assert_eq!(eight(&of.outcomes), [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(of.finished, 0);
    let text = runtime.snapshot().to_string();
    assert!(
        text.contains("1 call runs on after its caller was answered: load blocks"),
        "\n{text}"
    );

    // Nobody has a thread for these: one is left by its caller, one runs out of time, and neither ran.
    let mut left = Stepped::new(load.run_blocking(|_| Ok::<_, Failure<Error>>(7)));
    assert_pending!(left.poll());
    drop(left);
    let mut bounded = load.with().within(ms(5));
    let mut late = Stepped::new(bounded.run_blocking(|_| Ok::<_, Failure<Error>>(7)));
    assert_pending!(late.poll());
    clock.advance(ms(5));
    assert!(assert_ready_err!(late.poll()).never_ran());
    drop(late);

    let ended = Gate::new();
    let mut after = Stepped::new(load.run_blocking({
        let ended = ended.clone();
        move |_| {
            ended.open();
            Ok::<_, Failure<Error>>(7)
        }
    }));
    assert_pending!(after.poll());
    go.send(()).expect("the handler waits");
    // One thread: whoever comes to it comes after the others.
    after.wait();
    assert_ready_ok!(after.poll());
    let of = counts(&runtime, "load");
    assert_eq!(eight(&of.outcomes), [1, 0, 0, 1, 1, 0, 1, 0]);
    assert_eq!(
        (of.finished, runtime.snapshot().operations[0].adrift),
        (4, 0)
    );
    assert_idle(&runtime);

    let (go, gone) = std::sync::mpsc::channel();
    let mut panics = Stepped::new(load.run_blocking(move |_| -> Result<(), Failure<Error>> {
        receive(&gone);
        panic!("this handler panics");
    }));
    assert_pending!(panics.poll());
    go.send(()).expect("the handler waits");
    panics.wait();
    assert!(catch_unwind(AssertUnwindSafe(|| panics.poll())).is_err());
    let of = counts(&runtime, "load");
    assert_eq!(eight(&of.outcomes), [1, 0, 0, 1, 1, 0, 1, 1]);
    assert_eq!(of.outcomes.all(), of.finished);
}

/// A waiter for the key "k" whose waker notes what became of the calls of "load" up to then.
fn noting(runtime: &Runtime) -> (Waker, Arc<Mutex<Option<Outcomes>>>) {
    let noted = Arc::new(Mutex::new(None));
    let (of, at) = (runtime.clone(), Arc::clone(&noted));
    let waker = on_wake(move || *lock(&at) = Some(counts(&of, "load").outcomes));
    (waker, noted)
}

#[test]
fn e2_what_became_of_a_call_between_attempts_is_counted_before_it_gives_anything_back() {
    ends(|| {
        for end in ["deadline", "token", "overload"] {
            let (runtime, clock) = runtime(&[("db", 1)]);
            let retry = Retry::up_to(2)
                .on_transient()
                .backoff(Backoff::exponential(ms(2)).cap(ms(2)));
            let policy = Policy::pure().claim("db", 1).retry(retry).reject();
            let load = runtime.contract("load", policy).unwrap();
            let other = runtime.contract("other", Policy::pure()).unwrap();
            let token = Gate::new();
            let mut call = load.with().key("k").until(token.wait());
            if end == "deadline" {
                call = call.within(ms(5));
            }
            let again = || async { Err::<u32, _>(Failure::transient("again").after(ms(2))) };
            let mut pauses = spawn(call.run(|_| again()));
            assert_pending!(pauses.poll());
            let (waker, noted) = noting(&runtime);
            let mut builder = other.with().key("k");
            let mut waits = Box::pin(builder.admit());
            assert_pending!(waits.as_mut().poll(&mut Context::from_waker(&waker)));
            let held = assert_ready_ok!(spawn(load.admit()).poll());
            match end {
                "deadline" => clock.advance(ms(5)),
                "token" => token.open(),
                _ => clock.advance(ms(2)),
            }
            assert_ready_err!(pauses.poll());
            let noted = lock(&noted).take().expect("the key has passed on");
            assert_eq!(eight(&noted), [0, 1, 0, 0, 0, 0, 0, 0], "{end}");
            drop((pauses, waits, held));
            assert_idle(&runtime);
        }
    });
}

#[test]
fn e2_what_became_of_a_blocking_call_is_counted_before_it_gives_anything_back() {
    ends(|| {
        let pool = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let _entered = pool.enter();
        for (end, right) in [
            ("never begins", [0, 0, 0, 1, 0, 0, 0, 0]),
            ("answers too late", [0, 0, 0, 0, 1, 0, 0, 0]),
            ("panics", [0, 0, 0, 0, 0, 0, 0, 1]),
        ] {
            let (runtime, clock) = runtime(&[("db", 1)]);
            let load = runtime.contract("load", Policy::pure()).unwrap();
            let (go, gone) = std::sync::mpsc::channel::<()>();
            let busy = pool.spawn_blocking(move || {
                let _ = gone.recv();
            });
            let mut call = load.with().key("k").within(ms(5));
            let mut runs = Stepped::new(call.run_blocking(move |_| {
                assert_ne!(end, "panics");
                Err::<u32, _>(Failure::<Error>::transient("again"))
            }));
            assert_pending!(runs.poll());
            let (waker, noted) = noting(&runtime);
            let mut builder = load.with().key("k");
            let mut waits = Box::pin(builder.admit());
            assert_pending!(waits.as_mut().poll(&mut Context::from_waker(&waker)));
            if end == "never begins" {
                clock.advance(ms(5));
                assert_ready_err!(runs.poll());
            }
            go.send(()).unwrap();
            pool.block_on(busy).unwrap();
            pool.block_on(pool.spawn_blocking(|| ())).unwrap();
            if end == "answers too late" {
                clock.advance(ms(5));
                assert_ready_err!(runs.poll());
            }
            if end == "panics" {
                assert!(catch_unwind(AssertUnwindSafe(|| runs.poll().is_ready())).is_err());
            }
            let noted = lock(&noted).take().expect("the key has passed on");
            assert_eq!(eight(&noted), right, "{end}");
            drop((runs, waits));
            assert_idle(&runtime);
        }
    });
}
