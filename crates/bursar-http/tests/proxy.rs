//! A forward proxy: plain requests, tunnels, and whom its credentials reach (G6, G7, G9).

mod common;
#[path = "common/secure.rs"]
mod secure;

use std::sync::{Arc, Mutex};

use bursar::{Outcome, Retry};
use bursar_http::{Client, ErrorKind};
use common::{Heard, Peer, Server, ok, response};
use secure::{Authority, config, serve};
use tokio::net::TcpStream;

type Log = Arc<Mutex<Vec<Heard>>>;

/// A forward proxy: hands plain requests on in origin form, without what was meant for itself, and opens tunnels.
async fn forward() -> (Server, Log) {
    let heard = Log::default();
    let log = Arc::clone(&heard);
    let server = Server::start(move |mut peer, _| {
        let log = Arc::clone(&log);
        async move {
            while let Some(heard) = peer.hear().await {
                log.lock().unwrap().push(heard.clone());
                let target = heard.line().split(' ').nth(1).unwrap().to_owned();
                if heard.line().starts_with("CONNECT") {
                    return tunnel(peer, &target).await;
                }
                let rest = target.strip_prefix("http://").expect("absolute form");
                let (authority, path) = rest.split_once('/').unwrap();
                let mut origin = Peer::new(TcpStream::connect(authority).await.unwrap());
                let kept =
                    heard.head.lines().skip(1).filter(|line| {
                        !line.to_ascii_lowercase().starts_with("proxy-authorization")
                    });
                let kept: Vec<_> = kept.collect();
                origin
                    .say(&format!(
                        "GET /{path} HTTP/1.1\r\n{}\r\n",
                        kept.join("\r\n")
                    ))
                    .await;
                origin.say("\r\n").await;
                let answer = origin.answer().await;
                peer.say(&answer).await;
            }
        }
    })
    .await;
    (server, heard)
}

async fn tunnel(mut peer: Peer, target: &str) {
    let Ok(mut origin) = TcpStream::connect(target).await else {
        return peer.say(&response("502 Bad Gateway", "", "")).await;
    };
    peer.say("HTTP/1.1 200 Connection established\r\n\r\n")
        .await;
    let _ended = tokio::io::copy_bidirectional(&mut peer.stream, &mut origin).await;
}

/// Answers 7 and logs.
async fn origin() -> (Server, Log) {
    let heard = Log::default();
    let log = Arc::clone(&heard);
    let server = Server::answering(move |heard| {
        log.lock().unwrap().push(heard.clone());
        ok("7")
    })
    .await;
    (server, heard)
}

fn through(proxy: &Server) -> String {
    format!("http://user:pa%20ss@{}", proxy.address)
}

const CREDENTIALS: Option<&str> = Some("Basic dXNlcjpwYSBzcw==");

#[tokio::test]
async fn g9_plain_requests_go_through_the_proxy_in_absolute_form() {
    let (proxy, asked) = forward().await;
    let (origin, heard) = origin().await;
    let client = origin.client().proxy(through(&proxy)).build().unwrap();
    assert_eq!(client.get("/x?q=1").fetch::<u8>().await.unwrap(), 7);
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked[0].line(),
        format!("GET {}/x?q=1 HTTP/1.1", origin.url())
    );
    assert_eq!(
        asked[0].header("proxy-authorization").as_deref(),
        CREDENTIALS
    );
    let heard = heard.lock().unwrap();
    assert_eq!(heard[0].line(), "GET /x?q=1 HTTP/1.1");
    assert_eq!(heard[0].header("proxy-authorization"), None);
}

#[tokio::test]
async fn g9_https_goes_through_a_tunnel_and_the_origin_sees_no_credentials() {
    // The origin speaks no TLS: what arrives there is the client's first word of the handshake.
    let (proxy, asked) = forward().await;
    let first: Arc<Mutex<Vec<u8>>> = Arc::default();
    let log = Arc::clone(&first);
    let origin = Server::start(move |mut peer, _| {
        let log = Arc::clone(&log);
        async move {
            use tokio::io::AsyncReadExt;
            let mut read = vec![0; 1024];
            let length = peer.stream.read(&mut read).await.unwrap();
            log.lock().unwrap().extend_from_slice(&read[..length]);
        }
    })
    .await;
    let secure = format!("https://{}", origin.address);
    let client = Client::builder().base_url(secure).proxy(through(&proxy));
    let error = client
        .build()
        .unwrap()
        .post("/")
        .json(&1)
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Transient)
    );
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked[0].line(),
        format!("CONNECT {} HTTP/1.1", origin.address)
    );
    assert_eq!(
        asked[0].header("proxy-authorization").as_deref(),
        CREDENTIALS
    );
    assert_eq!(
        first.lock().unwrap()[0],
        22,
        "a TLS handshake and nothing before it"
    );
}

#[tokio::test]
async fn g9_an_exchange_goes_through_a_tunnel_and_each_side_sees_its_own_credentials_alone() {
    let authority = Authority::new();
    for (h2, answer) in [(false, 7), (true, 2)] {
        let tls = config(&authority.issue("localhost"), None, h2);
        let (address, heard) = serve(tls, String::new()).await;
        let (proxy, asked) = forward().await;
        let client = Client::builder()
            .base_url(format!("https://localhost:{}", address.port()))
            .trusted_pem(authority.pem())
            .proxy(through(&proxy))
            .bearer_auth("for the origin")
            .build()
            .unwrap();
        let request = || client.get("/x").header("cookie", "own=1");
        for _ in 0..2 {
            assert_eq!(request().fetch::<u8>().await.unwrap(), answer);
        }
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 1, "one tunnel serves both");
        let line = format!("CONNECT localhost:{} HTTP/1.1", address.port());
        assert_eq!(asked[0].line(), line);
        let found = asked[0].header("proxy-authorization");
        assert_eq!(found.as_deref(), CREDENTIALS);
        for name in ["authorization", "cookie"] {
            assert_eq!(asked[0].header(name), None, "{name}");
        }
        for heard in heard.lock().unwrap().iter() {
            assert_eq!(heard.line(), "GET /x HTTP/1.1");
            assert_eq!(heard.header("proxy-authorization"), None);
            let found = heard.header("authorization");
            assert_eq!(found.as_deref(), Some("Bearer for the origin"));
            assert_eq!(heard.header("cookie").as_deref(), Some("own=1"));
        }
    }
}

/// What a client through this proxy meets that asks for a tunnel.
async fn refused(proxy: String, target: std::net::SocketAddr) -> bursar_http::Error {
    let client = Client::builder()
        .base_url(format!("https://{target}"))
        .proxy(proxy)
        .retry(Retry::up_to(2).on_transient())
        .build()
        .unwrap();
    let error = client.post("/").json(&1).send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    error
}

#[tokio::test]
async fn g7_a_proxy_that_makes_no_connection_means_that_nothing_was_sent() {
    let (proxy, _) = forward().await;
    let nobody = {
        let (origin, _) = origin().await;
        origin.address
    };
    tokio::task::yield_now().await;
    let error = refused(through(&proxy), nobody).await;
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 2));
    // Answers that are none: closed, no HTTP, endless, and more than was asked for.
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(64 << 10));
    let eager = "HTTP/1.1 200 OK\r\n\r\n220 mail.example.com ESMTP\r\n";
    for answer in ["", "220 mail.example.com ESMTP\r\n\r\n", &endless, eager] {
        let answer = answer.to_owned();
        let proxy = Server::start(move |mut peer, _| {
            let answer = answer.clone();
            async move {
                peer.hear().await.unwrap();
                peer.say(&answer).await;
            }
        })
        .await;
        let error = refused(proxy.url(), nobody).await;
        assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 2));
    }
}

#[tokio::test]
async fn g7_a_proxys_status_says_whether_to_ask_again() {
    let nobody = Server::answering(|_| ok("")).await.address;
    for (status, outcome, attempts) in [
        ("407 Who Are You", Outcome::Permanent, 1),
        ("403 Not There", Outcome::Permanent, 1),
        ("429 Later", Outcome::Transient, 2),
        ("502 Nobody There", Outcome::Transient, 2),
        ("503 Busy", Outcome::Transient, 2),
    ] {
        let proxy = Server::answering(move |_| response(status, "", "")).await;
        let error = refused(proxy.url(), nobody).await;
        assert_eq!((error.outcome(), error.attempts()), (outcome, attempts));
        let source = {
            let mut source: &dyn std::error::Error = &error;
            while let Some(next) = source.source() {
                source = next;
            }
            source.to_string()
        };
        assert!(
            source.starts_with(&format!("the proxy answered {}", &status[..3])),
            "{source}"
        );
    }
}

#[test]
fn g9_credentials_for_the_proxy_are_given_to_it_alone() {
    let error = Client::builder().header("proxy-authorization", "Basic x");
    let error = error.build().unwrap_err();
    assert!(error.to_string().contains("option `proxy`"), "{error}");
}

#[tokio::test]
async fn g9_the_proxys_credentials_do_not_follow_a_redirect_that_leaves_it_by_a_tunnel() {
    let (proxy, asked) = forward().await;
    let target = Server::start(|peer, _| async move { drop(peer) }).await;
    let to = format!("location: https://{}/\r\n", target.address);
    let first = Server::answering(move |_| response("307 Away", &to, "")).await;
    let client = first
        .client()
        .proxy(through(&proxy))
        .redirects(2)
        .build()
        .unwrap();
    let error = client.get("/").send_raw().await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Unavailable,
        "the target speaks no TLS"
    );
    let asked = asked.lock().unwrap();
    assert!(
        asked[1].line().starts_with("CONNECT "),
        "{}",
        asked[1].line()
    );
}
