//! Many callers, some of whom leave, and a server that ends its connections in every way it can: an answer is always that
//! of its own request, a request arrives at most once, and never if it is said to be unsent (G7, G8, G10).

#![allow(clippy::disallowed_methods, reason = "the churn needs tasks")]

mod common;

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bursar::Outcome;
use bursar_http::{Client, ErrorKind};
use common::{Server, ok, response};

/// Scatters what is counted (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What the server does with one request.
#[derive(Debug)]
enum Way {
    Answers,
    AnswersAndCloses,
    AnswersAndResets,
    SaysThatItCloses,
    CloseUnanswered,
    AnswersTwice,
}

fn way(id: u64) -> Way {
    match mixed(id) % 16 {
        0 => Way::AnswersAndCloses,
        1 => Way::AnswersAndResets,
        2 => Way::SaysThatItCloses,
        3 => Way::CloseUnanswered,
        4 => Way::AnswersTwice,
        _ => Way::Answers,
    }
}

/// How often each request was heard.
type Seen = Arc<Mutex<HashMap<u64, u32>>>;

async fn server(open: &Arc<AtomicUsize>, seen: &Seen) -> Server {
    let (open, seen) = (Arc::clone(open), Arc::clone(seen));
    Server::start(move |mut peer, _| {
        let (open, seen) = (Arc::clone(&open), Arc::clone(&seen));
        open.fetch_add(1, Ordering::SeqCst);
        async move {
            while let Some(heard) = peer.hear().await {
                let id = heard.text().parse().unwrap();
                *seen.lock().unwrap().entry(id).or_default() += 1;
                let answer = ok(heard.text());
                match way(id) {
                    Way::Answers => peer.say(&answer).await,
                    Way::AnswersAndCloses => {
                        peer.say(&answer).await;
                        break;
                    }
                    Way::AnswersAndResets => {
                        peer.say(&answer).await;
                        peer.stream.set_zero_linger().unwrap();
                        break;
                    }
                    Way::SaysThatItCloses => {
                        let last = response("200 OK", "connection: close\r\n", heard.text());
                        peer.say(&last).await;
                        peer.closed().await;
                        break;
                    }
                    Way::CloseUnanswered => break,
                    Way::AnswersTwice => peer.say(&(answer + &ok("0"))).await,
                }
            }
            drop(peer);
            open.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await
}

/// One request; `None` if its caller left.
async fn one(client: &Client, id: u64) -> Option<Result<u64, bursar_http::Error>> {
    let request = client.post("/").json(&id).fetch::<u64>();
    let leaves = mixed(id ^ 0xabc) % 4 == 0;
    let most = leaves.then_some(mixed(id ^ 0xdef) % 6);
    let mut request = pin!(request);
    let mut polls = 0;
    poll_fn(|cx| {
        if most.is_some_and(|most| polls >= most) {
            return Poll::Ready(None);
        }
        polls += 1;
        request.as_mut().poll(cx).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_answers_are_ones_own_and_what_is_unsent_never_arrives_however_connections_end() {
    const TASKS: u64 = 16;
    const EACH: u64 = 200;
    let (open, seen) = (Arc::new(AtomicUsize::new(0)), Seen::default());
    let server = server(&open, &seen).await;
    let client = server.client().build().unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut unsent = Vec::new();
                let mut answered = 0;
                for id in task * EACH + 1..=(task + 1) * EACH {
                    match one(&client, id).await {
                        None => {}
                        Some(Ok(answer)) => {
                            assert_eq!(answer, id, "an answer to another request");
                            answered += 1;
                        }
                        Some(Err(error)) if error.outcome() == Outcome::Transient => {
                            unsent.push(id);
                        }
                        Some(Err(error)) => {
                            assert_eq!(error.outcome(), Outcome::Uncertain, "{error:?}");
                            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                        }
                    }
                }
                (unsent, answered)
            })
        })
        .collect();
    let mut unsent = Vec::new();
    let mut answered = 0;
    for task in tasks {
        let (of_it, answers) = task.await.unwrap();
        unsent.extend(of_it);
        answered += answers;
    }
    drop(client);
    while open.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    let seen = seen.lock().unwrap();
    for id in unsent {
        assert!(!seen.contains_key(&id), "{id} was said to be unsent");
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?} were sent twice");
    assert!(answered > TASKS * EACH / 2, "{answered} were answered");
}
