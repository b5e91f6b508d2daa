//! One strict queue for each budget (B2), and what waiting in it means (B3).

mod common;

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bursar::{CallError, Contract, Failure, Permit, Policy, Runtime};
use common::room::{Room, on_wake};
use common::{Error, assert_idle, in_use, runtime, waiting};
use tokio::sync::oneshot;
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

/// A runtime with one budget, "db".
fn db(capacity: u32) -> Runtime {
    runtime(&[("db", capacity)]).0
}

/// An operation of its own that claims so many units of "db".
fn claims(runtime: &Runtime, units: u32) -> Contract {
    let operation = format!("claims {units}");
    let policy = Policy::pure().claim("db", units);
    runtime.contract(&operation, policy).unwrap()
}

type Admitting<'c> = Pin<Box<dyn Future<Output = Admitted> + 'c>>;
type Admitted = Result<Permit, CallError<Infallible>>;

/// The ways to queue: as a guard, as a short call, as a bounded one.
const FORMS: [for<'c> fn(&'c Contract) -> Admitting<'c>; 3] = [
    |contract| Box::pin(contract.admit()),
    |contract| Box::pin(async { contract.run_held(nothing).await.map(|(_, held)| held) }),
    |contract| {
        Box::pin(async {
            let mut call = contract.with().within(common::ms(1));
            call.run_held(|_| nothing()).await.map(|(_, held)| held)
        })
    },
];

async fn nothing() -> Result<(), Failure<Infallible>> {
    Ok(())
}

fn taken(contract: &Contract) -> Permit {
    assert_ready_ok!(spawn(contract.admit()).poll())
}

#[test]
fn b2_one_queue_serves_all_operations_of_a_runtime() {
    for admit in FORMS {
        let runtime = db(1);
        let contracts: Vec<_> = (0..5).map(|_| claims(&runtime, 1)).collect();
        let mut held = Some(taken(&contracts[0]));
        let mut waiters: Vec<_> = contracts
            .iter()
            .chain(contracts.iter().rev())
            .map(|contract| spawn(admit(contract)))
            .collect();
        for waiter in &mut waiters {
            assert_pending!(waiter.poll());
        }
        for at in 0..waiters.len() {
            assert!(waiters.iter().all(|waiter| !waiter.is_woken()));
            drop(held.take());
            assert!(waiters[0].is_woken(), "number {at} is next");
            held = Some(assert_ready_ok!(waiters.remove(0).poll()));
        }
        drop(held);
        assert_idle(&runtime);
    }
}

#[test]
fn b2_a_request_is_granted_at_once_only_if_it_fits_and_nobody_waits() {
    for admit in FORMS {
        let runtime = db(3);
        let (one, two, three) = (
            claims(&runtime, 1),
            claims(&runtime, 2),
            claims(&runtime, 3),
        );
        let held = taken(&two);
        let last = taken(&one);
        assert_pending!(spawn(admit(&one)).poll(), "it does not fit");
        drop(last);
        let last = taken(&one);
        drop(last);

        let mut heavy = spawn(admit(&three));
        assert_pending!(heavy.poll(), "it does not fit");
        let mut light = spawn(admit(&one));
        assert_pending!(light.poll(), "it fits, and somebody waits");
        assert_eq!((in_use(&runtime, "db"), waiting(&runtime, "db")), (2, 2));
        assert!(!light.is_woken());
        drop(held);
        assert!(heavy.is_woken() && !light.is_woken());
        drop(assert_ready_ok!(heavy.poll()));
        drop(assert_ready_ok!(light.poll()));
        assert_idle(&runtime);
    }
}

#[test]
fn b2_one_release_grants_all_that_fit_from_the_head() {
    for admit in FORMS {
        let runtime = db(6);
        let six = claims(&runtime, 6);
        let units = [1, 2, 2, 1, 1];
        let contracts = units.map(|units| claims(&runtime, units));
        let held = taken(&six);
        let mut waiters = contracts.each_ref().map(|contract| spawn(admit(contract)));
        for waiter in &mut waiters {
            assert_pending!(waiter.poll());
        }
        drop(held);
        // 1 + 2 + 2 + 1 fit, in that one release; the last does not.
        let woken = waiters.each_ref().map(|waiter| waiter.is_woken());
        assert_eq!(woken, [true, true, true, true, false]);
        assert_eq!((in_use(&runtime, "db"), waiting(&runtime, "db")), (6, 1));
        // They hold their units though none has looked: nothing is left for a newcomer.
        let rejects = Policy::pure().claim("db", 1).reject();
        let rejects = runtime.contract("rejects", rejects).unwrap();
        let mut newcomer = spawn(admit(&rejects));
        assert_pending!(newcomer.poll());
        assert_ready_err!(newcomer.poll());
        let [first, ..] = &mut waiters;
        drop(assert_ready_ok!(first.poll()));
        assert!(waiters[4].is_woken());
        drop(waiters);
        assert_idle(&runtime);
    }
}

#[test]
fn b2_a_release_grants_nothing_past_a_head_that_does_not_fit() {
    for admit in FORMS {
        let runtime = db(4);
        let (one, two, three) = (
            claims(&runtime, 1),
            claims(&runtime, 2),
            claims(&runtime, 3),
        );
        let (left, right) = (taken(&two), taken(&two));
        let mut first = spawn(admit(&two));
        let mut heavy = spawn(admit(&three));
        let mut light = spawn(admit(&one));
        assert_pending!(first.poll());
        assert_pending!(heavy.poll());
        assert_pending!(light.poll());

        drop(left);
        assert!(first.is_woken() && !heavy.is_woken() && !light.is_woken());
        let first = assert_ready_ok!(first.poll());
        drop(first);
        assert_eq!((in_use(&runtime, "db"), waiting(&runtime, "db")), (2, 2));
        assert!(
            !heavy.is_woken() && !light.is_woken(),
            "3 of 2 free do not fit"
        );
        drop(right);
        assert!(heavy.is_woken() && light.is_woken(), "3 + 1 fit");
        drop((heavy, light));
        assert_idle(&runtime);
    }
}

#[test]
fn b2_a_waiter_takes_its_units_once() {
    let (runtime, _) = runtime(&[("a", 4), ("b", 4)]);
    let a = Policy::pure().claim("a", 4);
    let a = runtime.contract("a", a).unwrap();
    let b = Policy::pure().claim("b", 4);
    let b = runtime.contract("b", b).unwrap();
    let both = Policy::pure().claim("a", 1).claim("b", 1);
    let both = runtime.contract("both", both).unwrap();
    for key in ["", "k"] {
        let (held_a, held_b) = (taken(&a), taken(&b));
        let room = Room::new();
        let mut short = spawn(both.run(|| room.stay()));
        let mut call = both.with().key(key);
        let mut full = spawn(call.run(|_| room.stay()));
        let used = || (in_use(&runtime, "a"), in_use(&runtime, "b"));
        assert_pending!(short.poll());
        assert_pending!(full.poll());
        // Each is polled more often than it is woken, with units to spare beside those it was granted.
        drop(held_a);
        for _ in 0..3 {
            assert_pending!(short.poll(), "waits for b");
            assert_pending!(full.poll(), "waits for b");
            assert_eq!(used(), (2, 4), "one of a each");
        }
        drop(held_b);
        for _ in 0..3 {
            assert_pending!(short.poll(), "runs");
            assert_pending!(full.poll(), "runs");
            assert_eq!(used(), (2, 2), "one of b each");
        }
        assert_eq!(room.inside(), 2);
        room.let_out(2);
        assert_ready_ok!(short.poll());
        assert_ready_ok!(full.poll());
        assert_idle(&runtime);
    }
}

#[test]
fn b2_a_heavy_request_never_starves() {
    for admit in FORMS {
        let runtime = db(4);
        let (one, four) = (claims(&runtime, 1), claims(&runtime, 4));
        let mut holders: Vec<_> = (0..4).map(|_| taken(&one)).collect();
        let mut heavy = spawn(admit(&four));
        assert_pending!(heavy.poll());
        let mut newcomers = Vec::new();
        for left in (0..4).rev() {
            for _ in 0..10 {
                let mut newcomer = spawn(admit(&one));
                assert_pending!(newcomer.poll());
                newcomers.push(newcomer);
            }
            holders.pop();
            assert_eq!(in_use(&runtime, "db"), if left == 0 { 4 } else { left });
            assert_eq!(heavy.is_woken(), left == 0);
            assert!(newcomers.iter().all(|newcomer| !newcomer.is_woken()));
        }
        drop(assert_ready_ok!(heavy.poll()));
        let woken = newcomers.iter().filter(|newcomer| newcomer.is_woken());
        assert_eq!(woken.count(), 4);
        drop(newcomers);
        assert_idle(&runtime);
    }
}

#[test]
fn b2_budgets_of_one_runtime_have_queues_of_their_own() {
    for admit in FORMS {
        let (runtime, _) = runtime(&[("db", 1), ("net", 1)]);
        let db = claims(&runtime, 1);
        let net = runtime
            .contract("net", Policy::pure().claim("net", 1))
            .unwrap();
        let _db = taken(&db);
        assert_pending!(spawn(admit(&db)).poll());
        drop(taken(&net));
    }
}

#[test]
fn b2_two_runtimes_share_nothing() {
    let (one, other) = (db(1), db(1));
    let in_one = claims(&one, 1);
    let in_other = claims(&other, 1);
    let held = assert_ready_ok!(spawn(in_one.with().key("k").admit()).poll());
    let mut waits = spawn(in_one.admit());
    assert_pending!(waits.poll());
    assert_idle(&other);
    drop(assert_ready_ok!(
        spawn(in_other.with().key("k").admit()).poll()
    ));
    assert_ready_ok!(spawn(other.shutdown()).poll());
    drop(held);
    drop(assert_ready_ok!(waits.poll()));
    drop(taken(&in_one));
    assert_eq!(one.stats().total().admitted, 3);
    assert_eq!(other.stats().total().admitted, 1);
}

#[test]
fn b3_a_place_is_taken_at_the_first_poll() {
    for admit in FORMS {
        let runtime = db(1);
        let one = claims(&runtime, 1);
        let held = taken(&one);
        let mut made_first = spawn(admit(&one));
        let mut polled_first = spawn(admit(&one));
        assert_eq!(waiting(&runtime, "db"), 0, "a future does nothing unpolled");
        assert_pending!(polled_first.poll());
        assert_pending!(made_first.poll());
        drop(held);
        assert!(polled_first.is_woken() && !made_first.is_woken());
    }
}

#[test]
fn b3_a_place_at_a_further_queue_is_the_arrival_there() {
    for admit in FORMS {
        let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
        let both = Policy::pure().claim("a", 1).claim("b", 1);
        let both = runtime.contract("both", both).unwrap();
        let a = runtime.contract("a", Policy::pure().claim("a", 1)).unwrap();
        let b = runtime.contract("b", Policy::pure().claim("b", 1)).unwrap();
        let (held_a, held_b) = (taken(&a), taken(&b));
        let mut early = spawn(admit(&both));
        let mut late = spawn(admit(&b));
        assert_pending!(early.poll(), "waits for a");
        assert_pending!(late.poll(), "waits for b");
        drop(held_a);
        assert_pending!(early.poll(), "waits for b, behind the other");
        drop(held_b);
        assert!(late.is_woken() && !early.is_woken());
        drop(assert_ready_ok!(late.poll()));
        drop(assert_ready_ok!(early.poll()));
        assert_idle(&runtime);
    }
}

#[test]
fn b3_wait_ends_with_the_grant_the_callers_leaving_or_shutdown() {
    for admit in FORMS {
        let runtime = db(1);
        let one = claims(&runtime, 1);
        let held = taken(&one);
        let (fire, token) = oneshot::channel::<()>();
        let mut call = one.with().until(token);
        let mut granted = spawn(admit(&one));
        let mut leaves = spawn(call.admit());
        let mut dropped = admit(&one);
        let mut stopped = spawn(admit(&one));
        assert_pending!(granted.poll());
        assert_pending!(leaves.poll());
        assert_pending!(spawn(dropped.as_mut()).poll());
        assert_pending!(stopped.poll());
        for _ in 0..3 {
            assert_pending!(granted.poll(), "polled for nothing it goes on waiting");
            assert_pending!(stopped.poll());
        }
        assert_eq!(waiting(&runtime, "db"), 4);

        fire.send(()).unwrap();
        assert_ready_err!(leaves.poll());
        assert_eq!(waiting(&runtime, "db"), 3);
        drop(dropped);
        assert_eq!(waiting(&runtime, "db"), 2);
        drop(held);
        let granted = assert_ready_ok!(granted.poll());
        let mut drain = spawn(runtime.shutdown());
        assert_pending!(drain.poll());
        assert!(stopped.is_woken());
        assert!(assert_ready_err!(stopped.poll()).is_stopping());
        drop(granted);
        assert_ready_ok!(drain.poll());
        assert_idle(&runtime);
    }
}

#[test]
fn b3_admission_goes_as_far_as_it_can_in_one_poll() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1), ("c", 1)]);
    let all = Policy::pure().claim("a", 1).claim("b", 1).claim("c", 1);
    let all = runtime.contract("all", all).unwrap();
    let a = runtime.contract("a", Policy::pure().claim("a", 1)).unwrap();
    let none = runtime.contract("none", Policy::pure()).unwrap();
    let room = Room::new();
    let visit = || async {
        let _inside = room.enter();
        Ok::<_, Failure<Error>>(7)
    };
    assert_ready_ok!(spawn(all.run(visit)).poll());
    let mut call = all.with().key("k").within(common::ms(1));
    assert_ready_ok!(spawn(call.run(|_| visit())).poll());
    assert_eq!(room.entered(), 2);

    // One wake-up for each thing waited for; from there on to the end in that poll.
    let key = assert_ready_ok!(spawn(none.with().key("k").admit()).poll());
    let held = taken(&a);
    let mut call = all.with().key("k");
    let mut run = spawn(call.run(|_| visit()));
    assert_pending!(run.poll());
    drop(key);
    assert!(run.is_woken());
    assert_pending!(run.poll());
    assert!(!run.is_woken(), "it does not wake itself");
    drop(held);
    assert!(run.is_woken());
    assert_ready_ok!(run.poll());
    assert_eq!(room.entered(), 3);
}

#[tokio::test]
async fn b3_an_exhausted_executor_budget_changes_nothing() {
    let runtime = db(1);
    let one = claims(&runtime, 1);
    exhaust();
    let mut call = one.with().key("k");
    let mut run = pin!(call.run(|_| async { Ok::<_, Failure<Error>>(7) }));
    let polled = std::future::poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await;
    assert!(matches!(polled, Poll::Ready(Ok(7))), "{polled:?}");
}

#[tokio::test]
async fn b9_a_fired_token_counts_with_the_executors_budget_exhausted() {
    let runtime = db(1);
    let one = claims(&runtime, 1);
    async fn once<F: Future>(mut run: Pin<&mut F>) -> Poll<F::Output> {
        std::future::poll_fn(move |cx| Poll::Ready(run.as_mut().poll(cx))).await
    }
    // Before it waits, where everything is free.
    let (fire, token) = oneshot::channel::<()>();
    fire.send(()).unwrap();
    let entered = AtomicUsize::new(0);
    let handler = || {
        entered.fetch_add(1, Ordering::Relaxed);
        async { Ok::<u32, Failure<Error>>(7) }
    };
    exhaust();
    let mut call = one.with().until(token);
    let polled = once(pin!(call.run(|_| handler()))).await;
    assert!(
        matches!(polled, Poll::Ready(Err(CallError::Withdrawn(_)))),
        "{polled:?}"
    );
    assert_eq!(entered.load(Ordering::Relaxed), 0);

    // Between two attempts.
    let retry = bursar::Retry::up_to(2).on_transient();
    let policy = Policy::pure().claim("db", 1).retry(retry);
    let again = runtime.contract("again", policy).unwrap();
    let (fire, token) = oneshot::channel::<()>();
    let mut call = again.with().until(token);
    let mut run = pin!(call.run(|_| {
        entered.fetch_add(1, Ordering::Relaxed);
        async { Err::<u32, _>(Failure::transient("again")) }
    }));
    assert!(once(run.as_mut()).await.is_pending());
    fire.send(()).unwrap();
    exhaust();
    let polled = once(run.as_mut()).await;
    let Poll::Ready(Err(error)) = polled else {
        panic!("{polled:?}");
    };
    assert_eq!(
        error.attempted().unwrap().ended_by(),
        Some(bursar::EndedBy::CallerLeft)
    );
    assert_eq!(entered.load(Ordering::Relaxed), 1);
    assert_idle(&runtime);
}

/// Uses up this task's cooperation budget, so that tokio's own primitives would yield.
fn exhaust() {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let semaphore = tokio::sync::Semaphore::new(1);
    for _ in 0..10_000 {
        if pin!(semaphore.acquire()).poll(&mut cx).is_pending() {
            return;
        }
    }
    panic!("tokio's cooperation budget has no end here");
}

#[test]
fn b3_only_the_waker_of_the_last_poll_is_woken() {
    let runtime = db(1);
    let one = claims(&runtime, 1);
    for keyed in [false, true] {
        let key = if keyed { "k" } else { "" };
        let held = assert_ready_ok!(spawn(one.with().key(key).admit()).poll());
        let mut call = one.with().key(key);
        let mut waiter = pin!(call.admit());
        let woken: [Arc<AtomicUsize>; 3] = Default::default();
        for counter in &woken {
            let counter = Arc::clone(counter);
            let waker = on_wake(move || {
                counter.fetch_add(1, Ordering::SeqCst);
            });
            let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
            assert_pending!(polled);
        }
        drop(held);
        let woken = woken.map(|counter| counter.load(Ordering::SeqCst));
        assert_eq!(woken, [0, 0, 1], "keyed: {keyed}");
    }
    assert_idle(&runtime);
}
