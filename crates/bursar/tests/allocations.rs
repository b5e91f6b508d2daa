//! How often a call asks the allocator for memory: never, on the ways that matter.
//!
//! Counted on this thread alone, after a few calls that may warm things up.

mod common;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Attempt, Contract, Failure, Handler, Key, Policy, Retry, Runtime, handler_fn};

const CALLS: u64 = 32;
const SECOND: Duration = Duration::from_secs(1);
const AT_MOST_INLINE: &str = "a key of 22 bytes long";
const LONGER: &str = "a key of 23 bytes, long";

type Nothing = Failure<()>;

/// Allocations of one call, when each of many makes as many.
#[track_caller]
fn allocations(mut call: impl FnMut()) -> u64 {
    for _ in 0..4 {
        call();
    }
    let counted = allocation_counter::measure(|| {
        for _ in 0..CALLS {
            call();
        }
    });
    assert_eq!(counted.count_current, 0, "what is taken is given back");
    let per_call = counted.count_total / CALLS;
    assert_eq!(counted.count_total % CALLS, 0, "{counted:?}");
    per_call
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a call that is ready at once, or after so many polls.
#[track_caller]
fn ready<F: Future>(after: u32, future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..after {
        assert!(poll(future.as_mut()).is_pending());
    }
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is pending"),
    }
}

async fn done() -> Result<u32, Nothing> {
    Ok(7)
}

fn runtime() -> Runtime {
    let builder = Runtime::builder().resource("a", 4).resource("b", 4);
    builder.resource("c", 4).build().unwrap()
}

fn one(runtime: &Runtime) -> Contract {
    let policy = Policy::pure().claim("a", 1);
    runtime.contract("one", policy).unwrap()
}

#[test]
fn an_uncontended_run_allocates_nothing() {
    let runtime = runtime();
    let one = one(&runtime);
    assert_eq!(allocations(|| assert!(ready(0, one.run(done)).is_ok())), 0);
    let three = Policy::pure().claim("a", 1).claim("b", 2).claim("c", 4);
    let three = runtime.contract("three", three).unwrap();
    assert_eq!(
        allocations(|| assert!(ready(0, three.run(done)).is_ok())),
        0
    );
    let none = runtime.contract("none", Policy::pure()).unwrap();
    assert_eq!(allocations(|| assert!(ready(0, none.run(done)).is_ok())), 0);
    assert_eq!(
        allocations(|| assert!(ready(0, one.with().run(|_| done())).is_ok())),
        0,
        "its builder included"
    );
}

#[test]
fn a_permit_allocates_nothing() {
    let runtime = runtime();
    let one = one(&runtime);
    assert_eq!(allocations(|| drop(ready(0, one.admit()).unwrap())), 0);
    assert_eq!(
        allocations(|| drop(ready(0, one.run_held(done)).unwrap())),
        0
    );
}

#[test]
fn a_failed_run_and_its_retries_allocate_nothing() {
    let runtime = runtime();
    let policy = Policy::pure()
        .claim("a", 1)
        .retry(Retry::up_to(3).on_transient());
    let retries = runtime.contract("retries", policy).unwrap();
    let fails = || async { Err::<(), _>(Failure::transient(())) };
    assert_eq!(
        allocations(|| assert_eq!(ready(2, retries.run(fails)).unwrap_err().attempts(), 3)),
        0
    );
}

#[test]
fn a_timeout_of_a_handler_that_does_not_suspend_allocates_nothing() {
    let runtime = runtime();
    let policy = Policy::pure().claim("a", 1).timeout(SECOND);
    let timed = runtime.contract("timed", policy).unwrap();
    assert_eq!(
        allocations(|| assert!(ready(0, timed.run(done)).is_ok())),
        0
    );
    let bounded = || ready(0, timed.with().within(SECOND).run(|_| done()));
    assert_eq!(allocations(|| assert!(bounded().is_ok())), 0);
}

#[test]
fn an_armed_timeout_takes_the_place_of_the_one_before() {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = executor.enter();
    let runtime = runtime();
    let policy = Policy::pure().claim("a", 1).timeout(SECOND);
    let timed = runtime.contract("timed", policy).unwrap();
    let suspends = || async {
        let mut suspended = false;
        poll_fn(|_| {
            if std::mem::replace(&mut suspended, true) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
        done().await
    };
    assert_eq!(
        allocations(|| assert!(ready(1, timed.run(suspends)).is_ok())),
        0
    );
    // One timer for the attempt and the caller alike.
    let bounded = || ready(1, timed.with().within(SECOND).run(|_| suspends()));
    assert!(allocations(|| assert!(bounded().is_ok())) <= 1);
}

#[test]
fn a_key_of_up_to_22_bytes_allocates_nothing_and_a_longer_one_once() {
    assert_eq!((AT_MOST_INLINE.len(), LONGER.len()), (22, 23));
    let runtime = runtime();
    let one = one(&runtime);
    for key in ["k", AT_MOST_INLINE] {
        let keyed = || ready(0, one.with().key(key).run(|_| done()));
        assert_eq!(allocations(|| assert!(keyed().is_ok())), 0, "{key}");
    }
    let numbered = || ready(0, one.with().key(u64::MAX).run(|_| done()));
    assert_eq!(allocations(|| assert!(numbered().is_ok())), 0);
    let longer = || ready(0, one.with().key(LONGER).run(|_| done()));
    assert!(allocations(|| assert!(longer().is_ok())) <= 1);
    // Made once and lent to many calls, it costs nothing more.
    let key = Key::from(LONGER);
    let lent = || ready(0, one.with().key(key.clone()).run(|_| done()));
    assert_eq!(allocations(|| assert!(lent().is_ok())), 0);
}

#[test]
fn ten_thousand_keys_one_after_another_allocate_nothing() {
    let runtime = runtime();
    let one = one(&runtime);
    let mut key = 0_u64;
    let mut next = || {
        key += 1;
        assert!(ready(0, one.with().key(key).run(|_| done())).is_ok());
    };
    for _ in 0..1_000 {
        next();
    }
    let counted = allocation_counter::measure(|| (0..10_000).for_each(|_| next()));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_refusal_allocates_nothing() {
    let runtime = runtime();
    let four = Policy::pure().claim("b", 4);
    let four = runtime.contract("four", four).unwrap();
    let held = ready(0, four.with().key("k").admit()).unwrap();
    let rejects = Policy::pure().claim("a", 1).claim("b", 1).reject();
    let rejects = runtime.contract("rejects", rejects).unwrap();
    assert_eq!(
        allocations(|| assert!(ready(1, rejects.run(done)).is_err())),
        0
    );
    assert_eq!(
        allocations(|| assert!(ready(1, rejects.admit()).is_err())),
        0
    );
    let keyed = || ready(1, rejects.with().key("k").run(|_| done()));
    assert_eq!(allocations(|| assert!(keyed().is_err())), 0);
    drop(held);
}

#[test]
fn a_wait_allocates_nothing_once_its_queue_has_been_used() {
    let runtime = runtime();
    let four = Policy::pure().claim("a", 4);
    let four = runtime.contract("four", four).unwrap();
    for key in ["", "k"] {
        let waits = || {
            let held = ready(0, four.with().key(key).admit()).unwrap();
            let mut call = four.with().key(key);
            let mut waiter = pin!(call.run(|_| done()));
            assert!(poll(waiter.as_mut()).is_pending());
            drop(held);
            assert!(poll(waiter).is_ready());
        };
        assert_eq!(allocations(waits), 0, "{key:?}");
    }
}

#[test]
fn a_typed_operation_allocates_nothing_and_a_boxed_one_once() {
    struct Length;
    impl Handler<String> for Length {
        type Output = usize;
        type Error = ();

        async fn handle(&self, _: &Attempt, text: &String) -> Result<usize, Nothing> {
            Ok(text.len())
        }
    }
    #[expect(clippy::ptr_arg, reason = "a handler is lent its input as it is")]
    async fn length(text: &String) -> Result<usize, Nothing> {
        Ok(text.len())
    }

    let runtime = runtime();
    let policy = || Policy::pure().claim("a", 1);
    let text = || AT_MOST_INLINE.to_owned();
    // The input is the caller's: one allocation for each text.
    let typed = runtime.operation("typed", policy(), Length).unwrap();
    assert_eq!(
        allocations(|| assert!(ready(0, typed.call(text())).is_ok())),
        1
    );
    let plain = runtime
        .operation("plain", policy(), handler_fn(length))
        .unwrap();
    assert_eq!(
        allocations(|| assert!(ready(0, plain.call(text())).is_ok())),
        1
    );
    let keyed = typed.serialize_by(String::as_str);
    assert_eq!(
        allocations(|| assert!(ready(0, keyed.call(text())).is_ok())),
        1
    );
    let boxed = keyed.boxed();
    assert_eq!(
        allocations(|| assert!(ready(0, boxed.call(text())).is_ok())),
        2
    );
}

#[test]
fn a_token_allocates_once() {
    let runtime = runtime();
    let one = one(&runtime);
    let call = || {
        let token = std::future::pending::<()>();
        ready(0, one.with().until(token).run(|_| done()))
    };
    assert_eq!(allocations(|| assert!(call().is_ok())), 1);
}
