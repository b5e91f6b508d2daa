//! Contracts under a real tonic server, with real tonic clients. The service is written by hand: no protoc.

#![allow(
    clippy::disallowed_methods,
    reason = "the server is a task of the test"
)]

mod common;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bursar::{CallError, Contract, Failure, Policy, Runtime};
use bursar_tower::{ContractLayer, Graceful, status};
use common::net::{Task, listen, soon, until};
use common::{assert_idle, ms, told, usage};
use http::uri::PathAndQuery;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Layer, Service};

#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint32, tag = "1")]
    value: u32,
}

/// `test.Rooms`: `Stay` answers when it is let go, `Count` streams what the test writes, `Charge` calls an operation.
#[derive(Clone)]
struct Rooms {
    leave: Arc<Semaphore>,
    streams: mpsc::UnboundedSender<mpsc::UnboundedSender<Result<Number, Status>>>,
    charge: Contract,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl UnaryService<Number> for Rooms {
    type Response = Number;
    type Future = BoxFuture<Result<Response<Number>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let rooms = self.clone();
        Box::pin(async move {
            rooms.leave.acquire().await.unwrap().forget();
            Ok(Response::new(request.into_inner()))
        })
    }
}

struct Count(Rooms);

impl ServerStreamingService<Number> for Count {
    type Response = Number;
    type ResponseStream = UnboundedReceiverStream<Result<Number, Status>>;
    type Future = BoxFuture<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _: Request<Number>) -> Self::Future {
        let (writer, numbers) = mpsc::unbounded_channel();
        self.0.streams.send(writer).unwrap();
        Box::pin(async { Ok(Response::new(UnboundedReceiverStream::new(numbers))) })
    }
}

struct Charge(Contract);

impl UnaryService<Number> for Charge {
    type Response = Number;
    type Future = BoxFuture<Result<Response<Number>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let charge = self.0.clone();
        Box::pin(async move {
            let failure = match request.get_ref().value {
                0 => None,
                1 => Some(Failure::transient("no")),
                2 => Some(Failure::throttled("no").after(ms(250))),
                3 => Some(Failure::permanent("no")),
                _ => Some(Failure::uncertain("no")),
            };
            let mut failure = failure;
            charge
                .run(|| std::future::ready(failure.take().map_or(Ok(()), Err)))
                .await
                .map_err(status)?;
            Ok(Response::new(request.into_inner()))
        })
    }
}

impl NamedService for Rooms {
    const NAME: &'static str = "test.Rooms";
}

impl Service<http::Request<Body>> for Rooms {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let rooms = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(match request.uri().path() {
                "/test.Rooms/Stay" => grpc.unary(rooms, request).await,
                "/test.Rooms/Count" => grpc.server_streaming(Count(rooms), request).await,
                _ => grpc.unary(Charge(rooms.charge), request).await,
            })
        })
    }
}

/// The client's half.
async fn call(
    client: &Channel,
    method: &'static str,
    request: Request<Number>,
) -> Result<u32, Status> {
    let mut grpc = tonic::client::Grpc::new(client.clone());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(method);
    let codec = ProstCodec::<Number, Number>::default();
    soon(grpc.unary(request, path, codec))
        .await
        .map(|response| response.into_inner().value)
}

fn number(value: u32) -> Request<Number> {
    Request::new(Number { value })
}

struct World {
    runtime: Runtime,
    leave: Arc<Semaphore>,
    streams: mpsc::UnboundedReceiver<mpsc::UnboundedSender<Result<Number, Status>>>,
    address: SocketAddr,
    _server: Task,
}

/// One unit of budget "a" for what the layer guards; whoever would wait behind one that waits is refused.
async fn world(hold: bool) -> World {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1).max_waiting(1))
        .unwrap();
    let leave = Arc::new(Semaphore::new(0));
    let (begun, streams) = mpsc::unbounded_channel();
    let rooms = Rooms {
        leave: Arc::clone(&leave),
        streams: begun,
        charge: runtime
            .contract("charge", Policy::non_idempotent())
            .unwrap(),
    };
    let mut layer = ContractLayer::grpc_server(&work);
    if hold {
        layer = layer.hold_stream();
    }
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    // Under the server, and, for the second half of the tests, around one service: a named service stays one.
    let server = tokio::spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        if hold {
            let rooms = layer.layer(rooms);
            Server::builder()
                .add_service(rooms)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        } else {
            Server::builder()
                .layer(layer)
                .add_service(rooms)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        }
    });
    World {
        runtime,
        leave,
        streams,
        address,
        _server: Task(server),
    }
}

async fn connect(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

#[tokio::test]
async fn calls_of_many_connections_share_one_limit_and_what_finds_no_room_is_unavailable() {
    let world = world(false).await;
    let stay = |value| async move {
        call(
            &connect(world.address).await,
            "/test.Rooms/Stay",
            number(value),
        )
        .await
    };
    let first = tokio::spawn(stay(1));
    until(|| usage(&world.runtime, "a") == (1, 0)).await;
    let second = tokio::spawn(stay(2));
    until(|| usage(&world.runtime, "a") == (1, 1)).await;
    let refused = stay(3).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    // A second is assumed for each before it, and for itself.
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert!(told(pushback.to_str().ok(), 2_000), "{pushback:?}");
    world.leave.add_permits(2);
    assert_eq!(
        (
            soon(first).await.unwrap().unwrap(),
            soon(second).await.unwrap().unwrap()
        ),
        (1, 2)
    );
    assert_idle(&world.runtime);
}

#[tokio::test]
async fn what_became_of_an_operation_is_the_status() {
    let world = world(false).await;
    let client = connect(world.address).await;
    let charge = |value| call(&client, "/test.Rooms/Charge", number(value));
    assert_eq!(charge(0).await.unwrap(), 0);
    for (value, code) in [
        (1, Code::Unavailable),
        (2, Code::ResourceExhausted),
        (3, Code::Internal),
        (4, Code::Unknown),
    ] {
        let status = charge(value).await.unwrap_err();
        assert_eq!(status.code(), code);
        let pushback = status
            .metadata()
            .get("grpc-retry-pushback-ms")
            .map(|wait| wait.to_str().unwrap());
        assert_eq!(pushback.is_some(), value == 2);
        assert!(pushback.is_none() || told(pushback, 250), "{pushback:?}");
    }
    assert_idle(&world.runtime);
}

#[tokio::test]
async fn b9_a_grpc_timeout_bounds_the_call_and_zero_runs_nothing() {
    let world = world(false).await;
    let client = connect(world.address).await;
    // As a header alone, so that the client itself waits on.
    let stay = |timeout: &'static str| {
        let mut request = number(1);
        request
            .metadata_mut()
            .insert("grpc-timeout", timeout.parse().unwrap());
        call(&client, "/test.Rooms/Stay", request)
    };
    stay("0m").await.unwrap_err();
    let stats = world.runtime.stats();
    assert_eq!(stats.operations[0].started, 0, "{stats}");
    let mut codes = Vec::new();
    // On a busy machine a short one may pass before the call is begun.
    for timeout in ["5m", "50m", "500m", "5S"] {
        codes.push(stay(timeout).await.unwrap_err().code());
        if codes.last() != Some(&Code::Unavailable) {
            break;
        }
    }
    // The server has a timer of its own for this header, begun a moment earlier.
    let cut_off = matches!(codes.last(), Some(Code::DeadlineExceeded | Code::Cancelled));
    assert!(cut_off, "{codes:?}");
    until(|| usage(&world.runtime, "a") == (0, 0)).await;
    let held = tokio::spawn({
        let client = client.clone();
        async move { call(&client, "/test.Rooms/Stay", number(1)).await }
    });
    until(|| usage(&world.runtime, "a") == (1, 0)).await;
    stay("5m").await.unwrap_err();
    until(|| usage(&world.runtime, "a") == (1, 0)).await;
    world.leave.add_permits(1);
    soon(held).await.unwrap().unwrap();
    assert_idle(&world.runtime);
}

#[tokio::test]
async fn b13_a_stream_holds_its_units_until_it_ends_or_its_reader_leaves() {
    let mut world = world(true).await;
    let client = connect(world.address).await;
    for ends in [true, false] {
        let mut grpc = tonic::client::Grpc::new(client.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<Number, Number>::default();
        let path = PathAndQuery::from_static("/test.Rooms/Count");
        let numbers = soon(grpc.server_streaming(number(0), path, codec))
            .await
            .unwrap();
        let mut numbers = numbers.into_inner();
        let writer = soon(world.streams.recv()).await.unwrap();
        writer.send(Ok(Number { value: 5 })).unwrap();
        assert_eq!(soon(numbers.message()).await.unwrap().unwrap().value, 5);
        assert_eq!(usage(&world.runtime, "a"), (1, 0));
        if ends {
            drop(writer);
            assert!(soon(numbers.message()).await.unwrap().is_none());
        } else {
            drop(numbers);
            soon(writer.closed()).await;
        }
        until(|| usage(&world.runtime, "a") == (0, 0)).await;
    }
    assert_idle(&world.runtime);
}

/// The client's side: a channel is a tower service like any other.
#[tokio::test]
async fn a_channel_stands_under_a_contract_and_a_call_that_never_ran_says_so() {
    use std::error::Error;
    type Failed = CallError<tonic::transport::Error>;
    let world = world(false).await;
    let runtime = Runtime::builder().resource("calls", 1).build().unwrap();
    let policy = Policy::non_idempotent().claim("calls", 1).reject();
    let calls = runtime.contract("calls", policy).unwrap();
    let channel = ContractLayer::new(&calls).layer(connect(world.address).await);
    let charge = |value| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        async move {
            grpc.ready().await.unwrap();
            let path = PathAndQuery::from_static("/test.Rooms/Charge");
            let codec = ProstCodec::<Number, Number>::default();
            let answer = soon(grpc.unary(number(value), path, codec)).await;
            answer.map(|response| response.into_inner().value)
        }
    };
    assert_eq!(charge(0).await.unwrap(), 0);
    assert_eq!(charge(3).await.unwrap_err().code(), Code::Internal);
    let held = calls.admit().await.unwrap();
    let refused = charge(0).await.unwrap_err();
    let cause = refused
        .source()
        .and_then(|cause| cause.downcast_ref::<Failed>());
    assert!(cause.expect("the call's own error").never_ran());
    drop(held);
    assert_idle(&runtime);
}

#[tokio::test]
async fn d1_a_tonic_server_and_its_runtime_drain_together() {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let leave = Arc::new(Semaphore::new(0));
    let (begun, _streams) = mpsc::unbounded_channel();
    let charge = runtime
        .contract("charge", Policy::non_idempotent())
        .unwrap();
    let rooms = Rooms {
        leave: Arc::clone(&leave),
        streams: begun,
        charge,
    };
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let (signal, fired) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn({
        let runtime = runtime.clone();
        let layer = ContractLayer::grpc_server(&work);
        async move {
            let incoming = TcpListenerStream::new(listener);
            let server = Server::builder().layer(layer).add_service(rooms);
            let graceful = Graceful::new(&runtime, fired)
                .within(ms(20_000))
                .patience(ms(0));
            graceful
                .serve(|stop| server.serve_with_incoming_shutdown(incoming, stop))
                .await
        }
    });
    let stay = |value| async move {
        call(&connect(address).await, "/test.Rooms/Stay", number(value)).await
    };
    let first = tokio::spawn(stay(1));
    until(|| usage(&runtime, "a") == (1, 0)).await;
    let waits = tokio::spawn(stay(2));
    until(|| usage(&runtime, "a") == (1, 1)).await;
    signal.send(()).unwrap();
    assert_eq!(
        soon(waits).await.unwrap().unwrap_err().code(),
        Code::Unavailable
    );
    leave.add_permits(1);
    assert_eq!(soon(first).await.unwrap().unwrap(), 1);
    let report = soon(serving).await.unwrap().unwrap();
    assert_eq!(
        (report.operations[0].ended, report.operations[0].withdrawn),
        (1, 1)
    );
    assert_idle(&runtime);
}
