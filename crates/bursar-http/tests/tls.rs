//! TLS: whom the client trusts, what it shows, and what a failed handshake means (G7, G9).

mod common;
#[path = "common/secure.rs"]
mod secure;

use std::net::SocketAddr;

use bursar::{Outcome, Retry};
use bursar_http::{Client, ClientBuilder, Clients, ErrorKind};
use common::Heard;
use secure::{Authority, config, serve};
use tokio::net::TcpListener;

fn client(address: SocketAddr, host: &str) -> ClientBuilder {
    Client::builder().base_url(format!("https://{host}:{}", address.port()))
}

#[tokio::test]
async fn g9_an_extra_root_is_trusted_and_http2_is_negotiated() {
    let authority = Authority::new();
    let identity = authority.issue("localhost");
    for (h2, answer) in [(false, 7), (true, 2)] {
        let (address, _) = serve(config(&identity, None, h2), String::new()).await;
        let trusting = client(address, "localhost").trusted_pem(authority.pem());
        let found: u8 = trusting.build().unwrap().get("/").fetch().await.unwrap();
        assert_eq!(found, answer);
        let http1 = client(address, "localhost")
            .trusted_pem(authority.pem())
            .http1_only();
        assert_eq!(
            http1.build().unwrap().get("/").fetch::<u8>().await.unwrap(),
            7
        );
    }
}

#[tokio::test]
async fn g2_a_submission_speaks_http1_where_other_requests_have_negotiated_http2() {
    let authority = Authority::new();
    let identity = authority.issue("localhost");
    let (address, log) = serve(config(&identity, None, true), String::new()).await;
    let client = client(address, "localhost").trusted_pem(authority.pem());
    let client = client.build().unwrap();
    let clients = Clients::builder().register("log", client).build().unwrap();
    let registered = clients.get("log").unwrap();
    for _ in 0..2 {
        assert_eq!(registered.get("/").fetch::<u8>().await.unwrap(), 2);
        registered.post("/x?y").submit().await.unwrap();
    }
    clients.shutdown().await.unwrap();
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 2, "{log:?}");
    for heard in &*log {
        assert_eq!(heard.line(), "POST /x?y HTTP/1.1");
        let host = format!("localhost:{}", address.port());
        assert_eq!(heard.header("host"), Some(host));
    }
}

#[tokio::test]
async fn g7_a_certificate_that_is_not_trusted_or_for_another_host_is_permanent() {
    let authority = Authority::new();
    let (address, log) = serve(
        config(&authority.issue("localhost"), None, false),
        String::new(),
    )
    .await;
    let retry = || Retry::up_to(3).on_transient().on_uncertain();
    let stranger = client(address, "localhost").retry(retry());
    let elsewhere = client(address, "127.0.0.1")
        .trusted_pem(authority.pem())
        .retry(retry());
    for builder in [stranger, elsewhere] {
        let error = builder
            .build()
            .unwrap()
            .get("/")
            .send_raw()
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Permanent)
        );
        assert_eq!(error.attempts(), 1);
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    assert!(log.lock().unwrap().is_empty());
}

#[tokio::test]
async fn g7_http2_alone_is_not_spoken_to_a_server_that_does_not_negotiate_it() {
    let authority = Authority::new();
    let identity = authority.issue("localhost");
    let (address, log) = serve(config(&identity, None, false), String::new()).await;
    let client = client(address, "localhost").trusted_pem(authority.pem());
    let client = client.http2_only().build().unwrap();
    let error = client.post("/").json(&1).send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Permanent),
        "{error:?}"
    );
    assert!(log.lock().unwrap().is_empty());
}

#[tokio::test]
async fn g7_a_handshake_that_fails_otherwise_is_transient() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing = client(listener.local_addr().unwrap(), "localhost")
        .build()
        .unwrap();
    let accept = async {
        drop(listener.accept().await.unwrap());
        drop(listener);
        std::future::pending::<()>().await;
    };
    let error = tokio::select! {
        answer = closing.post("/").json(&1).send_raw() => answer.unwrap_err(),
        () = accept => unreachable!(),
    };
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Transient)
    );
}

#[tokio::test]
async fn g9_a_client_shows_its_certificate_when_asked() {
    let authority = Authority::new();
    let config = config(&authority.issue("localhost"), Some(&authority), false);
    let (address, _) = serve(config, String::new()).await;
    let shown = authority.issue("client");
    let both = format!("{}{}", shown.certificate, shown.key);
    let builder = client(address, "localhost").trusted_pem(authority.pem());
    let with = builder.client_certificate_pem(both).build().unwrap();
    assert_eq!(with.get("/").fetch::<u8>().await.unwrap(), 7);
    let without = client(address, "localhost")
        .trusted_pem(authority.pem())
        .build()
        .unwrap();
    let error = without.post("/").json(&1).send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_ne!(
        error.outcome(),
        Outcome::Permanent,
        "TLS 1.3 tells it after the request"
    );
}

#[tokio::test]
async fn g6_wrong_pem_names_its_option() {
    let authority = Authority::new();
    let lone = authority.issue("client").certificate;
    let other = authority.issue("other").key;
    for (builder, option) in [
        (Client::builder().trusted_pem("no pem"), "trusted_pem"),
        (
            Client::builder().client_certificate_pem(lone.clone()),
            "client_certificate_pem",
        ),
        (
            Client::builder().client_certificate_pem(format!("{lone}{other}")),
            "client_certificate_pem",
        ),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ProtocolError);
        assert!(
            error.to_string().contains(&format!("`{option}`")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn case_34_credentials_do_not_survive_a_redirect_from_https_to_http_on_one_port() {
    let authority = Authority::new();
    let away = common::Server::answering(|heard| {
        let secrets = [heard.header("authorization"), heard.header("cookie")];
        common::ok(&format!("{:?}", secrets.concat_some()))
    })
    .await;
    let onwards = format!("location: http://127.0.0.1:{}/b\r\n", away.address.port());
    let plain = common::response("302 On", &onwards, "");
    let (address, log) = serve(config(&authority.issue("localhost"), None, false), plain).await;
    let client = client(address, "localhost")
        .trusted_pem(authority.pem())
        .redirects(5)
        .cookies()
        .bearer_auth("secret")
        .build()
        .unwrap();
    let request = client.get("/").header("cookie", "own=1");
    assert_eq!(request.fetch::<String>().await.unwrap(), "");
    let log = log.lock().unwrap();
    let secrets = |heard: &Heard| (heard.header("authorization"), heard.header("cookie"));
    assert_eq!(
        secrets(&log[0]),
        (Some("Bearer secret".to_owned()), Some("own=1".to_owned()))
    );
    // The jar has one for the host, and it comes alone.
    assert_eq!(
        (log[1].line(), secrets(&log[1])),
        ("GET /plain HTTP/1.1", (None, Some("jar=1".to_owned())))
    );
}

trait ConcatSome {
    fn concat_some(self) -> String;
}

impl ConcatSome for [Option<String>; 2] {
    fn concat_some(self) -> String {
        self.into_iter().flatten().collect()
    }
}
