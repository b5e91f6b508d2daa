//! TLS: whom the client trusts, what it shows, and what a failed handshake means (G7, G9).

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bursar::{Outcome, Retry};
use bursar_http::{Client, ClientBuilder, ErrorKind};
use common::Heard;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority of the test's own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

fn config(identity: &Identity, clients: Option<&Authority>, h2: bool) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
            roots.add(root).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
    if h2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    config
}

/// Answers each request with 7, on whichever protocol; one that does not begin with a TLS handshake as plain HTTP, with
/// `plain`. Logs the plain and the HTTP/1 requests.
async fn serve(config: ServerConfig, plain: String) -> (SocketAddr, Arc<Mutex<Vec<Heard>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let log: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let heard = Arc::clone(&log);
    #[allow(clippy::disallowed_methods, reason = "the server runs in tasks")]
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            let log = Arc::clone(&heard);
            tokio::spawn(async move {
                let mut first = [0; 1];
                if stream.peek(&mut first).await.is_err() || first[0] != 22 {
                    return speak(stream, &plain, &log).await;
                }
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        let head = http::Response::new(());
                        let mut body = respond.send_response(head, false).unwrap();
                        body.send_data("2".into(), true).unwrap();
                    }
                    return;
                }
                let location = format!("location: http://localhost:{}/plain\r\n", address.port());
                let answer = if plain.is_empty() {
                    common::ok("7")
                } else {
                    common::response("302 Down", &location, "")
                };
                speak(stream, &answer, &log).await;
            });
        }
    });
    (address, log)
}

async fn speak(
    mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin,
    answer: &str,
    log: &Mutex<Vec<Heard>>,
) {
    let mut read = Vec::new();
    loop {
        while let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(read.drain(..end + 4).collect()).unwrap();
            log.lock().unwrap().push(Heard {
                head,
                body: Vec::new(),
            });
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        if !stream.read_buf(&mut read).await.is_ok_and(|read| read > 0) {
            return;
        }
    }
}

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
async fn g7_a_handshake_that_fails_otherwise_is_transient() {
    let server = common::Server::answering(|_| common::ok("")).await;
    let plain = client(server.address, "localhost").build().unwrap();
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
    drop((server, plain));
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
    assert_eq!(
        (log[1].line(), secrets(&log[1])),
        ("GET /plain HTTP/1.1", (None, None))
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
