//! What each terminator gives (G1, G2, G5, G6).

mod common;

use std::sync::{Arc, Mutex};

use bursar::Outcome;
use bursar_http::{Client, Clients, ErrorKind, Multipart};
use bytes::Bytes;
use common::{Heard, Server, ok, response};
use http::StatusCode;
use tokio::sync::oneshot;

/// Answers with what it heard.
async fn echo() -> Server {
    Server::answering(|heard| {
        let text = format!(
            "{:?}",
            (heard.line(), heard.header("content-type"), heard.text())
        );
        ok(&serde_json::to_string(&text).unwrap())
    })
    .await
}

#[tokio::test]
async fn g1_seven_verbs_headers_query_and_body() {
    let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let log = Arc::clone(&heard);
    let server = Server::answering(move |heard| {
        log.lock().unwrap().push(heard.clone());
        ok("")
    })
    .await;
    let client = server
        .client()
        .header("x-default", "1")
        .header("accept", "text/plain")
        .basic_auth("user", "pass")
        .build()
        .unwrap();
    let requests = [
        client.get("/a").query("q", "a b&c").query("r", 7),
        client.head("/a"),
        client.options("/a"),
        client.put("/a"),
        client.delete("/a"),
        client.post("/a"),
        client.patch("/a").header("accept", "application/json"),
    ];
    for request in requests {
        let response = request.send_raw().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    let heard = heard.lock().unwrap();
    let lines: Vec<_> = heard.iter().map(Heard::line).collect();
    assert_eq!(
        lines,
        [
            "GET /a?q=a+b%26c&r=7 HTTP/1.1",
            "HEAD /a HTTP/1.1",
            "OPTIONS /a HTTP/1.1",
            "PUT /a HTTP/1.1",
            "DELETE /a HTTP/1.1",
            "POST /a HTTP/1.1",
            "PATCH /a HTTP/1.1",
        ]
    );
    assert!(
        heard
            .iter()
            .all(|h| h.header("x-default").as_deref() == Some("1"))
    );
    assert_eq!(heard[0].header("accept").as_deref(), Some("text/plain"));
    assert_eq!(
        heard[6].header("accept").as_deref(),
        Some("application/json")
    );
    assert_eq!(
        heard[0].header("authorization").as_deref(),
        Some("Basic dXNlcjpwYXNz")
    );
    for (index, none) in [
        (3, Some("0")),
        (5, Some("0")),
        (6, Some("0")),
        (0, None),
        (4, None),
    ] {
        assert_eq!(
            heard[index].header("content-length").as_deref(),
            none,
            "{index}"
        );
    }
}

#[tokio::test]
async fn g1_five_sources_of_a_body() {
    let server = echo().await;
    let client = server.client().build().unwrap();
    let post = || client.post("/");
    let chunks = [Ok::<_, std::io::Error>(Bytes::from("ab")), Ok("c".into())];
    let multipart = Multipart::new().text("a", "1");
    for (request, right) in [
        (post().json(&[1, 2]), r#"Some("application/json"), "[1,2]""#),
        (
            post().raw("text/plain", "hi"),
            r#"Some("text/plain"), "hi""#,
        ),
        (
            post().form(&[("a", "1 2"), ("b", "&")]),
            r#"Some("application/x-www-form-urlencoded"), "a=1+2&b=%26""#,
        ),
        (
            post().body_stream(futures_util::stream::iter(chunks)),
            r#"None, "abc""#,
        ),
    ] {
        let text: String = request.fetch().await.unwrap();
        assert_eq!(text, format!(r#"("POST / HTTP/1.1", {right})"#));
    }
    let text: String = post().multipart(multipart).fetch().await.unwrap();
    assert!(
        text.contains("multipart/form-data; boundary=bursar-"),
        "{text}"
    );
    assert!(
        text.contains(r#"name=\"a\"\r\n\r\n1\r\n--bursar-"#),
        "{text}"
    );
}

#[tokio::test]
async fn g1_nothing_starts_before_the_first_poll_and_mistakes_come_there() {
    let server = echo().await;
    let client = server.client().build().unwrap();
    drop(client.get("/").send_raw());
    drop(client.post("/").raw("text/plain", "x").fetch::<String>());
    assert_eq!(server.accepted(), 0);
    let wrong = client.get("/").header("a b", "1");
    let error = wrong.send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProtocolError);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Permanent, 0));
    let own = client.post("/").header("Content-Length", 3);
    let error = own.send_raw().await.unwrap_err();
    assert!(error.to_string().contains("`content-length`"), "{error}");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn g2_send_fetch_and_raw() {
    let server = Server::answering(|heard| match heard.line() {
        "GET /seven HTTP/1.1" => response("201 Created", "x-note: hi\r\n", "7"),
        "GET /gone HTTP/1.1" => response("410 Gone", "x-note: bye\r\n", "it went"),
        _ => response("204 No Content", "", ""),
    })
    .await;
    let client = server.client().build().unwrap();
    let seven = client.get("/seven").send::<u8>().await.unwrap();
    assert_eq!((seven.status().as_u16(), *seven.body()), (201, 7));
    assert_eq!(seven.headers()["x-note"], "hi");
    assert_eq!(client.get("/seven").fetch::<u8>().await.unwrap(), 7);
    client.delete("/x").fetch::<()>().await.unwrap();

    let raw = client.get("/gone").send_raw().await.unwrap();
    assert_eq!(
        (raw.status().as_u16(), &raw.body()[..]),
        (410, &b"it went"[..])
    );
    let error = client.get("/gone").fetch::<u8>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InternalFailure);
    assert_eq!(error.outcome(), Outcome::Permanent);
    assert_eq!(error.status(), Some(StatusCode::GONE));
    assert_eq!(error.headers().unwrap()["x-note"], "bye");
    assert_eq!(&error.body().unwrap()[..], b"it went");

    let error = client.get("/seven").fetch::<String>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProtocolError);
    assert_eq!(error.outcome(), Outcome::Permanent);
    assert_eq!(server.accepted(), 1, "one connection serves them all");
}

#[tokio::test]
async fn g2_a_body_is_streamed_or_downloaded_and_no_status_fails_it() {
    let long = "x".repeat(100_000);
    let body = long.clone();
    let server = Server::answering(move |_| response("404 Not Found", "", &body)).await;
    let client = server.client().build().unwrap();
    let mut streamed = client.get("/").stream().await.unwrap();
    assert_eq!(streamed.status(), StatusCode::NOT_FOUND);
    let mut found = Vec::new();
    while let Some(chunk) = streamed.body_mut().chunk().await.unwrap() {
        found.extend_from_slice(&chunk);
    }
    assert_eq!(found, long.as_bytes());
    assert!(streamed.body_mut().chunk().await.unwrap().is_none());

    let path = std::env::temp_dir().join(format!("bursar-download-{}", std::process::id()));
    let saved = client.get("/").download(&path).await.unwrap();
    assert_eq!((saved.status().as_u16(), *saved.body()), (404, 100_000));
    assert_eq!(std::fs::read(&path).unwrap(), long.as_bytes());
    std::fs::remove_file(&path).unwrap();
    let small = client.get("/").body_limit(99_999).download(&path).await;
    assert_eq!(small.unwrap_err().kind(), ErrorKind::CapacityExceeded);
    assert!(!path.exists());
    assert_eq!(
        server.accepted(),
        1,
        "a body over the limit was not waited for"
    );
}

#[tokio::test]
async fn g2_a_callback_gets_the_response() {
    let server = echo().await;
    let client = server.client().build().unwrap();
    let (tell, told) = oneshot::channel();
    client
        .get("/")
        .on_complete(async move |response: Result<http::Response<String>, _>| {
            tell.send(response.unwrap().into_body()).unwrap();
        });
    assert!(told.await.unwrap().contains("GET / HTTP/1.1"));
}

#[tokio::test]
async fn g2_submit_completes_when_the_last_byte_has_left_and_counts_the_rest() {
    let (go, gate) = oneshot::channel::<()>();
    let gate = Arc::new(tokio::sync::Mutex::new(Some(gate)));
    let server = Server::start(move |mut peer, _| {
        let gate = Arc::clone(&gate);
        async move {
            peer.hear().await.unwrap();
            gate.lock().await.take().unwrap().await.unwrap();
            peer.say(&response("500 Internal Server Error", "", "no"))
                .await;
            peer.hear().await.unwrap();
            peer.say(&ok("yes")).await;
            peer.closed().await;
        }
    })
    .await;
    let client = server.client().build().unwrap();
    let clients = Clients::builder()
        .register("log", client.clone())
        .build()
        .unwrap();
    let log = clients.get("log").unwrap();
    log.post("/")
        .raw("text/plain", "one")
        .submit()
        .await
        .unwrap();
    let stats = client.submit_stats();
    assert_eq!((stats.submitted, stats.failed), (1, 0), "no answer yet");
    go.send(()).unwrap();
    while client.submit_stats().failed == 0 {
        tokio::task::yield_now().await;
    }
    log.post("/")
        .raw("text/plain", "two")
        .submit()
        .await
        .unwrap();
    clients.shutdown().await.unwrap();
    let stats = client.submit_stats();
    assert_eq!((stats.submitted, stats.failed), (2, 1));
    assert_eq!(server.accepted(), 1);
    let error = log.get("/").send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShuttingDown);
    assert_eq!(
        clients.get("lag").unwrap_err().kind(),
        ErrorKind::NotConfigured
    );
}

#[tokio::test]
async fn g2_what_a_submission_leaves_over_is_read_within_its_limit() {
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let server = Server::start(move |mut peer, _| {
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            peer.hear().await.unwrap();
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nfirst")
                .await;
            peer.closed().await;
            tell.send(()).unwrap();
        }
    })
    .await;
    let client = server.client().body_limit(100).build().unwrap();
    let clients = Clients::builder()
        .register("log", client.clone())
        .build()
        .unwrap();
    let log = clients.get("log").unwrap();
    log.post("/").json(&1).submit().await.unwrap();
    told.await.unwrap();
    clients.shutdown().await.unwrap();
    let stats = client.submit_stats();
    assert_eq!((stats.submitted, stats.failed), (1, 1));
}

#[tokio::test]
async fn g2_submit_waits_for_a_server_that_reads_slowly() {
    use tokio::io::AsyncReadExt;

    const LENGTH: usize = 32 << 20;
    let (go, gate) = oneshot::channel::<()>();
    let gate = Arc::new(Mutex::new(Some(gate)));
    let (started, begun) = oneshot::channel();
    let started = Arc::new(Mutex::new(Some(started)));
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let server = Server::start(move |mut peer, _| {
        let gate = gate.lock().unwrap().take().unwrap();
        let started = started.lock().unwrap().take().unwrap();
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            let mut buf = vec![0; 1 << 16];
            let mut read = peer.stream.read(&mut buf).await.unwrap();
            started.send(()).unwrap();
            gate.await.unwrap();
            // Never answers; the client leaves at the end.
            while read < LENGTH {
                read += peer.stream.read(&mut buf).await.unwrap();
            }
            tell.send(()).unwrap();
            peer.closed().await;
        }
    })
    .await;
    let client = server.client().build().unwrap();
    let clients = Clients::builder().register("log", client).build().unwrap();
    let request = clients.get("log").unwrap().post("/");
    let request = request.raw("x/y", vec![0; LENGTH]);
    let (leave, token) = oneshot::channel::<()>();
    let mut submit = std::pin::pin!(request.until(token).submit());
    let mut begun = std::pin::pin!(begun);
    std::future::poll_fn(|cx| {
        assert!(std::future::Future::poll(submit.as_mut(), cx).is_pending());
        std::future::Future::poll(begun.as_mut(), cx)
    })
    .await
    .unwrap();
    // The sockets hold a few megabytes; the rest waits for the server.
    for _ in 0..100 {
        tokio::task::yield_now().await;
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(submit.as_mut(), &mut cx).is_pending());
    }
    go.send(()).unwrap();
    submit.await.unwrap();
    told.await.unwrap();
    leave.send(()).unwrap();
    clients.shutdown().await.unwrap();
}

#[tokio::test]
async fn g2_a_host_waits_for_callbacks() {
    let server = echo().await;
    let client = server.client().build().unwrap();
    let clients = Clients::builder().register("echo", client).build().unwrap();
    let called = Arc::new(Mutex::new(false));
    let (entered, inside) = oneshot::channel();
    let (go, gate) = oneshot::channel::<()>();
    let calls = Arc::clone(&called);
    let request = clients.get("echo").unwrap().get("/");
    request.on_complete(async move |response: Result<http::Response<String>, _>| {
        response.unwrap();
        entered.send(()).unwrap();
        gate.await.unwrap();
        *calls.lock().unwrap() = true;
    });
    inside.await.unwrap();
    let mut drain = std::pin::pin!(clients.shutdown());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::future::Future::poll(drain.as_mut(), &mut cx).is_pending());
    go.send(()).unwrap();
    drain.await.unwrap();
    assert!(*called.lock().unwrap());
}

#[test]
fn g6_credentials_are_not_shown() {
    let client = Client::builder()
        .base_url("http://a.test")
        .bearer_auth("secret")
        .proxy("http://user:secret@proxy.test")
        .build()
        .unwrap();
    let request = client
        .get("/")
        .header("cookie", "secret")
        .header("authorization", "secret");
    let shown = format!("{client:?} {request:?}");
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn g5_a_one_shot_builds_its_client_and_closes_it() {
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let server = Server::start(move |mut peer, _| {
        let tell = Arc::clone(&tell);
        async move {
            peer.hear().await.unwrap();
            peer.say(&ok("7")).await;
            peer.closed().await;
            tell.lock().unwrap().take().unwrap().send(()).unwrap();
        }
    })
    .await;
    let url = server.url();
    assert_eq!(Client::builder().get(&url).fetch::<u8>().await.unwrap(), 7);
    told.await.unwrap();
    let error = Client::builder()
        .get("/nowhere")
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ProtocolError);
}
