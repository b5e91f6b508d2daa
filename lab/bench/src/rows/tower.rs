//! A contract as a tower layer, beside the layers that tower users stack today.
//!
//! Each service is made ready and called as tower asks for. Those of tower reserve a unit when they are made ready; ours when
//! its call is polled, which takes a future of its own, boxed because a service has to name its type.

use std::hint::black_box;

use bursar::{Idempotent, Policy, Retry};
use bursar_tower::ContractLayer;
use tokio::task::unconstrained;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use super::fixtures::{SECONDS, contract, one_thread};
use crate::measure::Contender;
use crate::peers::{resilience, resilience_in_time, tower, tower_in_time};

pub(super) const LAYER: &str = "bursar layer";
pub(super) const LIMIT_RETRY: &str = "tower limit + retry";
pub(super) const LIMIT_RETRY_TIMEOUT: &str = "tower limit + retry + timeout";
pub(super) const RESILIENCE: &str = "tower-resilience";

/// A contender that makes a service ready and calls it, again and again in one task.
pub(super) fn service<S>(name: &'static str, mut service: S) -> Contender<'static>
where
    S: Service<u32, Response = u32> + 'static,
{
    let tokio = one_thread();
    Contender::new(name, move |n| {
        tokio.block_on(unconstrained(async {
            for i in 0..n {
                let answer = match service.ready().await {
                    Ok(ready) => ready.call(i).await.ok(),
                    Err(_) => None,
                };
                assert_eq!(black_box(answer), Some(i));
            }
        }));
    })
}

/// A service under a contract with the capacity, the attempts and the copies of requests that its peers have.
fn layered(name: &'static str, policy: Policy<Idempotent>) -> Contender<'static> {
    let retry = Retry::up_to(3).on_transient();
    let contract = contract(policy.claim("first", 1).retry(retry));
    let handler = |input: u32| async move { Ok::<u32, BoxError>(black_box(input)) };
    let layer = ContractLayer::new(contract).clone_requests();
    service(name, layer.layer(service_fn(handler)))
}

pub(super) fn layers() -> Vec<Contender<'static>> {
    vec![
        layered(LAYER, Policy::idempotent()),
        service(LIMIT_RETRY, tower(8)),
        service(RESILIENCE, resilience(8)),
        layered(
            "bursar layer, timeout",
            Policy::idempotent().timeout(SECONDS),
        ),
        service(LIMIT_RETRY_TIMEOUT, tower_in_time(8, SECONDS)),
        service("tower-resilience, timeout", resilience_in_time(8, SECONDS)),
    ]
}
