//! Connections between two requests: who gets them, and what becomes of those that end meanwhile (G7, G10).

#![allow(clippy::disallowed_methods, reason = "the server runs on a thread")]

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bursar::Outcome;
use bursar_http::{Client, Clients, ErrorKind};
use common::{Heard, Server, ok, response};
use tokio::sync::Notify;

const TIMED_OUT: &str = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n";

/// Answers the first request of the first connection with `first`; then says when the client has closed it. Later
/// connections answer "2".
async fn ending(first: String, then: &'static str) -> (Server, Arc<Notify>) {
    let first = Arc::new(first);
    let closed = Arc::new(Notify::new());
    let closes = Arc::clone(&closed);
    let server = Server::start(move |mut peer, number| {
        let (first, closed) = (Arc::clone(&first), Arc::clone(&closes));
        async move {
            if number == 1 {
                peer.hear().await.unwrap();
                peer.say(&first).await;
                if !then.is_empty() {
                    peer.say(then).await;
                }
                peer.closed().await;
                closed.notify_one();
            }
            while peer.hear().await.is_some() {
                peer.say(&ok("2")).await;
            }
        }
    })
    .await;
    (server, closed)
}

#[tokio::test]
async fn g7_a_408_on_an_idle_connection_answers_no_request() {
    let (server, closed) = ending(ok("1"), TIMED_OUT).await;
    let client = server.client().build().unwrap();
    assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 1);
    // The client has read it, while nobody had asked anything.
    closed.notified().await;
    assert_eq!(client.post("/").json(&1).fetch::<u8>().await.unwrap(), 2);
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn g7_an_answer_that_nobody_asked_for_answers_no_later_request() {
    // Both in one segment: the second lies in the client's buffer when the first has been read.
    for unasked in [TIMED_OUT.to_owned(), ok("9")] {
        let (server, closed) = ending(ok("1") + &unasked, "").await;
        let client = server.client().build().unwrap();
        assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 1);
        let second = client.post("/").json(&1).fetch::<u8>();
        assert_eq!(second.await.unwrap(), 2);
        closed.notified().await;
    }
}

#[tokio::test]
async fn g7_a_408_that_crosses_a_request_leaves_it_open_whether_it_was_executed() {
    // The server gives up just as the second request is on its way, and never reads it.
    let server = Server::start(|mut peer, _| async move {
        peer.hear().await.unwrap();
        peer.say(&ok("1")).await;
        let mut one = [0];
        peer.stream.peek(&mut one).await.unwrap();
        peer.say(TIMED_OUT).await;
        peer.closed().await;
    })
    .await;
    let client = server.client().build().unwrap();
    assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 1);
    let error = client.post("/").json(&1).fetch::<u8>().await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(408));
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
}

#[tokio::test]
async fn g7_a_connection_that_ended_while_idle_costs_a_post_nothing() {
    let closed = Arc::new(Notify::new());
    let closes = Arc::clone(&closed);
    let server = Server::start(move |mut peer, _| {
        let closed = Arc::clone(&closes);
        async move {
            use tokio::io::AsyncWriteExt;
            peer.hear().await.unwrap();
            peer.say(&ok("1")).await;
            peer.stream.shutdown().await.unwrap();
            peer.closed().await;
            closed.notify_one();
        }
    })
    .await;
    let client = server.client().build().unwrap();
    for round in 1..4 {
        assert_eq!(client.post("/").json(&1).fetch::<u8>().await.unwrap(), 1);
        closed.notified().await;
        assert_eq!(server.accepted(), round);
    }
}

/// A server on a thread of its own: it answers one request of each connection, says what it read and hands the connection
/// over.
fn handing_over() -> (String, mpsc::Receiver<(String, std::net::TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (served, serves) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut read = Vec::new();
            while !read.windows(4).any(|four| four == b"\r\n\r\n") {
                let mut some = [0; 1024];
                let length = stream.read(&mut some).unwrap();
                read.extend_from_slice(&some[..length]);
            }
            stream.write_all(ok("1").as_bytes()).unwrap();
            let heard = Heard {
                head: String::from_utf8_lossy(&read).into_owned(),
                body: Vec::new(),
            };
            if served.send((heard.line().to_owned(), stream)).is_err() {
                return;
            }
        }
    });
    (url, serves)
}

#[tokio::test]
async fn g7_a_reset_at_the_first_write_sent_nothing() {
    let mut unsent = 0;
    for _ in 0..8 {
        let (url, served) = handing_over();
        let client = Client::builder().base_url(&url).build().unwrap();
        client.get("/first").send_raw().await.unwrap();
        // Reset while the client does not look: its next write is the first to notice.
        let (_, stream) = served.recv().unwrap();
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        stream.set_zero_linger().unwrap();
        drop(stream);
        match client.post("/second").json(&1).send_raw().await {
            Err(error) => {
                let found = (error.kind(), error.outcome());
                assert_eq!(
                    found,
                    (ErrorKind::Unavailable, Outcome::Transient),
                    "{error:?}"
                );
                assert!(served.try_recv().is_err(), "nobody was asked");
                unsent += 1;
            }
            // The executor looked for events first: the connection was found closed, and another one taken.
            Ok(_) => assert_eq!(served.recv().unwrap().0, "POST /second HTTP/1.1"),
        }
    }
    assert!(unsent > 0, "none was reset at its first write");
}

#[tokio::test]
async fn g7_a_request_that_an_ended_connection_hands_back_goes_to_another() {
    use tokio::io::AsyncReadExt;
    let side = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = side.local_addr().unwrap();
    for _ in 0..8 {
        let (url, served) = handing_over();
        let client = Client::builder().base_url(&url).build().unwrap();
        client.get("/first").send_raw().await.unwrap();
        let (_, idle) = served.recv().unwrap();
        let mut waits = tokio::net::TcpStream::connect(address).await.unwrap();
        let (ends, _) = side.accept().unwrap();
        // One look at the sockets tells both ends, this one's first: the request is handed over before the connection's
        // task has run, which then finds its end and the request at once.
        drop(ends);
        drop(idle);
        assert_eq!(waits.read(&mut [0; 1]).await.unwrap(), 0);
        let answer = client.post("/second").json(&1).fetch::<u8>().await;
        assert_eq!(answer.unwrap(), 1);
        assert_eq!(served.recv().unwrap().0, "POST /second HTTP/1.1");
        assert!(served.try_recv().is_err(), "it was sent once");
    }
}

#[tokio::test]
async fn g10_every_mode_gives_its_connection_back() {
    let server = Server::answering(|heard| match heard.line() {
        "GET /away HTTP/1.1" => response("302 Found", "location: /here\r\n", "moved"),
        "HEAD / HTTP/1.1" => "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n".to_owned(),
        _ => ok("1"),
    })
    .await;
    let client = server.client().redirects(1).build().unwrap();
    let file = std::env::temp_dir().join(format!("bursar-http-idle-{}", std::process::id()));
    for _ in 0..2 {
        client.get("/").send_raw().await.unwrap();
        client.get("/away").fetch::<u8>().await.unwrap();
        client.post("/").json(&1).send::<u8>().await.unwrap();
        client.get("/").download(&file).await.unwrap();
        client.head("/").send_raw().await.unwrap();
        let mut answer = client.get("/").stream().await.unwrap();
        while answer.body_mut().chunk().await.unwrap().is_some() {}
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn g10_a_submission_gives_its_connection_back_once_its_answer_is_read() {
    let server = Server::answering(|_| ok("1")).await;
    let client = server.client().build().unwrap();
    let clients = Clients::builder().register("a", client).build().unwrap();
    for _ in 0..4 {
        let registered = clients.get("a").unwrap();
        let (told, tells) = tokio::sync::oneshot::channel();
        registered.post("/").json(&1).submit().await.unwrap();
        registered
            .get("/")
            .on_complete(move |answer: Result<http::Response<u8>, _>| async move {
                let _gone = told.send(answer.is_ok());
            });
        assert!(tells.await.unwrap());
    }
    assert!(server.accepted() <= 2, "{}", server.accepted());
    clients
        .shutdown_within(Duration::from_secs(5))
        .await
        .unwrap();
}

#[tokio::test]
async fn g10_a_body_that_is_still_read_keeps_its_connection_from_others() {
    let server = Server::answering(|_| ok("1")).await;
    let client = server.client().build().unwrap();
    let mut first = client.get("/").stream().await.unwrap();
    assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 1);
    assert_eq!(server.accepted(), 2);
    assert_eq!(&first.body_mut().chunk().await.unwrap().unwrap()[..], b"1");
    assert!(first.body_mut().chunk().await.unwrap().is_none());
    // Two are idle now, and either serves.
    for _ in 0..3 {
        assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 1);
    }
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn g10_a_body_of_known_length_need_not_be_asked_for_its_end() {
    let server = Server::answering(|_| ok("1")).await;
    let client = server.client().build().unwrap();
    for _ in 0..3 {
        let mut answer = client.get("/").stream().await.unwrap();
        assert_eq!(&answer.body_mut().chunk().await.unwrap().unwrap()[..], b"1");
        drop(answer);
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn g10_an_idle_connection_is_closed_in_the_end_and_at_once_with_its_client() {
    let closed = Arc::new(Notify::new());
    let closes = Arc::clone(&closed);
    let server = Server::start(move |mut peer, _| {
        let closed = Arc::clone(&closes);
        async move {
            while peer.hear().await.is_some() {
                peer.say(&ok("1")).await;
            }
            closed.notify_one();
        }
    })
    .await;
    let client = server.client().build().unwrap();
    for round in 1..3 {
        client.get("/").send_raw().await.unwrap();
        // From here on time moves whenever nothing else does.
        tokio::time::pause();
        let since = tokio::time::Instant::now();
        closed.notified().await;
        let idle = since.elapsed();
        assert!(
            idle >= Duration::from_secs(89) && idle < Duration::from_secs(92),
            "{idle:?}"
        );
        tokio::time::resume();
        assert_eq!(server.accepted(), round, "a new one each time");
    }
    client.get("/").send_raw().await.unwrap();
    drop(client);
    closed.notified().await;
}

#[test]
fn g10_a_client_outlives_the_runtime_that_its_connections_were_made_on() {
    let (url, served) = handing_over();
    let client = Client::builder().base_url(&url).build().unwrap();
    for _ in 0..2 {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answer = tokio.block_on(client.get("/").fetch::<u8>());
        assert_eq!(answer.unwrap(), 1);
    }
    assert_eq!(served.iter().take(2).count(), 2, "a connection of each");
}

#[test]
fn g10_a_body_may_be_read_to_its_end_outside_of_a_runtime() {
    use std::task::{Context, Poll, Waker};
    let (url, _served) = handing_over();
    let client = Client::builder().base_url(&url).build().unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut answer = tokio.block_on(client.get("/").stream()).unwrap();
    let mut read = Vec::new();
    // Its bytes are here once the connection's task has run.
    for _ in 0..8 {
        tokio.block_on(tokio::task::yield_now());
    }
    loop {
        let chunk = std::pin::pin!(answer.body_mut().chunk());
        match chunk.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Some(bytes))) => read.extend_from_slice(&bytes),
            Poll::Ready(Ok(None)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, b"1");
}

#[test]
fn g6_a_connection_that_went_with_its_runtime_is_no_fault_of_the_body() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (second, hears) = mpsc::channel();
    let server = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut read = [0; 4096];
        assert!(peer.read(&mut read).unwrap() > 0);
        peer.write_all(ok("1").as_bytes()).unwrap();
        // The second is heard and has no answer.
        assert!(peer.read(&mut read).unwrap() > 0);
        second.send(()).unwrap();
        while peer.read(&mut read).is_ok_and(|read| read > 0) {}
    });
    let client = Client::builder().base_url(&url).build().unwrap();
    let tokio = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (connects, asks) = (tokio(), tokio());
    let first = connects.block_on(client.get("/").fetch::<u8>());
    assert_eq!(first.unwrap(), 1);
    let request = client.post("/").json(&1).fetch::<u8>();
    let asked = asks.spawn(request);
    hears.recv().unwrap();
    connects.shutdown_background();
    let error = asks.block_on(asked).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.outcome(), Outcome::Uncertain);
    server.join().unwrap();
}
