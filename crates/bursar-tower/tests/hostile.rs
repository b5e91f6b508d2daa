//! What a server and its layers meet from those who mean no good, or know no better: clients that stop reading, or never send
//! what they announced, headers that make no sense, streams that are reset, closures that panic, contracts that meet themselves.

#![allow(
    clippy::disallowed_methods,
    reason = "the clients of a server are tasks of the test"
)]

mod common;
#[path = "common/rooms.rs"]
mod rooms;

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, Request};
use axum::routing::{get, post};
use bursar::{CallError, Effect, Failure, Policy, Retry, Runtime, handler_fn};
use bursar_tower::{
    ContractLayer, Deadline, DeadlineLayer, Graceful, OperationService, Problem, ServeError,
    grpc_timeout, header_millis,
};
use common::net::{Connection, cut_off, listen, serve, soon, until};
use common::{Puppet, assert_idle, ms, usage};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rooms::{Pieces, Room, budget, contract, staying};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Barrier;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

/// Sends these bytes and reads to the end.
async fn exchange(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut connection = Connection::open(address).await;
    connection.0.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    soon(connection.0.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn headers_that_make_no_sense_say_nothing_and_break_nothing() {
    let runtime = budget(1);
    let layer = ContractLayer::http_server(&contract(&runtime, "work"))
        .serialize_by_header(HeaderName::from_static("x-client"))
        .idempotency_key(|request: &Request<Body>| {
            let key = request.headers().get("idempotency-key")?.to_str().ok()?;
            Some(key.into())
        });
    let millis = header_millis("x-timeout-ms");
    let deadlines = DeadlineLayer::within(ms(600_000))
        .or_less(move |headers| millis(headers).or_else(|| grpc_timeout(headers)));
    let app = Router::new()
        .route("/", get(|| async { "done" }))
        .layer(layer)
        .layer(deadlines);
    let (address, _server) = serve(app).await;
    let (long, digits) = ("k".repeat(16_000), "9".repeat(16_000));
    let values: [&[u8]; 14] = [
        b"",
        b" \t ",
        b"-1",
        b"+5",
        b"1e3",
        b"0x10",
        b"5, 5",
        b"18446744073709551616",
        "\u{0665}".as_bytes(),
        b"999999999H",
        b"5\xb5",
        b"\xff\xfe\x80",
        long.as_bytes(),
        digits.as_bytes(),
    ];
    for name in [
        "x-timeout-ms",
        "x-client",
        "idempotency-key",
        "grpc-timeout",
    ] {
        for value in values {
            let request = [
                b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n",
                name.as_bytes(),
                b": ",
                value,
                b"\r\n\r\n",
            ]
            .concat();
            let answer = exchange(address, &request).await;
            let value = String::from_utf8_lossy(value);
            assert!(
                answer.starts_with("HTTP/1.1 200"),
                "{name}: {value}\n{answer}"
            );
        }
    }
    // Said twice, the first counts; and the longest that a number can say is not too long.
    for (said, status) in [
        ("x-timeout-ms: 0\r\nx-timeout-ms: 9000\r\n", 503),
        ("x-timeout-ms: 9000\r\nx-timeout-ms: 0\r\n", 200),
        ("x-timeout-ms: 18446744073709551615\r\n", 200),
    ] {
        let reply = Connection::open(address).await.get("/", said).await;
        assert_eq!(reply.status, status, "{said}");
    }
    assert_idle(&runtime);
}

#[tokio::test]
async fn a_request_whose_body_never_comes_holds_its_unit_no_longer_than_its_deadline() {
    let runtime = budget(1);
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let app = Router::new()
        .route("/", post(|body: Bytes| async move { body }))
        .layer(layer)
        .layer(DeadlineLayer::within(ms(600_000)).or_less(header_millis("x-timeout-ms")));
    let (address, _server) = serve(app).await;
    let half = "POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 8\r\n";
    // One that goes away leaves nothing behind.
    let mut gone = Connection::open(address).await;
    let request = format!("{half}\r\nhalf");
    gone.0.write_all(request.as_bytes()).await.unwrap();
    until(|| usage(&runtime, "a") == (1, 0)).await;
    drop(gone);
    until(|| usage(&runtime, "a") == (0, 0)).await;
    // One that stays is cut off.
    let reply = cut_off(async |millis| {
        let mut stays = Connection::open(address).await;
        let request = format!("{half}x-timeout-ms: {millis}\r\n\r\nhalf");
        stays.0.write_all(request.as_bytes()).await.unwrap();
        soon(stays.reply()).await
    });
    assert_eq!(reply.await.status, 504);
    assert_idle(&runtime);
}

#[tokio::test]
async fn b13_a_client_that_stops_reading_holds_what_its_body_holds_until_it_goes() {
    let runtime = budget(1);
    let held = ContractLayer::http_server(&contract(&runtime, "held")).hold_body();
    let free = ContractLayer::http_server(&contract(&runtime, "free"));
    // In pieces, and more of them than the buffers on the way take.
    let answer = || async {
        let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'.'; 1 << 16])));
        let pieces = futures_util::stream::iter((0..1_000).map(move |_| piece()));
        Body::new(StreamBody::new(pieces))
    };
    let app = Router::new()
        .route("/held", get(answer).layer(held))
        .route("/free", get(answer).layer(free));
    let (address, _server) = serve(app).await;
    // Given back at the head, units do not depend on who reads.
    let mut reader = Connection::open(address).await;
    reader.send("/free", "").await;
    reader.head().await;
    until(|| usage(&runtime, "a") == (0, 0)).await;
    let mut reader = Connection::open(address).await;
    reader.send("/held", "").await;
    reader.head().await;
    let mut waits = Connection::open(address).await;
    waits.send("/free", "").await;
    until(|| usage(&runtime, "a") == (1, 1)).await;
    drop(reader);
    soon(waits.head()).await;
    assert_idle(&runtime);
}

#[tokio::test]
async fn b8_an_http2_stream_that_is_reset_gives_back_what_it_held_and_the_others_go_on() {
    let (runtime, room) = (budget(2), Room::new());
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let (address, _server) = serve(Router::new().route("/", staying(&room)).layer(layer)).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let send = || {
        let request =
            Request::get(format!("http://{address}/")).version(axum::http::Version::HTTP_2);
        tokio::spawn(client.request(request.body(Full::default()).unwrap()))
    };
    let mut streams = Vec::new();
    for sent in 0..4_u32 {
        streams.push(send());
        until(|| usage(&runtime, "a") == ((sent + 1).min(2), sent.saturating_sub(1))).await;
    }
    // One that runs, and one that waits: both on the one connection, which goes on.
    streams.remove(2).abort();
    until(|| usage(&runtime, "a") == (2, 1)).await;
    streams.remove(0).abort();
    until(|| usage(&runtime, "a") == (2, 0) && room.inside() == 2).await;
    room.let_go(2);
    for stream in streams {
        assert_eq!(soon(stream).await.unwrap().unwrap().status(), 200);
    }
    assert_idle(&runtime);
}

#[tokio::test]
async fn d1_a_stream_under_way_ends_before_the_drain_does_or_the_bound_ends_both() {
    for ends in [true, false] {
        let runtime = budget(1);
        let layer = ContractLayer::http_server(&contract(&runtime, "stream")).hold_body();
        let (sender, pieces) = tokio::sync::mpsc::unbounded_channel();
        let body = Arc::new(std::sync::Mutex::new(Some(Pieces(pieces))));
        let app = Router::new().route(
            "/",
            get(move || {
                let pieces = common::lock(&body).take().unwrap();
                async { Body::new(StreamBody::new(pieces)) }
            })
            .layer(layer),
        );
        let listener = listen().await;
        let address = listener.local_addr().unwrap();
        let (signal, fired) = tokio::sync::oneshot::channel::<()>();
        let bound = if ends { 60_000 } else { 40 };
        let graceful = Graceful::new(&runtime, fired)
            .within(ms(bound))
            .patience(ms(0));
        let serving = tokio::spawn(
            graceful.serve(move |stop| axum::serve(listener, app).with_graceful_shutdown(stop)),
        );
        let mut client = Connection::open(address).await;
        client.send("/", "").await;
        client.head().await;
        signal.send(()).unwrap();
        until(|| std::net::TcpStream::connect(address).is_err()).await;
        if ends {
            sender.send(Ok("late")).unwrap();
            client.0.read_exact(&mut [0; 4 + 5]).await.unwrap();
            assert!(!serving.is_finished());
            drop(sender);
            assert_eq!(soon(serving).await.unwrap().unwrap().running(), 0);
            assert_idle(&runtime);
        } else {
            let ended = soon(serving).await.unwrap().unwrap_err();
            assert!(matches!(ended, ServeError::Runtime(_)), "{ended}");
        }
    }
}

/// One unit, and a layer that asks it again inside of itself: it can never be there.
#[tokio::test]
async fn b11_a_layer_twice_on_one_contract_is_refused_and_does_not_wait_for_itself() {
    let runtime = budget(1);
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let app = Router::new()
        .route("/", get(|| async { "done" }))
        .layer(layer.clone())
        .layer(layer);
    let (address, _server) = serve(app).await;
    let reply = Connection::open(address).await.get("/", "").await;
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (500, &"would-deadlock".into())
    );
    assert_idle(&runtime);
    // So is a key; and with units enough it is one call in another.
    let runtime = budget(2);
    let layer = ContractLayer::new(&contract(&runtime, "work"));
    let keyed = layer.clone().serialize_with(|request: &u32| *request);
    let inner = || service_fn(|request: u32| async move { Ok::<_, Infallible>(request) });
    let mut twice = keyed.layer(keyed.layer(inner()));
    let refused = twice.call(7).await.unwrap_err();
    let refused = refused.error().expect("the outer call's service failed so");
    assert!(matches!(refused, CallError::WouldDeadlock(_)), "{refused}");
    assert_eq!(layer.layer(layer.layer(inner())).call(7).await.unwrap(), 7);
    assert_idle(&runtime);
}

#[tokio::test]
async fn b11_handlers_that_ask_for_the_budget_that_they_all_hold_are_refused_and_lock_nothing_up() {
    let runtime = budget(8);
    let inner = contract(&runtime, "inner");
    let all = Arc::new(Barrier::new(8));
    let handler = get(move || {
        let (inner, all) = (inner.clone(), Arc::clone(&all));
        async move {
            all.wait().await;
            inner.admit().await.map(|_| "done").map_err(Problem::from)
        }
    });
    let layer = ContractLayer::http_server(&contract(&runtime, "outer"));
    let (address, _server) = serve(Router::new().route("/", handler).layer(layer)).await;
    let clients: Vec<_> = (0..8)
        .map(|_| tokio::spawn(async move { Connection::open(address).await.get("/", "").await }))
        .collect();
    let mut refused = 0;
    for client in clients {
        let reply = soon(client).await.unwrap();
        if reply.status == 500 {
            assert_eq!(reply.json()["code"], "would-deadlock");
            refused += 1;
        }
    }
    // The first to ask finds all eight units taken; who asks after others have ended may find one.
    assert!(refused > 0);
    assert_idle(&runtime);
}

#[tokio::test]
async fn c9_what_a_layer_was_given_may_panic_and_leaves_nothing_behind() {
    let runtime = budget(1);
    let retry = Retry::up_to(2).on_transient();
    let policy = Policy::pure().claim("a", 1).retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let layer = || ContractLayer::<u32>::new(&contract);
    let refusing = |_: Result<&u32, &&'static str>| -> Option<Failure<()>> { panic!("the judge") };
    let puppet = Puppet::new();
    let inner = || puppet.clone();
    let mut calls: Vec<std::pin::Pin<Box<dyn Future<Output = bool>>>> = Vec::new();
    macro_rules! call {
        ($layer:expr) => {{
            puppet.ready(Ok(()));
            puppet.answer(Ok(1));
            let call = $layer.layer(inner()).call(1);
            calls.push(Box::pin(async { call.await.is_ok() }));
        }};
    }
    call!(layer().serialize_with(|_| -> &str { panic!("the key") }));
    call!(layer().effect(|_| -> Effect { panic!("the effect") }));
    call!(layer().idempotency_key(|_| panic!("the idempotency key")));
    call!(layer().deadline(|_| -> Deadline { panic!("the deadline") }));
    call!(layer().copy_requests(|_| panic!("the copy")));
    call!(layer().judge(refusing));
    for call in calls {
        let mut call = tokio_test::task::spawn(call);
        assert!(catch_unwind(AssertUnwindSafe(|| call.poll())).is_err());
        assert_eq!(usage(&runtime, "a"), (0, 0));
        drop(call);
    }
    assert_eq!(puppet.alive(), 0);
    assert_idle(&runtime);
}

#[tokio::test]
async fn an_operation_stands_behind_tower_s_buffer_and_among_tower_s_choices() {
    let runtime = Runtime::builder().resource("a", 2).build().unwrap();
    let operation = |name: &str| {
        let named = name.to_owned();
        let handler = handler_fn(move |input: &u32| {
            let answer = (named.clone(), *input);
            async move { Ok::<_, Failure<Infallible>>(answer) }
        });
        let policy = Policy::pure().claim("a", 1);
        OperationService::new(runtime.operation(name, policy, handler).unwrap())
    };
    let mut buffered = ServiceBuilder::new()
        .buffer::<u32>(4)
        .service(operation("buffered"));
    let answers = futures_util::future::join_all((0..9).map(|n| {
        let mut buffered = buffered.clone();
        async move { buffered.ready().await.unwrap().call(n).await.unwrap().1 }
    }));
    assert_eq!(answers.await, (0..9).collect::<Vec<_>>());
    let measured = |name| PendingRequests::new(operation(name), CompleteOnResponse::default());
    let list = ServiceList::new(vec![measured("left"), measured("right")]);
    let balance = ServiceBuilder::new()
        .layer(ContractLayer::new(&contract(&runtime, "outer")))
        .buffer::<u32>(4)
        .service(Balance::new(list));
    // The outer call holds one unit while the inner one takes the other: neither is held by one that is merely ready.
    let idle: Vec<_> = (0..20).map(|_| balance.clone()).collect();
    for mut balance in idle {
        let (_, answer) = soon(balance.ready().await.unwrap().call(7)).await.unwrap();
        assert_eq!(answer, 7);
    }
    // A buffer's worker may hold a service that it has made ready; that holds nothing either.
    buffered.ready().await.unwrap();
    assert_idle(&runtime);
    let stats = runtime.stats();
    let finished = |name: &str| {
        let mut of = stats.operations.iter().filter(|of| &*of.name == name);
        of.next().map(|of| of.finished)
    };
    assert_eq!(finished("outer"), Some(20));
    assert_eq!(finished("left").unwrap() + finished("right").unwrap(), 20);
}
