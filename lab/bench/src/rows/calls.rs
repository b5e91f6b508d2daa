//! Calls that find everything free, or are refused: what a contract itself costs.
//!
//! Calls follow each other in one task that the executor's cooperation budget does not interrupt, so that the figures
//! are those of calls and not of turns; what the budget does is measured by the mixed load.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Instant;

use bursar::{Attempt, Contract, Handler, Policy};
use keyed_lock::r#async::KeyedLock;
use lockable::LockPool;
use tokio::sync::Semaphore;
use tokio::task::{unconstrained, yield_now};

use super::fixtures::{Never, SECONDS, contract, contract_of, forever, one_thread, runtime};
use super::tower::{LIMIT_RETRY, LIMIT_RETRY_TIMEOUT, RESILIENCE, service};
use super::{COMPOSED, KEYED, RUN, SEMAPHORE};
use crate::measure::Contender;
use crate::peers::{Composed, Fault, resilience, resilience_in_time, tower, tower_in_time};

pub(super) const LONG_KEY: &str = "bursar, a key of 40 bytes";
pub(super) const ONE_TURN: &str = "composed, then one turn";

const KEY: &str = "customer-0000017";
const FORTY_BYTES: &str = "customer-0000017-of-the-branch-in-Lisbon";

/// A contender whose calls follow each other in one task: `$call` is awaited once for each `$i`, and its answer looked
/// at, not copied.
macro_rules! calls {
    ($name:expr, |$i:ident| $call:expr) => {{
        let tokio = one_thread();
        Contender::new($name, move |n| {
            tokio.block_on(unconstrained(async {
                for $i in 0..n {
                    let answer = $call.await;
                    black_box(answer.is_ok());
                }
            }));
        })
    }};
}

/// A handler with an input, for the typed form.
struct Echo;

impl Handler<u32> for Echo {
    type Output = u32;
    type Error = std::convert::Infallible;

    async fn handle(&self, _: &Attempt, input: &u32) -> Result<u32, Never> {
        Ok(black_box(*input))
    }
}

/// The same call, watched and not, with the feature compiled in.
#[cfg(feature = "exact")]
pub(super) fn exact() -> Vec<Contender<'static>> {
    let semaphore = Arc::new(Semaphore::new(8));
    let policy = || Policy::idempotent().claim("first", 1);
    let plain = contract(policy());
    let watching = bursar::Runtime::builder().resource("first", 8).exact();
    let watching = watching.build().expect("one budget");
    let watched = contract_of(&watching, policy());
    vec![
        calls!(RUN, |i| plain
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!("bursar run, watched", |i| watched
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(SEMAPHORE, |_i| semaphore.acquire()),
    ]
}

pub(super) fn one_budget() -> Vec<Contender<'static>> {
    let semaphore = Arc::new(Semaphore::new(8));
    let composed = forever(Composed::new(8, 8));
    let contract = contract(Policy::idempotent().claim("first", 1));
    let typed = forever(
        runtime(8, 8)
            .operation("operation", Policy::idempotent().claim("first", 1), Echo)
            .expect("a policy that its runtime accepts"),
    );
    vec![
        calls!(RUN, |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(SEMAPHORE, |_i| semaphore.acquire()),
        calls!(COMPOSED, |i| composed
            .one(|| async { Ok::<_, Fault>(black_box(i)) })),
        calls!("bursar with().run", |i| async {
            contract
                .with()
                .run(|_| async { Ok::<_, Never>(black_box(i)) })
                .await
        }),
        calls!("bursar Operation::call", |i| typed.call(i)),
        service(LIMIT_RETRY, tower(8)),
        service(RESILIENCE, resilience(8)),
        Contender::new("one unit taken and given, for scale", |n| {
            let free = AtomicI64::new(8);
            for _ in 0..n {
                let before = free.load(Ordering::Relaxed);
                let (taken, acquire) = (before - 1, Ordering::Acquire);
                let taken = free.compare_exchange(before, taken, acquire, Ordering::Relaxed);
                black_box(taken.is_ok());
                free.fetch_add(1, Ordering::Release);
            }
        }),
    ]
}

pub(super) fn two_budgets() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(8, 8));
    let contract = contract(Policy::idempotent().claim("first", 1).claim("second", 1));
    vec![
        calls!(RUN, |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(COMPOSED, |i| composed
            .two(|| async { Ok::<_, Fault>(black_box(i)) })),
    ]
}

fn timed() -> &'static Contract {
    contract(Policy::idempotent().claim("first", 1).timeout(SECONDS))
}

pub(super) fn in_time() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(8, 8));
    let contract = timed();
    vec![
        calls!(RUN, |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(COMPOSED, |i| composed
            .one_in_time(|| async { Ok::<_, Fault>(black_box(i)) })),
        service(LIMIT_RETRY_TIMEOUT, tower_in_time(8, SECONDS)),
        service(RESILIENCE, resilience_in_time(8, SECONDS)),
        Contender::new("one clock read, for scale", |n| {
            for _ in 0..n {
                black_box(Instant::now());
            }
        }),
    ]
}

pub(super) fn suspends() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(8, 8));
    let contract = contract(Policy::idempotent().claim("first", 1));
    vec![
        calls!(RUN, |i| contract.run(|| async {
            yield_now().await;
            Ok::<_, Never>(black_box(i))
        })),
        calls!(COMPOSED, |i| composed.one(|| async {
            yield_now().await;
            Ok::<_, Fault>(black_box(i))
        })),
        calls!("yield_now, for scale", |_i| async {
            yield_now().await;
            Ok::<(), ()>(())
        }),
    ]
}

pub(super) fn suspends_in_time() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(8, 8));
    let contract = timed();
    vec![
        calls!(RUN, |i| contract.run(|| async {
            yield_now().await;
            Ok::<_, Never>(black_box(i))
        })),
        calls!(COMPOSED, |i| composed.one_in_time(|| async {
            yield_now().await;
            Ok::<_, Fault>(black_box(i))
        })),
    ]
}

fn keyed_call(
    name: &'static str,
    contract: &'static Contract,
    key: &'static str,
) -> Contender<'static> {
    calls!(name, |i| async {
        contract
            .with()
            .key(black_box(key))
            .run(|_| async { Ok::<_, Never>(black_box(i)) })
            .await
    })
}

pub(super) fn keyed() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(8, 8));
    let contract = contract(Policy::idempotent().claim("first", 1));
    let pool = forever(LockPool::<String>::new());
    let keyed_lock = forever(KeyedLock::<String>::new());
    let key_lock = forever(key_lock::KeyLock::<String>::new());
    vec![
        keyed_call(KEYED, contract, KEY),
        calls!(COMPOSED, |i| composed.keyed(black_box(KEY), || async {
            Ok::<_, Fault>(black_box(i))
        })),
        keyed_call(LONG_KEY, contract, FORTY_BYTES),
        calls!("lockable, the lock alone", |_i| async {
            Ok::<_, ()>(pool.async_lock(black_box(KEY).to_owned()).await)
        }),
        calls!("keyed-lock, the lock alone", |_i| async {
            Ok::<_, ()>(keyed_lock.lock(black_box(KEY).to_owned()).await)
        }),
        calls!("key-lock, the lock alone", |_i| async {
            Ok::<_, ()>(key_lock.lock(black_box(KEY).to_owned()).await)
        }),
    ]
}

pub(super) fn keyed_in_time() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(8, 8));
    vec![
        keyed_call(KEYED, timed(), KEY),
        calls!(COMPOSED, |i| composed
            .keyed_in_time(black_box(KEY), || async {
                Ok::<_, Fault>(black_box(i))
            })),
    ]
}

/// Gives the executor one turn: what `yield_now` does, without its detour.
async fn one_turn() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

pub(super) fn reject() -> Vec<Contender<'static>> {
    let composed = forever(Composed::new(1, 1));
    let full = composed.first().try_acquire();
    std::mem::forget(full.expect("the only unit"));
    let policy = Policy::idempotent().claim("first", 1).reject();
    let contract = contract_of(&runtime(1, 1), policy);
    let held = one_thread().block_on(contract.admit());
    std::mem::forget(held.expect("the only unit"));
    vec![
        calls!(RUN, |i| contract
            .run(|| async { Ok::<_, Never>(black_box(i)) })),
        calls!(ONE_TURN, |i| async {
            let refused = composed
                .one_or_nothing(|| async { Ok::<_, Fault>(black_box(i)) })
                .await;
            one_turn().await;
            refused
        }),
        calls!("composed, then yield_now", |i| async {
            let refused = composed
                .one_or_nothing(|| async { Ok::<_, Fault>(black_box(i)) })
                .await;
            yield_now().await;
            refused
        }),
        calls!("composed, without a turn", |i| composed
            .one_or_nothing(|| async { Ok::<_, Fault>(black_box(i)) })),
    ]
}
