//! C8, B9: what a call comes to when its caller leaves, by a deadline, by a moment, by a token or by dropping it: in
//! each queue, under a grant not noticed, turned away, executing, in the grace, between attempts.

mod common;

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use bursar::{
    CallError, Clock, Contract, EndedBy, Failure, ManualClock, Outcome, Policy, Retry, Runtime,
    handler_fn,
};
use common::{Answer, Error, Gate, Script, assert_idle, counts, in_use, ms, runtime, waiting};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

/// How a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Within,
    Deadline,
    Token,
}

const WAYS: [Leave; 3] = [Leave::Within, Leave::Deadline, Leave::Token];

/// One runtime, budgets `a` and `b` of one unit each, and a call that claims both under a key.
struct World {
    runtime: Runtime,
    clock: ManualClock,
    work: Contract,
    token: Gate,
    way: Leave,
}

impl World {
    fn new(way: Leave) -> Self {
        let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
        let retry = Retry::up_to(10).on_transient().on_uncertain();
        let policy = Policy::idempotent()
            .claim("b", 1)
            .claim("a", 1)
            .retry(retry);
        let work = runtime.contract("work", policy).unwrap();
        let token = Gate::new();
        Self {
            runtime,
            clock,
            work,
            token,
            way,
        }
    }

    /// A call under key `k` whose caller leaves when [`leave`](Self::leave) says so.
    fn call(&self) -> bursar::Call<'_> {
        let call = self.work.with().key("k");
        match self.way {
            Leave::Within => call.within(ms(10)),
            Leave::Deadline => call.deadline(self.clock.now() + ms(10)),
            Leave::Token => call.until(self.token.wait()),
        }
    }

    fn leave(&self) {
        match self.way {
            Leave::Token => self.token.open(),
            _ => self.clock.advance(ms(10)),
        }
    }

    fn holder(&self, budget: &str) -> Contract {
        let policy = Policy::pure().claim(budget, 1);
        self.runtime.contract("holder", policy).unwrap()
    }

    #[track_caller]
    fn assert_withdrawn(&self, error: &CallError<Error>) {
        let right = match self.way {
            Leave::Token => matches!(error, CallError::Withdrawn(_)),
            _ => matches!(error, CallError::AdmissionTimedOut(_)),
        };
        assert!(right, "{error:?}");
        assert!(error.never_ran() && error.attempts() == 0);
        assert_eq!(error.outcome(), Outcome::Throttled);
    }

    /// The call ran and was cut off.
    #[track_caller]
    fn assert_cut(&self, error: &CallError<Error>, said: Option<Error>) {
        let (right, by) = match self.way {
            Leave::Token => (
                matches!(error, CallError::Cancelled(_)),
                EndedBy::CallerLeft,
            ),
            _ => (
                matches!(error, CallError::TimedOut(_)),
                EndedBy::CallerDeadline,
            ),
        };
        assert!(right, "{error:?}");
        assert_eq!(error.outcome(), Outcome::Uncertain);
        assert_eq!(error.error().copied(), said);
        assert_eq!(error.attempted().unwrap().ended_by(), Some(by));
    }
}

fn forbidden<A>(_: A) -> std::future::Ready<Answer> {
    panic!("nothing may run")
}

#[test]
fn b9_a_caller_that_leaves_the_keys_queue_takes_its_place_with_it() {
    for way in WAYS {
        let world = World::new(way);
        let keyed = world.runtime.contract("keyed", Policy::pure()).unwrap();
        let held = assert_ready_ok!(task::spawn(keyed.with().key("k").admit()).poll());
        let mut builder = world.call();
        let mut call = task::spawn(builder.run(forbidden));
        assert_pending!(call.poll());
        let mut next_builder = keyed.with().key("k");
        let mut next = task::spawn(next_builder.admit());
        assert_pending!(next.poll());
        world.leave();
        assert!(call.is_woken());
        let error = assert_ready_err!(call.poll());
        world.assert_withdrawn(&error);
        assert!(error.refusal().unwrap().is_key());
        assert!(!next.is_woken());
        drop(held);
        drop(assert_ready_ok!(next.poll()));
        drop((next, call));
        assert_idle(&world.runtime);
    }
}

#[test]
fn b9_a_caller_that_leaves_a_budgets_queue_has_everything_back_when_it_sees_the_error() {
    for way in WAYS {
        for (full, free) in [("a", "b"), ("b", "a")] {
            let world = World::new(way);
            let held = assert_ready_ok!(task::spawn(world.holder(full).admit()).poll());
            let mut builder = world.call();
            let mut call = task::spawn(builder.run(forbidden));
            assert_pending!(call.poll());
            let first = u32::from(full == "b");
            assert_eq!(
                in_use(&world.runtime, free),
                first,
                "only what comes before is held"
            );
            assert_eq!(
                (waiting(&world.runtime, full), world.runtime.stats().keys),
                (1, 1)
            );
            world.leave();
            assert!(call.is_woken());
            let error = assert_ready_err!(call.poll());
            world.assert_withdrawn(&error);
            assert_eq!(error.refusal().unwrap().budget(), Some(full));
            let stats = world.runtime.stats();
            assert_eq!((in_use(&world.runtime, free), stats.keys), (0, 0));
            assert_eq!(waiting(&world.runtime, full), 0);
            drop(held);
            assert_idle(&world.runtime);
        }
    }
}

#[test]
fn b9_units_granted_to_a_caller_that_left_before_noticing_pass_on() {
    for way in WAYS {
        let world = World::new(way);
        let holder = world.holder("b");
        let held = assert_ready_ok!(task::spawn(holder.admit()).poll());
        let mut builder = world.call();
        let mut call = task::spawn(builder.run(forbidden));
        assert_pending!(call.poll());
        let mut next = task::spawn(holder.admit());
        assert_pending!(next.poll());
        drop(held);
        world.leave();
        assert!(!next.is_woken());
        world.assert_withdrawn(&assert_ready_err!(call.poll()));
        assert!(next.is_woken(), "passed on then and there");
        drop(assert_ready_ok!(next.poll()));
        assert_idle(&world.runtime);
    }
}

#[test]
fn b9_a_refusal_stands_though_the_caller_leaves_before_it_is_answered() {
    for way in WAYS {
        let mut world = World::new(way);
        let policy = Policy::pure().claim("a", 1).reject();
        world.work = world.runtime.contract("reject", policy).unwrap();
        let held = assert_ready_ok!(task::spawn(world.holder("a").admit()).poll());
        let mut builder = world.call();
        let mut call = task::spawn(builder.run(forbidden));
        assert_pending!(call.poll());
        world.leave();
        assert!(assert_ready_err!(call.poll()).is_overloaded());
        drop(held);
        assert_idle(&world.runtime);
    }
}

/// A call whose handler executes and answers `last` once it is told, if anything.
fn cut(way: Leave, last: Option<Answer>) -> (World, Result<u32, CallError<Error>>) {
    let world = World::new(way);
    let mut runs = 0;
    let mut builder = world.call();
    let mut call = task::spawn(builder.run(|attempt| {
        runs += 1;
        let last = last.as_ref().map(|answer| match answer {
            Ok(value) => Ok(*value),
            Err(failure) => Err(Failure::classified(
                "own",
                failure.is_classified().then(|| failure.outcome()),
            )),
        });
        async move {
            attempt.cancelled().await;
            match last {
                Some(answer) => answer,
                None => pending().await,
            }
        }
    }));
    assert_pending!(call.poll());
    assert_eq!(in_use(&world.runtime, "a"), 1);
    world.leave();
    assert!(call.is_woken());
    let answer = assert_ready!(call.poll());
    drop(call);
    assert_eq!(runs, 1, "never retried");
    assert_eq!(counts(&world.runtime, "work").retried, 0);
    assert_idle(&world.runtime);
    drop(builder);
    (world, answer)
}

#[test]
fn b9_a_success_in_the_last_poll_stands() {
    for way in WAYS {
        assert_eq!(cut(way, Some(Ok(7))).1.unwrap(), 7);
    }
}

#[test]
fn c8_leaving_is_never_retried_and_never_transient_whatever_the_handler_says() {
    for way in WAYS {
        let (world, answer) = cut(way, None);
        world.assert_cut(&answer.unwrap_err(), None);
        for failure in [
            Failure::transient("own"),
            Failure::permanent("own"),
            Failure::throttled("own"),
            Failure::uncertain("own"),
            Failure::unclassified("own"),
        ] {
            let (world, answer) = cut(way, Some(Err(failure)));
            world.assert_cut(&answer.unwrap_err(), Some("own"));
        }
    }
}

#[test]
fn c8_a_caller_that_left_while_an_attempt_failed_gets_no_other() {
    for way in WAYS {
        let world = World::new(way);
        let mut runs = 0;
        let mut builder = world.call();
        let mut call = task::spawn(builder.run(|_| {
            runs += 1;
            world.leave();
            async { Answer::Err(Failure::transient("own")) }
        }));
        let error = assert_ready_err!(call.poll_until_idle());
        drop(call);
        assert_eq!((runs, error.attempts()), (1, 1));
        assert_eq!(error.error(), Some(&"own"));
        let by = match way {
            Leave::Token => EndedBy::CallerLeft,
            _ => EndedBy::CallerDeadline,
        };
        assert_eq!(error.attempted().unwrap().ended_by(), Some(by));
        assert_idle(&world.runtime);
    }
}

#[test]
fn c8_a_dropped_call_is_not_retried_and_counts_as_finished() {
    let world = World::new(Leave::Token);
    let dropped = Gate::new();
    struct Opens(Gate);
    impl Drop for Opens {
        fn drop(&mut self) {
            self.0.open();
        }
    }
    let mut runs = 0;
    let mut call = task::spawn(world.work.run(|| {
        runs += 1;
        let opens = Opens(dropped.clone());
        async move {
            let _opens = opens;
            pending::<Answer>().await
        }
    }));
    assert_pending!(call.poll());
    assert_pending!(task::spawn(dropped.wait()).poll());
    drop(call);
    assert_ready!(task::spawn(dropped.wait()).poll());
    assert_eq!(runs, 1);
    let of = counts(&world.runtime, "work");
    assert_eq!((of.started, of.finished, of.retried), (1, 1, 0));
    assert_idle(&world.runtime);
}

#[test]
fn b9_a_token_that_fires_in_the_grace_ends_the_call() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).timeout(ms(10)).grace(ms(100));
    let contract = runtime.contract("work", policy).unwrap();
    let (token, script) = (Gate::new(), Script::new());
    for last in [None, Some(Ok(7)), Some(Err(Failure::transient("own")))] {
        let token = if last.is_none() {
            token.clone()
        } else {
            Gate::new()
        };
        let mut builder = contract.with().until(token.wait());
        let mut call = task::spawn(builder.run(|_| script.answer()));
        assert_pending!(call.poll());
        clock.advance(ms(10));
        assert_pending!(call.poll());
        token.open();
        let success = matches!(last, Some(Ok(_)));
        let silent = last.is_none();
        if let Some(answer) = last {
            script.say(answer);
        }
        let answer = assert_ready!(call.poll());
        assert_eq!(answer.is_ok(), success);
        if let Err(error) = answer {
            assert!(matches!(error, CallError::Cancelled(_)));
            assert_eq!(
                (error.outcome(), error.error().is_none()),
                (Outcome::Uncertain, silent)
            );
        }
    }
    assert_idle(&runtime);
}

#[test]
fn b9_the_callers_deadline_within_a_grace_is_the_callers() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(2).on_uncertain();
    let policy = Policy::pure().claim("a", 1).timeout(ms(10)).grace(ms(100));
    let contract = runtime.contract("work", policy.retry(retry)).unwrap();
    let mut builder = contract.with().within(ms(15));
    let mut call = task::spawn(builder.run(|_| pending::<Answer>()));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    assert_pending!(call.poll());
    clock.advance(ms(5));
    let error = assert_ready_err!(call.poll());
    let ended_by = error.attempted().unwrap().ended_by();
    assert_eq!(ended_by, Some(EndedBy::CallerDeadline));
    assert_idle(&runtime);
}

#[test]
fn c5_the_handler_is_dropped_before_anything_is_given_back() {
    /// Looks, when it is dropped, at what the call holds then.
    struct Looks<'l>(&'l Runtime, &'l Cell<Option<(u32, usize)>>);
    impl Drop for Looks<'_> {
        fn drop(&mut self) {
            self.1.set(Some((in_use(self.0, "b"), self.0.stats().keys)));
        }
    }
    for way in [Some(Leave::Within), Some(Leave::Token), None] {
        let world = World::new(way.unwrap_or(Leave::Token));
        let held = Cell::new(None);
        let mut builder = world.call();
        let mut call = task::spawn(builder.run(|_| {
            let looks = Looks(&world.runtime, &held);
            async {
                let _looks = looks;
                pending::<Answer>().await
            }
        }));
        assert_pending!(call.poll());
        assert_eq!(held.get(), None);
        if way.is_some() {
            world.leave();
            assert_ready_err!(call.poll());
        }
        drop(call);
        assert_eq!(held.get(), Some((1, 1)), "{way:?}");
        assert_idle(&world.runtime);
    }
}

#[test]
fn b9_a_typed_operations_call_is_bounded_too() {
    async fn sleep(_: &u32) -> Answer {
        pending().await
    }
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1);
    let work = runtime
        .operation("work", policy, handler_fn(sleep))
        .unwrap();
    let token = Gate::new();
    let deadline = clock.now() + ms(20);
    let mut within = task::spawn(work.with().within(ms(10)).call(1));
    assert_pending!(within.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(within.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    let mut by_deadline = task::spawn(work.with().deadline(deadline).call(1));
    assert_pending!(by_deadline.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(by_deadline.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    let mut until = task::spawn(work.with().until(token.wait()).call(1));
    assert_pending!(until.poll());
    token.open();
    let error = assert_ready_err!(until.poll());
    assert!(matches!(error, CallError::Cancelled(_)));
    assert_idle(&runtime);
}

#[test]
fn b9_a_permit_that_came_with_a_value_outlives_the_bound() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let token = Gate::new();
    let mut builder = contract.with().within(ms(10)).until(token.wait());
    let mut call = task::spawn(builder.run_held(|_| async { Answer::Ok(7) }));
    let (value, permit) = assert_ready_ok!(call.poll());
    drop(call);
    clock.advance(ms(100));
    token.open();
    assert_eq!((value, in_use(&runtime, "a")), (7, 1));
    assert_eq!(counts(&runtime, "work").finished, 0);
    drop(permit);
    assert_idle(&runtime);
}

#[test]
fn b9_a_bound_that_no_clock_can_tell_is_none() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let held = assert_ready_ok!(task::spawn(contract.admit()).poll());
    let mut builder = contract.with().within(Duration::MAX);
    let mut call = task::spawn(builder.run(|_| async { Answer::Ok(7) }));
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(1 << 30));
    assert_pending!(call.poll());
    drop(held);
    assert_ready_ok!(call.poll());
    assert_idle(&runtime);
}

#[test]
fn b9_no_timer_is_armed_for_a_call_that_does_not_wait() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let mut builder = contract.with().within(ms(10));
    let mut call = task::spawn(builder.run(|_| async {
        assert_eq!(clock.timers(), 0);
        Answer::Ok(7)
    }));
    assert_ready_ok!(call.poll());
    assert_eq!(clock.timers(), 0);
}
