//! Calls that wait and are granted one after another, without an executor: what a place in a queue costs.

use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Waker};

use bursar::Policy;
use tokio::sync::Semaphore;

use super::fixtures::{Never, contract_of, forever, one_thread, runtime};
use super::{COMPOSED, RUN, SEMAPHORE};
use crate::measure::Contender;
use crate::peers::{Composed, Fault};

const WAITING: usize = 64;

/// `hold` takes the only unit; all calls then wait for it, and run one after another once it is back.
fn hand_on<F: Future + 'static, H>(
    name: &'static str,
    hold: impl Fn() -> H + 'static,
    call: impl Fn() -> F + 'static,
) -> Contender<'static> {
    let mut places: Vec<Pin<Box<Option<F>>>> = (0..WAITING).map(|_| Box::pin(None)).collect();
    Contender::new(name, move |n| {
        let mut cx = Context::from_waker(Waker::noop());
        let mut left = n as usize;
        while left > 0 {
            let round = left.min(WAITING);
            left -= round;
            let held = hold();
            for place in &mut places[..round] {
                place.set(Some(call()));
                let polled = place.as_mut().as_pin_mut().map(|call| call.poll(&mut cx));
                assert!(polled.is_some_and(|polled| polled.is_pending()));
            }
            drop(held);
            for place in &mut places[..round] {
                let polled = place.as_mut().as_pin_mut().map(|call| call.poll(&mut cx));
                assert!(polled.is_some_and(|polled| polled.is_ready()));
                place.set(None);
            }
        }
    })
}

pub(super) fn handed_on() -> Vec<Contender<'static>> {
    let policy = Policy::idempotent().claim("first", 1);
    let contract = contract_of(&runtime(1, 1), policy);
    let composed = forever(Composed::new(1, 1));
    let semaphore = forever(Semaphore::new(1));
    vec![
        hand_on(
            RUN,
            || {
                one_thread()
                    .block_on(contract.admit())
                    .expect("a free unit")
            },
            || contract.run(|| ready(Ok::<_, Never>(()))),
        ),
        hand_on(
            COMPOSED,
            || composed.first().try_acquire().expect("a free unit"),
            || composed.one(|| ready(Ok::<_, Fault>(()))),
        ),
        hand_on(
            SEMAPHORE,
            || semaphore.try_acquire().expect("a free unit"),
            || semaphore.acquire(),
        ),
    ]
}
