//! Pauses between attempts, what retries may spend, and capacities that change, between threads.

use std::sync::Arc;
use std::time::Duration;

use bursar::{Backoff, CallError, EndedBy, Policy, Retry, RetryBudget};
use shuttle::future::block_on;
use shuttle::thread;

use super::world::{Fails, World, choose, pause, turn, turning};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A drain begins before a pause, in it, at its end, or while the call queues for its units again (C10, D1): the call goes on
/// or returns its last failure, and whoever sees the drain end sees it counted.
pub fn pausing_into_a_drain() {
    let world = World::new();
    let retry = || {
        Retry::up_to(2)
            .on_throttled()
            .backoff(Backoff::exponential(MILLISECOND))
    };
    let policy = Policy::non_idempotent().claim("a", 2).retry(retry());
    let pausing = world.operation_of("pausing", policy, &[(0, 2)]);
    // Without a claim nothing but its own place shows it to the drain.
    let bare = Policy::non_idempotent().retry(retry());
    let bare = world.operation_of("bare", bare, &[]);
    let pausing = if choose(2) == 0 { pausing } else { bare };
    let light = world.operation("light", &[(0, 1)], false);
    let shared = Arc::clone(&world);
    let caller = thread::spawn(move || {
        let key = choose(2);
        let mut call = pausing.contract.with();
        if key == 1 {
            call = call.key(key);
        }
        let (ledger, claims) = (&shared.ledger, pausing.claims);
        let run = call.run(|attempt| async {
            let _inside = ledger.enter(claims, None);
            turn().await;
            match attempt.number() {
                1 => Err(Fails::throttled("busy").after(MILLISECOND)),
                _ => Ok(()),
            }
        });
        match block_on(turning(&shared.clock, run)) {
            Ok(()) => {}
            Err(CallError::Failed(ran)) => {
                assert_eq!(
                    (ran.attempts(), ran.ended_by()),
                    (1, Some(EndedBy::Stopping))
                );
            }
            Err(error) => assert!(error.is_stopping(), "{error}"),
        }
    });
    let shared = Arc::clone(&world);
    let other = thread::spawn(move || {
        let ran = block_on(light.contract.run(|| async {
            let _inside = shared.ledger.enter(light.claims, None);
            turn().await;
            Ok::<_, Fails>(())
        }));
        // Refused or withdrawn when the drain came first.
        let right = ran.as_ref().map_or_else(CallError::is_stopping, |()| true);
        assert!(right, "{ran:?}");
    });
    for _ in 0..choose(4) {
        pause();
    }
    block_on(world.drain_and_count());
    caller.join().expect("no caller fails");
    other.join().expect("no caller fails");
    world.assert_idle();
}

/// Callers who all fail for ever spend no more than there is (C11).
pub fn spending() {
    let world = World::built(|builder| builder.retry_budget(RetryBudget::new(2).percent(0)));
    let policy = Policy::pure().retry(Retry::up_to(4).on_transient());
    let failing = Arc::new(world.operation_of("failing", policy, &[]));
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let failing = Arc::clone(&failing);
            thread::spawn(move || {
                let failed = block_on(failing.contract.run(|| async {
                    turn().await;
                    Err::<(), _>(Fails::transient("down"))
                }));
                failed.expect_err("it fails for ever").attempts()
            })
        })
        .collect();
    let attempts: u32 = callers
        .into_iter()
        .map(|caller| caller.join().expect("no caller fails"))
        .sum();
    let total = world.runtime.stats().total();
    assert_eq!(
        (attempts, total.retried),
        (4, 2),
        "two calls and two retries"
    );
    assert!((1..=2).contains(&total.denied), "{total:?}");
    world.assert_idle();
}

/// A capacity that grows and shrinks under callers that wait loses none of them, and a drain ends at whatever it is then
/// (B12).
pub fn resizing() {
    let world = World::new();
    let operations = Arc::new([
        world.operation("light", &[(0, 1)], false),
        world.operation("heavy", &[(0, 2)], false),
    ]);
    world.ledger.grow(0, 4);
    let held = block_on(operations[1].contract.admit()).expect("free");
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (world, operations) = (Arc::clone(&world), Arc::clone(&operations));
            thread::spawn(move || {
                let operation = &operations[choose(2) as usize];
                let ran = block_on(operation.contract.run(|| async {
                    let _inside = world.ledger.enter(operation.claims, None);
                    turn().await;
                    Ok::<_, Fails>(())
                }));
                assert!(ran.is_ok(), "{ran:?}");
            })
        })
        .collect();
    let shared = Arc::clone(&world);
    let resizes = thread::spawn(move || {
        for _ in 0..2 {
            let capacity = 2 + choose(3);
            shared
                .runtime
                .resize("a", capacity)
                .expect("every claim fits");
        }
    });
    pause();
    drop(held);
    for caller in callers {
        caller.join().expect("no caller fails");
    }
    // Whatever the capacity is just then.
    block_on(world.drain_and_count());
    resizes.join().expect("it only resizes");
    world.assert_idle();
}
