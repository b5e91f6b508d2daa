//! A server that answers with whatever bytes there are, and the HTTP client before it.
//!
//! The bytes are cut into answers at zeros; each connection gets the next one and is closed. The server is the client's
//! proxy, so that every redirect leads back to it, whatever host it names, and nothing leaves this machine.
//!
//! What must hold: a request ends, by an answer within its limit or an error that says what happened; it goes on for as many
//! redirects as it may and no more; the credentials stay with their origin and come back from nowhere; a host is sent only
//! cookies that it has set.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bursar::Outcome;
use bursar_http::Client;
use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const REDIRECTS: u32 = 4;
const LIMIT: u64 = 1 << 16;
const START: &str = "http://a.test/start";

/// One runtime, and one input at a time.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Answers to one request and to what its redirects lead to.
///
/// # Panics
/// If something does not hold that stands in the module's head.
pub fn answers(bytes: &[u8]) {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime.get_or_insert_with(|| {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    });
    runtime.block_on(exchange(bytes));
}

async fn exchange(bytes: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let client = Client::builder()
        .proxy(format!("http://127.0.0.1:{port}"))
        .redirects(REDIRECTS)
        .basic_auth("user", "secret")
        .cookies()
        .compression()
        .body_limit(LIMIT)
        .timeout(Duration::from_secs(5))
        .http1_only()
        .build()
        .expect("the options are right");
    let mut seen = Vec::new();
    let ended = {
        let request = client.get(START).send_raw();
        let mut request = std::pin::pin!(request);
        let mut server = std::pin::pin!(serve(&listener, bytes, &mut seen));
        poll_fn(|cx| {
            let Poll::Pending = server.as_mut().poll(cx);
            request.as_mut().poll(cx)
        })
        .await
    };
    match ended {
        Ok(answer) => assert!(answer.body().len() as u64 <= LIMIT, "too long a body"),
        Err(error) => {
            assert_ne!(error.outcome(), Outcome::Success, "{error}");
            assert!(!error.to_string().is_empty());
            assert_eq!(error.attempts(), 1, "{error}");
        }
    }
    judge(&seen, bytes);
}

/// Reads one request a connection, and answers with the next piece.
async fn serve(
    listener: &TcpListener,
    bytes: &[u8],
    seen: &mut Vec<String>,
) -> std::convert::Infallible {
    let mut pieces = bytes.split(|byte| *byte == 0);
    loop {
        let Ok((mut connection, _)) = listener.accept().await else {
            continue;
        };
        let head = head(&mut connection).await;
        seen.push(String::from_utf8_lossy(&head).into_owned());
        // Who has left does not hear it.
        let _left = connection
            .write_all(pieces.next().unwrap_or_default())
            .await;
        let _left = connection.shutdown().await;
    }
}

async fn head(connection: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    head
}

/// What the requests may have said, one after another.
fn judge(seen: &[String], bytes: &[u8]) {
    let context = || format!("{seen:#?}\n{}", bytes.escape_ascii());
    assert!(seen.len() <= REDIRECTS as usize + 1, "{}", context());
    let mut pieces = bytes.split(|byte| *byte == 0);
    let mut at_home = true;
    let mut set: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for request in seen {
        let mut lines = request.lines();
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (verb, target) = (first.next(), first.next().unwrap_or_default());
        let of = |name: &str| {
            let line = lines.clone().find_map(|line| {
                line.split_once(':')
                    .filter(|of| of.0.eq_ignore_ascii_case(name))
            });
            line.map(|of| of.1.trim().to_owned())
        };
        let tunnel = verb == Some("CONNECT");
        let host = host(target);
        at_home &= !tunnel && host == "a.test";
        assert!(at_home || of("authorization").is_none(), "{}", context());
        let known = set.entry(host).or_default();
        for cookie in of("cookie").iter().flat_map(|of| of.split("; ")) {
            let name = cookie.split('=').next().unwrap_or_default();
            assert!(!tunnel && known.contains(name), "{cookie:?} {}", context());
        }
        let answer = String::from_utf8_lossy(pieces.next().unwrap_or_default()).into_owned();
        for name in set_by(&answer) {
            known.insert(name);
        }
    }
}

/// The origin of what is asked for, by its host; a port that is not 80 makes it another one.
fn host(target: &str) -> String {
    let uri: Uri = target.parse().unwrap_or_default();
    match uri.port_u16() {
        None | Some(80) => uri.host().unwrap_or_default().to_ascii_lowercase(),
        Some(port) => format!(
            "{}:{port}",
            uri.host().unwrap_or_default().to_ascii_lowercase()
        ),
    }
}

/// Names of cookies that an answer may have set: everything that stands before an equals sign.
fn set_by(answer: &str) -> impl Iterator<Item = String> {
    let lines = answer.split(['\r', '\n']);
    let cookies = lines.filter_map(|line| line.split_once(':'));
    let cookies = cookies.filter(|of| of.0.trim().eq_ignore_ascii_case("set-cookie"));
    cookies.map(|of| {
        of.1.split(['=', ';'])
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    })
}
