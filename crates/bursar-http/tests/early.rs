//! Answers that come before their request has left, and servers that speak another version: what becomes of the connection,
//! and of a body that hyper would leave out (G7, G10).

mod common;

use std::convert::Infallible;

use bytes::Bytes;
use common::{Server, ok, response};
use futures_util::stream;

/// Reads no more of a request than its head.
async fn head(peer: &mut common::Peer) -> bool {
    let mut byte = [0];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        use tokio::io::AsyncReadExt;
        if peer.stream.read(&mut byte).await.unwrap_or(0) == 0 {
            return false;
        }
        head.push(byte[0]);
    }
    true
}

/// More than the buffers of both ends hold: a connection that has a request left to send is no use to the next.
#[tokio::test]
async fn g10_an_early_answer_leaves_no_connection_that_still_sends() {
    let server = Server::start(|mut peer, _| async move {
        if head(&mut peer).await {
            peer.say(&response("413 Content Too Large", "", "no")).await;
        }
        // Reads nothing, and keeps the connection open.
        std::future::pending::<()>().await;
    })
    .await;
    let client = server.client().build().unwrap();
    let body = Bytes::from(vec![0; 16 << 20]);
    for round in 1..=3 {
        let error = client
            .post("/")
            .raw("application/octet-stream", body.clone())
            .fetch::<u8>()
            .await;
        let status = error.unwrap_err().status().map(|status| status.as_u16());
        assert_eq!((status, server.accepted()), (Some(413), round));
    }
}

#[tokio::test]
async fn g10_a_server_of_http_1_0_gets_one_request_a_connection_and_all_of_its_body() {
    let server = Server::start(|mut peer, _| async move {
        while let Some(heard) = peer.hear().await {
            let answer = format!(
                "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\n{}",
                heard.body.len()
            );
            peer.say(&answer).await;
        }
    })
    .await;
    let client = server.client().build().unwrap();
    for round in 1..=2 {
        let body = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"four"))]);
        let sent = client.post("/").body_stream(body).fetch::<u8>();
        assert_eq!(sent.await.unwrap(), 4);
        assert_eq!(server.accepted(), round);
    }
}

#[tokio::test]
async fn g10_a_stream_is_sent_with_every_method() {
    let server = Server::answering(|heard| ok(&heard.body.len().to_string())).await;
    let client = server.client().build().unwrap();
    for request in [client.get("/"), client.delete("/"), client.post("/")] {
        let body = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"four"))]);
        let sent = request.body_stream(body).fetch::<u8>();
        assert_eq!(sent.await.unwrap(), 4);
    }
}
