//! What one request allocates, beside hyper-util's own client in the same run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use allocation_counter::measure;
use bursar_http::Client;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use tokio::runtime::{Builder, Runtime};

const ROUNDS: u64 = 200;

/// Answers every request on a thread of its own, so that the server's allocations are not counted.
#[allow(
    clippy::disallowed_methods,
    reason = "the server must be on another thread than the one that is measured"
)]
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buf = [0; 4096];
                while stream.read(&mut buf).is_ok_and(|read| read > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n42";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Allocations of one round, once everything is warm.
fn per_round(runtime: &Runtime, mut round: impl AsyncFnMut()) -> u64 {
    let mut run = |rounds| {
        runtime.block_on(async {
            for _ in 0..rounds {
                round().await;
            }
        });
    };
    run(ROUNDS);
    let counted = measure(|| run(ROUNDS));
    counted.count_total / ROUNDS
}

#[test]
fn a_request_allocates_little_more_than_its_transport() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("http://{}/", server());
    let peer = {
        let _inside = runtime.enter();
        let executor = hyper_util::rt::TokioExecutor::new();
        hyper_util::client::legacy::Client::builder(executor).build_http::<Empty<Bytes>>()
    };
    let uri: http::Uri = url.parse().unwrap();
    let transport = per_round(&runtime, async || {
        let request = http::Request::get(uri.clone()).body(Empty::new()).unwrap();
        let response = peer.request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"42");
    });
    let client = Client::builder().base_url(&url).build().unwrap();
    let own = per_round(&runtime, async || {
        assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 42);
    });
    println!("hyper-util {transport}, bursar-http {own} allocations a request");
    assert!(
        own <= 20,
        "{own} allocations a request, {transport} in hyper-util"
    );
}
