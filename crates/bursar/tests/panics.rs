//! C9: a panic in a handler, wherever it happens: units and key are back at once, while the panicked future still
//! exists; the call counts as finished; the panic goes on to the caller.

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bursar::{
    Attempt, Backoff, Contract, Failure, Handler, ManualClock, Permit, Policy, Retry, Runtime,
    handler_fn,
};
use common::{Answer, Error, Gate, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::task::Spawn;
use tokio_test::{assert_pending, assert_ready_ok, task};

/// Where the handler panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before there is a future.
    Call,
    FirstPoll,
    LaterPoll,
    /// Told that its deadline has passed.
    LastPoll,
    Grace,
    /// In the attempt that follows a failed one.
    SecondAttempt,
    /// When the future is dropped, having answered.
    DropAfterSuccess,
    DropAfterFailure,
    /// When the future is dropped at its await point.
    DropAtDeadline,
}

const ALL: [At; 9] = [
    At::Call,
    At::FirstPoll,
    At::LaterPoll,
    At::LastPoll,
    At::Grace,
    At::SecondAttempt,
    At::DropAfterSuccess,
    At::DropAfterFailure,
    At::DropAtDeadline,
];

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("boom");
    }
}

/// Panics with "boom" where it is told to. Counts its calls in `made`.
fn handler(at: At, attempt: &Attempt, made: &AtomicU32) -> impl Future<Output = Answer> + use<> {
    let number = made.fetch_add(1, Ordering::Relaxed) + 1;
    assert!(at != At::Call, "boom");
    let in_drop = matches!(
        at,
        At::DropAfterSuccess | At::DropAfterFailure | At::DropAtDeadline
    );
    let bomb = in_drop.then(|| Bomb);
    assert_eq!(attempt.number(), number);
    let mut polls = 0;
    poll_fn(move |_| {
        let _in_here_until_the_end = &bomb;
        polls += 1;
        match (at, polls) {
            (At::FirstPoll, 1) | (At::LaterPoll, 2) | (At::LastPoll, 3) | (At::Grace, 4) => {
                panic!("boom")
            }
            (At::SecondAttempt, _) if number == 2 => panic!("boom"),
            (At::SecondAttempt | At::DropAfterFailure, _) => {
                Poll::Ready(Err(Failure::transient("again")))
            }
            (At::DropAfterSuccess, _) => Poll::Ready(Ok(7)),
            _ => Poll::Pending,
        }
    })
}

struct World {
    runtime: Runtime,
    clock: ManualClock,
    work: Contract,
    holders: [Contract; 3],
}

impl World {
    fn new(at: At) -> Self {
        let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
        let mut policy = Policy::non_idempotent()
            .claim("a", 1)
            .claim("b", 1)
            .timeout(ms(10))
            .retry(Retry::up_to(2).on_transient());
        if at == At::Grace {
            policy = policy.grace(ms(10));
        }
        let work = runtime.contract("work", policy).unwrap();
        let holders = [
            runtime.contract("a alone", Policy::pure().claim("a", 1)),
            runtime.contract("b alone", Policy::pure().claim("b", 1)),
            runtime.contract("key alone", Policy::pure()),
        ]
        .map(Result::unwrap);
        Self {
            runtime,
            clock,
            work,
            holders,
        }
    }

    /// Polls until the panic, with somebody waiting for each thing the call holds, and asserts what holds then.
    fn explode<F>(&self, call: &mut Spawn<F>, at: At, made: &AtomicU32)
    where
        F: Future<Output: std::fmt::Debug>,
    {
        let mut builders = self.holders.each_ref().map(|holder| holder.with());
        builders[2] = self.holders[2].with().key("k");
        let mut waiters: Vec<Spawn<_>> = Vec::new();
        let suspends = matches!(
            at,
            At::LaterPoll | At::LastPoll | At::Grace | At::DropAtDeadline
        );
        if suspends {
            assert_pending!(call.poll());
            waiters.extend(
                builders
                    .iter_mut()
                    .map(|builder| task::spawn(builder.admit())),
            );
            for waiter in &mut waiters {
                assert_pending!(waiter.poll());
            }
            assert_eq!(
                (waiting(&self.runtime, "a"), waiting(&self.runtime, "b")),
                (1, 1)
            );
        }
        if matches!(at, At::LastPoll | At::Grace | At::DropAtDeadline) {
            self.clock.advance(ms(10));
        }
        if matches!(at, At::SecondAttempt | At::Grace) {
            assert_pending!(call.poll());
        }

        let unwound = catch_unwind(AssertUnwindSafe(|| call.poll().is_ready()));
        let payload = unwound.expect_err("the panic goes on to the caller");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"boom"), "{at:?}");

        for waiter in &mut waiters {
            assert!(waiter.is_woken(), "{at:?}: woken at once");
            drop(assert_ready_ok!(waiter.poll()));
        }
        drop(waiters);
        let of = counts(&self.runtime, "work");
        assert_eq!((of.admitted, of.started, of.finished), (1, 1, 1), "{at:?}");
        assert_eq!(
            (in_use(&self.runtime, "a"), in_use(&self.runtime, "b")),
            (0, 0),
            "{at:?}"
        );
        assert_idle(&self.runtime);

        // What is left of the call never runs the handler again, and takes nothing.
        let runs = made.load(Ordering::Relaxed);
        let _either = catch_unwind(AssertUnwindSafe(|| call.poll().is_ready()));
        assert_eq!(made.load(Ordering::Relaxed), runs, "{at:?}");
        assert_idle(&self.runtime);
    }
}

/// Where a panic is the handler's own: `call` and `run` of any kind go through the same places.
fn everywhere(places: &[At]) {
    for &at in places {
        let (world, made) = (World::new(at), AtomicU32::new(0));
        let mut builder = world.work.with().key("k");
        let mut call = task::spawn(builder.run(|attempt| handler(at, attempt, &made)));
        world.explode(&mut call, at, &made);
        drop(call);
        assert_idle(&world.runtime);
    }
}

#[test]
fn c9_a_panic_in_a_poll_gives_everything_back_while_the_future_still_exists() {
    everywhere(&[
        At::FirstPoll,
        At::LaterPoll,
        At::LastPoll,
        At::Grace,
        At::SecondAttempt,
    ]);
}

#[test]
fn c9_a_panic_before_there_is_a_future_gives_everything_back() {
    everywhere(&[At::Call]);
}

#[test]
fn c9_a_panic_in_the_handlers_drop_gives_everything_back() {
    everywhere(&[
        At::DropAfterSuccess,
        At::DropAfterFailure,
        At::DropAtDeadline,
    ]);
}

#[test]
fn c9_every_form_of_a_call_gives_everything_back() {
    for at in ALL {
        let (world, made) = (World::new(at), AtomicU32::new(0));
        let mut builder = world.work.with().key("k");
        let mut call = task::spawn(builder.run_held(|attempt| handler(at, attempt, &made)));
        world.explode(&mut call, at, &made);

        struct Explodes(At, AtomicU32);
        impl Handler<&'static str> for Explodes {
            type Output = u32;
            type Error = Error;
            fn handle(
                &self,
                attempt: &Attempt,
                _: &&'static str,
            ) -> impl Future<Output = Answer> + Send {
                handler(self.0, attempt, &self.1)
            }
        }
        let world = World::new(at);
        let policy = Policy::non_idempotent()
            .claim("a", 1)
            .claim("b", 1)
            .timeout(ms(10))
            .grace(ms(if at == At::Grace { 10 } else { 0 }))
            .retry(Retry::up_to(2).on_transient());
        let typed = world
            .runtime
            .operation("typed", policy, Explodes(at, AtomicU32::new(0)))
            .unwrap()
            .serialize_by(|key| key);
        let mut call = task::spawn(typed.call("k"));
        while catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_ok_and(|ready| !ready) {
            world.clock.advance(ms(5));
        }
        assert_eq!(counts(&world.runtime, "typed").finished, 1, "{at:?}");
        assert_idle(&world.runtime);
    }
}

#[test]
fn c9_a_panic_in_the_handlers_drop_when_the_caller_leaves_gives_everything_back() {
    let at = At::DropAtDeadline;
    let (world, made) = (World::new(at), AtomicU32::new(0));
    let mut builder = world.work.with().key("k");
    let mut call = task::spawn(builder.run(|attempt| handler(at, attempt, &made)));
    assert_pending!(call.poll());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(call))).is_err());
    assert_idle(&world.runtime);
}

#[test]
fn c9_the_panicked_future_is_dropped_before_anything_is_given_back() {
    struct Looks<'l>(&'l Runtime, &'l Cell<Option<(u32, usize)>>);
    impl Drop for Looks<'_> {
        fn drop(&mut self) {
            self.1.set(Some((in_use(self.0, "a"), self.0.stats().keys)));
        }
    }
    let (world, held) = (World::new(At::FirstPoll), Cell::new(None));
    let mut builder = world.work.with().key("k");
    let mut call = task::spawn(builder.run(|attempt| {
        let looks = Looks(&world.runtime, &held);
        // What a polled closure owns is dropped with it, not by its panic.
        poll_fn(move |_| {
            let _looks = &looks;
            assert!(attempt.number() > 1, "boom");
            Poll::<Answer>::Pending
        })
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err());
    assert_eq!(held.get(), Some((1, 1)));
    assert_idle(&world.runtime);
}

#[test]
fn b1_the_handlers_future_is_gone_before_anything_is_given_back_also_at_once() {
    struct Looks<'l>(&'l Runtime, &'l Cell<Option<(u32, usize)>>);
    impl Drop for Looks<'_> {
        fn drop(&mut self) {
            self.1.set(Some((in_use(self.0, "a"), self.0.stats().keys)));
        }
    }
    let (runtime, _) = runtime(&[("a", 1)]);
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let held = Cell::new(None);
    let mut builder = work.with().key("k");
    let mut call = task::spawn(builder.run(|_| {
        let looks = Looks(&runtime, &held);
        poll_fn(move |_| {
            let _looks = &looks;
            Poll::Ready(Answer::Ok(1))
        })
    }));
    assert_ready_ok!(call.poll());
    assert_eq!(held.get(), Some((1, 1)));
    assert_idle(&runtime);
}

#[test]
fn c9_a_panic_of_nested_work_unwinds_every_call_it_is_nested_in() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let outer = runtime
        .contract("outer", Policy::pure().claim("a", 1))
        .unwrap();
    let inner = runtime
        .contract("inner", Policy::pure().claim("b", 1))
        .unwrap();
    let mut call = task::spawn(outer.run(|| async {
        let _ = inner
            .run(|| async {
                assert!(inner.name().is_empty(), "boom");
                Answer::Ok(1)
            })
            .await;
        Answer::Ok(2)
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err());
    assert_idle(&runtime);
    // The thread's chain is whole again: a call made now is an outsider.
    let held: Permit = assert_ready_ok!(task::spawn(outer.admit()).poll());
    assert_pending!(task::spawn(runtime.shutdown()).poll());
    let refused = tokio_test::assert_ready_err!(task::spawn(inner.admit()).poll());
    assert!(refused.is_stopping());
    drop(held);
}

#[test]
fn c9_a_panic_of_other_user_code_leaves_nothing_behind() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    // The caller's token, before anything is held and while the handler is suspended.
    for (suspended, polls_before) in [(false, 0), (true, 1)] {
        let mut polls = 0;
        let token = poll_fn(move |_| {
            polls += 1;
            assert!(polls <= polls_before, "boom");
            Poll::<()>::Pending
        });
        let gate = Gate::new();
        let mut builder = contract.with().key("k").until(token);
        let mut call = task::spawn(builder.run(|_| async {
            gate.wait().await;
            Answer::Ok(1)
        }));
        if suspended {
            assert_pending!(call.poll());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err());
        drop(call);
        assert_idle(&runtime);
    }
    // The function from input to key, before anything is held.
    async fn nothing(_: &u32) -> Answer {
        Ok(1)
    }
    let typed = runtime
        .operation("typed", Policy::pure().claim("a", 1), handler_fn(nothing))
        .unwrap()
        .serialize_with(|input: &u32| 1_u32.checked_div(*input).expect("boom"));
    let mut call = task::spawn(typed.call(0));
    assert!(catch_unwind(AssertUnwindSafe(|| call.poll().is_ready())).is_err());
    assert_idle(&runtime);
    assert_eq!(counts(&runtime, "typed").admitted, 0);
}

/// A task whose last waker panics when it is dropped.
struct Fuse(Arc<AtomicU32>);

impl Wake for Fuse {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("boom");
    }
}

#[test]
fn b8_a_waker_that_panics_when_it_is_dropped_loses_nothing() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let contract = |name: &str, policy| runtime.contract(name, policy).unwrap();
    let backoff = Backoff::exponential(ms(5));
    let retry = Retry::up_to(2).on_transient().backoff(backoff);
    let both = Policy::pure().claim("a", 1).claim("b", 1).retry(retry);
    let both = contract("both", both);
    let only_b = contract("b", Policy::pure().claim("b", 1));
    let free = contract("free", Policy::pure());
    let blown = Arc::new(AtomicU32::new(0));
    let mut made = 0;
    for waits_for in ["b", "the key", "its next attempt"] {
        for polls in [1, 2] {
            let held = match waits_for {
                "b" => Some(assert_ready_ok!(task::spawn(only_b.admit()).poll())),
                "the key" => Some(assert_ready_ok!(
                    task::spawn(free.with().key("k").admit()).poll()
                )),
                _ => None,
            };
            let mut builder = both.with().key("k");
            let mut call =
                Box::pin(builder.run(|_| async { Answer::Err(Failure::transient("again")) }));
            for _ in 0..polls {
                made += 1;
                let waker = Waker::from(Arc::new(Fuse(Arc::clone(&blown))));
                // What keeps the waker from now on is the queue, and for a pause a timer, whose panic is seen here.
                let mut cx = Context::from_waker(&waker);
                let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut cx)));
                let timer = waits_for == "its next attempt";
                assert!(polled.map_or(timer, |polled| polled.is_pending()));
            }
            let _timer = catch_unwind(AssertUnwindSafe(|| drop(call)));
            drop(held);
            assert_idle(&runtime);
        }
    }
    assert_eq!(blown.load(Ordering::Relaxed), made);
}
