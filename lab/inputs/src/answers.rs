//! A server that answers with whatever bytes there are, and the HTTP client before it.
//!
//! The first byte chooses what the client speaks and how its request is to complete (`Speaks`, `Completes`). Over
//! HTTP/1.1 the rest is cut into answers at zeros; each connection gets the next one and is closed. Over HTTP/2 the first
//! connection gets all of it. The server is the client's proxy, so that every redirect leads back to it, whatever host it names,
//! and an HTTPS request asks it for a tunnel.
//!
//! What must hold: a request ends, by an answer within its limit or an error that says what happened; it goes on for as many
//! redirects as it may and no more; the credentials stay with their origin, come back from nowhere and stand in no
//! error; a host is sent only cookies that it has set; nothing is sent through a tunnel whose other end nobody trusts; a file
//! is there whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bursar::Outcome;
use bursar_http::{Client, Error};
use http::{Response, Uri};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::loopback::against;

const REDIRECTS: u32 = 4;
const LIMIT: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http1,
    /// Without asking first.
    Http2,
    /// TLS, through a tunnel that is asked for over HTTP/1.1.
    Tunnel,
}

#[derive(Clone, Copy, Debug)]
enum Completes {
    Raw,
    Fetch,
    Stream,
    Download,
    Callback,
}

/// Answers to one request and to what its redirects lead to.
///
/// # Panics
/// If something does not hold that stands in the module's head.
pub fn answers(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else {
        return;
    };
    let speaks = [Speaks::Http1, Speaks::Http2, Speaks::Tunnel][usize::from(mode / 5 % 3)];
    let completes = match mode % 5 {
        0 => Completes::Raw,
        1 => Completes::Fetch,
        2 => Completes::Stream,
        3 => Completes::Download,
        _ => Completes::Callback,
    };
    let pieces: Vec<&[u8]> = match speaks {
        Speaks::Http2 => vec![bytes],
        _ => bytes.split(|byte| *byte == 0).collect(),
    };
    let (ended, seen) = against(&pieces, async |port| ask(port, speaks, completes).await);
    let context = || format!("{seen:#?}\n{}", bytes.escape_ascii());
    assert!(seen.len() <= REDIRECTS as usize + 1, "{}", context());
    match ended {
        Ok(length) => {
            assert_ne!(speaks, Speaks::Tunnel, "nobody to trust, {}", context());
            assert!(length <= LIMIT, "too long a body, {}", context());
        }
        Err(error) => {
            let told = format!("{error} {error:?}");
            assert_ne!(error.outcome(), Outcome::Success, "{told}");
            assert_eq!(error.attempts(), 1, "{told}");
            let unsent = !matches!(error.outcome(), Outcome::Uncertain);
            assert!(speaks != Speaks::Tunnel || unsent, "{told}");
            for secret in SECRETS {
                // Unless it was the server that said so.
                let echo = String::from_utf8_lossy(bytes).contains(secret);
                assert!(echo || !told.contains(secret), "{told}");
            }
        }
    }
    if speaks != Speaks::Http2 {
        judge(&seen, &pieces, &context);
    }
}

/// The passwords, and both pairs as headers carry them.
const SECRETS: [&str; 4] = ["hers", "proxys", "dXNlcjpoZXJz", "cHJveHk6cHJveHlz"];

/// How many bytes there were.
async fn ask(port: u16, speaks: Speaks, completes: Completes) -> Result<u64, Error> {
    let mut builder = Client::builder()
        .proxy(format!("http://proxy:proxys@127.0.0.1:{port}"))
        .redirects(REDIRECTS)
        .basic_auth("user", "hers")
        .cookies()
        .compression()
        .body_limit(LIMIT)
        .timeout(Duration::from_secs(5));
    builder = match speaks {
        Speaks::Http2 => builder.http2_only(),
        Speaks::Http1 | Speaks::Tunnel => builder.http1_only(),
    };
    let client = builder.build().expect("the options are right");
    let request = client.get(match speaks {
        Speaks::Tunnel => "https://a.test/start",
        _ => "http://a.test/start",
    });
    match completes {
        Completes::Raw => Ok(request.send_raw().await?.body().len() as u64),
        Completes::Fetch => request.fetch::<Value>().await.map(|_| 0),
        Completes::Stream => {
            let mut body = request.stream().await?.into_body();
            let mut length = 0;
            let ended = loop {
                match body.chunk().await {
                    Ok(Some(chunk)) => length += chunk.len() as u64,
                    Ok(None) => break Ok(length),
                    Err(error) => break Err(error),
                }
            };
            let more = body.chunk().await;
            assert!(matches!(more, Ok(None)), "after its end: {more:?}");
            ended
        }
        Completes::Download => {
            let place = place();
            let ended = request.download(&place).await.map(Response::into_body);
            let found = fs::metadata(&place).map(|file| file.len());
            assert_eq!(found.ok(), ended.as_ref().ok().copied(), "{ended:?}");
            if ended.is_ok() {
                fs::remove_file(&place).expect("it is there");
            }
            let left = fs::read_dir(place.parent().expect("it has one")).expect("it is there");
            assert_eq!(left.count(), 0, "a part of a file is left");
            ended
        }
        Completes::Callback => {
            let (tell, told) = oneshot::channel();
            request.on_complete(async move |response: Result<Response<Value>, _>| {
                let _gone = tell.send(response.map(|_| 0));
            });
            told.await.expect("the callback is called")
        }
    }
}

/// In a directory of this process's own.
fn place() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("bursar-inputs-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for files");
    directory.join("answer")
}

/// What the requests may have said, one after another.
fn judge(seen: &[String], pieces: &[&[u8]], context: &impl Fn() -> String) {
    let mut pieces = pieces.iter();
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
        // Whoever has not sent a whole head has left.
        let whole = request.ends_with("\r\n\r\n");
        assert!(
            !whole || of("proxy-authorization").is_some(),
            "{}",
            context()
        );
        at_home &= !tunnel && host == "a.test";
        assert!(at_home || of("authorization").is_none(), "{}", context());
        let known = set.entry(host).or_default();
        for cookie in of("cookie").iter().flat_map(|of| of.split("; ")) {
            let name = cookie.split('=').next().unwrap_or_default();
            assert!(!tunnel && known.contains(name), "{cookie:?} {}", context());
        }
        let answer =
            String::from_utf8_lossy(pieces.next().copied().unwrap_or_default()).into_owned();
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
