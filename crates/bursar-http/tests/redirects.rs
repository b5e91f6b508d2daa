//! Redirects and cookies (G9).

mod common;

use std::sync::{Arc, Mutex};

use bursar::{Outcome, Retry};
use bursar_http::ErrorKind;
use bytes::Bytes;
use common::{Heard, Server, ok, response};

type Log = Arc<Mutex<Vec<Heard>>>;

/// Redirects `/go/STATUS/REST` to `/REST` with that status; answers all else with 7.
async fn redirecting() -> (Server, Log) {
    let heard = Log::default();
    let log = Arc::clone(&heard);
    let server = Server::answering(move |heard| {
        log.lock().unwrap().push(heard.clone());
        let path = heard.line().split(' ').nth(1).unwrap();
        match path
            .strip_prefix("/go/")
            .and_then(|rest| rest.split_once('/'))
        {
            Some((status, rest)) => {
                let location = format!("location: /{rest}\r\n");
                response(&format!("{status} Elsewhere"), &location, "moved")
            }
            None => ok("7"),
        }
    })
    .await;
    (server, heard)
}

fn lines(log: &Log) -> Vec<String> {
    let log = log.lock().unwrap();
    log.iter()
        .map(|h| h.line().trim_end_matches(" HTTP/1.1").to_owned())
        .collect()
}

#[tokio::test]
async fn g9_what_goes_along_by_status() {
    for (status, method, body) in [
        (301, "GET", ""),
        (302, "GET", ""),
        (303, "GET", ""),
        (307, "POST", "[1]"),
        (308, "POST", "[1]"),
    ] {
        let (server, heard) = redirecting().await;
        let client = server.client().redirects(3).build().unwrap();
        let path = format!("/go/{status}/x");
        let seven = client.post(&path).json(&[1]).fetch::<u8>().await.unwrap();
        assert_eq!(seven, 7);
        assert_eq!(
            lines(&heard),
            [format!("POST {path}"), format!("{method} /x")]
        );
        let heard = heard.lock().unwrap();
        assert_eq!(heard[1].text(), body);
        let described = heard[1].header("content-type").is_some();
        assert_eq!(described, !body.is_empty(), "{status}");
        assert_eq!(server.accepted(), 1, "the connection is used again");
    }
}

#[tokio::test]
async fn g9_redirects_are_off_until_asked_and_then_bounded() {
    let (server, heard) = redirecting().await;
    let client = server.client().build().unwrap();
    let answer = client.get("/go/302/x").send_raw().await.unwrap();
    assert_eq!(answer.status().as_u16(), 302);
    assert_eq!(&answer.body()[..], b"moved");

    let client = server.client().redirects(2).build().unwrap();
    let twice = client.get("/go/302/go/301/x").fetch::<u8>().await.unwrap();
    assert_eq!(twice, 7);
    let error = client
        .get("/go/302/go/302/go/302/x")
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::ProtocolError, Outcome::Permanent)
    );
    assert_eq!(heard.lock().unwrap().len(), 7);
    for wrong in [0, 101] {
        assert!(server.client().redirects(wrong).build().is_err());
    }
}

#[tokio::test]
async fn g9_a_streamed_body_is_not_redirected() {
    let (server, heard) = redirecting().await;
    let client = server.client().redirects(2).build().unwrap();
    let stream = || futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from("abc"))]);
    let kept = client.put("/go/307/x").body_stream(stream());
    let error = kept.send_raw().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::ProtocolError, Outcome::Permanent)
    );
    let dropped = client.put("/go/303/x").body_stream(stream());
    assert_eq!(dropped.fetch::<u8>().await.unwrap(), 7);
    assert_eq!(lines(&heard), ["PUT /go/307/x", "PUT /go/303/x", "GET /x"]);
}

#[tokio::test]
async fn g7_what_fails_after_a_post_was_answered_is_uncertain() {
    // A 404 and a refused connection, each behind a 303: the POST itself may have been executed.
    let posts = Arc::new(Mutex::new(0));
    let gone = Server::answering(|_| ok("")).await;
    let nowhere = gone.url();
    drop(gone);
    let count = Arc::clone(&posts);
    let server = Server::answering(move |heard| {
        if heard.line().starts_with("GET") {
            return response("404 Not Found", "", "");
        }
        *count.lock().unwrap() += 1;
        let to = if heard.line().contains("/lost") {
            nowhere.as_str()
        } else {
            ""
        };
        response("303 See Other", &format!("location: {to}/x\r\n"), "")
    })
    .await;
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let client = server.client().redirects(2).retry(retry).build().unwrap();
    for path in ["/lost", "/missing"] {
        *posts.lock().unwrap() = 0;
        let error = client.post(path).json(&1).fetch::<u8>().await.unwrap_err();
        assert_eq!(
            (error.outcome(), error.attempts()),
            (Outcome::Uncertain, 1),
            "{error:?}"
        );
        assert_eq!(*posts.lock().unwrap(), 1);
    }
}

#[tokio::test]
async fn g9_credentials_leave_with_the_origin_and_do_not_come_back() {
    // a -> b -> a: another port is another origin.
    let (a, heard_by_a) = redirecting().await;
    let back = format!("location: {}/x\r\n", a.url());
    let heard_by_b = Log::default();
    let log = Arc::clone(&heard_by_b);
    let b = Server::answering(move |heard| {
        log.lock().unwrap().push(heard.clone());
        response("307 Back", &back, "")
    })
    .await;
    let to_b = format!("location: {}/y\r\n", b.url());
    let first = Server::answering(move |_| response("302 Away", &to_b, "")).await;
    let client = first
        .client()
        .redirects(5)
        .bearer_auth("secret")
        .build()
        .unwrap();
    let request = client
        .get("/")
        .header("cookie", "own=1")
        .header("x-kept", "1");
    assert_eq!(request.fetch::<u8>().await.unwrap(), 7);
    for heard in [&heard_by_b, &heard_by_a] {
        let heard = heard.lock().unwrap();
        assert_eq!(heard[0].header("authorization"), None);
        assert_eq!(heard[0].header("cookie"), None);
        assert_eq!(heard[0].header("x-kept").as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn g9_cookies_are_kept_when_asked_and_sent_in_one_header() {
    let heard = Log::default();
    let log = Arc::clone(&heard);
    let server = Server::answering(move |heard| {
        log.lock().unwrap().push(heard.clone());
        match heard.line() {
            "GET /login HTTP/1.1" => {
                let headers =
                    "set-cookie: id=1; Path=/\r\nset-cookie: b=2; Path=/\r\nlocation: /x\r\n";
                response("302 In", headers, "")
            }
            _ => ok("7"),
        }
    })
    .await;
    let client = server.client().redirects(1).cookies().build().unwrap();
    client
        .get("/login")
        .header("cookie", "own=0")
        .send_raw()
        .await
        .unwrap();
    client.get("/y").send_raw().await.unwrap();
    let without = server.client().redirects(1).build().unwrap();
    without.get("/login").send_raw().await.unwrap();
    let heard = heard.lock().unwrap();
    let sent: Vec<_> = heard
        .iter()
        .map(|h| {
            let header = h.header("cookie").unwrap_or_default();
            let mut pairs: Vec<_> = header.split("; ").map(str::to_owned).collect();
            pairs.sort();
            pairs.join(" ")
        })
        .collect();
    assert_eq!(sent, ["own=0", "b=2 id=1 own=0", "b=2 id=1", "", ""]);
}
