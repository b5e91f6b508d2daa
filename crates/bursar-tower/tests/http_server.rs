//! Contracts under a real axum server: shared limits, idle connections, bodies, disconnects, panics, overload.

#![allow(
    clippy::disallowed_methods,
    reason = "the clients of a server are tasks of the test"
)]

mod common;
#[path = "common/rooms.rs"]
mod rooms;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::routing::get;
use axum::{Router, http::HeaderName};
use bursar::Policy;
use bursar_tower::{ContractLayer, Deadline, DeadlineLayer, header_millis};
use common::net::{Connection, cut_off, serve, soon, until};
use common::{assert_idle, ms, told, usage};
use rooms::{Room, budget, contract, staying, streaming};
use tokio::io::AsyncReadExt;
use tokio::sync::Barrier;

#[tokio::test]
async fn one_contract_is_one_limit_across_routes_routers_and_connections() {
    let (runtime, room) = (budget(3), Room::new());
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let nested = Router::new()
        .route("/c", staying(&room))
        .layer(layer.clone());
    let app = Router::new()
        .route("/a", staying(&room))
        .route("/b", staying(&room))
        .layer(layer)
        .nest("/nested", nested);
    let (address, _server) = serve(app).await;
    let clients: Vec<_> = (0..30)
        .map(|n| {
            let path = ["/a", "/b", "/nested/c"][n % 3];
            tokio::spawn(async move { Connection::open(address).await.get(path, "").await.status })
        })
        .collect();
    until(|| usage(&runtime, "a") == (3, 27)).await;
    assert_eq!(room.inside(), 3);
    room.let_go(30);
    for client in clients {
        assert_eq!(soon(client).await.unwrap(), 200);
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 3);
    until(|| usage(&runtime, "a") == (0, 0)).await;
    assert_idle(&runtime);
}

#[tokio::test]
async fn idle_keep_alive_connections_starve_nobody() {
    let runtime = budget(1);
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let app = Router::new()
        .route("/", get(|| async { "done" }))
        .layer(layer);
    let (address, _server) = serve(app).await;
    // Each has had an answer and keeps its connection, and its services, for ever.
    let mut idle = Vec::new();
    for _ in 0..100 {
        let mut connection = Connection::open(address).await;
        assert_eq!(connection.get("/", "").await.status, 200);
        idle.push(connection);
    }
    assert_eq!(usage(&runtime, "a"), (0, 0));
    let reply = Connection::open(address).await.get("/", "").await;
    assert_eq!((reply.status, &*reply.body), (200, &b"done"[..]));
    // And each is as good as new.
    for connection in &mut idle {
        assert_eq!(connection.get("/", "").await.status, 200);
    }
    assert_idle(&runtime);
}

#[tokio::test]
async fn what_finds_no_room_is_a_problem_that_says_when_to_come_back() {
    let (runtime, room) = (budget(1), Room::new());
    let policy = Policy::pure().claim("a", 1).max_waiting(1);
    let work = runtime.contract("work", policy).unwrap();
    let serial = runtime.contract("serial", Policy::pure().reject()).unwrap();
    let by_client = ContractLayer::http_server(&serial)
        .serialize_by_header(HeaderName::from_static("x-client"));
    let app = Router::new()
        .route("/", staying(&room))
        .layer(ContractLayer::http_server(&work))
        .merge(
            Router::new()
                .route("/serial", staying(&room))
                .layer(by_client),
        );
    let (address, _server) = serve(app).await;
    let mut held = Connection::open(address).await;
    held.send("/", "").await;
    until(|| usage(&runtime, "a") == (1, 0)).await;
    let mut waits = Connection::open(address).await;
    waits.send("/", "").await;
    until(|| usage(&runtime, "a") == (1, 1)).await;
    let reply = Connection::open(address).await.get("/", "").await;
    assert_eq!(reply.status, 503);
    assert_eq!(
        reply.header("content-type"),
        Some("application/problem+json")
    );
    // Nothing has ended yet: a second is assumed for each before it, and for itself.
    assert!(told(reply.header("retry-after"), 2), "{reply:?}");
    assert_eq!(
        reply.json(),
        serde_json::json!({
            "title": "Service Unavailable", "status": 503, "code": "overloaded", "outcome": "throttled", "attempts": 0,
            "detail": "The service is at capacity; the request was not begun.",
        })
    );
    let mut first = Connection::open(address).await;
    first.send("/serial", "x-client: 7\r\n").await;
    until(|| room.inside() == 2).await;
    let reply = Connection::open(address)
        .await
        .get("/serial", "x-client: 7\r\n")
        .await;
    assert_eq!(reply.status, 429);
    assert!(told(reply.header("retry-after"), 1), "{reply:?}");
    assert_eq!(reply.json()["code"], "key-held");
    let mut other = Connection::open(address).await;
    other.send("/serial", "x-client: 8\r\n").await;
    until(|| room.inside() == 3).await;
    room.let_go(9);
    for connection in [&mut held, &mut waits, &mut first, &mut other] {
        assert_eq!(soon(connection.reply()).await.status, 200);
    }
    assert_idle(&runtime);
}

#[tokio::test]
async fn b9_the_deadline_of_a_request_bounds_what_runs_under_the_layer_and_in_the_handler() {
    let (runtime, room) = (budget(1), Room::new());
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let inner = contract(&runtime, "inner");
    let in_handler = get(move |deadline: Deadline| async move {
        let permit = inner
            .with()
            .deadline(deadline)
            .admit()
            .await
            .map_err(bursar_tower::Problem::from);
        permit.map(|_| "done")
    });
    let deadlines = DeadlineLayer::within(ms(60_000)).or_less(header_millis("x-timeout-ms"));
    let app = Router::new()
        .route("/", staying(&room))
        .layer(layer)
        .route("/inner", in_handler)
        .route(
            "/left",
            get(
                |deadline: Deadline| async move { format!("{:?}", deadline.remaining().is_some()) },
            ),
        )
        .layer(deadlines);
    let (address, _server) = serve(app).await;
    let mut connection = Connection::open(address).await;
    let reply = connection.get("/", "x-timeout-ms: 0\r\n").await;
    assert_eq!(
        (reply.status, reply.json()["code"].as_str()),
        (503, Some("not-in-time"))
    );
    assert_eq!(room.inside(), 0, "nothing ran");
    let timeout = |millis| format!("x-timeout-ms: {millis}\r\n");
    let reply = cut_off(async |millis| connection.get("/", &timeout(millis)).await).await;
    assert_eq!((reply.status, reply.header("retry-after")), (504, None));
    assert_eq!(reply.json()["outcome"], "uncertain");
    let reply = connection.get("/inner", "x-timeout-ms: 0\r\n").await;
    assert_eq!(reply.status, 503);
    assert_eq!(connection.get("/inner", "").await.status, 200);
    assert_eq!(connection.get("/left", "").await.body, b"true");
    assert_eq!(room.inside(), 0);
    assert_idle(&runtime);
}

#[tokio::test]
async fn b13_units_are_held_until_the_body_ends_if_asked_for() {
    let (runtime, address, mut writers, _server) =
        streaming(|c| ContractLayer::http_server(c).hold_body()).await;
    let mut first = Connection::open(address).await;
    first.send("/", "").await;
    let writer = soon(writers.recv()).await.unwrap();
    first.head().await;
    let mut second = Connection::open(address).await;
    second.send("/", "").await;
    until(|| usage(&runtime, "a") == (1, 1)).await;
    writer.send(Ok("one")).unwrap();
    first.0.read_exact(&mut [0; 3 + 5]).await.unwrap();
    assert_eq!(usage(&runtime, "a"), (1, 1));
    drop(writer);
    let writer = soon(writers.recv()).await.unwrap();
    second.head().await;
    assert_eq!(usage(&runtime, "a"), (1, 0));
    // An error ends a body too.
    writer.send(Err("torn")).unwrap();
    until(|| usage(&runtime, "a") == (0, 0)).await;
    assert_idle(&runtime);
}

#[tokio::test]
async fn units_are_back_at_the_head_unless_asked_for() {
    let (runtime, address, mut writers, _server) = streaming(ContractLayer::http_server).await;
    let mut first = Connection::open(address).await;
    first.send("/", "").await;
    let writer = soon(writers.recv()).await.unwrap();
    first.head().await;
    assert_idle(&runtime);
    drop(writer);
}

#[tokio::test]
async fn b8_a_client_that_disconnects_mid_body_gives_everything_back() {
    let (runtime, address, mut writers, _server) =
        streaming(|c| ContractLayer::http_server(c).hold_body()).await;
    let mut client = Connection::open(address).await;
    client.send("/", "").await;
    let writer = soon(writers.recv()).await.unwrap();
    writer.send(Ok("one")).unwrap();
    client.head().await;
    let mut waits = Connection::open(address).await;
    waits.send("/", "").await;
    until(|| usage(&runtime, "a") == (1, 1)).await;
    drop(client);
    // Nothing more is written: the server notices by itself.
    soon(writers.recv()).await.unwrap();
    soon(writer.closed()).await;
}

#[tokio::test]
async fn b8_a_client_that_disconnects_while_its_call_waits_or_runs_takes_its_place_with_it() {
    let (runtime, room) = (budget(1), Room::new());
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let (address, _server) = serve(Router::new().route("/", staying(&room)).layer(layer)).await;
    let mut clients = Vec::new();
    for waiting in 0..3 {
        let mut client = Connection::open(address).await;
        client.send("/", "").await;
        until(|| usage(&runtime, "a") == (1, waiting)).await;
        clients.push(client);
    }
    drop(clients.remove(1));
    until(|| usage(&runtime, "a") == (1, 1)).await;
    drop(clients.remove(0));
    until(|| usage(&runtime, "a") == (1, 0)).await;
    until(|| room.inside() == 1).await;
    room.let_go(1);
    assert_eq!(soon(clients[0].reply()).await.status, 200);
    assert_idle(&runtime);
}

#[tokio::test]
async fn c9_a_handler_or_body_that_panics_gives_everything_back() {
    let (runtime, address, mut writers, _server) =
        streaming(|c| ContractLayer::http_server(c).hold_body()).await;
    let mut client = Connection::open(address).await;
    client.send("/", "").await;
    let writer = soon(writers.recv()).await.unwrap();
    client.head().await;
    writer.send(Ok("panic")).unwrap();
    until(|| usage(&runtime, "a") == (0, 0)).await;

    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let handler = get(|Path(fail): Path<bool>| async move {
        assert!(!fail, "within the handler");
        "done"
    });
    let app = Router::new()
        .route("/{fail}", handler.clone().layer(layer.clone()))
        .route("/held/{fail}", handler.layer(layer.hold_body()));
    let (address, _server) = serve(app).await;
    for path in ["", "/held"] {
        let mut client = Connection::open(address).await;
        client.send(&format!("{path}/true"), "").await;
        let closed = soon(client.0.read(&mut [0; 1])).await.unwrap_or(0);
        assert_eq!(closed, 0, "the connection is closed");
        let mut other = Connection::open(address).await;
        assert_eq!(other.get(&format!("{path}/false"), "").await.status, 200);
    }
    assert_idle(&runtime);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_connections_find_four_places_and_are_all_answered() {
    let runtime = budget(4);
    let room = Room::new();
    let policy = Policy::pure().claim("a", 1).max_waiting(50);
    let work = runtime.contract("work", policy).unwrap();
    let counted = room.clone();
    let handler = get(move || {
        let room = counted.clone();
        async move {
            let work = async {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            };
            room.within(work).await;
            "done"
        }
    });
    let app = Router::new()
        .route("/", handler)
        .layer(ContractLayer::http_server(&work).hold_body());
    let (address, _server) = serve(app).await;
    let go = Arc::new(Barrier::new(200));
    let clients: Vec<_> = (0..200)
        .map(|n| {
            let go = Arc::clone(&go);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                go.wait().await;
                let mut seen = [0, 0];
                for round in 0..8 {
                    if (n + round) % 7 == 0 {
                        // Leaves without waiting for the answer, and comes back.
                        connection.send("/", "").await;
                        connection = Connection::open(address).await;
                        continue;
                    }
                    let reply = connection.get("/", "").await;
                    match reply.status {
                        200 => seen[0] += 1,
                        503 => {
                            assert!(reply.header("retry-after").is_some());
                            seen[1] += 1;
                        }
                        other => panic!("{other}"),
                    }
                }
                seen
            })
        })
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for client in clients {
        let [ok, no] = soon(client).await.unwrap();
        answered += ok;
        refused += no;
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 4);
    until(|| usage(&runtime, "a") == (0, 0)).await;
    let stats = runtime.stats();
    let of = &stats.operations[0];
    assert!(
        of.started >= answered && of.rejected >= refused,
        "{answered} {refused}\n{stats}"
    );
    assert!(answered > 0);
    assert_idle(&runtime);
}

#[tokio::test]
async fn a_service_with_an_error_of_its_own_keeps_it() {
    use tower::{Layer, Service, ServiceExt, service_fn};
    let runtime = budget(1);
    let layer = ContractLayer::http_server(&contract(&runtime, "work"));
    let mut service = layer.layer(service_fn(|_: Request| async {
        Err::<axum::response::Response, _>("its own")
    }));
    let answer = service
        .ready()
        .await
        .unwrap()
        .call(Request::default())
        .await;
    assert_eq!(answer.unwrap_err(), "its own");
    let mut service = layer.layer(service_fn(|_: Request| async {
        Ok::<_, Infallible>(axum::response::Response::<Body>::default())
    }));
    runtime.shutdown().await.unwrap();
    let answer = service
        .ready()
        .await
        .unwrap()
        .call(Request::default())
        .await
        .unwrap();
    assert_eq!(answer.status(), 503);
    assert!(told(answer.headers()["retry-after"].to_str().ok(), 1));
}
