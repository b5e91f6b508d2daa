//! Exchanges over HTTP with servers that misbehave, through hyper, hyper-util's client and reqwest.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use ::hyper::Request;
use ::hyper::client::conn::{http1, http2};
use bursar::Effect;
use bursar::Outcome::{Permanent, Throttled, Transient, Uncertain};
use bursar_classify::{hyper, reqwest};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::sockets::{Then, closed, server};

fn request(address: SocketAddr) -> Request<Full<Bytes>> {
    Request::post(format!("http://{address}/"))
        .body(Full::from("once"))
        .unwrap()
}

#[tokio::test]
async fn hyper_gives_an_untouched_request_back() {
    let (address, served) = server(vec![Then::Close]);
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    served.join().unwrap();
    // The connection sees that the peer has gone before anything is asked of it.
    let _ = connection.await;
    let error = sender.send_request(request(address)).await.unwrap_err();
    assert!(error.is_canceled(), "{error:?}");
    assert_eq!(hyper::outcome(&error), Transient);
}

#[tokio::test]
async fn hyper_does_not_know_what_a_server_did_that_read_the_request() {
    let (address, served) = server(vec![Then::Read]);
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let error = sender.send_request(request(address)).await.unwrap_err();
    assert!(!error.is_canceled(), "{error:?}");
    assert_eq!(hyper::failure(error).outcome(), Uncertain);
    served.join().unwrap();
    let _ = connection.await;
}

/// An HTTP/2 server that resets the first request for a reason.
async fn resetting(reason: h2::Reason) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(asked) = connection.accept().await {
            if let Ok((_, mut respond)) = asked {
                respond.send_reset(reason);
            }
        }
    });
    address
}

#[tokio::test]
async fn a_refused_stream_was_not_carried_out_and_any_other_reset_may_have_been() {
    for (reason, expected) in [
        (h2::Reason::REFUSED_STREAM, Transient),
        (h2::Reason::INTERNAL_ERROR, Uncertain),
        (h2::Reason::CANCEL, Uncertain),
    ] {
        let address = resetting(reason).await;
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let error = sender.send_request(request(address)).await.unwrap_err();
        assert_eq!(hyper::outcome(&error), expected, "{error:?}");
    }
}

#[tokio::test]
async fn a_pooled_client_that_finds_no_connection_sent_nothing() {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let (address, _reserved) = closed_port().await;
    let error = client.request(request(address)).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert_eq!(hyper::client_outcome(&error), Transient);

    let (address, served) = server(vec![Then::Read]);
    let error = client.request(request(address)).await.unwrap_err();
    assert_eq!(hyper::client_failure(error).outcome(), Uncertain);
    served.join().unwrap();
}

async fn closed_port() -> (SocketAddr, impl Sized) {
    tokio::task::spawn_blocking(closed).await.unwrap()
}

#[tokio::test]
async fn a_connection_without_trust_will_have_none_the_next_time() {
    // What a TLS connector fails with: an I/O error of this kind that wraps its own.
    let distrustful = tower::service_fn(|_: http::Uri| {
        let why = std::io::Error::new(ErrorKind::InvalidData, "invalid peer certificate");
        std::future::ready(Err::<TokioIo<TcpStream>, _>(why))
    });
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(distrustful);
    let error = client
        .request(request(SocketAddr::from(([127, 0, 0, 1], 1))))
        .await
        .unwrap_err();
    assert_eq!(hyper::client_outcome(&error), Permanent);
}

#[tokio::test]
async fn reqwest_is_told_the_same() {
    let client = ::reqwest::Client::new();
    let (address, _reserved) = closed_port().await;
    let error = client
        .post(format!("http://{address}/"))
        .send()
        .await
        .unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert_eq!(reqwest::outcome(&error), Transient);

    let (address, served) = server(vec![Then::Read]);
    let error = client
        .post(format!("http://{address}/"))
        .send()
        .await
        .unwrap_err();
    assert_eq!(reqwest::failure(error).outcome(), Uncertain);
    served.join().unwrap();

    // Taken by the machine, read by nobody: the request leaves, and no answer comes.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", deaf.local_addr().unwrap());
    let error = client
        .post(url)
        .timeout(Duration::from_millis(20))
        .send()
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(reqwest::outcome(&error), Uncertain);
}

#[tokio::test]
async fn a_request_that_cannot_be_built_or_goes_in_circles_is_permanent() {
    let client = ::reqwest::Client::new();
    let error = client.get("no address").send().await.unwrap_err();
    assert!(error.is_builder(), "{error:?}");
    assert_eq!(reqwest::outcome(&error), Permanent);

    const BACK: &str =
        "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (address, served) = server((0..11).map(|_| Then::Answer(BACK)).collect());
    let error = client
        .get(format!("http://{address}/"))
        .send()
        .await
        .unwrap_err();
    assert!(error.is_redirect(), "{error:?}");
    assert_eq!(reqwest::outcome(&error), Permanent);
    served.join().unwrap();
}

#[tokio::test]
async fn an_answer_that_breaks_off_comes_after_the_effect() {
    const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    let (address, served) = server(vec![Then::Answer(HALF)]);
    let response = ::reqwest::get(format!("http://{address}/")).await.unwrap();
    let error = response.text().await.unwrap_err();
    assert!(error.is_decode(), "{error:?}");
    assert_eq!(reqwest::outcome(&error), Uncertain);
    served.join().unwrap();
}

async fn answered(answer: &'static str) -> ::reqwest::Response {
    let (address, served) = server(vec![Then::Answer(answer)]);
    let response = ::reqwest::get(format!("http://{address}/")).await.unwrap();
    served.join().unwrap();
    response
}

#[tokio::test]
async fn a_failed_status_is_classified_with_its_headers() {
    const BUSY: &str =
        "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let failure = reqwest::answer(answered(BUSY).await, Effect::Idempotent).unwrap_err();
    assert_eq!(
        (failure.outcome(), failure.pushback()),
        (Throttled, Some(Duration::from_secs(7)))
    );
    let failure = reqwest::answer(answered(BUSY).await, Effect::NonIdempotent).unwrap_err();
    assert_eq!(failure.outcome(), Uncertain);
    // A time that cannot be read is none.
    const SOON: &str =
        "HTTP/1.1 503 Busy\r\nretry-after: soon\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let failure = reqwest::answer(answered(SOON).await, Effect::Pure).unwrap_err();
    assert_eq!((failure.outcome(), failure.pushback()), (Uncertain, None));
    // The error alone has lost the headers.
    let error = answered(BUSY).await.error_for_status().unwrap_err();
    assert_eq!(reqwest::outcome(&error), Uncertain);

    const MISSING: &str =
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let failure = reqwest::answer(answered(MISSING).await, Effect::Pure).unwrap_err();
    assert_eq!((failure.outcome(), failure.pushback()), (Permanent, None));
    let error = answered(MISSING).await.error_for_status().unwrap_err();
    assert_eq!(reqwest::outcome(&error), Permanent);

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nfine";
    let response = reqwest::answer(answered(FINE).await, Effect::Pure).unwrap();
    assert_eq!(response.text().await.unwrap(), "fine");
}
