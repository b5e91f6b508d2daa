//! B11: a call never waits for what its own chain holds, and not for long for anything else while its chain holds
//! something.

#![allow(
    clippy::disallowed_methods,
    reason = "spawned tasks and blocking handlers are part of the subject"
)]

mod common;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bursar::{
    Backoff, CallError, Carry, Classify, Contract, ContractError, EndedBy, Failure, Outcome,
    Policy, Retry, Runtime, handler_fn, in_chain,
};
use common::{Answer, Error, Gate, Script, assert_idle, counts, ms, runtime, waiting};
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};

type Nested = Result<u32, CallError<Error>>;

async fn one() -> Answer {
    Ok(1)
}

/// An operation that needs one unit of a budget.
fn claiming(runtime: &Runtime, name: &str, budget: &str) -> Contract {
    let policy = Policy::pure().claim(budget, 1);
    runtime.contract(name, policy).unwrap()
}

/// Asserts that the call was refused as a deadlock at that budget (or, without one, its key), and names its chain.
#[track_caller]
fn assert_deadlock(nested: &Nested, budget: Option<&str>, chain: &[&str]) {
    let error = nested.as_ref().expect_err("it may not wait");
    assert!(matches!(error, CallError::WouldDeadlock(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::Permanent);
    assert!(error.never_ran() && error.attempts() == 0);
    let refusal = error.refusal().expect("it never ran");
    assert_eq!(refusal.budget(), budget);
    assert_eq!(refusal.is_key(), budget.is_none());
    let named: Vec<_> = refusal.chain().iter().map(ToString::to_string).collect();
    assert_eq!(named, chain);
    assert!(error.to_string().contains(chain[0]), "{error}");
}

/// What `inner` answers when it is called inside `outer`, which is polled once.
#[track_caller]
fn inside<Fut: Future>(outer: &Contract, inner: impl FnOnce() -> Fut) -> Fut::Output {
    let mut inner = Some(inner);
    let mut call = task::spawn(outer.run(move || {
        let inner = inner.take().expect("one attempt");
        async move { Ok::<_, Failure<Error>>(inner().await) }
    }));
    match assert_ready!(call.poll()) {
        Ok(nested) => nested,
        Err(error) => panic!("{error}"),
    }
}

/// One poll of a future: whether it waits.
async fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[test]
fn b11_eight_renders_that_each_nest_a_render_are_all_refused_at_once() {
    let (runtime, _) = runtime(&[("renderer", 8)]);
    let render = runtime
        .contract("render", Policy::idempotent().claim("renderer", 1))
        .unwrap();
    let gate = Gate::new();
    let mut calls: Vec<_> = (0..8)
        .map(|_| {
            task::spawn(render.run(|| async {
                gate.wait().await;
                Ok::<_, Failure<Error>>(render.run(one).await)
            }))
        })
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    gate.open();
    // While all eight hold theirs, whoever nests is guilty; whoever comes after one has ended finds a unit free.
    for call in calls.iter_mut().take(1) {
        let nested = assert_ready_ok!(call.poll());
        assert_deadlock(
            &nested,
            Some("renderer"),
            &["\"render\" (holding 1 of \"renderer\")"],
        );
        let usage = nested.unwrap_err().refusal().unwrap().usage().unwrap();
        assert_eq!((usage.capacity, usage.in_use, usage.waiting), (8, 8, 0));
    }
    for call in calls.iter_mut().skip(1) {
        assert_eq!(assert_ready_ok!(call.poll()).unwrap(), 1);
    }
    assert_idle(&runtime);
    assert_eq!(counts(&runtime, "render").rejected, 0);
}

#[test]
fn b11_eight_renders_that_meet_are_all_guilty() {
    let (runtime, _) = runtime(&[("renderer", 8)]);
    let render = runtime
        .contract("render", Policy::idempotent().claim("renderer", 1))
        .unwrap();
    let (begun, answered) = (Gate::new(), Gate::new());
    let mut calls: Vec<_> = (0..8)
        .map(|_| {
            task::spawn(render.run(|| async {
                begun.wait().await;
                let nested = render.run(one).await;
                answered.wait().await;
                Ok::<_, Failure<Error>>(nested)
            }))
        })
        .collect();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    begun.open();
    for call in &mut calls {
        assert_pending!(call.poll());
    }
    answered.open();
    for call in &mut calls {
        let nested = assert_ready_ok!(call.poll());
        assert!(matches!(nested, Err(CallError::WouldDeadlock(_))));
    }
    assert_idle(&runtime);
}

#[test]
fn b11_a_key_of_ones_own_chain_is_not_waited_for() {
    let (runtime, _) = runtime(&[("a", 2)]);
    let outer = claiming(&runtime, "outer", "a");
    let inner = runtime.contract("inner", Policy::pure()).unwrap();
    let mut keyed = outer.with().key("brand 7");
    let mut call = task::spawn(keyed.run(|_| async {
        let same = inner.with().key("brand 7").run(|_| one()).await;
        let other = inner.with().key("brand 8").run(|_| one()).await;
        Ok::<_, Failure<Error>>((same, other))
    }));
    let (same, other) = assert_ready_ok!(call.poll());
    assert_deadlock(&same, None, &["\"outer\" (holding 1 of \"a\", its key)"]);
    assert_eq!(other.unwrap(), 1);
    drop(call);
    assert_idle(&runtime);
}

#[test]
fn b11_the_whole_chain_counts_and_is_named_from_the_inside_out() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let of = |name: &str, budget: &str| claiming(&runtime, name, budget);
    let (outer, middle, inner) = (of("outer", "a"), of("middle", "b"), of("inner", "a"));
    let nested = inside(&outer, || async {
        let deepest = middle.run(|| async { Ok::<_, Failure<Error>>(inner.run(one).await) });
        deepest.await.expect("the middle has all it needs")
    });
    assert_deadlock(
        &nested,
        Some("a"),
        &[
            "\"middle\" (holding 1 of \"b\")",
            "\"outer\" (holding 1 of \"a\")",
        ],
    );
    assert_idle(&runtime);
}

#[test]
fn b11_every_way_to_poll_a_nested_call_inline_is_seen() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let call = claiming(&runtime, "call", "a");
    let refused = |nested: Nested| matches!(nested, Err(CallError::WouldDeadlock(_)));

    let inline = inside(&call, || call.run(one));
    assert!(refused(inline));
    let joined = inside(&call, || async {
        let (left, right) = join(call.run(one), call.run(one)).await;
        assert!(matches!(left, Err(CallError::WouldDeadlock(_))));
        right
    });
    assert!(refused(joined));
    let boxed = inside(&call, || {
        let future: Pin<Box<dyn Future<Output = Nested> + '_>> = Box::pin(call.run(one));
        future
    });
    assert!(refused(boxed));
    // Each child has a waker of its own here.
    let unordered = inside(&call, || async {
        let mut all: FuturesUnordered<_> = [call.run(one)].into_iter().collect();
        all.next().await.expect("there is one")
    });
    assert!(refused(unordered));
    let mut with = call.with().within(ms(5));
    let bounded = inside(&call, || with.run(|_| one()));
    assert!(refused(bounded));
    let admitted = inside(&call, || call.admit());
    assert!(matches!(admitted, Err(CallError::WouldDeadlock(_))));
    let held = inside(&call, || async {
        call.run_held(one).await.map(|(one, _)| one)
    });
    assert!(refused(held));

    // Through a trait object.
    async fn answer(number: &u32) -> Answer {
        Ok(*number)
    }
    let typed = runtime
        .operation("typed", Policy::pure().claim("a", 1), handler_fn(answer))
        .unwrap()
        .boxed();
    let dynamic = inside(&call, || typed.call(1));
    assert!(refused(dynamic));
    assert_idle(&runtime);
}

#[test]
fn b11_a_nested_call_that_finds_what_it_needs_runs() {
    let (runtime, _) = runtime(&[("a", 2)]);
    let call = claiming(&runtime, "call", "a");
    assert_eq!(inside(&call, || call.run(one)).unwrap(), 1);
    assert_idle(&runtime);
}

#[test]
fn b11_a_rejecting_call_is_throttled_as_always() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let outer = claiming(&runtime, "outer", "a");
    let inner = runtime
        .contract("inner", Policy::pure().claim("a", 1).reject())
        .unwrap();
    let mut keyed = outer.with().key("k");
    let mut call = task::spawn(keyed.run(|_| async {
        let budget = inner.run(one).await;
        let key = inner.with().key("k").run(|_| one()).await;
        Ok::<_, Failure<Error>>((budget, key))
    }));
    // Each refusal yields to the executor once.
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    let (budget, key) = assert_ready_ok!(call.poll());
    for nested in [budget, key] {
        let error = nested.unwrap_err();
        assert!(error.is_overloaded(), "{error}");
        assert_eq!(error.outcome(), Outcome::Throttled);
        assert!(error.refusal().unwrap().chain().is_empty());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn b11_spawned_work_is_seen_through_in_chain_and_not_without() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let call = claiming(&runtime, "call", "a");
    let (inside, outside) = (call.clone(), call.clone());
    let nested = call
        .run(|| {
            let (inside, outside) = (inside.clone(), outside.clone());
            async move {
                let seen = tokio::spawn(in_chain(async move { inside.run(one).await }));
                let seen = seen.await.expect("no panic");
                let mut unseen = tokio::spawn(async move { outside.run(one).await });
                let waited = waits(&mut unseen).await;
                tokio::task::yield_now().await;
                let waited = waited && waits(&mut unseen).await;
                unseen.abort();
                Ok::<_, Failure<Error>>((seen, waited))
            }
        })
        .await;
    let (seen, waited) = nested.unwrap();
    assert_deadlock(&seen, Some("a"), &["\"call\" (holding 1 of \"a\")"]);
    assert!(waited, "a plain spawn is outside");
}

#[test]
fn b11_a_chain_ends_with_the_attempt_it_was_taken_in() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let call = runtime
        .contract(
            "call",
            Policy::pure()
                .claim("a", 1)
                .retry(Retry::up_to(2).on_transient()),
        )
        .unwrap();
    let script = Script::new();
    let mut left_over = Vec::new();
    let mut outer = task::spawn(call.run(|| {
        // What the first attempt leaves is not what the second waits for, though the units are the same.
        left_over.push(in_chain(call.run(one)));
        script.answer()
    }));
    assert_pending!(outer.poll());
    script.say(Err(Failure::transient("once more")));
    assert_pending!(outer.poll());
    assert_pending!(outer.poll());
    assert_eq!(script.begun(), 2);
    drop(outer);
    let mut left_over = left_over
        .into_iter()
        .map(|call| task::spawn(Box::pin(call)));
    for _ in 0..2 {
        let mut late = left_over.next().unwrap();
        assert_eq!(assert_ready_ok!(late.poll()), 1);
    }
    assert_idle(&runtime);
}

#[test]
fn b11_while_the_attempt_runs_its_spawned_work_is_inside_it_and_afterwards_not() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let of = |name: &str, budget: &str| claiming(&runtime, name, budget);
    let (outer, inner) = (of("outer", "a"), of("inner", "b"));
    let held = assert_ready_ok!(task::spawn(inner.admit()).poll());
    let gate = Gate::new();
    let child = RefCell::new(None);
    let mut call = task::spawn(outer.run(|| {
        child.replace(Some(in_chain(async { inner.run(one).await })));
        async {
            gate.wait().await;
            one().await
        }
    }));
    assert_pending!(call.poll());
    // It waits for `b` as part of the call, so the drain does not withdraw it.
    drop(call);
    let mut child = task::spawn(Box::pin(child.take().expect("made by the handler")));
    assert_pending!(child.poll());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    // Its call was dropped before it began to wait: it was outside.
    assert!(child.is_woken());
    let error = assert_ready_err!(child.poll());
    assert!(error.is_stopping(), "{error}");
    drop(held);
    assert_ready_ok!(shutdown.poll());
}

#[test]
fn b11_spawned_work_of_a_live_attempt_is_admitted_during_the_drain() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let of = |name: &str, budget: &str| claiming(&runtime, name, budget);
    let (outer, inner) = (of("outer", "a"), of("inner", "b"));
    let keyed = runtime.contract("keyed", Policy::pure()).unwrap();
    let free = runtime.contract("free", Policy::pure()).unwrap();
    let gate = Gate::new();
    let child = RefCell::new(None);
    let mut call = task::spawn(outer.run(|| {
        child.replace(Some(in_chain(async {
            let budget = inner.run(one).await;
            let key = keyed.with().key("k").run(|_| one()).await;
            let lobby = free.run(one).await;
            [budget, key, lobby]
        })));
        async {
            gate.wait().await;
            one().await
        }
    }));
    assert_pending!(call.poll());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    let mut child = task::spawn(Box::pin(child.take().expect("made by the handler")));
    for nested in assert_ready!(child.poll()) {
        assert_eq!(nested.unwrap(), 1);
    }
    gate.open();
    assert_ready_ok!(call.poll());
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

#[test]
fn b11_any_other_wait_of_a_chain_that_holds_something_is_bounded() {
    let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
    let of = |name: &str, budget: &str| claiming(&runtime, name, budget);
    assert_eq!(runtime.nested_wait(), Duration::from_secs(10));
    let (outer, inner, other) = (of("outer", "a"), of("inner", "b"), of("other", "a"));
    // A budget, then a key held by one who waits for that budget.
    let mut keyed = other.with().key("k");
    let script = Script::new();
    let mut first = task::spawn(outer.run(|| async {
        script.answer().await?;
        Ok::<_, Failure<Error>>(inner.with().key("k").run(|_| one()).await)
    }));
    assert_pending!(first.poll());
    let mut second = task::spawn(keyed.run(|_| one()));
    assert_pending!(second.poll());
    assert_eq!(waiting(&runtime, "a"), 1);
    script.say(Ok(1));
    assert_pending!(first.poll());
    clock.advance(Duration::from_secs(10) - ms(1));
    assert_pending!(first.poll());
    clock.advance(ms(1));
    assert!(first.is_woken());
    let error = assert_ready_ok!(first.poll()).unwrap_err();
    assert!(matches!(error, CallError::AdmissionTimedOut(_)), "{error}");
    assert!(error.refusal().unwrap().is_key());
    let chain = error.refusal().unwrap().chain();
    assert_eq!(chain.len(), 1);
    assert_eq!(chain[0].operation(), Some("outer"));
    assert_eq!(chain[0].budgets().collect::<Vec<_>>(), [("a", 1)]);
    assert!(error.to_string().contains("inside \"outer\""), "{error}");
    // And so the knot is undone.
    assert_ready_ok!(second.poll());
    drop((first, second));
    assert_idle(&runtime);
}

#[test]
fn b11_a_key_under_backoff_is_waited_for_within_the_bound() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let backoff = Backoff::exponential(Duration::from_secs(60)).cap(Duration::from_secs(60));
    let keeps = runtime
        .contract(
            "keeps its key",
            Policy::pure().retry(Retry::up_to(2).on_transient().backoff(backoff)),
        )
        .unwrap();
    let outer = claiming(&runtime, "outer", "a");
    let inner = runtime.contract("inner", Policy::pure()).unwrap();
    let mut keyed = keeps.with().key("k");
    let mut pausing = task::spawn(
        keyed.run(|_| async { Err::<u32, _>(Failure::transient("again").after(ms(50_000))) }),
    );
    assert_pending!(pausing.poll());
    let mut call = task::spawn(
        outer.run(|| async { Ok::<_, Failure<Error>>(inner.with().key("k").run(|_| one()).await) }),
    );
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(10));
    let error = assert_ready_ok!(call.poll()).unwrap_err();
    assert!(matches!(error, CallError::AdmissionTimedOut(_)), "{error}");
    drop((call, pausing));
    assert_idle(&runtime);
}

#[test]
fn b11_the_bound_is_set_per_runtime_and_the_earlier_of_two_counts() {
    let clock = bursar::ManualClock::new();
    let runtime = Runtime::builder()
        .resource("a", 1)
        .resource("b", 1)
        .clock(clock.clone())
        .nested_wait(ms(100))
        .build()
        .unwrap();
    let of = |name: &str, policy| runtime.contract(name, policy).unwrap();
    let outer = of("outer", Policy::pure().claim("a", 1));
    let inner = of("inner", Policy::pure().claim("b", 1));
    let hurried = of("hurried", Policy::pure().claim("b", 1).max_wait(ms(40)));
    let held = assert_ready_ok!(task::spawn(inner.admit()).poll());
    for (call, bound) in [(&inner, ms(100)), (&hurried, ms(40))] {
        let mut outer = task::spawn(outer.run(|| async {
            Ok::<_, Failure<Error>>(call.run(one).await.map_err(|e| e.to_string()))
        }));
        assert_pending!(outer.poll());
        clock.advance(bound - ms(1));
        assert_pending!(outer.poll());
        clock.advance(ms(1));
        let text = assert_ready_ok!(outer.poll()).unwrap_err();
        assert!(text.contains("inside \"outer\""), "{text}");
    }
    // A caller that holds nothing waits as long as it likes.
    let mut patient = task::spawn(inner.run(one));
    assert_pending!(patient.poll());
    clock.advance(Duration::from_secs(3600));
    assert_pending!(patient.poll());
    drop(held);
    assert_ready_ok!(patient.poll());

    let none = Runtime::builder()
        .resource("a", 1)
        .nested_wait(Duration::ZERO);
    let error = none.build().unwrap_err();
    assert_eq!(error, ContractError::ZeroNestedWait);
    assert!(error.to_string().contains("10 s"), "{error}");
    let ever = Runtime::builder()
        .resource("a", 1)
        .nested_wait(Duration::MAX);
    assert_eq!(ever.build().unwrap().nested_wait(), Duration::MAX);
}

#[test]
fn b11_a_caller_that_holds_nothing_bounds_no_wait() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let free = runtime.contract("free", Policy::pure()).unwrap();
    let inner = claiming(&runtime, "inner", "a");
    let held = assert_ready_ok!(task::spawn(inner.admit()).poll());
    let mut call = task::spawn(free.run(|| async { inner.run(one).await.carry() }));
    assert_pending!(call.poll());
    clock.advance(Duration::from_secs(3600));
    assert_pending!(call.poll());
    drop(held);
    assert_ready_ok!(call.poll());
}

#[test]
fn b11_a_permit_is_outside_the_chain() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let call = claiming(&runtime, "call", "a");
    let permit = assert_ready_ok!(task::spawn(call.admit()).poll());
    // It waits, as the documentation says: nobody knows that the permit is its own caller's.
    let mut waits = task::spawn(call.run(one));
    assert_pending!(waits.poll());
    drop(permit);
    assert_ready_ok!(waits.poll());
}

#[test]
fn b11_another_runtimes_budget_of_the_same_name_is_another() {
    let (here, clock) = runtime(&[("a", 1)]);
    let (there, _) = runtime(&[("a", 1)]);
    let outer = here
        .contract("outer", Policy::pure().claim("a", 1))
        .unwrap();
    let inner = there
        .contract("inner", Policy::pure().claim("a", 1))
        .unwrap();
    assert_eq!(inside(&outer, || inner.run(one)).unwrap(), 1);
    let held = assert_ready_ok!(task::spawn(inner.admit()).poll());
    let mut call =
        task::spawn(outer.run(|| async { Ok::<_, Failure<Error>>(inner.run(one).await) }));
    assert_pending!(call.poll());
    drop(held);
    assert_eq!(assert_ready_ok!(call.poll()).unwrap(), 1);
    drop((call, clock));
}

#[test]
fn b11_after_a_pause_too_nobody_waits_for_their_own_chain() {
    let (runtime, clock) = runtime(&[("a", 1), ("b", 1)]);
    let backoff = Backoff::exponential(ms(10)).cap(ms(10));
    let outer = claiming(&runtime, "outer", "a");
    let inner = runtime
        .contract(
            "inner",
            Policy::pure()
                .claim("b", 1)
                .retry(Retry::up_to(2).on_transient().backoff(backoff)),
        )
        .unwrap();
    let both = claiming(&runtime, "both", "b");
    let waiter = Gate::new();
    // While `inner` pauses without its unit of `b`, `both` takes that, inside which `inner` goes on.
    let mut call = task::spawn(outer.run(|| async {
        let mut pausing =
            Box::pin(inner.run(|| async { Err::<u32, _>(Failure::transient("again")) }));
        assert!(waits(&mut pausing).await);
        let mut pausing = Some(pausing);
        let nested = both
            .run(|| {
                let pausing = pausing.take().expect("one attempt");
                let waiter = &waiter;
                async move {
                    waiter.wait().await;
                    Ok::<_, Failure<Error>>(pausing.await)
                }
            })
            .await;
        Ok::<_, Failure<Error>>(nested.expect("it runs"))
    }));
    assert_pending!(call.poll());
    clock.advance(ms(10));
    waiter.open();
    let error = assert_ready_ok!(call.poll()).unwrap_err();
    let ran = error.attempted().expect("it ran once");
    assert_eq!(ran.ended_by(), Some(EndedBy::WouldDeadlock));
    assert_eq!(error.error(), Some(&"again"));
    drop(call);
    assert_idle(&runtime);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn b11_a_call_from_a_blocking_handler_is_refused_too() {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let call = claiming(&runtime, "call", "a");
    let inner = call.clone();
    let handle = tokio::runtime::Handle::current();
    let nested: Nested = call
        .run_blocking(move |_| {
            let nested = handle.block_on(inner.run(one));
            Ok::<_, Failure<Error>>(nested)
        })
        .await
        .expect("it runs");
    assert_deadlock(&nested, Some("a"), &["\"call\" (holding 1 of \"a\")"]);
    assert_idle(&runtime);
}

#[test]
fn b11_in_chain_dropped_at_any_poll_loses_nothing() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let of = |name: &str, budget: &str| claiming(&runtime, name, budget);
    let (outer, inner) = (of("outer", "a"), of("inner", "b"));
    let held = assert_ready_ok!(task::spawn(inner.admit()).poll());
    for polls in 0..3 {
        let mut call = task::spawn(outer.run(|| async {
            let mut child = Box::pin(in_chain(inner.run(one)));
            for _ in 0..polls {
                assert!(waits(&mut child).await);
            }
            drop(child);
            Ok::<_, Failure<Error>>(1)
        }));
        assert_ready_ok!(call.poll());
        assert_eq!(waiting(&runtime, "b"), 0);
    }
    drop(held);
    assert_idle(&runtime);
}

#[test]
fn b11_the_word_uncertain_is_not_said_of_what_never_ran() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let call = claiming(&runtime, "call", "a");
    let carried = inside(&call, || async {
        let nested = call.run(one).await;
        let failure = call.run(one).await.carry().unwrap_err();
        assert_eq!(failure.outcome(), Outcome::Permanent);
        let afresh = call.run(one).await.transient().unwrap_err();
        assert_eq!(afresh.outcome(), Outcome::Transient);
        nested
    });
    assert!(carried.is_err());
    assert_idle(&runtime);
}
