//! A TLS server with certificates of its own.

#![allow(dead_code, reason = "each test crate uses its own part")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::common::Heard;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority of the test's own.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

pub fn config(identity: &Identity, clients: Option<&Authority>, h2: bool) -> ServerConfig {
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
pub async fn serve(config: ServerConfig, plain: String) -> (SocketAddr, Arc<Mutex<Vec<Heard>>>) {
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
                let location = format!(
                    "location: http://localhost:{}/plain\r\n\
                     set-cookie: jar=1; Path=/\r\n",
                    address.port()
                );
                let answer = if plain.is_empty() {
                    super::common::ok("7")
                } else {
                    super::common::response("302 Down", &location, "")
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
