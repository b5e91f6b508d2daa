//! A tunnel through a forward proxy (RFC 9110, 9.3.6), opened by hand: the proxy's status decides what a refusal means.
//!
//! The proxy's credentials go into this one request, and nothing that the origin is sent goes before the tunnel stands.

use std::fmt;
use std::io;

use http::{StatusCode, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connect::{ConnectError, Proxy, Step};

/// How long a proxy's answer may be.
const HEAD: usize = 16 << 10;

/// Asks the proxy at the other end of `stream` for a tunnel to `target`.
pub(super) async fn open(
    mut stream: TcpStream,
    proxy: &Proxy,
    target: &Uri,
) -> Result<TcpStream, ConnectError> {
    let failed = |error: io::Error| ConnectError {
        step: Step::Proxy,
        permanent: false,
        source: error.into(),
    };
    stream
        .write_all(&question(proxy, target))
        .await
        .map_err(failed)?;
    let status = answer(&mut stream).await.map_err(failed)?;
    if status.is_success() {
        return Ok(stream);
    }
    Err(ConnectError {
        step: Step::Proxy,
        permanent: is_permanent(status),
        source: Refused(status).into(),
    })
}

fn question(proxy: &Proxy, target: &Uri) -> Vec<u8> {
    let host = target.host().unwrap_or_default();
    let port = target.port_u16().unwrap_or(443);
    let head = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    let mut question = head.into_bytes();
    if let Some(authorization) = &proxy.authorization {
        question.extend_from_slice(b"Proxy-Authorization: ");
        question.extend_from_slice(authorization.as_bytes());
        question.extend_from_slice(b"\r\n");
    }
    question.extend_from_slice(b"\r\n");
    question
}

async fn answer(stream: &mut TcpStream) -> io::Result<StatusCode> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut head = Vec::with_capacity(512);
    let end = loop {
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if head.len() >= HEAD {
            return Err(invalid("the proxy's answer is too long"));
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let status = status(&head).ok_or_else(|| invalid("the proxy's answer is no HTTP"))?;
    if status.is_success() && head.len() > end {
        // In TLS the client has the first word.
        return Err(invalid("the proxy says more than that the tunnel stands"));
    }
    Ok(status)
}

fn status(head: &[u8]) -> Option<StatusCode> {
    match head.strip_prefix(b"HTTP/1.")? {
        [b'0'..=b'9', b' ', a, b, c, b' ' | b'\r', ..] => {
            StatusCode::from_bytes(&[*a, *b, *c]).ok()
        }
        _ => None,
    }
}

/// Whether the proxy would say the same again: it does not know the client (407), does not let it there (403), or
/// cannot do what it is asked. Nothing was sent in any case.
fn is_permanent(status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 425 | 429 => false,
        501 | 505 => true,
        code => (400..=499).contains(&code),
    }
}

/// What the proxy answered instead of making a connection.
#[derive(Debug)]
struct Refused(StatusCode);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy answered {}", self.0)
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g7_a_proxys_answer_is_read_by_its_status() {
        for (head, right) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 407\r\nx: y\r\n\r\n", Some(407)),
            ("HTTP/1.1 2000 OK\r\n\r\n", None),
            ("HTTP/2 200\r\n\r\n", None),
            ("HTTP/1.1 xyz\r\n\r\n", None),
            ("SSH-2.0\r\n\r\n", None),
            ("\r\n\r\n", None),
        ] {
            let found = status(head.as_bytes()).map(|status| status.as_u16());
            assert_eq!(found, right, "{head:?}");
        }
    }

    #[test]
    fn g7_what_a_proxys_refusal_means() {
        for (code, permanent) in [
            (302, false),
            (400, true),
            (403, true),
            (407, true),
            (408, false),
            (429, false),
            (501, true),
            (502, false),
            (503, false),
            (504, false),
        ] {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(is_permanent(status), permanent, "{code}");
        }
    }

    #[test]
    fn g9_a_tunnel_is_asked_for_by_host_and_port() {
        let proxy = Proxy {
            uri: Uri::from_static("http://p.test/"),
            authorization: None,
        };
        let asked =
            |target| String::from_utf8(question(&proxy, &Uri::from_static(target))).unwrap();
        assert_eq!(
            asked("https://[::1]/x?q"),
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n"
        );
        assert_eq!(
            asked("https://a.test:8443"),
            "CONNECT a.test:8443 HTTP/1.1\r\nHost: a.test:8443\r\n\r\n"
        );
    }
}
