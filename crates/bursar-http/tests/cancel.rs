//! Leaving: down to the connection, in every mode (G10), and what a late answer means (G7, G9).

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bursar::{ManualClock, Outcome, Policy, Runtime};
use bursar_http::{Clients, ErrorKind, Request};
use bytes::Bytes;
use common::{Server, ok};
use tokio::sync::{Notify, oneshot};

/// Reads a request, writes `answer`, tells that it did, and then whether the client closed.
async fn stalling(answer: &'static str) -> (Server, Arc<Notify>, Arc<Notify>) {
    let (heard, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (hears, closes) = (Arc::clone(&heard), Arc::clone(&closed));
    let server = Server::start(move |mut peer, _| {
        let (heard, closed) = (Arc::clone(&hears), Arc::clone(&closes));
        async move {
            peer.hear().await.unwrap();
            peer.say(answer).await;
            heard.notify_one();
            peer.closed().await;
            closed.notify_one();
        }
    })
    .await;
    (server, heard, closed)
}

/// Polls `work` until `heard` is told, which must come first.
async fn until<T>(mut work: std::pin::Pin<&mut impl Future<Output = T>>, heard: &Notify) {
    let mut heard = pin!(heard.notified());
    poll_fn(|cx| {
        assert!(work.as_mut().poll(cx).is_pending(), "it must still wait");
        heard.as_mut().poll(cx)
    })
    .await;
}

#[tokio::test]
async fn g10_dropping_a_request_closes_its_connection() {
    let (server, heard, closed) = stalling("").await;
    let client = server.client().build().unwrap();
    let mut request = Box::pin(client.post("/").json(&1).send_raw());
    until(request.as_mut(), &heard).await;
    drop(request);
    closed.notified().await;
}

#[tokio::test]
async fn g10_dropping_a_body_closes_its_connection() {
    let (server, heard, closed) = stalling("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1").await;
    let client = server.client().build().unwrap();
    let mut response = client.get("/").stream().await.unwrap();
    heard.notified().await;
    let chunk = response.body_mut().chunk().await.unwrap();
    assert_eq!(chunk, Some(Bytes::from("1")));
    drop(response);
    closed.notified().await;
}

#[tokio::test]
async fn g10_a_token_ends_a_request_and_closes_its_connection() {
    let (server, heard, closed) = stalling("").await;
    let client = server.client().build().unwrap();
    let (fire, token) = oneshot::channel::<()>();
    let mut request = pin!(client.post("/").json(&1).until(token).send_raw());
    until(request.as_mut(), &heard).await;
    fire.send(()).unwrap();
    let error = request.await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Cancelled, Outcome::Uncertain)
    );
    closed.notified().await;
}

#[tokio::test]
async fn g10_a_token_ends_a_body_and_closes_its_connection() {
    let (server, heard, closed) = stalling("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1").await;
    let client = server.client().build().unwrap();
    let (fire, token) = oneshot::channel::<()>();
    let mut response = client.get("/").until(token).stream().await.unwrap();
    heard.notified().await;
    response.body_mut().chunk().await.unwrap();
    fire.send(()).unwrap();
    let error = response.body_mut().chunk().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Cancelled, Outcome::Uncertain)
    );
    closed.notified().await;
}

#[tokio::test]
async fn g10_a_token_ends_what_is_left_of_a_submission_and_gives_its_units_back() {
    let (server, heard, closed) = stalling("").await;
    let runtime = Runtime::builder().resource("uplink", 1).build().unwrap();
    let policy = Policy::effect_per_call().claim("uplink", 1);
    let contract = runtime.contract("log", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();
    let clients = Clients::builder()
        .register("log", client.clone())
        .build()
        .unwrap();
    let (fire, token) = oneshot::channel::<()>();
    let request = clients.get("log").unwrap().post("/").json(&1).until(token);
    request.submit().await.unwrap();
    heard.notified().await;
    assert_eq!(runtime.stats().budgets[0].in_use, 1);
    fire.send(()).unwrap();
    closed.notified().await;
    clients.shutdown().await.unwrap();
    assert_eq!(runtime.stats().budgets[0].in_use, 0);
    assert_eq!(client.submit_stats().failed, 1);
}

#[tokio::test]
async fn g10_dropping_a_blocked_upload_sends_nothing_more() {
    // The server reads the head and no more, so the socket fills; after the drop it reads what had left by then.
    let (go, gate) = oneshot::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(Some(gate)));
    let (tell, told) = oneshot::channel::<usize>();
    let tell = Arc::new(std::sync::Mutex::new(Some(tell)));
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let server = Server::start(move |mut peer, _| {
        let gate = gate.lock().unwrap().take().unwrap();
        let tell = tell.lock().unwrap().take().unwrap();
        let started = Arc::clone(&starts);
        async move {
            use tokio::io::AsyncReadExt;
            let mut first = [0; 1];
            peer.stream.read_exact(&mut first).await.unwrap();
            started.notify_one();
            gate.await.unwrap();
            let mut rest = Vec::new();
            let _reset = peer.stream.read_to_end(&mut rest).await;
            tell.send(rest.len()).unwrap();
        }
    })
    .await;
    const LENGTH: usize = 64 << 20;
    let client = server.client().build().unwrap();
    let body = Bytes::from(vec![0; LENGTH]);
    let mut upload = Box::pin(client.put("/").raw("x/y", body).send_raw());
    until(upload.as_mut(), &started).await;
    drop(upload);
    go.send(()).unwrap();
    let read = told.await.unwrap();
    assert!(
        read < LENGTH,
        "{read} of {LENGTH} bytes came although the upload was dropped"
    );
}

fn stalled<S, B>(request: Request<S, B>) -> Request<S, B> {
    request.timeout(Duration::from_secs(1))
}

#[tokio::test]
async fn g9_an_attempt_has_three_seconds_unless_it_states_others() {
    let (server, heard, closed) = stalling("").await;
    let clock = ManualClock::new();
    let client = server.client().clock(clock.clone()).build().unwrap();
    for (request, seconds) in [(client.get("/"), 3), (stalled(client.get("/")), 1)] {
        let mut request = pin!(request.send_raw());
        until(request.as_mut(), &heard).await;
        clock.advance(Duration::from_secs(seconds) - Duration::from_millis(1));
        poll_fn(|cx| {
            assert!(request.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        clock.advance(Duration::from_millis(1));
        let error = request.await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::DeadlineExceeded, Outcome::Uncertain)
        );
        closed.notified().await;
    }
}

#[tokio::test]
async fn g9_the_timeout_covers_the_body_in_every_mode() {
    let (server, heard, closed) = stalling("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1").await;
    let clock = ManualClock::new();
    let client = server.client().clock(clock.clone()).build().unwrap();
    let path = std::env::temp_dir().join(format!("bursar-late-{}", std::process::id()));
    for mode in ["whole", "stream", "download"] {
        let request = client.get("/");
        let late = async {
            match mode {
                "whole" => drop(request.send_raw().await?),
                "download" => drop(request.download(&path).await?),
                _ => {
                    let mut response = request.stream().await?;
                    while response.body_mut().chunk().await?.is_some() {}
                }
            }
            Ok::<_, bursar_http::Error>(())
        };
        let mut late = pin!(late);
        until(late.as_mut(), &heard).await;
        clock.advance(Duration::from_secs(3));
        let error = late.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{mode}");
        assert_eq!(error.outcome(), Outcome::Uncertain, "{mode}");
        closed.notified().await;
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn case_39_one_way_requests_leave_no_connection_behind() {
    let long = "x".repeat(64 << 10);
    let server = Server::answering(move |_| ok(&long)).await;
    let runtime = Runtime::builder().resource("uplink", 2).build().unwrap();
    let policy = Policy::effect_per_call().claim("uplink", 1);
    let contract = runtime.contract("log", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();
    let clients = Clients::builder()
        .register("log", client.clone())
        .build()
        .unwrap();
    let log = clients.get("log").unwrap();
    let sent = (0..200).map(|n| log.post("/").json(&n).submit());
    for result in futures_util::future::join_all(sent).await {
        result.unwrap();
    }
    clients.shutdown().await.unwrap();
    let stats = client.submit_stats();
    assert_eq!((stats.submitted, stats.failed), (200, 0));
    assert!(
        server.accepted() <= 2,
        "{} connections for two units",
        server.accepted()
    );
    assert_eq!(runtime.stats().budgets[0].in_use, 0);
}

#[tokio::test]
async fn g7_a_timeout_before_a_byte_of_the_request_left_is_transient() {
    // The server takes the connection and never answers the TLS handshake.
    let accepted = Arc::new(Notify::new());
    let accepts = Arc::clone(&accepted);
    let server = Server::start(move |mut peer, _| {
        let accepted = Arc::clone(&accepts);
        async move {
            accepted.notify_one();
            peer.closed().await;
        }
    })
    .await;
    let clock = ManualClock::new();
    let secure = server.url().replace("http://", "https://");
    let client = bursar_http::Client::builder().base_url(secure);
    let client = client.clock(clock.clone()).build().unwrap();
    let mut request = pin!(client.post("/").json(&1).send_raw());
    until(request.as_mut(), &accepted).await;
    clock.advance(Duration::from_secs(3));
    let error = request.await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::DeadlineExceeded, Outcome::Transient)
    );
}
