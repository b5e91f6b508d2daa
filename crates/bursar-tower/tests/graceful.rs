//! The end of an axum server and of its runtime, as one, within a bound.

#![allow(
    clippy::disallowed_methods,
    reason = "the server is a task of the test"
)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bursar::{DrainReport, Policy, Runtime, ShutdownError};
use bursar_tower::{ContractLayer, Graceful, Problem, ServeError};
use common::net::{Connection, listen, soon, until};
use common::{assert_idle, ms, told, usage};
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

type Served = Result<DrainReport, ServeError<std::io::Error>>;

struct World {
    runtime: Runtime,
    leave: Arc<Semaphore>,
    address: SocketAddr,
    signal: oneshot::Sender<()>,
    serving: JoinHandle<Served>,
}

/// `/`: stays under the layer until it is let go; `/calls`: stays, then makes a call; `/plain`: stays.
async fn world(bound: Duration, patience: Option<Duration>) -> World {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let inner = runtime.contract("inner", Policy::pure()).unwrap();
    let leave = Arc::new(Semaphore::new(0));
    let stay = {
        let leave = Arc::clone(&leave);
        move || {
            let leave = Arc::clone(&leave);
            async move { leave.acquire().await.unwrap().forget() }
        }
    };
    let calls = {
        let stay = stay.clone();
        move || {
            let (stay, inner) = (stay.clone(), inner.clone());
            async move {
                stay().await;
                inner.admit().await.map_err(Problem::from).map(|_| "called")
            }
        }
    };
    let app = Router::new()
        .route("/", get(stay.clone()))
        .layer(ContractLayer::http_server(&work))
        .route("/calls", get(calls))
        .route("/plain", get(stay));
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let (signal, fired) = oneshot::channel();
    let mut graceful = Graceful::new(&runtime, fired).within(bound);
    if let Some(patience) = patience {
        graceful = graceful.patience(patience);
    }
    let serving =
        graceful.serve(move |stop| axum::serve(listener, app).with_graceful_shutdown(stop));
    World {
        runtime,
        leave,
        address,
        signal,
        serving: tokio::spawn(serving),
    }
}

async fn begin(world: &World, path: &str) -> Connection {
    let mut connection = Connection::open(world.address).await;
    connection.send(path, "").await;
    connection
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn requests_under_way_end_as_they_would_and_idle_connections_are_closed() {
    let world = world(LONG, None).await;
    let mut idle = Connection::open(world.address).await;
    assert_eq!(idle.get("/none", "").await.status, 404);
    let mut first = begin(&world, "/").await;
    until(|| usage(&world.runtime, "a") == (1, 0)).await;
    let mut waits = begin(&world, "/").await;
    until(|| usage(&world.runtime, "a") == (1, 1)).await;
    let mut calls = begin(&world, "/calls").await;
    world.signal.send(()).unwrap();
    // Idle and unheard of by the runtime: closed at once.
    assert_eq!(soon(idle.0.read(&mut [0; 1])).await.unwrap(), 0);
    until(|| std::net::TcpStream::connect(world.address).is_err()).await;
    // What waited for its turn still gets it, and may begin calls of its own.
    world.leave.add_permits(3);
    assert_eq!(soon(first.reply()).await.status, 200);
    assert_eq!(soon(waits.reply()).await.status, 200);
    assert_eq!(soon(calls.reply()).await.body, b"called");
    let report = soon(world.serving).await.unwrap().unwrap();
    assert_eq!(report.running(), 0);
    assert_idle(&world.runtime);
}

#[tokio::test]
async fn when_patience_ends_what_waits_is_told_and_what_runs_ends() {
    let world = world(LONG, Some(ms(0))).await;
    let mut first = begin(&world, "/").await;
    until(|| usage(&world.runtime, "a") == (1, 0)).await;
    let mut waits = begin(&world, "/").await;
    until(|| usage(&world.runtime, "a") == (1, 1)).await;
    world.signal.send(()).unwrap();
    let reply = soon(waits.reply()).await;
    assert_eq!(reply.status, 503);
    assert!(told(reply.header("retry-after"), 1), "{reply:?}");
    assert_eq!(reply.json()["code"], "stopping");
    assert_eq!(usage(&world.runtime, "a"), (1, 0));
    world.leave.add_permits(1);
    assert_eq!(soon(first.reply()).await.status, 200);
    let report = soon(world.serving).await.unwrap().unwrap();
    assert_eq!(
        (report.operations[0].ended, report.operations[0].withdrawn),
        (1, 1)
    );
}

#[tokio::test]
async fn several_servers_are_stopped_at_once_and_drained_together() {
    use futures_util::FutureExt;
    let runtime = Runtime::builder().resource("a", 2).build().unwrap();
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let leave = Arc::new(Semaphore::new(0));
    let stay = {
        let leave = Arc::clone(&leave);
        move || async move { leave.acquire().await.unwrap().forget() }
    };
    let layer = ContractLayer::http_server(&work);
    let app = Router::new().route("/", get(stay)).layer(layer);
    let listeners = [listen().await, listen().await];
    let addresses = listeners.each_ref().map(|of| of.local_addr().unwrap());
    let (signal, fired) = oneshot::channel::<()>();
    let graceful = Graceful::new(&runtime, fired).within(LONG);
    let serving = tokio::spawn(graceful.serve(move |stop| async move {
        let stop = stop.shared();
        let servers = listeners.map(|listener| {
            axum::serve(listener, app.clone())
                .with_graceful_shutdown(stop.clone())
                .into_future()
        });
        let [first, second] = servers;
        tokio::try_join!(first, second).map(drop)
    }));
    let mut clients = Vec::new();
    for address in addresses {
        let mut client = Connection::open(address).await;
        client.send("/", "").await;
        clients.push(client);
        until(|| usage(&runtime, "a") == (clients.len() as u32, 0)).await;
    }
    signal.send(()).unwrap();
    for address in addresses {
        until(|| std::net::TcpStream::connect(address).is_err()).await;
    }
    leave.add_permits(1);
    soon(clients[0].reply()).await;
    assert!(!serving.is_finished(), "the other is still at work");
    leave.add_permits(1);
    soon(clients[1].reply()).await;
    assert_eq!(soon(serving).await.unwrap().unwrap().running(), 0);
    assert_idle(&runtime);
}

#[tokio::test]
async fn d3_at_the_bound_it_is_over_whatever_still_runs() {
    let stuck = world(ms(40), None).await;
    let _first = begin(&stuck, "/").await;
    until(|| usage(&stuck.runtime, "a") == (1, 0)).await;
    stuck.signal.send(()).unwrap();
    match soon(stuck.serving).await.unwrap().unwrap_err() {
        ServeError::Runtime(ShutdownError::StillRunning(report)) => assert_eq!(report.running(), 1),
        other => panic!("{other:?}"),
    }
    // One that the runtime knows nothing of.
    let stuck = world(ms(40), None).await;
    let _first = begin(&stuck, "/plain").await;
    until(|| stuck.runtime.stats().operations[0].admitted == 0).await;
    let mut other = Connection::open(stuck.address).await;
    assert_eq!(other.get("/none", "").await.status, 404);
    stuck.signal.send(()).unwrap();
    match soon(stuck.serving).await.unwrap().unwrap_err() {
        ServeError::Connections(report) => assert_eq!(report.running(), 0),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_fails_closes_the_runtime_and_says_why() {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let never = std::future::pending::<()>();
    let failed = Graceful::new(&runtime, never)
        .serve(|_| std::future::ready(Err::<(), _>("address in use")))
        .await;
    assert!(matches!(failed, Err(ServeError::Server("address in use"))));
    assert_eq!(
        failed.unwrap_err().to_string(),
        "the server failed: address in use"
    );
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    assert!(work.admit().await.unwrap_err().is_stopping());
    // One that ends by itself is followed by the drain as well.
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let never = std::future::pending::<()>();
    let ended = Graceful::new(&runtime, never)
        .serve(|_| std::future::ready(Ok::<_, &str>(())))
        .await;
    assert!(ended.is_ok());
}

#[tokio::test]
async fn case_24_serving_inside_a_call_of_the_same_runtime_ends_with_an_error() {
    let runtime = Runtime::builder().resource("a", 1).build().unwrap();
    let work = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let served = work
        .run(|| async {
            let now = std::future::ready(());
            let served = Graceful::new(&runtime, now).serve(|stop| async {
                stop.await;
                Ok::<_, &str>(())
            });
            Ok::<_, bursar::Failure<()>>(served.await)
        })
        .await;
    assert!(matches!(
        served,
        Ok(Err(ServeError::Runtime(ShutdownError::InsideOwnCall)))
    ));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn half_of_the_bound_is_patience_unless_said_otherwise() {
    let seconds = Duration::from_secs;
    for (patience, told) in [
        (None, 5),
        (Some(seconds(2)), 2),
        (Some(seconds(0)), 0),
        (Some(seconds(99)), 10),
    ] {
        let runtime = Runtime::builder().resource("a", 1).build().unwrap();
        let work = runtime
            .contract("work", Policy::pure().claim("a", 1))
            .unwrap();
        let _held = work.admit().await.unwrap();
        let mut graceful = Graceful::new(&runtime, std::future::ready(())).within(seconds(10));
        if let Some(patience) = patience {
            graceful = graceful.patience(patience);
        }
        let began = tokio::time::Instant::now();
        let waits = tokio::spawn(async move {
            let refused = work.admit().await.unwrap_err();
            assert!(refused.is_stopping());
            began.elapsed().as_secs()
        });
        let served = graceful
            .serve(|stop| async {
                stop.await;
                std::future::pending::<Result<(), &str>>().await
            })
            .await;
        assert_eq!(began.elapsed().as_secs(), 10);
        assert!(matches!(
            served,
            Err(ServeError::Runtime(ShutdownError::StillRunning(_)))
        ));
        assert_eq!(waits.await.unwrap(), told, "{patience:?}");
    }
}
