//! What may cross threads and tasks.

use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;

use bursar_tower::{
    Answers, ContractBody, ContractLayer, ContractService, Deadline, DeadlineLayer,
    DeadlineService, Graceful, HttpAnswers, HttpClient, HttpServer, OperationService, Plain,
    Problem, ServeError, Stop, Verdict,
};
use http::{Request, Response};

fn everywhere<T: Send + Sync + Unpin + Debug + 'static>() {}
fn cloned<T: Clone>() {}

/// Neither `Clone` nor `Sync`: what layers ask of a request is less.
#[derive(Debug)]
struct Body(PhantomData<std::cell::Cell<u8>>);

#[derive(Debug)]
struct NotClone;

#[test]
fn layers_services_and_bodies_go_everywhere_whatever_the_request_is() {
    everywhere::<ContractLayer<Request<Body>, Answers, HttpServer>>();
    everywhere::<ContractLayer<Request<Body>, HttpAnswers, HttpClient>>();
    everywhere::<ContractLayer<Request<Body>, fn() -> NotClone, Plain>>();
    cloned::<ContractLayer<Request<Body>, NotClone, Plain>>();
    everywhere::<ContractService<String, Request<Body>>>();
    cloned::<ContractService<String, Request<Body>, NotClone, Plain>>();
    everywhere::<ContractBody<String>>();
    everywhere::<Deadline>();
    everywhere::<DeadlineLayer>();
    cloned::<DeadlineService<String>>();
    everywhere::<Graceful<Stop>>();
    everywhere::<Problem>();
    everywhere::<ServeError<Problem>>();
    everywhere::<Verdict>();
    cloned::<OperationService<Body, NotClone>>();
}

#[test]
fn futures_may_be_spawned() {
    fn sent<T: Send + 'static>(_: &T) {}
    let runtime = bursar::Runtime::builder().resource("a", 1).build().unwrap();
    let contract = runtime.contract("work", bursar::Policy::pure()).unwrap();
    let inner = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
    });
    let mut service = tower::Layer::layer(&ContractLayer::http_server(&contract), inner);
    sent(&tower::Service::call(
        &mut service,
        Request::new(Body(PhantomData)),
    ));
    let signal = std::future::pending::<()>();
    sent(&Graceful::new(&runtime, signal).serve(|stop| async {
        stop.await;
        Ok::<_, Infallible>(())
    }));
}
