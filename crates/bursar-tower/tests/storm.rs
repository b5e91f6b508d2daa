//! Services that fail in every way at once, on real threads: nothing is exceeded, nothing is left.

#![allow(clippy::disallowed_methods, reason = "callers are tasks of the test")]

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bursar::{Failure, Policy, Retry, Runtime};
use bursar_tower::{ContractLayer, Deadline};
use common::{assert_idle, lock, ms};
use tower::{Layer, Service};

const CAPACITY: u32 = 3;

/// Random numbers, the same ones for the same seed.
#[derive(Clone, Copy)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Fails when it is made ready, in its call, in its future; takes its time; panics. As its request says.
#[derive(Clone, Default)]
struct Unruly {
    inside: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    keys: Arc<Mutex<HashSet<u64>>>,
    readied: u32,
}

#[derive(Clone, Copy)]
struct Order {
    seed: u64,
    key: u64,
}

/// Counted among those inside, and alone with its key.
struct Inside(Unruly, u64);

impl Inside {
    fn enter(service: &Unruly, key: u64) -> Self {
        let now = service.inside.fetch_add(1, Ordering::SeqCst) + 1;
        service.most.fetch_max(now, Ordering::SeqCst);
        let alone = lock(&service.keys).insert(key);
        assert!(alone || std::thread::panicking(), "two of one key");
        Self(service.clone(), key)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        lock(&self.0.keys).remove(&self.1);
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Broken;

impl Service<Order> for Unruly {
    type Response = u64;
    type Error = Broken;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<u64, Broken>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.readied += 1;
        if self.readied < 3 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, order: Order) -> Self::Future {
        let mut random = Random(order.seed);
        let inside = Inside::enter(self, order.key);
        assert_ne!(random.below(40), 0, "panics in its call");
        Box::pin(async move {
            let _inside = inside;
            for _ in 0..random.below(8) {
                tokio::task::yield_now().await;
            }
            match random.below(10) {
                0 => panic!("panics in its future"),
                1 | 2 => Err(Broken),
                3 => std::future::pending().await,
                other => Ok(other),
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_c9_callers_and_services_that_fail_at_random_exceed_nothing_and_leave_nothing() {
    // Panics are the subject; printed, they would drown everything else.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = Runtime::builder().resource("a", CAPACITY).build().unwrap();
    let retry = Retry::up_to(3).on_transient().on_uncertain();
    let policy = Policy::idempotent()
        .claim("a", 1)
        .timeout(ms(5))
        .retry(retry);
    let contract = runtime.contract("work", policy).unwrap();
    let unruly = Unruly::default();
    let service = ContractLayer::new(&contract)
        .serialize_with(|order: &Order| order.key)
        .deadline(|order: &Order| match order.seed % 5 {
            0 => Deadline::within(ms(order.seed % 7)),
            _ => Deadline::NONE,
        })
        .judge(|answer: Result<&u64, &Broken>| answer.err().map(|_| Failure::uncertain(())))
        .copy_requests(|order: &Order| {
            (order.seed % 3 != 0).then_some(Order {
                seed: order.seed + 1,
                ..*order
            })
        })
        .layer(unruly.clone());
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let mut service = service.clone();
            tokio::spawn(async move {
                let mut random = Random(caller);
                let mut ends = [0_u32; 4];
                for _ in 0..60 {
                    let order = Order {
                        seed: random.below(1 << 30),
                        key: random.below(6) + 1,
                    };
                    let call = tokio::spawn(service.call(order));
                    if random.below(6) == 0 {
                        for _ in 0..random.below(10) {
                            tokio::task::yield_now().await;
                        }
                        call.abort();
                    }
                    ends[match call.await {
                        Ok(Ok(_)) => 0,
                        Ok(Err(_)) => 1,
                        Err(error) if error.is_panic() => 2,
                        Err(_) => 3,
                    }] += 1;
                }
                ends
            })
        })
        .collect();
    let mut ends = [0; 4];
    for caller in callers {
        for (sum, one) in ends
            .iter_mut()
            .zip(common::net::soon(caller).await.unwrap())
        {
            *sum += one;
        }
    }
    assert!(
        ends.iter().all(|end| *end > 0),
        "each way to end is met: {ends:?}"
    );
    assert_eq!(unruly.most.load(Ordering::SeqCst), CAPACITY);
    assert_eq!(unruly.inside.load(Ordering::SeqCst), 0);
    assert_idle(&runtime);
    let report = runtime.shutdown().await.unwrap();
    assert_eq!(report.running(), 0);
}
