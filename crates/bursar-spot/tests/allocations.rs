//! What a turn costs in allocations, and a Spot in bytes.

mod common;

use allocation_counter::measure;
use bursar_spot::Turn;
use common::{host, step};

/// Allocations of one more of the same, once everything is warm.
fn allocations(mut one: impl FnMut()) -> u64 {
    for _ in 0..64 {
        one();
    }
    measure(one).count_total
}

#[tokio::test]
async fn f1_an_entered_turn_allocates_nothing_and_a_request_one_cell() {
    let (host, ..) = host();
    let spot = host.create("s", 0_u64).unwrap();
    let entered = allocations(|| {
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        let mut enter = std::pin::pin!(spot.enter());
        let std::task::Poll::Ready(Ok(mut turn)) = enter.as_mut().poll(&mut context) else {
            panic!("nobody else is there");
        };
        *turn.state() += 1;
    });
    assert_eq!(entered, 0);
    let requested = allocations(|| {
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        let mut request =
            std::pin::pin!(spot.request(|mut turn| async move { *turn.state() += 1 }));
        assert!(request.as_mut().poll(&mut context).is_ready());
    });
    assert_eq!(requested, 1);
}

/// The cell, and the task that takes it over.
#[tokio::test]
async fn f1_a_turn_that_suspends_allocates_twice() {
    let (host, ..) = host();
    let spot = host.create("s", 0_u64).unwrap();
    let mut counted = 0;
    for _ in 0..64 {
        let work = |mut turn: Turn<u64>| async move {
            tokio::task::yield_now().await;
            *turn.state() += 1;
        };
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        let mut request = std::pin::pin!(spot.request(work));
        counted = measure(|| assert!(request.as_mut().poll(&mut context).is_pending())).count_total;
        request.await.unwrap();
    }
    assert_eq!(counted, 2);
    let mut after = step(spot.request(|mut turn| async move { *turn.state() }));
    assert_eq!(after.ready().unwrap(), 64);
}

/// Beside its state: the strand, its entry in the host's table, and what the allocator adds.
#[tokio::test]
async fn f11_an_idle_spot_owns_no_task_and_few_bytes_beside_its_state() {
    const SPOTS: u64 = 100_000;
    let (host, ..) = host();
    let names: Vec<String> = (0..SPOTS).map(|number| format!("{number}")).collect();
    let before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let used = measure(|| {
        for name in &names {
            drop(host.create(name, 0_u64).unwrap());
        }
    });
    let each = used.bytes_current as u64 / SPOTS - 8;
    println!("{each} bytes an idle Spot beside its state");
    assert!(each <= 160, "{each} bytes an idle Spot beside its state");
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert_eq!(tasks, before);
}
