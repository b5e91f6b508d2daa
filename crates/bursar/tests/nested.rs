//! D1, D4: calls made from inside live work are part of it: admitted during the drain, waiting as before. Others are
//! outside. And a shutdown asked for from inside fails at once, closing nothing.

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bursar::{Carry, Contract, Failure, Policy, Retry, Runtime, ShutdownError, handler_fn};
use common::{Answer, Gate, assert_idle, counts, in_use, ms, runtime, waiting};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

/// Budgets `a`, `b` and `c`, and contracts: `outer` claims `a`, `inner` claims `b`, `free` nothing.
struct World {
    runtime: Runtime,
    outer: Contract,
    inner: Contract,
    free: Contract,
    gate: Gate,
}

fn world() -> World {
    let (runtime, _) = runtime(&[("a", 1), ("b", 2), ("c", 1)]);
    let contract = |name: &str, policy| runtime.contract(name, policy).unwrap();
    World {
        outer: contract("outer", Policy::pure().claim("a", 1)),
        inner: contract("inner", Policy::pure().claim("b", 1)),
        free: contract("free", Policy::pure()),
        gate: Gate::new(),
        runtime,
    }
}

async fn one() -> Answer {
    Ok(1)
}

/// Runs `nested` inside a call of `outer`, past the beginning of a shutdown, and the drain to its end.
#[track_caller]
fn during_drain<'w, Fut>(world: &'w World, nested: impl FnOnce() -> Fut + 'w) -> u32
where
    Fut: Future<Output = u32> + 'w,
{
    let mut nested = Some(nested);
    let mut call = task::spawn(world.outer.run(move || {
        let nested = nested.take().expect("one attempt");
        async move {
            world.gate.wait().await;
            Answer::Ok(nested().await)
        }
    }));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    world.gate.open();
    let value = assert_ready_ok!(call.poll_until_idle());
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&world.runtime);
    value
}

/// One poll of a future, which ends in it.
fn now<F: Future>(future: F) -> F::Output {
    match task::spawn(future).poll() {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it does not wait"),
    }
}

#[test]
fn d1_a_nested_call_is_admitted_during_the_drain() {
    let world = world();
    let value = during_drain(&world, || async {
        let short = world.inner.run(one).await.unwrap();
        let mut keyed = world.inner.with().key("k");
        let long = keyed.run(|_| one()).await.unwrap();
        let free = world.free.run(one).await.unwrap();
        let mut keyed = world.free.with().key("k").within(ms(1));
        let with_key = keyed.run(|_| one()).await.unwrap();
        let permit = world.inner.admit().await.unwrap();
        let (held, other) = world.free.run_held(one).await.unwrap();
        drop((permit, other));
        short + long + free + with_key + held
    });
    assert_eq!(value, 5);
    let (inner, free) = (
        counts(&world.runtime, "inner"),
        counts(&world.runtime, "free"),
    );
    assert_eq!((inner.started, inner.rejected), (3, 0));
    assert_eq!((free.started, free.rejected), (3, 0));
}

#[test]
fn d1_a_nested_call_through_an_operation_is_admitted_during_the_drain() {
    async fn double(number: &u32) -> Answer {
        Ok(number * 2)
    }
    let world = world();
    let policy = Policy::pure().claim("c", 1);
    let typed = world
        .runtime
        .operation("typed", policy, handler_fn(double))
        .unwrap();
    let boxed = typed.clone().serialize_with(|number: &u32| *number).boxed();
    let value = during_drain(&world, || async {
        let first = typed.call(1).await.unwrap();
        let second = typed.with().within(ms(1)).call(2).await.unwrap();
        first + second + boxed.call(3).await.unwrap()
    });
    assert_eq!(value, 12);
}

#[test]
fn d1_calls_of_children_polled_by_the_handler_are_nested() {
    let world = world();
    let value = during_drain(&world, || async {
        let (first, second) = tokio::join!(world.inner.run(one), world.inner.run(one));
        let mut children: FuturesUnordered<_> = (0..2).map(|_| world.inner.run(one)).collect();
        let mut sum = first.unwrap() + second.unwrap();
        while let Some(answer) = children.next().await {
            sum += answer.unwrap();
        }
        sum
    });
    assert_eq!(value, 4);
}

#[test]
fn d1_nested_work_may_nest_further() {
    let world = world();
    let value = during_drain(&world, || async {
        let nested = world.inner.run(|| async {
            let further = world
                .free
                .run(|| async { world.inner.run(one).await.carry() });
            further.await.carry()
        });
        nested.await.unwrap()
    });
    assert_eq!(value, 1);
}

#[test]
fn d1_what_the_handler_does_before_it_returns_its_future_is_inside() {
    let world = world();
    let retry = Retry::up_to(2).on_transient();
    let policy = Policy::pure().claim("a", 1).retry(retry);
    let outer = world.runtime.contract("again", policy).unwrap();
    let mut attempts = 0;
    let mut call = task::spawn(outer.run(|| {
        attempts += 1;
        let answer = match attempts {
            1 => Err(Failure::transient("again")),
            _ => now(world.inner.run(one)).map_err(|_| Failure::permanent("refused")),
        };
        async { answer }
    }));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_ready_ok!(shutdown.poll());
}

#[test]
fn d4_a_shutdown_asked_for_before_the_handler_returns_its_future_is_inside() {
    let world = world();
    let mut call = task::spawn(world.outer.run(|| {
        let asked = now(world.runtime.shutdown());
        assert_eq!(asked, Err(ShutdownError::InsideOwnCall));
        one()
    }));
    assert_ready_ok!(call.poll());
}

#[test]
fn d1_a_nested_rejection_is_an_overload_not_a_stop() {
    let world = world();
    let policy = Policy::pure().claim("c", 1).reject();
    let reject = world.runtime.contract("reject", policy).unwrap();
    during_drain(&world, || async {
        let held = reject.admit().await.unwrap();
        let error = reject.run(one).await.unwrap_err();
        assert!(error.is_overloaded(), "{error:?}");
        drop(held);
        reject.run(one).await.unwrap()
    });
}

#[test]
fn d1_nested_waits_are_not_withdrawn_and_those_of_outsiders_are() {
    let world = world();
    let heavy = Policy::pure().claim("b", 2);
    let heavy = world.runtime.contract("heavy", heavy).unwrap();
    let held = now(world.inner.admit()).unwrap();
    // In the queue of `b`: an outsider that needs too much, the nested one behind it, another outsider.
    let mut ahead = task::spawn(heavy.admit());
    assert_pending!(ahead.poll());
    let mut call = task::spawn(
        world
            .outer
            .run(|| async { world.inner.run(one).await.carry() }),
    );
    assert_pending!(call.poll());
    let mut behind = task::spawn(world.inner.admit());
    assert_pending!(behind.poll());
    assert_eq!(waiting(&world.runtime, "b"), 3);

    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    // With the outsiders gone the head fits: examined then and there.
    assert_eq!(
        (waiting(&world.runtime, "b"), in_use(&world.runtime, "b")),
        (0, 2)
    );
    assert!(call.is_woken() && ahead.is_woken() && behind.is_woken());
    assert!(assert_ready_err!(ahead.poll()).is_stopping());
    assert!(assert_ready_err!(behind.poll()).is_stopping());
    assert_ready_ok!(call.poll());
    drop(held);
    assert_ready_ok!(shutdown.poll());
    assert_idle(&world.runtime);
}

#[test]
fn d1_nested_waits_go_on_until_they_are_served() {
    // At a budget and at a key.
    let world = world();
    let (first, second) = (
        now(world.inner.admit()).unwrap(),
        now(world.inner.admit()).unwrap(),
    );
    let keyed_holder = now(world.free.with().key("k").admit()).unwrap();
    let mut call = task::spawn(world.outer.run(|| async {
        let mut keyed = world.free.with().key("k");
        let (budget, key) = tokio::join!(world.inner.run(one), keyed.run(|_| one()));
        Answer::Ok(budget.unwrap() + key.unwrap())
    }));
    assert_pending!(call.poll());
    let mut outsider = world.free.with().key("k");
    let mut outsider = task::spawn(outsider.admit());
    assert_pending!(outsider.poll());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert!(outsider.is_woken() && !call.is_woken());
    assert_eq!(waiting(&world.runtime, "b"), 1);
    drop(first);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    drop(keyed_holder);
    assert!(call.is_woken());
    assert_eq!(assert_ready_ok!(call.poll()), 2);
    // The outsider was withdrawn, and nobody need poll it; the second permit still holds.
    assert_pending!(shutdown.poll());
    drop(second);
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    assert!(assert_ready_err!(outsider.poll()).is_stopping());
    drop(outsider);
    assert_idle(&world.runtime);
}

#[test]
fn d1_a_nested_wait_begun_during_the_drain_is_served() {
    let world = world();
    let (first, second) = (
        now(world.inner.admit()).unwrap(),
        now(world.inner.admit()).unwrap(),
    );
    let mut call = task::spawn(world.outer.run(|| async {
        world.gate.wait().await;
        world.inner.run(one).await.carry()
    }));
    assert!(call.poll().is_pending());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    world.gate.open();
    assert!(call.poll().is_pending());
    assert_eq!(waiting(&world.runtime, "b"), 1);
    // A second shutdown withdraws it no more than the first.
    let mut again = task::spawn(world.runtime.shutdown());
    assert_pending!(again.poll());
    assert_eq!(waiting(&world.runtime, "b"), 1);
    drop(first);
    assert!(matches!(call.poll(), Poll::Ready(Ok(1))));
    drop(second);
    assert_ready_ok!(shutdown.poll());
    assert_ready_ok!(again.poll());
    assert_idle(&world.runtime);
}

#[test]
fn d1_a_parent_that_is_dropped_takes_its_nested_work_along() {
    let world = world();
    let (first, second) = (
        now(world.inner.admit()).unwrap(),
        now(world.inner.admit()).unwrap(),
    );
    let mut call = task::spawn(
        world
            .outer
            .run(|| async { world.inner.run(one).await.carry() }),
    );
    assert!(call.poll().is_pending());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    drop(call);
    drop((first, second));
    assert!(shutdown.is_woken());
    assert_ready_ok!(shutdown.poll());
    let of = counts(&world.runtime, "inner");
    assert_eq!((of.admitted, of.finished), (3, 3));
    assert_idle(&world.runtime);
}

#[test]
fn e2_a_nested_wait_for_a_key_that_is_given_up_during_the_drain_never_ran() {
    let world = world();
    let held = now(world.free.with().key("k").admit()).unwrap();
    let mut call = task::spawn(world.outer.run(|| async {
        world.gate.wait().await;
        let mut keyed = world.free.with().key("k");
        assert_pending!(task::spawn(keyed.run(|_| one())).poll());
        Answer::Ok(1)
    }));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    world.gate.open();
    assert_ready_ok!(call.poll());
    drop(held);
    assert_ready_ok!(shutdown.poll());
    let free = counts(&world.runtime, "free");
    assert_eq!((free.admitted, free.started, free.finished), (2, 1, 2));
    assert_eq!((free.outcomes.never_ran, free.outcomes.success), (1, 1));
    let snapshot = world.runtime.snapshot();
    let free = snapshot
        .operations
        .iter()
        .find(|of| &*of.stats.name == "free")
        .unwrap();
    assert_eq!(free.waiting, 0);
    assert_idle(&world.runtime);
}

#[test]
fn d1_nested_is_who_is_polled_inside_not_who_was_made_inside() {
    // A call made inside a handler and polled elsewhere is outside, and one that leaves waits outside.
    let world = world();
    let outside = std::sync::Mutex::new(None);
    let mut call = task::spawn(world.outer.run(|| async {
        *common::lock(&outside) = Some(Box::pin(world.inner.run(one)));
        world.gate.wait().await;
        Answer::Ok(1)
    }));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(world.runtime.shutdown());
    assert_pending!(shutdown.poll());
    let escaped = common::lock(&outside).take().expect("it was made");
    assert!(assert_ready_err!(task::spawn(escaped).poll()).is_stopping());
    world.gate.open();
    assert_ready_ok!(call.poll());
    assert_ready_ok!(shutdown.poll());
}

#[test]
fn d1_chains_cross_runtimes() {
    let (first, second) = (world(), world());
    let mut call = task::spawn(first.outer.run(|| async {
        let crossed = second.outer.run(|| async {
            first.gate.wait().await;
            // Both drain. This call is inside both.
            let back = first.inner.run(one).await.unwrap();
            let here = second.inner.run(one).await.unwrap();
            Answer::Ok(back + here)
        });
        let value = crossed.await.unwrap();
        // Here it is inside the first alone, and outside the second.
        let refused = second.inner.run(one).await.unwrap_err();
        assert!(refused.is_stopping());
        Answer::Ok(value + first.inner.run(one).await.unwrap())
    }));
    assert_pending!(call.poll());
    let (mut stop_first, mut stop_second) = (
        task::spawn(first.runtime.shutdown()),
        task::spawn(second.runtime.shutdown()),
    );
    assert_pending!(stop_first.poll());
    assert_pending!(stop_second.poll());
    first.gate.open();
    assert_eq!(assert_ready_ok!(call.poll()), 3);
    assert_ready_ok!(stop_first.poll());
    assert_ready_ok!(stop_second.poll());
    assert_idle(&first.runtime);
    assert_idle(&second.runtime);
}

#[test]
fn d4_a_shutdown_from_inside_fails_at_its_first_poll_and_closes_nothing() {
    let (world, other) = (world(), world());
    let inside = || async {
        let plain = world.runtime.shutdown().await;
        let bounded = world.runtime.shutdown_within(ms(0)).await;
        let (joined, _) = tokio::join!(world.runtime.shutdown(), std::future::ready(()));
        for refused in [plain, bounded, joined] {
            assert_eq!(refused, Err(ShutdownError::InsideOwnCall));
        }
        Answer::Ok(1)
    };
    assert_ready_ok!(task::spawn(world.outer.run(inside)).poll());
    assert_ready_ok!(task::spawn(world.free.run(inside)).poll());
    let mut keyed = world.free.with().key("k");
    assert_ready_ok!(task::spawn(keyed.run(|_| inside())).poll());
    // Through a call of another runtime it is still inside.
    let nested = world
        .outer
        .run(|| async { other.outer.run(inside).await.carry() });
    assert_eq!(now(nested).unwrap(), 1);
    // Nothing was closed.
    assert_ready_ok!(task::spawn(world.inner.run(one)).poll());

    // Another runtime's shutdown is no such thing.
    let mut call = task::spawn(world.outer.run(|| async {
        other.runtime.shutdown().await.expect("idle, and not ours");
        Answer::Ok(1)
    }));
    assert_ready_ok!(call.poll());
    assert!(now(other.inner.run(one)).unwrap_err().is_stopping());
}

#[test]
fn d4_from_outside_again_it_is_no_longer_refused() {
    let world = world();
    let mut call = task::spawn(world.outer.run(|| async {
        let mut inside = pin!(world.runtime.shutdown());
        let refused = poll_fn(|cx| inside.as_mut().poll(cx)).await;
        assert_eq!(refused, Err(ShutdownError::InsideOwnCall));
        Err::<(), _>(Failure::permanent("own"))
    }));
    assert_ready_err!(call.poll());
    assert_ready_ok!(task::spawn(world.runtime.shutdown()).poll());
}
