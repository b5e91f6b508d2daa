//! An HTTP client under a contract, against servers that lose, refuse and delay.

#![allow(
    clippy::disallowed_methods,
    reason = "the server is a task of the test"
)]

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bursar::{Backoff, CallError, Contract, Effect, Outcome, Policy, Retry, Runtime};
use bursar_tower::{ContractBody, ContractLayer, Verdict};
use bytes::Bytes;
use common::net::{Task, listen, soon, until};
use common::{assert_idle, lock, ms, usage};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};

/// What a server does with one request, read whole.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Sends these bytes and goes on.
    Say(&'static str),
    /// Closes without an answer: it may have taken effect.
    Close,
}

const OK: Act = Act::Say("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone");
const UNAVAILABLE: Act =
    Act::Say("HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n");
const BUSY: Act = Act::Say("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n");
const BROKEN: Act =
    Act::Say("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 6\r\n\r\nbroken");
const MISSING: Act = Act::Say("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");

type Seen = Arc<Mutex<Vec<String>>>;

/// Serves the acts one after another, over as many connections as it takes, and keeps the requests' heads and bodies.
fn act(listener: TcpListener, acts: Vec<Act>) -> (Seen, Task) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        let mut acts = acts.into_iter();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            while let Some(request) = read_request(&mut stream).await {
                lock(&log).push(request);
                match acts.next() {
                    Some(Act::Say(bytes)) => stream.write_all(bytes.as_bytes()).await.unwrap(),
                    Some(Act::Close) => break,
                    None => return,
                }
            }
        }
    });
    (seen, Task(task))
}

/// The next request, or that the client has closed.
async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(request).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}

/// Retries all that may be retried.
fn eager(runtime: &Runtime) -> Contract {
    let backoff = Backoff::exponential(ms(1)).cap(ms(2));
    let retry = Retry::up_to(3)
        .on_transient()
        .on_uncertain()
        .on_throttled()
        .backoff(backoff);
    let policy = Policy::effect_per_call().claim("a", 1).retry(retry);
    runtime.contract("fetch", policy).unwrap()
}

fn budget() -> Runtime {
    Runtime::builder().resource("a", 1).seed(7).build().unwrap()
}

type Answer = Result<Response<ContractBody<hyper::body::Incoming>>, CallError<Error>>;

/// Sends one request through a fresh client.
async fn send(runtime: &Runtime, address: SocketAddr, method: Method, key: Option<&str>) -> Answer {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut client = ContractLayer::http_client(&eager(runtime))
        .clone_requests()
        .layer(client);
    soon(
        client
            .ready()
            .await
            .unwrap()
            .call(request(address, method, key)),
    )
    .await
}

fn request(address: SocketAddr, method: Method, key: Option<&str>) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{address}/orders"));
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Full::from("order 7")).unwrap()
}

async fn body(answer: Answer) -> Bytes {
    answer
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
}

#[tokio::test]
async fn case_19_a_reply_lost_after_the_effect_is_repeated_only_where_that_does_no_harm() {
    // (a) Each execution counts.
    let (runtime, listener) = (budget(), listen().await);
    let address = listener.local_addr().unwrap();
    let (seen, _server) = act(listener, vec![Act::Close, OK]);
    let error = send(&runtime, address, Method::POST, None)
        .await
        .unwrap_err();
    assert_eq!(
        (error.outcome(), error.attempts(), lock(&seen).len()),
        (Outcome::Uncertain, 1, 1)
    );
    // (b) It carries a key by which the server can tell a repetition: the same one each time.
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let (seen, _server) = act(listener, vec![Act::Close, OK]);
    assert_eq!(
        body(send(&runtime, address, Method::POST, Some("k-1")).await).await,
        "done"
    );
    let requests = lock(&seen).clone();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(
            request.contains("idempotency-key: k-1\r\n") && request.ends_with("order 7"),
            "{request}"
        );
    }
    // (c) Nobody listens: nothing was sent.
    let address = {
        let gone = listen().await;
        gone.local_addr().unwrap()
    };
    let error = send(&runtime, address, Method::POST, None)
        .await
        .unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 3));
    assert_idle(&runtime);
}

#[tokio::test]
async fn case_35_a_post_is_not_sent_again_over_a_pooled_connection_that_closes_and_a_get_is() {
    for (method, sent) in [(Method::POST, 2), (Method::GET, 3)] {
        let (runtime, listener) = (budget(), listen().await);
        let address = listener.local_addr().unwrap();
        let (seen, _server) = act(listener, vec![OK, Act::Close, OK]);
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut client = ContractLayer::http_client(&eager(&runtime))
            .clone_requests()
            .layer(client);
        // The first answer leaves its connection in the pool.
        assert_eq!(
            body(client.call(request(address, Method::GET, None)).await).await,
            "done"
        );
        let answer = soon(client.call(request(address, method.clone(), None))).await;
        if method == Method::POST {
            let error = answer.unwrap_err();
            assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
        } else {
            assert_eq!(body(answer).await, "done");
        }
        assert_eq!(lock(&seen).len(), sent, "{method}");
        assert_idle(&runtime);
    }
}

#[tokio::test]
async fn an_answer_is_tried_again_as_method_and_status_allow_and_at_last_returned_with_a_verdict() {
    use Outcome::{Throttled, Uncertain};
    for (method, acts, sent, status, verdict) in [
        (Method::GET, vec![BROKEN, UNAVAILABLE, OK], 3, 200, None),
        (
            Method::PUT,
            vec![BROKEN, BROKEN, BROKEN],
            3,
            500,
            Some((Uncertain, 3)),
        ),
        (Method::POST, vec![BROKEN, OK], 1, 500, Some((Uncertain, 1))),
        (
            Method::POST,
            vec![UNAVAILABLE, OK],
            1,
            503,
            Some((Uncertain, 1)),
        ),
        (Method::POST, vec![BUSY, BUSY, OK], 3, 200, None),
        (
            Method::GET,
            vec![BUSY, BUSY, BUSY],
            3,
            429,
            Some((Throttled, 3)),
        ),
        // The second was refused, and the first may have taken effect.
        (
            Method::DELETE,
            vec![BROKEN, BUSY, BUSY],
            3,
            429,
            Some((Uncertain, 3)),
        ),
        (Method::DELETE, vec![MISSING, OK], 1, 404, None),
    ] {
        let (runtime, listener) = (budget(), listen().await);
        let address = listener.local_addr().unwrap();
        let (seen, _server) = act(listener, acts.clone());
        let answer = send(&runtime, address, method.clone(), None).await.unwrap();
        assert_eq!(answer.status(), status, "{method} {acts:?}");
        let found = answer
            .extensions()
            .get::<Verdict>()
            .map(|verdict| (verdict.outcome, verdict.attempts));
        assert_eq!(found, verdict, "{method} {acts:?}");
        assert_eq!(lock(&seen).len(), sent, "{method} {acts:?}");
        drop(answer);
        assert_idle(&runtime);
    }
}

#[tokio::test]
async fn a_busy_server_refused_a_post_that_carries_an_idempotency_key() {
    for (key, verdict) in [
        (None, (Outcome::Uncertain, 1)),
        (Some("k-1"), (Outcome::Throttled, 3)),
    ] {
        let (runtime, listener) = (budget(), listen().await);
        let address = listener.local_addr().unwrap();
        let (_seen, _server) = act(listener, vec![UNAVAILABLE; 3]);
        let answer = send(&runtime, address, Method::POST, key).await.unwrap();
        let found = answer.extensions().get::<Verdict>().unwrap();
        assert_eq!((found.outcome, found.attempts), verdict, "{key:?}");
    }
}

#[tokio::test]
async fn b13_the_exchange_holds_its_units_until_the_body_has_ended_or_is_dropped() {
    let (runtime, listener) = (budget(), listen().await);
    let address = listener.local_addr().unwrap();
    let long = Act::Say("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndo");
    let (_seen, server) = act(listener, vec![OK, long, long]);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let layer = ContractLayer::http_client(&eager(&runtime));
    let mut held = layer.clone().layer(client.clone());
    let answer = held.call(request(address, Method::GET, None)).await;
    assert_eq!(usage(&runtime, "a"), (1, 0));
    assert_eq!(body(answer).await, "done");
    assert_eq!(usage(&runtime, "a"), (0, 0));
    let answer = held
        .call(request(address, Method::GET, None))
        .await
        .unwrap();
    let mut read = answer.into_body();
    read.frame().await.unwrap().unwrap();
    assert_eq!(usage(&runtime, "a"), (1, 0), "half of it is there");
    drop(read);
    assert_eq!(usage(&runtime, "a"), (0, 0));
    // Unless it is to be given back at the head.
    let mut at_head = layer.release_at_head().layer(client);
    let _server = server;
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let (_seen, _other) = act(listener, vec![long]);
    let answer = at_head
        .call(request(address, Method::GET, None))
        .await
        .unwrap();
    assert_eq!(usage(&runtime, "a"), (0, 0));
    drop(answer);
    assert_idle(&runtime);
}

#[tokio::test]
async fn b8_an_exchange_that_is_dropped_is_cut_and_gives_everything_back() {
    let (runtime, listener) = (budget(), listen().await);
    let address = listener.local_addr().unwrap();
    let sending = tokio::spawn({
        let runtime = runtime.clone();
        async move { send(&runtime, address, Method::GET, None).await.map(|_| ()) }
    });
    let (mut stream, _) = soon(listener.accept()).await.unwrap();
    soon(read_request(&mut stream)).await.unwrap();
    assert_eq!(usage(&runtime, "a"), (1, 0));
    sending.abort();
    until(|| usage(&runtime, "a") == (0, 0)).await;
    assert_eq!(
        soon(stream.read(&mut [0; 1])).await.unwrap_or(0),
        0,
        "down to the connection"
    );
    assert_idle(&runtime);
}

#[tokio::test]
async fn a3_a_policy_that_is_stricter_than_the_method_counts() {
    // Nobody knows whether what answers so was executed; and each execution counts, as the policy says.
    for (key, sent, outcome) in [
        (None, 1, Outcome::Uncertain),
        (Some("k-1"), 2, Outcome::Success),
    ] {
        let (runtime, listener) = (budget(), listen().await);
        let address = listener.local_addr().unwrap();
        let (seen, _server) = act(listener, vec![UNAVAILABLE, OK]);
        let backoff = Backoff::exponential(ms(1)).cap(ms(2));
        let retry = Retry::up_to(3).on_throttled().backoff(backoff);
        let policy = Policy::non_idempotent().claim("a", 1).retry(retry);
        let contract = runtime.contract("fetch", policy).unwrap();
        assert_eq!(contract.effect(), Some(Effect::NonIdempotent));
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut client = ContractLayer::http_client(&contract)
            .clone_requests()
            .layer(client);
        let answer = soon(client.call(request(address, Method::GET, key))).await;
        let response = answer.unwrap();
        let verdict = response.extensions().get::<Verdict>();
        let judged = verdict.map_or(Outcome::Success, |verdict| verdict.outcome);
        assert_eq!((judged, lock(&seen).len()), (outcome, sent));
        drop(response);
        assert_idle(&runtime);
    }
}
