//! What failures mean, what is sent again, and what a contract holds meanwhile (G7, G8, G11).

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar::{Backoff, Outcome, Policy, Retry, Runtime};
use bursar_http::{Client, ClientBuilder, ErrorKind};
use bytes::Bytes;
use common::{Heard, Server, ok, response};

fn retrying(builder: ClientBuilder) -> Client {
    let retry = Retry::up_to(3)
        .on_transient()
        .on_uncertain()
        .on_throttled()
        .backoff(Backoff::exponential(Duration::from_millis(1)));
    builder.retry(retry).build().unwrap()
}

/// An address where nobody listens.
async fn nobody() -> String {
    let server = Server::answering(|_| ok("")).await;
    let url = server.url();
    drop(server);
    // The listener is closed once its task was polled again.
    tokio::task::yield_now().await;
    url
}

#[tokio::test]
async fn g7_a_refused_connection_is_transient_and_retried_whatever_the_method() {
    let url = nobody().await;
    let once = Client::builder().base_url(&url).build().unwrap();
    let error = once.post("/").send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 1));
    let client = retrying(Client::builder().base_url(&url));
    let error = client.post("/").json(&1).send_raw().await.unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 3));
}

/// Answers the first request of each connection, reads the second whole and closes.
async fn closing_after_reading() -> (Server, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&heard);
    let server = Server::start(move |mut peer, _| {
        let log = Arc::clone(&log);
        async move {
            let first = peer.hear().await.unwrap();
            log.lock().unwrap().push(first.line().to_owned());
            peer.say(&ok("1")).await;
            if let Some(second) = peer.hear().await {
                log.lock().unwrap().push(second.line().to_owned());
            }
        }
    })
    .await;
    (server, heard)
}

#[tokio::test]
async fn case_35_a_post_is_not_sent_again_after_its_bytes_left_and_a_get_is() {
    let (server, heard) = closing_after_reading().await;
    let client = retrying(server.client());
    client.get("/warm").send_raw().await.unwrap();
    let error = client.post("/order").json(&1).send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    assert_eq!(
        *heard.lock().unwrap(),
        ["GET /warm HTTP/1.1", "POST /order HTTP/1.1"]
    );
    heard.lock().unwrap().clear();

    client.get("/warm").send_raw().await.unwrap();
    client.get("/list").send_raw().await.unwrap();
    let heard = heard.lock().unwrap();
    assert_eq!(
        *heard,
        [
            "GET /warm HTTP/1.1",
            "GET /list HTTP/1.1",
            "GET /list HTTP/1.1"
        ]
    );
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn case_19_a_reply_lost_after_the_effect_is_repeated_only_where_that_does_no_harm() {
    // Commits, and closes before it replies; the second time it replies.
    let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let log = Arc::clone(&heard);
    let server = Server::start(move |mut peer, _| {
        let log = Arc::clone(&log);
        async move {
            let order = peer.hear().await.unwrap();
            let again = {
                let mut log = log.lock().unwrap();
                log.push(order);
                log.len() % 2 == 0
            };
            if again {
                peer.say(&ok("7")).await;
                peer.closed().await;
            }
        }
    })
    .await;
    let client = retrying(server.client());
    let error = client.post("/").json(&1).fetch::<u8>().await.unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    assert_eq!(heard.lock().unwrap().len(), 1);

    heard.lock().unwrap().clear();
    let keyed = client.post("/").json(&1).idempotency_key("order-7");
    assert_eq!(keyed.fetch::<u8>().await.unwrap(), 7);
    {
        let heard = heard.lock().unwrap();
        let keys = heard.iter().map(|h| h.header("idempotency-key"));
        let keys: Vec<_> = keys.flatten().collect();
        assert_eq!(keys, ["order-7", "order-7"]);
    }

    let nowhere = retrying(Client::builder().base_url(nobody().await));
    let error = nowhere.post("/").json(&1).fetch::<u8>().await.unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 3));
}

/// Answers in turn, the last answer again and again.
async fn in_turn(
    answers: &'static [(&'static str, &'static str)],
) -> (Server, Arc<Mutex<Vec<Heard>>>) {
    let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let log = Arc::clone(&heard);
    let next = AtomicUsize::new(0);
    let server = Server::answering(move |heard| {
        log.lock().unwrap().push(heard.clone());
        let index = next.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let (status, headers) = answers[index];
        response(status, headers, "7")
    })
    .await;
    (server, heard)
}

#[tokio::test]
async fn g8_a_post_that_was_refused_is_sent_again() {
    const ANSWERS: &[(&str, &str)] = &[
        ("429 Too Many Requests", "retry-after: 0\r\n"),
        ("425 Too Early", ""),
        ("200 OK", ""),
    ];
    let (server, heard) = in_turn(ANSWERS).await;
    let client = retrying(server.client());
    assert_eq!(client.post("/").json(&1).fetch::<u8>().await.unwrap(), 7);
    assert_eq!(heard.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn g8_a_post_that_may_have_happened_is_sent_again_with_an_idempotency_key_alone() {
    const ANSWERS: &[(&str, &str)] = &[("500 Internal Server Error", ""), ("200 OK", "")];
    let (server, heard) = in_turn(ANSWERS).await;
    let client = retrying(server.client());
    let error = client.post("/").json(&1).fetch::<u8>().await.unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
    assert_eq!(heard.lock().unwrap().len(), 1);

    let (server, heard) = in_turn(ANSWERS).await;
    let client = retrying(server.client());
    let keyed = client.post("/").json(&1).idempotency_key("order-7");
    assert_eq!(keyed.fetch::<u8>().await.unwrap(), 7);
    let heard = heard.lock().unwrap();
    let keys: Vec<_> = heard
        .iter()
        .map(|h| h.header("idempotency-key").unwrap())
        .collect();
    assert_eq!(keys, ["order-7", "order-7"]);
}

#[tokio::test]
async fn g7_a_pushback_longer_than_the_cap_ends_the_call_and_is_told() {
    const ANSWERS: &[(&str, &str)] = &[("503 Service Unavailable", "retry-after: 120\r\n")];
    let (server, heard) = in_turn(ANSWERS).await;
    let client = retrying(server.client());
    let error = client.get("/").fetch::<u8>().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Throttled);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(120)));
    assert_eq!((error.attempts(), heard.lock().unwrap().len()), (1, 1));
    // The same answer to a POST proves nothing: a gateway says it of a backend that has begun.
    let error = client.post("/").fetch::<u8>().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Uncertain);
}

#[tokio::test]
async fn a3_a_contract_that_is_stricter_than_the_method_counts() {
    const ANSWERS: &[(&str, &str)] = &[("503 Service Unavailable", "retry-after: 0\r\n")];
    let (server, heard) = in_turn(ANSWERS).await;
    let runtime = Runtime::builder().resource("uplink", 1).build().unwrap();
    let retry = Retry::up_to(3)
        .on_throttled()
        .backoff(Backoff::exponential(Duration::from_millis(1)));
    let policy = Policy::non_idempotent().claim("uplink", 1).retry(retry);
    let contract = runtime.contract("once", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();
    let error = client.get("/").fetch::<u8>().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Uncertain);
    assert_eq!((error.attempts(), heard.lock().unwrap().len()), (1, 1));
}

#[tokio::test]
async fn g8_without_a_contract_nothing_is_retried_unless_asked() {
    const ANSWERS: &[(&str, &str)] = &[("503 Service Unavailable", "retry-after: 0\r\n")];
    let (server, heard) = in_turn(ANSWERS).await;
    let client = server.client().build().unwrap();
    let error = client.get("/").fetch::<u8>().await.unwrap_err();
    assert_eq!((error.attempts(), heard.lock().unwrap().len()), (1, 1));
}

#[tokio::test]
async fn g8_a_streamed_body_is_sent_again_only_while_nobody_has_asked_for_it() {
    let stream = || futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from("abc"))]);
    let url = nobody().await;
    let client = retrying(Client::builder().base_url(url));
    let error = client
        .put("/")
        .body_stream(stream())
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 3));

    const ANSWERS: &[(&str, &str)] = &[("429 Too Many Requests", ""), ("200 OK", "")];
    let (server, heard) = in_turn(ANSWERS).await;
    let client = retrying(server.client());
    let error = client
        .put("/")
        .body_stream(stream())
        .fetch::<u8>()
        .await
        .unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Throttled, 1));
    assert_eq!(heard.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn g11_units_are_held_until_the_body_has_ended_or_is_dropped() {
    let server = Server::answering(|_| ok("0123456789")).await;
    let runtime = Runtime::builder().resource("uplink", 1).build().unwrap();
    let policy = Policy::effect_per_call().claim("uplink", 1).reject();
    let contract = runtime.contract("profiles", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();
    let in_use = || runtime.stats().budgets[0].in_use;

    client.get("/").send_raw().await.unwrap();
    assert_eq!(in_use(), 0, "a whole answer holds nothing");
    let mut streamed = client.get("/").stream().await.unwrap();
    assert_eq!(in_use(), 1);
    let error = client.get("/").send_raw().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CapacityExceeded);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Throttled, 0));
    while streamed.body_mut().chunk().await.unwrap().is_some() {}
    assert_eq!(in_use(), 0, "read to the end, though still there");

    let dropped = client.get("/").stream().await.unwrap();
    assert_eq!(in_use(), 1);
    drop(dropped);
    assert_eq!(in_use(), 0);
}

#[tokio::test]
async fn g11_a_contract_gives_retries_key_bounds_and_drain() {
    const ANSWERS: &[(&str, &str)] = &[("500 Internal Server Error", "")];
    let (server, heard) = in_turn(ANSWERS).await;
    let runtime = Runtime::builder().resource("uplink", 4).build().unwrap();
    let policy = Policy::effect_per_call()
        .claim("uplink", 1)
        .require_key()
        .retry(Retry::up_to(2).on_uncertain());
    let contract = runtime.contract("profiles", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();

    let error = client.get("/").fetch::<u8>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}");
    assert_eq!(heard.lock().unwrap().len(), 0);
    let error = client.get("/").key("7").fetch::<u8>().await.unwrap_err();
    assert_eq!((error.attempts(), heard.lock().unwrap().len()), (2, 2));
    let late = client.get("/").key("7").within(Duration::ZERO);
    let error = late.fetch::<u8>().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::DeadlineExceeded, Outcome::Throttled)
    );
    let gone = client.get("/").key("7").until(std::future::ready(()));
    let error = gone.fetch::<u8>().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Cancelled, Outcome::Throttled)
    );
    runtime.shutdown().await.unwrap();
    let error = client.get("/").key("7").fetch::<u8>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShuttingDown);
    assert_eq!(heard.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn g7_a_contract_without_room_refuses_the_call_and_nothing_is_sent() {
    let server = Server::answering(|_| ok("7")).await;
    let runtime = Runtime::builder().resource("uplink", 1).build().unwrap();
    let policy = Policy::effect_per_call().claim("uplink", 1).reject();
    let contract = runtime.contract("profiles", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();
    let held = client.get("/").stream().await.unwrap();
    let error = client.post("/").json(&1).fetch::<u8>().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome(), error.attempts()),
        (ErrorKind::CapacityExceeded, Outcome::Throttled, 0)
    );
    assert_eq!(server.accepted(), 1);
    drop(held);
    assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 7);
}

#[tokio::test]
async fn g11_a_contract_and_retries_of_its_own_exclude_each_other() {
    let runtime = Runtime::builder().resource("uplink", 1).build().unwrap();
    let contract = runtime.contract("x", Policy::effect_per_call()).unwrap();
    let both = Client::builder().contract(contract).retry(Retry::up_to(2));
    let error = both.build().unwrap_err();
    assert!(
        error.to_string().contains("`contract` and `retry`"),
        "{error}"
    );
}

#[tokio::test]
async fn g7_a_request_whose_own_body_fails_was_sent_or_not() {
    let server = Server::answering(|_| ok("7")).await;
    let client = server.client().build().unwrap();
    let broken = || Err::<Bytes, _>(std::io::Error::other("no more"));
    for (chunks, outcome) in [
        (vec![broken()], Outcome::Transient),
        (
            vec![Ok(Bytes::from(vec![0; 1 << 20])), broken()],
            Outcome::Uncertain,
        ),
    ] {
        let stream = futures_util::stream::iter(chunks);
        let error = client
            .put("/")
            .body_stream(stream)
            .send_raw()
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::InternalFailure, outcome)
        );
    }
    // The server saw no whole request, and the client goes on.
    assert_eq!(client.get("/").fetch::<u8>().await.unwrap(), 7);
}

#[tokio::test]
async fn g7_an_answer_that_cannot_be_read_leaves_it_open_whether_anything_changed() {
    let server = Server::answering(|_| ok("no json")).await;
    let client = retrying(server.client().body_limit(7));
    let long = retrying(server.client().body_limit(6));
    for (client, kind) in [
        (&client, ErrorKind::ProtocolError),
        (&long, ErrorKind::CapacityExceeded),
    ] {
        let error = client.get("/").fetch::<u8>().await.unwrap_err();
        let found = (error.kind(), error.outcome(), error.attempts());
        assert_eq!(
            found,
            (kind, Outcome::Permanent, 1),
            "nothing was to change"
        );
        // It was carried out, and asking again would bring the same answer.
        for request in [client.post("/"), client.put("/")] {
            let error = request.json(&1).fetch::<u8>().await.unwrap_err();
            let found = (error.kind(), error.outcome(), error.attempts());
            assert_eq!(found, (kind, Outcome::Uncertain, 1));
        }
    }
    // What was refused was not carried out, whatever its body is like.
    let server = Server::answering(|_| response("404 Not Here", "", "too long")).await;
    let client = retrying(server.client().body_limit(6));
    let error = client.post("/").json(&1).send_raw().await.unwrap_err();
    let found = (error.kind(), error.outcome());
    assert_eq!(found, (ErrorKind::CapacityExceeded, Outcome::Permanent));
}

#[tokio::test]
async fn g8_an_idempotency_key_is_one_that_can_be_told_apart() {
    let (server, heard) = in_turn(&[("200 OK", "")]).await;
    let client = server.client().build().unwrap();
    let post = || client.post("/").json(&1);
    for wrong in [
        post().idempotency_key(""),
        post().idempotency_key(" "),
        post().header("idempotency-key", ""),
        post().idempotency_key("a").header("idempotency-key", "b"),
        post().idempotency_key("\u{e9}"),
    ] {
        let error = wrong.send_raw().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.attempts()),
            (ErrorKind::ProtocolError, 0)
        );
    }
    assert!(heard.lock().unwrap().is_empty());
    let last = post().idempotency_key("a").idempotency_key("b");
    last.send_raw().await.unwrap();
    let found = heard.lock().unwrap()[0].header("idempotency-key");
    assert_eq!(found.as_deref(), Some("b"));
    let all = Client::builder().header("idempotency-key", "x");
    let error = all.build().unwrap_err();
    assert!(error.to_string().contains("one request"), "{error}");
}
