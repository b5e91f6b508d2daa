//! Callers that leave while they wait (B8): their place goes with them, and what they were granted passes on.

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Call, CallError, Contract, ManualClock, Permit, Policy, Runtime};
use common::room::{ends, on_wake};
use common::{assert_idle, counts, in_use, runtime, waiting};
use tokio::sync::oneshot;
use tokio_test::task::{Spawn, spawn};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

const SECOND: Duration = Duration::from_secs(1);

fn db(capacity: u32) -> Runtime {
    runtime(&[("db", capacity)]).0
}

fn claims(runtime: &Runtime, units: u32) -> Contract {
    let operation = format!("claims {units}");
    let policy = Policy::pure().claim("db", units);
    runtime.contract(&operation, policy).unwrap()
}

fn taken(contract: &Contract) -> Permit {
    assert_ready_ok!(spawn(contract.admit()).poll())
}

/// How a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    Dropped,
    TokenFired,
    DeadlinePassed,
}

const WAYS: [Leaves; 3] = [Leaves::Dropped, Leaves::TokenFired, Leaves::DeadlinePassed];

/// One caller that is to leave: bounded if it has to be, since a call without bounds takes a shorter way.
struct Caller<'c> {
    call: Call<'c>,
    fire: Option<oneshot::Sender<()>>,
    leaves: Leaves,
}

impl<'c> Caller<'c> {
    fn new(contract: &'c Contract, key: &str, leaves: Leaves) -> Self {
        let mut call = contract.with().key(key);
        let mut fire = None;
        if leaves != Leaves::Dropped {
            let (sender, token) = oneshot::channel::<()>();
            fire = Some(sender);
            call = call.until(token).within(SECOND);
        }
        Self { call, fire, leaves }
    }

    /// Its call, as a guard or with a handler, and what fires its token.
    fn waits(&mut self, by: By) -> (Spawn<Admitting<'_>>, Leaving) {
        let leaving = Leaving(self.leaves, self.fire.take());
        let call = &mut self.call;
        let waiter: Admitting<'_> = match by {
            By::Admit => Box::pin(call.admit()),
            By::Run => Box::pin(async {
                let held = call.run_held(|_| async { Ok(()) }).await;
                held.map(|((), permit)| permit)
            }),
        };
        (spawn(waiter), leaving)
    }
}

/// The two ways to a budget: without a handler and with one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Admit,
    Run,
}

type Admitting<'a> = Pin<Box<dyn Future<Output = Admitted> + Send + 'a>>;
type Admitted = Result<Permit, CallError<std::convert::Infallible>>;

/// How a caller is going to leave, with its token.
struct Leaving(Leaves, Option<oneshot::Sender<()>>);

/// Each way to leave, for each way to wait.
fn every_way() -> impl Iterator<Item = (Leaves, By)> {
    let by = |by| WAYS.into_iter().map(move |leaves| (leaves, by));
    by(By::Admit).chain(by(By::Run))
}

/// The caller leaves, which must end its wait then and there; `clock` has reached its deadline already or is turned
/// to it.
#[track_caller]
fn leave(Leaving(leaves, fire): Leaving, mut waiter: Spawn<Admitting<'_>>, clock: &ManualClock) {
    match leaves {
        Leaves::Dropped => return drop(waiter),
        Leaves::TokenFired => fire.unwrap().send(()).unwrap(),
        Leaves::DeadlinePassed => clock.advance(SECOND),
    }
    assert!(waiter.is_woken());
    let error = assert_ready_err!(waiter.poll());
    match leaves {
        Leaves::TokenFired => assert!(matches!(error, CallError::Withdrawn(_)), "{error}"),
        _ => assert!(matches!(error, CallError::AdmissionTimedOut(_)), "{error}"),
    }
    assert!(error.never_ran());
}

#[test]
fn b8_a_caller_that_leaves_takes_its_place_with_it() {
    for (leaves, by) in every_way() {
        for keyed in [false, true] {
            let (runtime, clock) = runtime(&[("db", 1)]);
            let one = claims(&runtime, 1);
            let key = if keyed { "k" } else { "" };
            let held = assert_ready_ok!(spawn(one.with().key(key).admit()).poll());
            let mut first = one.with().key(key);
            let mut first = spawn(first.admit());
            let mut caller = Caller::new(&one, key, leaves);
            let (mut middle, leaving) = caller.waits(by);
            let mut last = one.with().key(key);
            let mut last = spawn(last.admit());
            assert_pending!(first.poll());
            assert_pending!(middle.poll());
            assert_pending!(last.poll());

            leave(leaving, middle, &clock);
            assert_eq!(counts(&runtime, "claims 1").finished, 1);
            assert_eq!(waiting(&runtime, "db"), if keyed { 0 } else { 2 });
            assert!(!first.is_woken() && !last.is_woken());
            drop(held);
            assert!(first.is_woken() && !last.is_woken());
            drop(assert_ready_ok!(first.poll()));
            assert!(last.is_woken());
            drop(assert_ready_ok!(last.poll()));
            drop(caller);
            assert_idle(&runtime);
            assert_eq!(clock.timers(), 0, "no timer is left behind");
        }
    }
}

#[test]
fn b8_the_next_waiter_is_examined_when_the_head_leaves() {
    for (leaves, by) in every_way() {
        let (runtime, clock) = runtime(&[("db", 3)]);
        let (one, two, three) = (
            claims(&runtime, 1),
            claims(&runtime, 2),
            claims(&runtime, 3),
        );
        let held = taken(&one);
        let mut caller = Caller::new(&three, "", leaves);
        let (mut heavy, leaving) = caller.waits(by);
        assert_pending!(heavy.poll());
        let mut fits = spawn(one.admit());
        let mut over = spawn(two.admit());
        let mut behind = spawn(one.admit());
        assert_pending!(fits.poll());
        assert_pending!(over.poll());
        assert_pending!(behind.poll());

        leave(leaving, heavy, &clock);
        // No release happened: the leaving alone let the next in, as far as they fit.
        assert!(fits.is_woken() && !over.is_woken() && !behind.is_woken());
        assert_eq!((in_use(&runtime, "db"), waiting(&runtime, "db")), (2, 2));
        drop(held);
        assert!(over.is_woken() && !behind.is_woken());
        drop((fits, over, behind));
        drop(caller);
        assert_idle(&runtime);
    }
}

#[test]
fn b8_what_was_granted_to_a_caller_that_left_passes_on() {
    for (leaves, by) in every_way() {
        for keyed in [false, true] {
            let (runtime, clock) = runtime(&[("db", 1)]);
            let one = claims(&runtime, 1);
            let key = if keyed { "k" } else { "" };
            let held = assert_ready_ok!(spawn(one.with().key(key).admit()).poll());
            let mut caller = Caller::new(&one, key, leaves);
            let (mut first, leaving) = caller.waits(by);
            let mut next = one.with().key(key);
            let mut next = spawn(next.admit());
            assert_pending!(first.poll());
            assert_pending!(next.poll());
            drop(held);
            assert!(first.is_woken() && !next.is_woken());

            // Granted, and gone before it noticed.
            leave(leaving, first, &clock);
            assert!(next.is_woken(), "{leaves:?}, keyed: {keyed}");
            drop(assert_ready_ok!(next.poll()));
            drop(caller);
            assert_idle(&runtime);
            let of = counts(&runtime, "claims 1");
            assert_eq!((of.admitted, of.started, of.finished), (3, 2, 3));
        }
    }
}

/// Where a call that claims a and b under a key is when its caller leaves.
const STAGES: [&str; 7] = [
    "unpolled",
    "at key",
    "key granted",
    "at a",
    "a granted",
    "at b",
    "b granted",
];

#[test]
fn b8_a_caller_may_leave_at_every_stage() {
    for (leaves, by) in every_way() {
        for (stage, keyed) in STAGES.into_iter().flat_map(|at| [(at, false), (at, true)]) {
            let at_key = stage.contains("key");
            if stage == "unpolled" && leaves != Leaves::Dropped || at_key && !keyed {
                continue;
            }
            let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
            let both = Policy::pure().claim("a", 1).claim("b", 1);
            let both = runtime.contract("both", both).unwrap();
            let a = runtime.contract("a", Policy::pure().claim("a", 1)).unwrap();
            let b = runtime.contract("b", Policy::pure().claim("b", 1)).unwrap();
            let none = runtime.contract("none", Policy::pure()).unwrap();
            let mut key = Some(assert_ready_ok!(spawn(none.with().key("k").admit()).poll()));
            let (mut held_a, mut held_b) = (Some(taken(&a)), Some(taken(&b)));

            let mut caller = Caller::new(&both, if keyed { "k" } else { "" }, leaves);
            let (mut waiter, leaving) = caller.waits(by);
            for reached in STAGES.into_iter().skip(1) {
                if stage == "unpolled" {
                    break;
                }
                if !keyed && reached.contains("key") {
                    continue;
                }
                match reached {
                    "key granted" => drop(key.take()),
                    "a granted" => drop(held_a.take()),
                    "b granted" => drop(held_b.take()),
                    _ => assert_pending!(waiter.poll()),
                }
                if reached == stage {
                    break;
                }
            }
            // Others queue behind, so that whatever it holds or was granted has somebody to pass on to.
            let mut behind_key = both.with().key("k");
            let mut behind_key = spawn(behind_key.admit());
            let (mut behind_a, mut behind_b) = (spawn(a.admit()), spawn(b.admit()));
            let polled = [
                behind_key.poll().is_pending(),
                behind_a.poll().is_pending(),
                behind_b.poll().is_pending(),
            ];
            assert!(polled.iter().all(|pending| *pending), "{stage}");

            leave(leaving, waiter, &clock);
            drop((key, held_a, held_b));
            let key_passed = behind_key.is_woken();
            assert!(key_passed, "the key after {leaves:?} {stage}");
            drop(assert_ready_ok!(
                behind_a.poll(),
                "a after {leaves:?} {stage}"
            ));
            drop(assert_ready_ok!(
                behind_b.poll(),
                "b after {leaves:?} {stage}"
            ));
            drop(assert_ready_ok!(
                behind_key.poll(),
                "all after {leaves:?} {stage}"
            ));
            drop(caller);
            assert_idle(&runtime);
            assert_eq!(clock.timers(), 0);
            let of = counts(&runtime, "both");
            let began = u64::from(stage != "unpolled");
            assert_eq!((of.admitted, of.started), (1 + began, 1), "{stage}");
        }
    }
}

#[test]
fn b8_a_waker_may_do_as_it_likes() {
    ends(|| {
        // It reads the runtime, makes a call, and drops another that waits: no lock is held while it does.
        let runtime = db(1);
        let one = claims(&runtime, 1);
        for keyed in [false, true] {
            let key = if keyed { "k" } else { "" };
            let held = assert_ready_ok!(spawn(one.with().key(key).admit()).poll());
            let other: Arc<Mutex<Option<Admitting<'static>>>> = Arc::default();
            let woken = Arc::new(AtomicUsize::new(0));
            let waker = {
                let (runtime, one, other) = (runtime.clone(), one.clone(), Arc::clone(&other));
                let woken = Arc::clone(&woken);
                on_wake(move || {
                    let stats = runtime.stats();
                    assert_eq!(stats.total().admitted, stats.total().finished + 2);
                    let other = other.lock().unwrap().take();
                    drop(other);
                    assert!(spawn(one.with().key(key).admit()).poll().is_pending());
                    woken.fetch_add(1, Ordering::SeqCst);
                })
            };
            let mut call = one.with().key(key);
            let mut waiter = pin!(call.admit());
            assert_pending!(waiter.as_mut().poll(&mut Context::from_waker(&waker)));
            let mut behind: Admitting<'static> = {
                let one = one.clone();
                Box::pin(async move { one.with().key(key).admit().await })
            };
            let mut noop = Context::from_waker(Waker::noop());
            assert_pending!(behind.as_mut().poll(&mut noop));
            *other.lock().unwrap() = Some(behind);
            drop(held);
            assert_eq!(woken.load(Ordering::SeqCst), 1, "keyed: {keyed}");
            let polled = waiter.as_mut().poll(&mut noop);
            let Poll::Ready(Ok(permit)) = polled else {
                panic!("it was granted: {polled:?}");
            };
            drop(permit);
            assert_idle(&runtime);
        }
    });
}

#[test]
fn b8_a_wakers_drop_may_do_as_it_likes() {
    struct Reads(Runtime);
    impl std::task::Wake for Reads {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Reads {
        fn drop(&mut self) {
            let _stats = self.0.stats();
            let one = claims(&self.0, 1);
            assert!(spawn(one.with().key("k").admit()).poll().is_pending());
        }
    }

    let runtime = db(1);
    let one = claims(&runtime, 1);
    let _held = assert_ready_ok!(spawn(one.with().key("k").admit()).poll());
    for key in ["", "k"] {
        let mut call = one.with().key(key);
        let mut waiter = Box::pin(call.admit());
        for _ in 0..2 {
            // The second waker replaces the first, which is dropped; leaving drops the second.
            let waker = Waker::from(Arc::new(Reads(runtime.clone())));
            let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
            assert_pending!(polled);
        }
        drop(waiter);
    }
}

#[test]
fn b8_a_waker_that_panics_loses_nobody_elses_wake() {
    let (runtime, _) = runtime(&[("db", 2)]);
    let (one, two) = (claims(&runtime, 1), claims(&runtime, 2));
    let mut call = two.with().key("k");
    let held = assert_ready_ok!(spawn(call.admit()).poll());
    let panics = on_wake(|| panic!("this waker panics"));
    let mut first = Box::pin(one.admit());
    assert_pending!(first.as_mut().poll(&mut Context::from_waker(&panics)));
    let mut second = spawn(one.admit());
    assert_pending!(second.poll());
    let mut keyed = two.with().key("k");
    let mut keyed = spawn(keyed.admit());
    assert_pending!(keyed.poll());

    drop(held);
    assert!(second.is_woken(), "granted in the same release");
    assert!(keyed.is_woken(), "given back after the budget");
    drop(first);
    drop(assert_ready_ok!(second.poll()));
    drop(assert_ready_ok!(keyed.poll()));
    assert_idle(&runtime);
}

#[test]
fn b8_leaving_unpolled_is_as_if_never_called() {
    let runtime = db(1);
    let one = claims(&runtime, 1);
    drop(one.admit());
    let mut call = one.with().key("k");
    drop(call.admit());
    drop(call.run(|_| async { Ok::<_, bursar::Failure<()>>(()) }));
    drop(one.run(|| async { Ok::<_, bursar::Failure<()>>(()) }));
    assert_eq!(counts(&runtime, "claims 1").admitted, 0);
    assert_idle(&runtime);
}
