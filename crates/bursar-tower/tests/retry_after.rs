//! `Retry-After` follows from how long calls of the layer have held what they hold, and from who waits. The clock is
//! tokio's, and it stands still until everything sleeps.
//!
//! Callers who are refused together are told different seconds, from the computed one to twice it. Of five hundred each second is
//! told to some, but for once in ten to the twentieth runs.

#![allow(
    clippy::disallowed_methods,
    reason = "the inner service sleeps, and its callers are tasks"
)]

mod common;

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bursar::{Backoff, Contract, Failure, Policy, Retry, Runtime};
use bursar_tower::{Answers, ContractLayer, HttpServer};
use bytes::Bytes;
use common::{assert_idle, usage};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, service_fn};

type Server = ContractLayer<Request<()>, Answers, HttpServer>;

/// One call at a time, one that waits, and no other.
fn contract() -> (Runtime, Contract) {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let policy = Policy::pure().claim("a", 1).max_waiting(1);
    let contract = runtime.contract("work", policy).unwrap();
    (runtime, contract)
}

/// A service that answers after three seconds.
fn slow()
-> impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    service_fn(|_: Request<()>| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(Response::new(Full::new(Bytes::from_static(b"done"))))
    })
}

/// What five hundred callers that are refused in one moment are told: the earliest, and the latest.
async fn told(
    service: &mut impl Service<Request<()>, Response: Headers, Error: Debug>,
) -> (u64, u64) {
    let mut told = Vec::new();
    for _ in 0..500 {
        let refused = service.call(Request::new(())).await.unwrap();
        told.push(refused.retry_after().expect("it is refused"));
    }
    (*told.iter().min().unwrap(), *told.iter().max().unwrap())
}

trait Headers {
    fn retry_after(&self) -> Option<u64>;
}

impl<B> Headers for Response<B> {
    fn retry_after(&self) -> Option<u64> {
        self.headers()
            .get("retry-after")?
            .to_str()
            .ok()?
            .parse()
            .ok()
    }
}

/// What a third call is told while one runs and one waits.
async fn third(runtime: &Runtime, layer: &Server) -> (u64, u64) {
    let mut service = layer.layer(slow());
    let mut running = Vec::new();
    for waiting in 0..2 {
        running.push(tokio::spawn(service.call(Request::new(()))));
        common::net::until(|| usage(runtime, "a") == (1, waiting)).await;
    }
    let told = told(&mut service).await;
    for call in running {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    told
}

#[tokio::test(start_paused = true)]
async fn it_is_the_mean_time_of_holding_for_each_call_before_and_for_oneself_or_up_to_twice_that() {
    let (runtime, contract) = contract();
    let layer = ContractLayer::http_server(&contract);
    assert_eq!(
        third(&runtime, &layer).await,
        (2, 4),
        "a second each, before anything is known"
    );
    assert_eq!(
        third(&runtime, &layer).await,
        (6, 12),
        "three seconds each: the wait of those who waited does not count"
    );
    assert_eq!(
        third(&runtime, &layer.clone()).await,
        (6, 12),
        "all services of a layer share what it knows"
    );
    let other = ContractLayer::http_server(&contract);
    assert_eq!(
        third(&runtime, &other).await,
        (2, 4),
        "another layer does not"
    );
    assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_held_counts() {
    let (runtime, contract) = contract();
    let layer = ContractLayer::http_server(&contract).hold_body();
    let mut service = layer.layer(slow());
    let response = service.call(Request::new(())).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(usage(&runtime, "a"), (1, 0));
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "done"
    );
    assert_eq!(usage(&runtime, "a"), (0, 0));
    let held = service.call(Request::new(())).await.unwrap();
    let waits = tokio::spawn(service.call(Request::new(())));
    common::net::until(|| usage(&runtime, "a") == (1, 1)).await;
    assert_eq!(told(&mut service).await, (10, 20), "five seconds each");
    drop(held);
    drop(waits.await.unwrap().unwrap());
    assert_idle(&runtime);
}

#[tokio::test(start_paused = true)]
async fn a_pause_between_attempts_holds_nothing_and_does_not_count() {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let minute = Duration::from_secs(60);
    let backoff = Backoff::exponential(Duration::from_secs(1)).cap(minute);
    let retry = Retry::up_to(2).on_transient().backoff(backoff);
    let policy = Policy::pure().claim("a", 1).max_waiting(1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let answered = AtomicU32::new(0);
    let layer = ContractLayer::http_server(&contract)
        .clone_requests()
        .judge(move |_: Result<&Response<Full<Bytes>>, &Infallible>| {
            let first = answered.fetch_add(1, Ordering::Relaxed) == 0;
            first.then(|| Failure::transient(()).after(minute))
        });
    let mut service = layer.layer(slow());
    drop(service.call(Request::new(())).await.unwrap());
    // Both attempts took three seconds.
    let mut running = Vec::new();
    for waiting in 0..2 {
        running.push(tokio::spawn(service.call(Request::new(()))));
        common::net::until(|| usage(&runtime, "a") == (1, waiting)).await;
    }
    assert_eq!(told(&mut service).await, (6, 12));
    for call in running {
        drop(call.await.unwrap().unwrap());
    }
    assert_idle(&runtime);
}
