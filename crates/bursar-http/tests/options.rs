//! Options are checked when the client is built, requests when they first run (G1, G6, G9).

mod common;

use std::time::Duration;

use bursar::{Outcome, Retry};
use bursar_http::{Client, ClientBuilder, Clients, ErrorKind};
use common::{Server, ok};

#[test]
fn g6_a_wrong_option_is_named_when_the_client_is_built() {
    let builder = Client::builder;
    let wrong: [(ClientBuilder, &str); 13] = [
        (
            builder().base_url("example.com"),
            "`base_url` = \"example.com\"",
        ),
        (builder().base_url("ftp://example.com"), "`base_url`"),
        (builder().base_url("http://example.com/?q"), "query"),
        (builder().base_url("http://u:p@example.com/"), "basic_auth"),
        (builder().timeout(Duration::ZERO), "`timeout` = 0"),
        (builder().redirects(0), "`redirects` = 0"),
        (builder().redirects(101), "`redirects` = 101"),
        (builder().header("a b", "c"), "header"),
        (builder().header("x-a", "b\nc"), "`x-a`"),
        (
            builder().header("transfer-encoding", "chunked"),
            "`transfer-encoding`",
        ),
        (builder().basic_auth("a:b", "c"), "`basic_auth`"),
        (builder().bearer_auth("a\nb"), "`bearer_auth`"),
        (builder().proxy("https://proxy.test"), "`proxy`"),
    ];
    for (builder, named) in wrong {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProtocolError, "{error}");
        assert_eq!(error.outcome(), Outcome::Permanent, "{error}");
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    let zero = Retry::up_to(3)
        .on_transient()
        .backoff(bursar::Backoff::exponential(Duration::ZERO));
    let error = builder().retry(zero).build().unwrap_err();
    assert!(error.to_string().contains("`retry`"), "{error}");
}

#[test]
fn g5_names_of_clients_are_neither_empty_nor_repeated() {
    let client = Client::builder().build().unwrap();
    for names in [vec![""], vec!["a", "b", "a"]] {
        let builder = names.iter().fold(Clients::builder(), |builder, name| {
            builder.register(*name, client.clone())
        });
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProtocolError);
    }
}

#[tokio::test]
async fn g1_a_wrong_request_is_told_at_its_first_poll_and_sends_nothing() {
    let server = Server::answering(|_| ok("7")).await;
    let client = server.client().build().unwrap();
    for request in [
        client.get("/").header("x-a", "b\r\nc: d"),
        client.get("/").header("upgrade", "h2c"),
        client.get("/").timeout(Duration::ZERO),
        client.get("http://example.com/"),
    ] {
        let error = request.send_raw().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProtocolError, "{error}");
        assert_eq!(error.attempts(), 0);
    }
    for request in [
        client.post("/").raw("a\nb", "c"),
        client.post("/").form(&[[1]]),
        client
            .post("/")
            .json(&std::collections::HashMap::from([([1, 2], 3)])),
    ] {
        let error = request.send_raw().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProtocolError, "{error}");
    }
    let missing = bursar_http::Multipart::new().file("a", "/nowhere/at/all", "text/plain");
    let error = client
        .post("/")
        .multipart(missing)
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::ProtocolError, Outcome::Permanent)
    );
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn g9_a_body_has_sixteen_mebibytes_unless_it_states_another_limit() {
    let server = Server::answering(|_| {
        let length = (16 << 20) + 1;
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}",
            " ".repeat(length)
        )
    })
    .await;
    let client = server.client().build().unwrap();
    let error = client.get("/").send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityExceeded);
    let more = client.get("/").body_limit((16 << 20) + 1);
    let whole = more
        .timeout(Duration::from_secs(60))
        .send_raw()
        .await
        .unwrap();
    assert_eq!(whole.body().len(), (16 << 20) + 1);
}

#[tokio::test]
async fn g2_submit_on_http2_alone_is_an_invalid_operation() {
    let server = Server::answering(|_| ok("7")).await;
    let client = server.client().http2_only().build().unwrap();
    let clients = Clients::builder().register("log", client).build().unwrap();
    let error = clients
        .get("log")
        .unwrap()
        .post("/")
        .submit()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::InvalidOperation, Outcome::Permanent)
    );
    assert_eq!(server.accepted(), 0);
}
