//! Calls that wait: how large they are, and how they leave.

use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Instant;

use bursar::{Contract, Policy};

use super::fixtures::{Never, SECONDS, contract, contract_of, forever, one_thread, runtime};
use super::{COMPOSED, KEYED, Pace, RUN};
use crate::calm::calmly;
use crate::figures::median;
use crate::peers::{Composed, Fault};
use crate::report::{Column, Seen};

const ORDERS: [Leaving; 3] = [Leaving::InOrder, Leaving::Reversed, Leaving::Scattered];
pub(super) const GROWTH: [&str; 3] = [
    "bursar, in order",
    "bursar, last come first gone",
    "bursar, scattered",
];
const PEERS: [&str; 3] = [
    "composed, in order",
    "composed, last come first gone",
    "composed, scattered",
];

/// Bytes of one call's future, its handler taking none.
pub(super) fn sizes(_: Pace) -> Vec<Seen> {
    let plain = contract(Policy::idempotent().claim("first", 1));
    let timed = contract(Policy::idempotent().claim("first", 1).timeout(SECONDS));
    let composed = Composed::new(8, 8);
    let ours = pending::<Result<(), Never>>;
    let theirs = pending::<Result<(), Fault>>;
    let keyed = async {
        let mut call = plain.with().key("customer-0000017");
        call.run(|_| ours()).await
    };
    let of = |name: &str, bytes| Seen::new(name).with(Column::Future, bytes as f64);
    vec![
        of(RUN, size_of_val(&plain.run(ours))),
        of("bursar run, with a timeout", size_of_val(&timed.run(ours))),
        of(KEYED, size_of_val(&keyed)),
        of(COMPOSED, size_of_val(&composed.one(theirs))),
        of(
            "composed, with a timeout",
            size_of_val(&composed.one_in_time(theirs)),
        ),
        of(
            "composed, keyed",
            size_of_val(&composed.keyed("customer-0000017", theirs)),
        ),
    ]
}

/// The order in which waiting calls leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// As they came.
    InOrder,
    /// Last come, first gone.
    Reversed,
    /// From all over the queue.
    Scattered,
}

/// Lets `count` calls wait and then leave; nanoseconds for each of those that leave.
pub fn leave<F: Future>(count: u32, order: Leaving, call: impl Fn() -> F) -> f64 {
    let mut calls: Vec<Option<Pin<Box<F>>>> = (0..count).map(|_| Some(Box::pin(call()))).collect();
    let mut cx = Context::from_waker(Waker::noop());
    for call in calls.iter_mut().flatten() {
        assert!(call.as_mut().poll(&mut cx).is_pending(), "nothing is free");
    }
    let count = calls.len();
    // Odd, near the golden section, and so without a common factor with powers of ten once it ends in 1, 3, 7 or 9.
    let step = (count as f64 * 0.618) as usize / 10 * 10 + 7;
    let began = Instant::now();
    for at in 0..count {
        let at = match order {
            Leaving::InOrder => at,
            Leaving::Reversed => count - 1 - at,
            Leaving::Scattered => at * step % count,
        };
        drop(calls[at].take());
    }
    let took = began.elapsed().as_nanos() as f64 / count as f64;
    assert!(calls.iter().all(Option::is_none), "all have left");
    took
}

/// Calls that leave, few and many.
pub(super) fn leaving(pace: Pace) -> Vec<Seen> {
    let contract = full_contract();
    let composed = full_composed();
    let ours = |count, order| leave(count, order, || contract.run(pending::<Result<(), Never>>));
    let theirs = |count, order| leave(count, order, || composed.one(pending::<Result<(), Fault>>));
    let (few, many, repeats) = match pace {
        Pace::Smoke => (100, 1000, 1),
        Pace::Quick => (10_000, 1_000_000, 2),
        Pace::Full => (10_000, 1_000_000, 9),
    };
    let mut seen = Vec::new();
    for (at, order) in ORDERS.into_iter().enumerate() {
        let mut took: [Vec<f64>; 4] = Default::default();
        for _ in 0..repeats {
            took[0].extend((0..10).map(|_| calmly(|| ours(few, order))));
            took[1].push(calmly(|| ours(many, order)));
            took[2].extend((0..10).map(|_| calmly(|| theirs(few, order))));
            took[3].push(calmly(|| theirs(many, order)));
        }
        let [our_few, our_many, their_few, their_many] = took.map(median);
        let of = |name: &str, few, many| {
            Seen::new(name)
                .with(Column::LeaveFew, few)
                .with(Column::LeaveMany, many)
                .with(Column::Growth, many / few)
        };
        seen.push(of(GROWTH[at], our_few, our_many));
        seen.push(of(PEERS[at], their_few, their_many));
    }
    seen
}

/// The one operation of a runtime whose only unit is taken for good.
#[must_use]
pub fn full_contract() -> &'static Contract {
    let contract = contract_of(&runtime(1, 1), Policy::idempotent().claim("first", 1));
    let held = one_thread().block_on(contract.admit());
    std::mem::forget(held.expect("the only unit"));
    contract
}

/// A composition whose first unit is taken for good.
#[must_use]
pub fn full_composed() -> &'static Composed {
    let composed = forever(Composed::new(1, 1));
    std::mem::forget(composed.first().try_acquire().expect("the only unit"));
    composed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_leave_in_every_order() {
        let contract = full_contract();
        for order in ORDERS {
            for count in [1, 2, 10, 1000] {
                let took = leave(count, order, || contract.run(pending::<Result<(), Never>>));
                assert!(took >= 0.0);
            }
        }
    }
}
