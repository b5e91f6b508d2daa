//! What a call through a layer allocates: its boxed future, and nothing else.

use std::convert::Infallible;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use bursar::{Contract, Policy, Runtime};
use bursar_tower::{ContractLayer, Deadline};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, Service, service_fn};

fn contract() -> (Runtime, Contract) {
    let runtime = Runtime::builder().resource("a", 4).build().unwrap();
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    (runtime, contract)
}

/// Calls it once to have everything in place, then counts.
fn allocations<S: Service<Req>, Req>(service: &mut S, mut request: impl FnMut() -> Req) -> u64 {
    let mut call = |request| {
        let mut call = std::pin::pin!(service.call(request));
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => drop(answer),
            Poll::Pending => panic!("nothing keeps it"),
        }
    };
    call(request());
    let request = request();
    allocation_counter::measure(|| call(request)).count_total
}

#[test]
fn a_call_through_a_layer_allocates_its_future_alone() {
    let (_runtime, contract) = contract();
    let inner = service_fn(|request: u32| std::future::ready(Ok::<_, Infallible>(request)));
    let layer = ContractLayer::new(&contract)
        .serialize_with(|request: &u32| *request)
        .deadline(|_| Deadline::NONE);
    assert_eq!(allocations(&mut layer.layer(inner), || 7), 1);
}

#[tokio::test]
async fn a_served_request_allocates_its_future_alone_and_so_does_one_that_holds_its_body() {
    let (_runtime, contract) = contract();
    let inner = service_fn(|_: Request<()>| {
        let response = Response::new(Full::new(Bytes::from_static(b"done")));
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let layer = ContractLayer::http_server(&contract);
    assert_eq!(
        allocations(&mut layer.clone().layer(inner), || Request::new(())),
        1
    );
    assert_eq!(
        allocations(&mut layer.hold_body().layer(inner), || Request::new(())),
        1
    );
}
