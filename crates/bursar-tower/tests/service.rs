//! A service under a contract, stepped by hand: what is held when, and what is asked of the inner service.

mod common;

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar::{CallError, Contract, Effect, Failure, Outcome, Policy, Retry, Runtime};
use bursar_tower::{ContractLayer, Deadline, OperationService};
use common::{Puppet, assert_idle, ms, runtime, usage};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

/// One unit of budget "a", whose capacity is 1.
fn one() -> (Runtime, bursar::ManualClock, Contract) {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    (runtime, clock, contract)
}

/// Makes a service ready, as whoever calls it does.
fn make_ready<S: Service<Req>, Req>(service: &mut S) -> Result<(), S::Error> {
    assert_ready!(task::spawn(std::future::poll_fn(|cx| service.poll_ready(cx))).poll())
}

#[test]
fn a_readied_idle_clone_holds_nothing() {
    let (runtime, _, contract) = one();
    let puppet = Puppet::new();
    let service = ContractLayer::new(&contract).layer(puppet.clone());
    let mut idle: Vec<_> = (0..100).map(|_| service.clone()).collect();
    for clone in &mut idle {
        // Ready, though the inner service is not.
        make_ready::<_, u32>(clone).unwrap();
    }
    assert_eq!(usage(&runtime, "a"), (0, 0));
    // A future that was made and never polled is idle too.
    let unpolled = idle[0].call(1);
    assert_eq!(usage(&runtime, "a"), (0, 0));
    assert_eq!(runtime.stats().operations[0].admitted, 0);
    let mut call = task::spawn(idle[99].call(2));
    puppet.ready(Ok(()));
    puppet.answer(Ok(7));
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    drop((unpolled, idle));
    assert_idle(&runtime);
}

/// The known failure, shown on tower's own limit, which reserves in `poll_ready`.
#[test]
fn a_service_that_reserves_when_it_is_made_ready_starves_the_others_and_this_one_does_not() {
    let inner = || service_fn(|_: u32| async { Ok::<u32, Infallible>(7) });
    let mut theirs = ConcurrencyLimit::new(inner(), 1);
    let mut idle = theirs.clone();
    make_ready::<_, u32>(&mut idle).unwrap();
    assert_pending!(task::spawn(theirs.ready()).poll());

    let (_runtime, _, contract) = one();
    let mut ours = ContractLayer::new(&contract).layer(inner());
    let mut idle = ours.clone();
    make_ready::<_, u32>(&mut idle).unwrap();
    make_ready::<_, u32>(&mut ours).unwrap();
    assert_eq!(assert_ready_ok!(task::spawn(ours.call(1)).poll()), 7);
}

#[test]
fn the_inner_service_is_made_ready_and_called_inside_the_call() {
    let (runtime, _, contract) = one();
    let puppet = Puppet::new();
    let mut service = ContractLayer::new(&contract).layer(puppet.clone());
    puppet.ready(Ok(()));
    let mut first = task::spawn(service.call(1));
    let mut second = task::spawn(service.call(2));
    assert_pending!(first.poll());
    assert_eq!((puppet.requests(), usage(&runtime, "a")), (vec![1], (1, 0)));
    // One that waits for its unit has not touched the inner service: there is still one that could become ready.
    puppet.ready(Ok(()));
    assert_pending!(second.poll());
    assert_eq!((puppet.requests(), usage(&runtime, "a")), (vec![1], (1, 1)));
    puppet.answer(Ok(10));
    assert_eq!(assert_ready_ok!(first.poll()), 10);
    assert!(second.is_woken());
    assert_pending!(second.poll());
    assert_eq!((puppet.requests(), puppet.alive()), (vec![1, 2], 1));
    puppet.answer(Ok(20));
    assert_eq!(assert_ready_ok!(second.poll()), 20);
    assert_idle(&runtime);
}

#[test]
fn a_service_that_waits_to_become_ready_does_so_under_the_timeout_and_never_ran() {
    let (runtime, clock) = runtime(&[("a", 1)]);
    let policy = Policy::pure().claim("a", 1).timeout(ms(10));
    let contract = runtime.contract("work", policy).unwrap();
    let puppet = Puppet::new();
    let mut service = ContractLayer::new(&contract).layer(puppet.clone());
    let mut call = task::spawn(service.call(1));
    assert_pending!(call.poll());
    assert_eq!(usage(&runtime, "a"), (1, 0));
    clock.advance(ms(10));
    let error = assert_ready_err!(call.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    assert_eq!(puppet.requests(), [0; 0]);
    assert_idle(&runtime);
}

#[test]
fn an_error_in_becoming_ready_took_no_effect_and_is_the_calls_not_the_services() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(2).on_transient();
    let policy = Policy::non_idempotent().claim("a", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let puppet = Puppet::new();
    let layer = ContractLayer::new(&contract).clone_requests();
    let mut service = layer.layer(puppet.clone());
    puppet.ready(Err("closed"));
    puppet.ready(Ok(()));
    puppet.answer(Ok(7));
    let mut call = task::spawn(service.call(1));
    assert_pending!(call.poll());
    assert_eq!(
        assert_ready_ok!(call.poll()),
        7,
        "tried again, since it did nothing"
    );
    for _ in 0..2 {
        puppet.ready(Err("closed"));
    }
    // The outer service is none the worse for it.
    make_ready::<_, u32>(&mut service).unwrap();
    let mut call = task::spawn(service.call(2));
    assert_pending!(call.poll());
    let error = assert_ready_err!(call.poll());
    assert_eq!(
        (error.outcome(), error.error()),
        (Outcome::Transient, Some(&"closed"))
    );
    assert_eq!(puppet.requests(), [1]);
    assert_idle(&runtime);
}

#[test]
fn b5_a_key_is_asked_for_once_a_call_and_serializes() {
    let (runtime, _) = runtime(&[("a", 9)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let puppet = Puppet::new();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let layer = ContractLayer::new(&contract).serialize_with(move |request: &u32| {
        counted.fetch_add(1, Ordering::Relaxed);
        (*request > 0).then_some(*request)
    });
    let mut service = layer.layer(puppet.clone());
    for _ in 0..5 {
        puppet.ready(Ok(()));
    }
    let mut calls: Vec<_> = [1, 1, 2, 0, 0]
        .into_iter()
        .map(|request| task::spawn(service.call(request)))
        .collect();
    assert_eq!(
        asked.load(Ordering::Relaxed),
        0,
        "not before the first poll"
    );
    for call in &mut calls {
        assert_pending!(call.poll());
        assert_pending!(call.poll());
    }
    assert_eq!(
        puppet.requests(),
        [1, 2, 0, 0],
        "one key at a time, and none keeps nobody"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    puppet.answer(Ok(1));
    assert_ready_ok!(calls[0].poll());
    assert!(calls[1].is_woken());
    assert_pending!(calls[1].poll());
    assert_eq!(puppet.requests(), [1, 2, 0, 0, 1]);
    drop(calls);
    assert_idle(&runtime);
}

#[test]
fn b9_the_deadline_of_a_request_bounds_its_call_and_zero_runs_nothing() {
    let (runtime, clock, contract) = one();
    let puppet = Puppet::new();
    let now = bursar::Clock::now(&clock);
    let layer = ContractLayer::new(&contract).deadline(move |request: &u32| {
        let span = ms(u64::from(*request));
        Deadline::from(now + span)
    });
    let mut service = layer.layer(puppet.clone());
    puppet.ready(Ok(()));
    let error = assert_ready_err!(task::spawn(service.call(0)).poll());
    assert!(matches!(error, CallError::AdmissionTimedOut(_)) && error.never_ran());
    let mut ran = task::spawn(service.call(20));
    let mut waits = task::spawn(service.call(10));
    assert_pending!(ran.poll());
    assert_pending!(waits.poll());
    clock.advance(ms(10));
    let error = assert_ready_err!(waits.poll());
    assert!(matches!(error, CallError::AdmissionTimedOut(_)));
    clock.advance(ms(10));
    let error = assert_ready_err!(ran.poll());
    assert!(matches!(error, CallError::TimedOut(_)));
    assert_eq!((puppet.requests(), puppet.alive()), (vec![20], 0));
    assert_idle(&runtime);
}

/// Transient for everything, responses above 99 included.
fn harsh(answer: Result<&u32, &&'static str>) -> Option<Failure<()>> {
    match answer {
        Ok(response) if *response < 100 => None,
        Ok(_) | Err(_) => Some(Failure::transient(())),
    }
}

fn retrying(attempts: u32) -> (Runtime, Contract) {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(attempts).on_transient();
    let policy = Policy::non_idempotent().claim("a", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    (runtime, contract)
}

#[test]
fn c4_a_request_that_cannot_be_copied_is_attempted_once() {
    let (runtime, contract) = retrying(5);
    let puppet = Puppet::new();
    let bare = ContractLayer::new(&contract).judge(harsh);
    let copies_the_even = bare
        .clone()
        .copy_requests(|request| (request % 2 == 0).then_some(request + 1));
    for (layer, request, sent) in [
        (bare.clone(), 4, vec![4]),
        (bare.clone_requests(), 4, vec![4, 4, 4, 4, 4]),
        (copies_the_even.clone(), 4, vec![4, 5]),
        (copies_the_even, 5, vec![5]),
    ] {
        let before = puppet.requests().len();
        let mut service = layer.layer(puppet.clone());
        for _ in &sent {
            puppet.ready(Ok(()));
            puppet.answer(Err("again"));
        }
        let mut call = task::spawn(service.call(request));
        for _ in 1..sent.len() {
            assert_pending!(call.poll());
        }
        let error = assert_ready_err!(call.poll());
        assert_eq!(error.attempts() as usize, sent.len());
        assert_eq!(error.error(), Some(&"again"));
        assert_eq!(puppet.requests()[before..], sent);
    }
    assert_idle(&runtime);
}

#[test]
fn a_response_that_was_judged_a_failure_is_tried_again_and_at_last_returned_as_it_is() {
    let (runtime, contract) = retrying(3);
    let puppet = Puppet::new();
    let mut service = ContractLayer::new(&contract)
        .judge(harsh)
        .clone_requests()
        .layer(puppet.clone());
    for _ in 0..3 {
        puppet.ready(Ok(()));
    }
    puppet.answer(Ok(500));
    puppet.answer(Err("again"));
    puppet.answer(Ok(503));
    let mut call = task::spawn(service.call(1));
    assert_pending!(call.poll());
    assert_pending!(call.poll());
    assert_eq!(assert_ready_ok!(call.poll()), 503);
    let stats = runtime.stats();
    assert_eq!(
        (stats.operations[0].retried, stats.operations[0].started),
        (2, 1)
    );
    assert_idle(&runtime);
}

#[test]
fn c2_without_a_judge_responses_are_answers_and_errors_are_unclassified() {
    let (runtime, contract) = retrying(3);
    let puppet = Puppet::new();
    let mut service = ContractLayer::new(&contract)
        .clone_requests()
        .layer(puppet.clone());
    puppet.ready(Ok(()));
    puppet.answer(Ok(500));
    assert_eq!(assert_ready_ok!(task::spawn(service.call(1)).poll()), 500);
    puppet.ready(Ok(()));
    puppet.answer(Err("no"));
    let error = assert_ready_err!(task::spawn(service.call(1)).poll());
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Permanent, 1));
    assert!(!error.failure().unwrap().is_classified());
    assert_idle(&runtime);
}

#[test]
fn a3_c12_effect_and_idempotency_key_are_the_requests() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let retry = Retry::up_to(2).on_uncertain();
    let policy = Policy::effect_per_call().claim("a", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let puppet = Puppet::new();
    let uncertain =
        |answer: Result<&u32, &&'static str>| answer.err().map(|_| Failure::uncertain(()));
    let mut service = ContractLayer::new(&contract)
        .judge(uncertain)
        .clone_requests()
        .effect(|request| {
            if *request == 1 {
                Effect::Pure
            } else {
                Effect::NonIdempotent
            }
        })
        .idempotency_key(|request| (*request == 3).then(|| "key".into()))
        .layer(puppet.clone());
    for (request, attempts) in [(1, 2), (2, 1), (3, 2)] {
        for _ in 0..attempts {
            puppet.ready(Ok(()));
            puppet.answer(Err("lost"));
        }
        let mut call = task::spawn(service.call(request));
        for _ in 1..attempts {
            assert_pending!(call.poll());
        }
        let error = assert_ready_err!(call.poll());
        assert_eq!(
            (error.attempts(), error.outcome()),
            (attempts, Outcome::Uncertain)
        );
    }
    assert_idle(&runtime);
}

#[test]
fn c9_a_panic_of_the_service_gives_everything_back_and_goes_on() {
    let (runtime, _, contract) = one();
    let layer = ContractLayer::new(&contract);
    let mut in_call = layer.layer(service_fn(|fail: u32| {
        assert!(fail == 0, "in call");
        async move { Ok::<u32, Infallible>(7) }
    }));
    let mut in_future = layer.layer(service_fn(|fail: u32| async move {
        assert!(fail == 0, "in the future");
        Ok::<u32, Infallible>(7)
    }));
    for service in [&mut in_call as &mut dyn AnyService, &mut in_future] {
        let mut call = task::spawn(service.start(1));
        assert!(catch_unwind(AssertUnwindSafe(|| call.poll())).is_err());
        assert_eq!(usage(&runtime, "a"), (0, 0));
        assert_eq!(assert_ready_ok!(task::spawn(service.start(0)).poll()), 7);
    }
    assert_idle(&runtime);
}

type AnyFuture = std::pin::Pin<Box<dyn Future<Output = Result<u32, CallError<Infallible>>> + Send>>;

trait AnyService {
    fn start(&mut self, request: u32) -> AnyFuture;
}

impl<S: Service<u32, Response = u32, Error = CallError<Infallible>, Future = AnyFuture>> AnyService
    for S
{
    fn start(&mut self, request: u32) -> AnyFuture {
        self.call(request)
    }
}

#[tokio::test]
async fn a_service_that_cannot_be_cloned_goes_behind_a_buffer() {
    struct NotClone(Puppet);
    impl Service<u32> for NotClone {
        type Response = u32;
        type Error = &'static str;
        type Future = common::Answer;
        fn poll_ready(
            &mut self,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), &'static str>> {
            self.0.poll_ready(cx)
        }
        fn call(&mut self, request: u32) -> common::Answer {
            self.0.call(request)
        }
    }
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let puppet = Puppet::new();
    let mut service = tower::ServiceBuilder::new()
        .layer(ContractLayer::new(&contract))
        .buffer::<u32>(4)
        .service(NotClone(puppet.clone()));
    puppet.ready(Ok(()));
    puppet.answer(Ok(7));
    assert_eq!(service.ready().await.unwrap().call(1).await.unwrap(), 7);
    assert_idle(&runtime);
}

#[test]
fn d1_a_call_made_by_the_inner_service_is_nested_and_admitted_during_the_drain() {
    let (runtime, _, contract) = one();
    let inner = runtime.contract("inner", Policy::pure()).unwrap();
    let mut service = ContractLayer::new(&contract).layer(service_fn(move |_: u32| {
        let inner = inner.clone();
        async move {
            tokio::task::yield_now().await;
            inner
                .run(|| async { Ok::<u32, Failure<Infallible>>(7) })
                .await
        }
    }));
    let mut call = task::spawn(service.call(1));
    assert_pending!(call.poll());
    let mut drain = task::spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    let error = assert_ready_err!(task::spawn(service.call(1)).poll());
    assert!(error.is_stopping());
    assert_eq!(assert_ready_ok!(call.poll()), 7);
    assert_ready_ok!(drain.poll());
    drop(drain);
    assert_idle(&runtime);
}

#[test]
fn case_24_shutdown_awaited_inside_a_service_is_refused_and_closes_nothing() {
    let (runtime, _, contract) = one();
    let inside = runtime.clone();
    let mut service = ContractLayer::new(&contract).layer(service_fn(move |_: u32| {
        let runtime = inside.clone();
        async move { Ok::<_, Infallible>(runtime.shutdown().await) }
    }));
    for _ in 0..2 {
        let refused = assert_ready_ok!(task::spawn(service.call(1)).poll());
        assert_eq!(refused.unwrap_err(), bursar::ShutdownError::InsideOwnCall);
    }
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
    assert_ready_ok!(task::spawn(runtime.shutdown()).poll());
}

#[test]
fn an_operation_is_a_service() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let handler = bursar::handler_fn(|input: &u32| {
        let doubled = input * 2;
        async move {
            if doubled > 9 {
                Err(Failure::permanent("too much"))
            } else {
                Ok(doubled)
            }
        }
    });
    let operation = runtime
        .operation("double", Policy::pure().claim("a", 1).reject(), handler)
        .unwrap();
    let held = operation.contract().clone();
    let mut service = OperationService::new(operation);
    let mut idle = service.clone();
    make_ready(&mut idle).unwrap();
    make_ready(&mut service).unwrap();
    assert_eq!(usage(&runtime, "a"), (0, 0));
    assert_eq!(assert_ready_ok!(task::spawn(service.call(4)).poll()), 8);
    let error = assert_ready_err!(task::spawn(idle.call(5)).poll());
    assert_eq!(error.error(), Some(&"too much"));
    let permit = assert_ready_ok!(task::spawn(held.admit()).poll());
    let mut refused = task::spawn(service.call(4));
    assert_pending!(refused.poll());
    assert!(assert_ready_err!(refused.poll()).is_overloaded());
    drop(permit);
    assert_eq!(service.operation().name(), "double");
    assert_idle(&runtime);
}
