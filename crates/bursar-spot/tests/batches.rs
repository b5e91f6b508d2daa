//! Turns that are started one after another in one poll, and when their requesters hear of it.

mod common;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use bursar_spot::SpotErrorKind;
use common::{Door, Shared, host, log, settle, step};

/// A requester's task, as its turn sees it: it notes that it is woken.
struct Told(Shared, &'static str);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.push(self.1);
    }
}

/// Polls once as the task `told` does.
fn poll<F: Future>(future: Pin<&mut F>, shared: &Shared, told: &'static str) {
    let waker = Waker::from(Arc::new(Told(shared.clone(), told)));
    let polled = future.poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

#[tokio::test]
async fn f13_requesters_hear_of_their_turns_together_when_the_batch_is_over() {
    let (_host, spot, _) = log("s");
    let shared = Shared::default();
    let held = spot.enter().await.unwrap();
    let turn = |word| {
        let shared = shared.clone();
        spot.request(move |_turn| async move { shared.push(word) })
    };
    let (mut one, mut two, mut three) = (pin!(turn("1")), pin!(turn("2")), pin!(turn("3")));
    poll(one.as_mut(), &shared, "told 1");
    poll(two.as_mut(), &shared, "told 2");
    poll(three.as_mut(), &shared, "told 3");
    drop(held);
    settle().await;
    let (turns, mut told) = (shared.read()[..3].to_vec(), shared.read()[3..].to_vec());
    told.sort_unstable();
    assert_eq!(turns, ["1", "2", "3"]);
    assert_eq!(told, ["told 1", "told 2", "told 3"]);
    for request in [one, two, three] {
        request.await.unwrap();
    }
}

#[tokio::test]
async fn f13_a_turn_that_suspends_keeps_nobody_before_it_waiting() {
    let (_host, spot, _) = log("s");
    let (shared, door) = (Shared::default(), Door::new());
    let held = spot.enter().await.unwrap();
    let mut first = pin!(spot.request(|_turn| async { 1 }));
    poll(first.as_mut(), &shared, "told 1");
    let suspends = door.clone();
    let mut second = step(spot.request(move |_turn| async move { suspends.pass().await }));
    second.pending();
    let mut third = step(spot.request(|_turn| async { 3 }));
    third.pending();
    drop(held);
    settle().await;
    assert_eq!(shared.read(), ["told 1"]);
    assert_eq!(first.await.unwrap(), 1);
    second.pending();
    third.pending();
    door.open();
    settle().await;
    second.ready().unwrap();
    assert_eq!(third.ready().unwrap(), 3);
}

/// More than one batch, of which every third turn panics.
#[tokio::test]
async fn f13_every_requester_of_a_long_line_hears_of_its_own_turn() {
    let (_host, spot, _) = log("s");
    let held = spot.enter().await.unwrap();
    let turn = |number: usize| {
        step(spot.request(move |_turn| async move {
            assert!(number % 3 != 0, "every third");
            number
        }))
    };
    let mut requests: Vec<_> = (1..=200).map(turn).collect();
    for request in &mut requests {
        request.pending();
    }
    drop(held);
    settle().await;
    for (number, mut request) in (1..).zip(requests) {
        // The executor's budget is for one poll of this task, and there are more answers than that.
        tokio::task::yield_now().await;
        match request.ready() {
            Ok(heard) => assert_eq!(heard, number),
            Err(error) => {
                assert_eq!(number % 3, 0);
                assert_eq!(error.kind(), SpotErrorKind::Panicked);
            }
        }
    }
}

#[tokio::test]
async fn f13_a_close_within_a_batch_changes_nothing_of_what_ended_before_it() {
    let (host, ..) = host();
    let spot = host.spot("s").close_on_panic().create(()).unwrap();
    let held = spot.enter().await.unwrap();
    let mut before = step(spot.request(|_turn| async { 1 }));
    before.pending();
    let mut closes = step(spot.request(|_turn| async {
        panic!("it closes");
    }));
    closes.pending();
    let mut after = step(spot.request(|_turn| async { 3 }));
    after.pending();
    drop(held);
    settle().await;
    assert_eq!(before.ready().unwrap(), 1);
    let closed = closes.ready().unwrap_err();
    assert_eq!(closed.kind(), SpotErrorKind::Panicked);
    assert_eq!(after.ready().unwrap_err().kind(), SpotErrorKind::Closed);
}
