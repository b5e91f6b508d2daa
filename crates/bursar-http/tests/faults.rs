//! Servers that misbehave: kind and outcome of each way, and the connection closed (G6, G7, G9).

mod common;

use std::sync::Arc;

use bursar::Outcome;
use bursar_http::{Client, ErrorKind};
use common::{Server, ok};
use tokio::sync::Notify;

/// Reads one request, answers these bytes, closes if it is told to, and says when the client has closed.
async fn answering(answer: impl Into<Vec<u8>>, close: bool) -> (Server, Arc<Notify>) {
    let answer: Arc<Vec<u8>> = Arc::new(answer.into());
    let closed = Arc::new(Notify::new());
    let closes = Arc::clone(&closed);
    let server = Server::start(move |mut peer, _| {
        let (answer, closed) = (Arc::clone(&answer), Arc::clone(&closes));
        async move {
            use tokio::io::AsyncWriteExt;
            peer.hear().await.unwrap();
            let _gone = peer.stream.write_all(&answer).await;
            if close {
                drop(peer);
            } else {
                peer.closed().await;
            }
            closed.notify_one();
        }
    })
    .await;
    (server, closed)
}

#[tokio::test]
async fn g7_answers_that_are_none_are_uncertain_and_their_connections_closed() {
    use ErrorKind::{ProtocolError, Unavailable};
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    let cases: [(&str, &[u8], bool, ErrorKind); 12] = [
        ("nothing, then closed", b"", true, Unavailable),
        (
            "half a head",
            b"HTTP/1.1 200 OK\r\ncontent-le",
            true,
            Unavailable,
        ),
        (
            "no HTTP",
            b"220 mail.example.com ESMTP\r\n",
            false,
            ProtocolError,
        ),
        (
            "a status that is none",
            b"HTTP/1.1 20x OK\r\n\r\n",
            false,
            ProtocolError,
        ),
        ("too long a head", long.as_bytes(), false, ProtocolError),
        ("too many headers", many.as_bytes(), false, ProtocolError),
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            false,
            ProtocolError,
        ),
        (
            "a short body",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
            true,
            Unavailable,
        ),
        (
            "chunks that break off",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            true,
            Unavailable,
        ),
        (
            "a chunk without a size",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
            false,
            ProtocolError,
        ),
        (
            "a chunk longer than it says",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
            false,
            ProtocolError,
        ),
        (
            "a chunk of a size beyond counting",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            false,
            ProtocolError,
        ),
    ];
    for (what, answer, close, kind) in cases {
        let (server, closed) = answering(answer, close).await;
        let client = server.client().build().unwrap();
        let error = client.post("/").json(&1).send_raw().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (kind, Outcome::Uncertain),
            "{what}: {error:?}"
        );
        closed.notified().await;
    }
}

#[tokio::test]
async fn g7_a_connection_that_is_reset_loses_the_answer() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"] {
        let server = Server::start(move |mut peer, _| async move {
            peer.hear().await.unwrap();
            peer.say(answer).await;
            peer.stream.set_zero_linger().unwrap();
        })
        .await;
        let client = server.client().build().unwrap();
        let error = client.post("/").json(&1).send_raw().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Uncertain),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn g9_a_body_over_the_limit_is_refused_as_soon_as_that_is_known() {
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "x".repeat(1 << 16));
    let endless = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}",
        chunk.repeat(3)
    );
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 131073\r\n\r\n";
    let unbounded = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(131_073));
    for answer in [endless, announced.to_owned(), unbounded] {
        let (server, closed) = answering(answer, false).await;
        let client = server.client().body_limit(131_072).build().unwrap();
        let error = client.get("/").send_raw().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::CapacityExceeded, Outcome::Permanent)
        );
        assert!(error.to_string().contains("131072 bytes"), "{error}");
        closed.notified().await;
    }
    let (server, _) = answering("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", false).await;
    let exact = server.client().body_limit(3).build().unwrap();
    assert_eq!(&exact.get("/").send_raw().await.unwrap().body()[..], b"abc");
}

#[tokio::test]
async fn g6_a_failing_status_is_told_with_what_arrived_of_its_body() {
    let cut = "HTTP/1.1 500 Oh No\r\ncontent-length: 9\r\n\r\nabc";
    let (server, _) = answering(cut, true).await;
    let client = server.client().build().unwrap();
    let error = client.get("/").fetch::<u8>().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::InternalFailure, Outcome::Uncertain)
    );
    assert_eq!(error.status().unwrap().as_u16(), 500);
    assert_eq!(&error.body().unwrap()[..], b"abc");
}

#[tokio::test]
async fn g7_an_unknown_host_is_transient() {
    let client = Client::builder()
        .base_url("http://nobody.invalid")
        .build()
        .unwrap();
    let error = client.post("/").json(&1).send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Transient)
    );
}

#[tokio::test]
async fn g7_a_server_that_closes_at_once_is_unavailable_and_never_permanent() {
    for reset in [false, true] {
        let server = Server::start(move |peer, _| async move {
            if reset {
                peer.stream.set_zero_linger().unwrap();
            }
        })
        .await;
        let client = server.client().build().unwrap();
        for _ in 0..50 {
            let error = client.post("/").json(&1).send_raw().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(
                matches!(error.outcome(), Outcome::Transient | Outcome::Uncertain),
                "{error:?}"
            );
        }
    }
}

#[tokio::test]
async fn g7_interim_answers_are_no_answers() {
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    let answer = format!("{hints}{}", ok("7"));
    let (server, _) = answering(answer, false).await;
    let client = server.client().build().unwrap();
    assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 7);

    // Without end they meet the timeout, and the connection is closed.
    let closed = Arc::new(Notify::new());
    let closes = Arc::clone(&closed);
    let server = Server::start(move |mut peer, _| {
        let closed = Arc::clone(&closes);
        async move {
            use tokio::io::AsyncWriteExt;
            peer.hear().await.unwrap();
            while peer.stream.write_all(hints.as_bytes()).await.is_ok() {
                tokio::task::yield_now().await;
            }
            closed.notify_one();
        }
    })
    .await;
    let client = server.client().build().unwrap();
    let request = client
        .get("/")
        .timeout(std::time::Duration::from_millis(50));
    let error = request.send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::DeadlineExceeded, Outcome::Uncertain)
    );
    closed.notified().await;
}

#[tokio::test]
async fn g7_a_switch_of_protocols_that_nobody_asked_for_is_no_answer() {
    let switch =
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello";
    let (server, closed) = answering(switch, false).await;
    let client = server.client().build().unwrap();
    let error = client.post("/").json(&1).send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::ProtocolError, Outcome::Uncertain)
    );
    closed.notified().await;
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn g9_compression_is_off_until_asked_and_then_decodes() {
    for (coding, body) in [
        ("gzip", gzip(b"\"hello\"")),
        ("deflate", zlib(b"\"hello\"")),
    ] {
        let (server, _) = answering(coded(coding, &body), false).await;
        let client = server.client().compression().build().unwrap();
        let answer = client.get("/").send::<String>().await.unwrap();
        assert_eq!(answer.body(), "hello");
        assert!(!answer.headers().contains_key("content-encoding"));
        let (server, _) = answering(coded(coding, &body), false).await;
        let plain = server.client().build().unwrap();
        assert_eq!(
            &plain.get("/").send_raw().await.unwrap().body()[..],
            &body[..]
        );
    }
    let asked = Server::answering(|heard| {
        ok(&format!(
            "{:?}",
            heard.header("accept-encoding").unwrap_or_default()
        ))
    })
    .await;
    let client = asked.client().compression().build().unwrap();
    assert_eq!(
        client.get("/").fetch::<String>().await.unwrap(),
        "gzip, deflate"
    );
    let client = asked.client().build().unwrap();
    assert_eq!(client.get("/").fetch::<String>().await.unwrap(), "");
}

#[tokio::test]
async fn g7_a_body_that_cannot_be_decompressed_is_permanent() {
    let whole = gzip(&[7; 10_000]);
    for broken in [&whole[..whole.len() / 2], b"this is no gzip at all"] {
        let (server, _) = answering(coded("gzip", broken), false).await;
        let client = server.client().compression().build().unwrap();
        let error = client.get("/").send_raw().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::ProtocolError, Outcome::Permanent),
            "{error:?}"
        );
    }
    // Broken off by the connection it is not the coding's fault.
    let mut answer = coded("gzip", &whole);
    answer.truncate(answer.len() - 10);
    let (server, _) = answering(answer, true).await;
    let client = server.client().compression().build().unwrap();
    let error = client.get("/").send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Uncertain)
    );
}

#[test]
fn case_37_a_tiny_compressed_body_costs_no_memory() {
    let gzipped = gzip(&vec![0; 32 << 20]);
    // The same between another head and an end that is never reached.
    let deflated = [&[0x78, 0xda], &gzipped[10..]].concat();
    let bombs = [("gzip", gzipped), ("deflate", deflated)];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let modes = ["whole", "stream", "download"];
    let all = bombs.iter().flat_map(|bomb| modes.map(|mode| (bomb, mode)));
    for ((coding, bomb), mode) in all {
        assert!(bomb.len() < 40_000);
        let (server, _) = runtime.block_on(answering(coded(coding, bomb), false));
        let client = server
            .client()
            .compression()
            .body_limit(2 << 20)
            .timeout(std::time::Duration::from_secs(60))
            .build()
            .unwrap();
        let path = std::env::temp_dir().join(format!("bursar-bomb-{}", std::process::id()));
        let mut found = None;
        let used = allocation_counter::measure(|| {
            found = runtime.block_on(async {
                let request = client.get("/");
                match mode {
                    "whole" => request.send_raw().await.err(),
                    "download" => request.download(&path).await.err(),
                    _ => {
                        let mut answer = request.stream().await.unwrap();
                        loop {
                            match answer.body_mut().chunk().await {
                                Ok(chunk) => assert!(chunk.is_some(), "it must not end well"),
                                Err(error) => break Some(error),
                            }
                        }
                    }
                }
            });
        });
        let error = found.unwrap();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::CapacityExceeded, Outcome::Permanent)
        );
        assert!(
            used.bytes_max < 4 << 20,
            "{coding}, {mode}: {} bytes at most",
            used.bytes_max
        );
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn g2_what_has_no_body_is_not_decompressed() {
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 123\r\n\r\n";
    let (server, _) = answering(head, false).await;
    let client = server.client().compression().build().unwrap();
    let answer = client.head("/").send_raw().await.unwrap();
    assert_eq!(answer.headers()["content-length"], "123");
    for empty in [
        "HTTP/1.1 204 No Content\r\ncontent-encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
    ] {
        let (server, _) = answering(empty, false).await;
        let client = server.client().compression().build().unwrap();
        client.get("/").fetch::<()>().await.unwrap();
    }
}
