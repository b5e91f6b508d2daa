//! Leaving at random while everything races (B8): afterwards nothing is held, nobody waits, nothing was lost.
//!
//! Callers leave in every way: dropped at any poll, by a token fired from another task, at a deadline of a clock that
//! another thread turns, aborted as tasks. What each does comes from a seed, which a failure names.

#![allow(
    clippy::disallowed_methods,
    reason = "callers on tasks and threads of their own are the subject here"
)]

mod common;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bursar::{CallError, Contract, Failure, ManualClock, Policy, Retry, Runtime};
use common::room::{Room, watched};
use common::{Error, assert_idle, runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_ok};

/// A small generator: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const CAPACITIES: [(&str, u32); 3] = [("a", 3), ("b", 2), ("c", 4)];

/// What all callers share: the operations, and rooms that would notice too many inside.
struct Place {
    runtime: Runtime,
    operations: Vec<(Contract, [u32; 3])>,
    units: [AtomicU64; 3],
    keys: [Room; 3],
    ran: AtomicU64,
}

impl Place {
    fn new() -> (Arc<Self>, ManualClock) {
        let (runtime, clock) = runtime(&CAPACITIES);
        let claims: [[u32; 3]; 6] = [
            [1, 0, 0],
            [0, 2, 1],
            [1, 1, 1],
            [3, 0, 4],
            [0, 0, 2],
            [0, 0, 0],
        ];
        let operations = claims
            .into_iter()
            .flat_map(|claims| [(claims, false), (claims, true)])
            .map(|(claims, rejects)| {
                let policy = CAPACITIES
                    .into_iter()
                    .zip(claims)
                    .filter(|(_, units)| *units > 0)
                    .fold(Policy::pure(), |policy, ((budget, _), units)| {
                        policy.claim(budget, units)
                    })
                    .timeout(Duration::from_millis(40))
                    .retry(Retry::up_to(2).on_transient().on_uncertain());
                let policy = if rejects { policy.reject() } else { policy };
                let name = format!("{claims:?} rejects: {rejects}");
                (runtime.contract(&name, policy).unwrap(), claims)
            })
            .collect();
        let place = Self {
            runtime,
            operations,
            units: Default::default(),
            keys: std::array::from_fn(|_| Room::new()),
            ran: AtomicU64::new(0),
        };
        (Arc::new(place), clock)
    }

    /// A handler: takes note of what it may use, suspends a few times, ends somehow.
    async fn work(
        &self,
        claims: &[u32; 3],
        key: Option<usize>,
        suspends: u64,
        ends: u64,
    ) -> Result<(), Failure<Error>> {
        let _inside = Using::begin(self, claims);
        let _key = key.map(|key| self.keys[key].enter());
        for _ in 0..suspends {
            tokio::task::yield_now().await;
        }
        self.ran.fetch_add(1, Ordering::Relaxed);
        match ends {
            0 => Err(Failure::transient("busy")),
            1 => Err(Failure::uncertain("lost")),
            _ => Ok(()),
        }
    }
}

/// Units that a handler uses, checked against the capacities.
struct Using<'p>(&'p Place, [u32; 3]);

impl<'p> Using<'p> {
    fn begin(place: &'p Place, claims: &[u32; 3]) -> Self {
        for ((units, claim), (budget, capacity)) in place.units.iter().zip(claims).zip(CAPACITIES) {
            let before = units.fetch_add(u64::from(*claim), Ordering::SeqCst);
            let now = before + u64::from(*claim);
            assert!(now <= u64::from(capacity), "{now} of {capacity} {budget}");
        }
        Self(place, *claims)
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        for (units, claim) in self.0.units.iter().zip(self.1) {
            units.fetch_sub(u64::from(claim), Ordering::SeqCst);
        }
    }
}

/// Polls a future a number of times at most, then drops it: the caller leaves at that poll.
async fn leave_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if left == 0 {
            // It leaves in a poll of its own, when others may have run meanwhile.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// One call, with its way to leave.
async fn call(place: &Place, random: &mut Random) {
    let (contract, claims) =
        &place.operations[random.below(place.operations.len() as u64) as usize];
    let key = Some(random.below(6) as usize).filter(|key| *key < 3);
    let (suspends, ends) = (random.below(3), random.below(8));
    let mut call = contract.with();
    if let Some(key) = key {
        call = call.key(key as u64);
    }
    let mut fire = None;
    if random.below(3) == 0 {
        let (sender, token) = oneshot::channel::<()>();
        fire = Some(sender);
        call = call.until(token);
    }
    if random.below(3) == 0 {
        call = call.within(Duration::from_millis(random.below(20)));
    }
    if let Some(fire) = fire {
        // Through another task, so that the token fires from another thread.
        let after = random.below(8);
        tokio::spawn(async move {
            for _ in 0..after {
                tokio::task::yield_now().await;
            }
            let _ = fire.send(());
        });
    }
    let polls = match random.below(4) {
        0 => random.below(4),
        _ => u64::MAX,
    };
    if random.below(4) == 0 {
        if let Some(Ok(permit)) = leave_after(polls, call.admit()).await {
            let _inside = Using::begin(place, claims);
            let _key = key.map(|key| place.keys[key].enter());
            tokio::task::yield_now().await;
            drop((_inside, _key));
            drop(permit);
        }
        return;
    }
    let run = call.run(|_| place.work(claims, key, suspends, ends));
    if let Some(Err(error)) = leave_after(polls, run).await {
        assert!(!error.is_stopping(), "{error}");
        match &error {
            CallError::Failed(_) | CallError::TimedOut(_) | CallError::Cancelled(_) => {
                assert!(error.attempts() >= 1);
            }
            _ => assert!(error.never_ran()),
        }
    }
}

/// Everything is back: every budget and key can be had again in full.
#[track_caller]
fn assert_whole(place: &Place) {
    assert_idle(&place.runtime);
    for units in &place.units {
        assert_eq!(units.load(Ordering::SeqCst), 0);
    }
    for room in &place.keys {
        assert!(room.peak() <= 1 && room.inside() == 0);
    }
    let all = CAPACITIES
        .into_iter()
        .fold(Policy::pure(), |policy, (budget, capacity)| {
            policy.claim(budget, capacity)
        });
    let all = place.runtime.contract("all", all.reject()).unwrap();
    for key in 0..3_u64 {
        drop(assert_ready_ok!(spawn(all.with().key(key).admit()).poll()));
    }
    assert_idle(&place.runtime);
    let mut drain = spawn(place.runtime.shutdown());
    assert_ready_ok!(drain.poll());
    let total = place.runtime.stats().total();
    assert_eq!(total.admitted, total.finished);
}

/// Runs `callers` to their end while another thread turns the clock, so that deadlines pass at any point.
fn end(
    place: &Place,
    clock: &ManualClock,
    executor: &tokio::runtime::Runtime,
    callers: Vec<JoinHandle<()>>,
) {
    let turn = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while turn.load(Ordering::Relaxed) {
                clock.advance(Duration::from_millis(1));
                thread::yield_now();
            }
        });
        let ends: Vec<_> = watched(&place.runtime, || {
            let ends = callers.into_iter().map(|caller| executor.block_on(caller));
            ends.collect()
        });
        turn.store(false, Ordering::Relaxed);
        for end in ends {
            assert!(!end.as_ref().is_err_and(JoinError::is_panic), "{end:?}");
        }
    });
}

fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .build()
        .unwrap()
}

#[test]
fn b8_callers_that_leave_at_random_lose_nothing() {
    const CALLERS: u64 = 32;
    const CALLS: u64 = 250;

    for seed in 0..8 {
        eprintln!("seed {seed}");
        let (place, clock) = Place::new();
        let executor = executor();
        let callers = (0..CALLERS)
            .map(|caller| {
                let place = Arc::clone(&place);
                let mut random = Random(seed << 32 | caller);
                executor.spawn(async move {
                    for _ in 0..CALLS {
                        call(&place, &mut random).await;
                    }
                })
            })
            .collect();
        end(&place, &clock, &executor, callers);
        assert!(
            place.ran.load(Ordering::Relaxed) > CALLERS,
            "most of it ran"
        );
        assert_whole(&place);
    }
}

#[test]
fn b8_tasks_aborted_at_random_lose_nothing() {
    const ROUNDS: u64 = 40;
    const CALLERS: u64 = 24;

    let (place, clock) = Place::new();
    let executor = executor();
    for round in 0..ROUNDS {
        eprintln!("round {round}");
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let place = Arc::clone(&place);
                let mut random = Random(round << 32 | caller);
                executor.spawn(async move {
                    for _ in 0..20 {
                        call(&place, &mut random).await;
                    }
                })
            })
            .collect();
        let mut random = Random(!round);
        for caller in &callers {
            if random.below(2) == 0 {
                caller.abort();
            }
            if random.below(3) == 0 {
                thread::yield_now();
            }
        }
        end(&place, &clock, &executor, callers);
        assert_idle(&place.runtime);
    }
    assert_whole(&place);
}

/// Grants race departures on one budget and one key, thread against thread.
#[test]
fn b8_a_grant_that_races_a_departure_is_not_lost() {
    const ROUNDS: usize = 3_000;

    for keyed in [false, true] {
        let (runtime, _) = runtime(&[("db", 1)]);
        let policy = Policy::pure().claim("db", 1);
        let load = runtime.contract("load", policy).unwrap();
        let key = if keyed { "k" } else { "" };
        let begin = std::sync::Barrier::new(3);
        thread::scope(|scope| {
            let (give, given) = mpsc::channel();
            let (leave, leaving) = mpsc::channel();
            let begin = &begin;
            scope.spawn(move || {
                for permit in given {
                    begin.wait();
                    drop::<bursar::Permit>(permit);
                    begin.wait();
                }
            });
            scope.spawn(move || {
                for waiter in leaving {
                    begin.wait();
                    drop::<Pin<Box<dyn Future<Output = ()> + Send>>>(waiter);
                    begin.wait();
                }
            });
            for round in 0..ROUNDS {
                let held = assert_ready_ok!(spawn(load.with().key(key).admit()).poll());
                let leaves = load.clone();
                let mut waiter: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                    drop(leaves.with().key(key).admit().await);
                });
                let mut noop = std::task::Context::from_waker(std::task::Waker::noop());
                assert_pending!(waiter.as_mut().poll(&mut noop));
                let mut next = load.with().key(key);
                let mut next = spawn(next.admit());
                assert_pending!(next.poll());
                give.send(held).unwrap();
                leave.send(waiter).unwrap();
                begin.wait();
                begin.wait();
                // Whichever came first, it has come to the next in the queue.
                assert!(next.is_woken(), "lost in round {round}, keyed: {keyed}");
                drop(assert_ready_ok!(next.poll()));
            }
            drop((give, leave));
        });
        assert_idle(&runtime);
    }
}
