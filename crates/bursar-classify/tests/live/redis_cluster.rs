//! Redis as a cluster: keys that are somewhere else, or on their way.

use bursar::Outcome::{Permanent, Transient};
use redis::Value;
use redis::aio::MultiplexedConnection;

use super::redis::{connect, send, told};
use super::servers::Own;

async fn text(db: &mut MultiplexedConnection, words: &str) -> String {
    match send(db, words).await.unwrap() {
        Value::BulkString(bytes) => String::from_utf8(bytes).unwrap(),
        Value::VerbatimString { text, .. } => text,
        other => panic!("{other:?} is no text"),
    }
}

#[tokio::test]
async fn a_key_that_is_elsewhere_is_transient() {
    let options = [
        "--cluster-enabled",
        "yes",
        "--cluster-require-full-coverage",
        "no",
        "--cluster-node-timeout",
        "2000",
    ];
    let (first, second) = (Own::start("redis", &options), Own::start("redis", &options));
    let (mut a, mut b) = (
        connect(&first.url).await.unwrap(),
        connect(&second.url).await.unwrap(),
    );
    assert_eq!(
        told(&send(&mut a, "SET a 1").await.unwrap_err()),
        ("CLUSTERDOWN".to_owned(), Transient)
    );

    // The slot of `a` is 15495, that of `b` is 3300: one for each node.
    send(&mut a, "CLUSTER ADDSLOTS 3300").await.unwrap();
    send(&mut b, "CLUSTER ADDSLOTS 15495").await.unwrap();
    let port = second
        .url
        .trim_end_matches('/')
        .rsplit(':')
        .next()
        .unwrap_or_default();
    send(&mut a, &format!("CLUSTER MEET 127.0.0.1 {port}"))
        .await
        .unwrap();
    let moved = loop {
        match send(&mut a, "GET a").await {
            Ok(value) => panic!("{value:?} from the wrong node"),
            // Until the two have told each other what they have.
            Err(error) if error.code() == Some("CLUSTERDOWN") => {}
            Err(error) => break error,
        }
    };
    assert_eq!(told(&moved), ("MOVED".to_owned(), Transient));

    let crossing = send(&mut a, "MSET a 1 b 1").await.unwrap_err();
    assert_eq!(told(&crossing), ("CROSSSLOT".to_owned(), Permanent));

    // On its way to the other node, what is not here any more is to be asked for there.
    send(&mut a, "SET {b}here 1").await.unwrap();
    let other = text(&mut b, "CLUSTER MYID").await;
    send(&mut a, &format!("CLUSTER SETSLOT 3300 MIGRATING {other}"))
        .await
        .unwrap();
    let asked = send(&mut a, "GET {b}gone").await.unwrap_err();
    assert_eq!(told(&asked), ("ASK".to_owned(), Transient));
    let torn = send(&mut a, "MGET {b}here {b}gone").await.unwrap_err();
    assert_eq!(told(&torn), ("TRYAGAIN".to_owned(), Transient));
}
