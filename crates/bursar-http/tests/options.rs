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

#[tokio::test]
async fn g1_a_content_type_given_as_a_header_replaces_the_bodys_own_in_any_order() {
    let server = Server::answering(|heard| {
        ok(&format!(
            "{:?}",
            heard.header("content-type").unwrap_or_default()
        ))
    })
    .await;
    let client = server.client().header("content-type", "x/default").build();
    let client = client.unwrap();
    let post = || client.post("/");
    for (request, right) in [
        (post().json(&1), "application/json"),
        (post().json(&1).header("content-type", "x/own"), "x/own"),
        (post().header("content-type", "x/own").json(&1), "x/own"),
    ] {
        assert_eq!(request.fetch::<String>().await.unwrap(), right);
    }
    let error = (0..5_000).fold(post().json(&1), |request, _| request.header("x-a", "1"));
    let error = error.send_raw().await.unwrap_err();
    assert!(error.to_string().contains("too many headers"), "{error}");
}

#[tokio::test]
async fn g6_a_wrong_address_is_shown_without_its_secrets() {
    let client = Client::builder().build().unwrap();
    for address in ["http://u:secret@a.test/", "nowhere?token=secret"] {
        let request = client.get(address).query("key", "secret");
        let shown = format!("{request:?}");
        assert!(!shown.contains("secret"), "{shown}");
        let error = request.send_raw().await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[tokio::test]
async fn g2_a_download_that_has_no_place_costs_no_exchange() {
    let server = Server::answering(|_| ok("7")).await;
    let client = server.client().build().unwrap();
    for (place, kind) in [
        ("/", ErrorKind::ProtocolError),
        ("..", ErrorKind::ProtocolError),
        ("/nowhere/at/all", ErrorKind::InternalFailure),
    ] {
        let error = client.post("/").download(place).await.unwrap_err();
        let found = (error.kind(), error.outcome());
        assert_eq!(found, (kind, Outcome::Permanent), "{place}");
    }
    assert_eq!(server.accepted(), 0);
    // A place that is taken by a directory is found out at the end: what was asked for was done.
    let place = std::env::temp_dir().join(format!("bursar-place-{}", std::process::id()));
    std::fs::create_dir_all(place.join("x")).unwrap();
    let error = client.post("/").download(&place).await.unwrap_err();
    let found = (error.kind(), error.outcome());
    assert_eq!(found, (ErrorKind::InternalFailure, Outcome::Uncertain));
    std::fs::remove_dir_all(&place).unwrap();
}
