//! The whole runtime with mixed operations: three callers, each a few calls of any kind, left in any way, some of them
//! repeated, while a capacity grows and shrinks.

use std::sync::Arc;
use std::time::Duration;

use bursar::{Policy, Retry};
use shuttle::future::block_on;
use shuttle::thread;

use super::world::{Fails, Flag, Operation, World, choose, judge, leave_after, pause, turn};

/// Calls each caller makes.
const CALLS: u32 = 2;
/// Callers beside the one that turns the clock.
const CALLERS: u32 = 3;

struct Place {
    world: Arc<World>,
    operations: Vec<Operation>,
    /// What a handler calls from inside: it comes after everything its callers hold.
    inner: Operation,
}

pub fn mixed() {
    run(false);
}

pub fn mixed_with_drains() {
    run(true);
}

fn run(drains: bool) {
    let world = World::new();
    world.ledger.grow(0, 3);
    let retried = Policy::pure().claim("a", 1).claim("b", 1);
    let retried = retried.retry(Retry::up_to(2).on_transient());
    let place = Arc::new(Place {
        operations: vec![
            world.operation_of("retried", retried, &[(0, 1), (1, 1)]),
            world.operation("light", &[(0, 1)], false),
            world.operation("heavy", &[(0, 2)], false),
            world.operation("none", &[], false),
            world.operation("rejects", &[(0, 1)], true),
        ],
        inner: world.operation("inner", &[(2, 1)], false),
        world,
    });
    let flags: Vec<Flag> = (0..CALLERS).map(|_| Flag::default()).collect();
    let callers: Vec<_> = flags
        .iter()
        .map(|flag| {
            let (place, flag) = (Arc::clone(&place), flag.clone());
            thread::spawn(move || {
                block_on(async {
                    for _ in 0..CALLS {
                        call(&place, &flag).await;
                    }
                });
            })
        })
        .collect();
    let drain = drains.then(|| {
        let world = Arc::clone(&place.world);
        thread::spawn(move || block_on(world.drain_and_count()))
    });
    for flag in &flags {
        place.world.clock.advance(Duration::from_millis(1));
        let resized = place.world.runtime.resize("a", 2 + choose(2));
        resized.expect("every claim fits");
        pause();
        flag.raise();
    }
    for caller in callers {
        caller.join().expect("no caller fails");
    }
    if let Some(drain) = drain {
        drain.join().expect("the drain ends");
        block_on(place.world.drain_and_count());
    }
    place.world.assert_idle();
}

async fn call(place: &Place, flag: &Flag) {
    let which = choose(place.operations.len() as u32) as usize;
    let operation = &place.operations[which];
    let key = Some(1).filter(|_| choose(2) == 0);
    let kind = choose(6);
    // The first of them is repeated after a failure that says so.
    let fails = which == 0 && choose(2) == 0;
    let mut call = operation.contract.with();
    if let Some(key) = key {
        call = call.key(key);
    }
    if kind == 1 {
        call = call.until(flag.clone().raised());
    }
    if kind == 2 {
        call = call.within(Duration::from_millis(2));
    }
    let polls = if kind == 3 { choose(3) } else { u32::MAX };
    if kind == 4 {
        if let Some(Ok(permit)) = leave_after(polls, call.admit()).await {
            let inside = place.world.ledger.enter(operation.claims, key);
            turn().await;
            drop(inside);
            drop(permit);
        }
        return;
    }
    let answer = leave_after(
        polls,
        call.run(|attempt| async move {
            let _inside = place.world.ledger.enter(operation.claims, key);
            assert!(attempt.number() <= 1 + u32::from(fails));
            turn().await;
            if kind == 5 {
                nested(place).await;
            }
            match fails && attempt.number() == 1 {
                true => Err(Fails::transient("once more")),
                false => Ok(()),
            }
        }),
    )
    .await;
    if let Some(answer) = &answer {
        judge(answer);
    }
}

/// From inside a live call: admitted during a drain too.
async fn nested(place: &Place) {
    let answer = place
        .inner
        .contract
        .run(|| async {
            let _inside = place.world.ledger.enter(place.inner.claims, None);
            turn().await;
            Ok::<_, Fails>(())
        })
        .await;
    assert!(answer.is_ok(), "nested work is refused: {answer:?}");
}
