//! Calls from inside calls, between threads (B11, D1).

use std::sync::Arc;
use std::time::Duration;

use bursar::{Backoff, CallError, EndedBy, Permit, Policy, Retry, in_chain};
use shuttle::future::block_on;
use shuttle::thread;

use super::narrow::{Waiting, arrive};
use super::world::{Fails, Flag, Operation, World, choose, pause, turn, turning};

/// Two chains that cross, each holding what the other waits for: the bound on nested waits parts them, and both end.
pub fn crossing() {
    let world = World::built(|builder| builder.nested_wait(Duration::from_millis(1)));
    let whole_a = Arc::new(world.operation("a", &[(0, 2)], false));
    let whole_b = Arc::new(world.operation("b", &[(1, 1)], false));
    let pairs = [
        (Arc::clone(&whole_a), Arc::clone(&whole_b)),
        (whole_b, whole_a),
    ];
    let chains = pairs.map(|(outer, inner)| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let ran = turning(&world.clock, nest(&world, &outer, &inner));
            block_on(ran).expect("the outer call waits for nobody for ever");
        })
    });
    for chain in chains {
        chain.join().expect("no chain fails");
    }
    world.assert_idle();
}

async fn nest(
    world: &World,
    outer: &Operation,
    inner: &Operation,
) -> Result<(), CallError<&'static str>> {
    outer
        .contract
        .run(|| async {
            let _inside = world.ledger.enter(outer.claims, None);
            turn().await;
            let nested = inner
                .contract
                .run(|| async {
                    let _inside = world.ledger.enter(inner.claims, None);
                    turn().await;
                    Ok::<_, Fails>(())
                })
                .await;
            match nested {
                Ok(()) => {}
                Err(CallError::AdmissionTimedOut(refusal)) => {
                    assert_eq!(refusal.chain().len(), 1, "{refusal}");
                }
                Err(error) => panic!("neither ran nor waited too long: {error}"),
            }
            Ok(())
        })
        .await
}

/// Work that a handler took along into a thread of its own and left behind: admitted during the drain for as long as the
/// handler runs, and turned away or drained afterwards.
pub fn outliving_its_parent() {
    let world = World::new();
    let inner = world.operation("inner", &[(2, 1)], false);
    outlive(&world, inner, 1, None, false);
}

/// The same, and what it needs is given back while it begins to wait for it.
pub fn queueing_past_its_parent() {
    let world = World::new();
    let inner = world.operation("inner", &[(2, 1)], false);
    let held = block_on(inner.contract.admit()).expect("free");
    outlive(&world, inner, 1, Some(held), false);
}

/// The same during a drain, and it gives its unit back between two attempts: the drain ends neither before the pause nor in
/// it.
pub fn pausing_past_its_parent() {
    let world = World::new();
    let retry = Retry::up_to(2)
        .on_transient()
        .backoff(Backoff::exponential(Duration::from_millis(1)));
    let policy = Policy::pure().claim("z", 1).retry(retry);
    let inner = world.operation_of("inner", policy, &[(2, 1)]);
    outlive(&world, inner, 2, None, true);
}

/// The same during a drain, and its time is over before it begins: it runs nothing, and leaves nothing in the drain's way.
pub fn late_past_its_parent() {
    let world = World::new();
    let inner = world.operation("inner", &[(2, 1)], false);
    outlive(&world, inner, 0, None, true);
}

/// A part that is left behind makes its attempts, of which the last succeeds, while a permit is let go and the runtime
/// drains; with none to make it comes too late. `closing`: the drain has begun before the part does.
fn outlive(
    world: &Arc<World>,
    inner: Operation,
    attempts: u32,
    held: Option<Permit>,
    closing: bool,
) {
    let outer = world.operation("outer", &[(0, 1)], false);
    let (inner, shared) = (Arc::new(inner), Arc::clone(world));
    let begin = Flag::default();
    let begun = begin.clone();
    let mut parent: Waiting = Box::pin(async move {
        let ran = outer.contract.run(|| async {
            begun.clone().raised().await;
            let part = in_chain(part(Arc::clone(&shared), Arc::clone(&inner), attempts));
            let part = thread::spawn(move || block_on(part));
            turn().await;
            Ok::<_, Fails>(part)
        });
        // Refused when the drain came first.
        if let Ok(part) = ran.await {
            part.join().expect("the part ends");
        }
    });
    let shared = Arc::clone(world);
    let mut drain: Waiting = Box::pin(async move { shared.drain_and_count().await });
    if closing {
        arrive(&mut parent);
        arrive(&mut drain);
    }
    begin.raise();
    let parent = thread::spawn(move || block_on(parent));
    pause();
    drop(held);
    block_on(drain);
    parent.join().expect("no caller fails");
    world.assert_idle();
}

async fn part(world: Arc<World>, inner: Arc<Operation>, attempts: u32) {
    let mut call = inner.contract.with();
    if attempts == 0 {
        call = call.within(Duration::ZERO);
    }
    let (ledger, claims) = (&world.ledger, inner.claims);
    let run = call.run(|attempt| async {
        let _inside = ledger.enter(claims, None);
        // The first as long as its parent; what comes after a pause longer than a drain takes to say that it has ended.
        let turns = match attempt.number() {
            1 => choose(8),
            _ => 32,
        };
        for _ in 0..turns {
            turn().await;
            world.assert_not_drained();
        }
        match attempt.number() {
            number if number < attempts => Err(Fails::transient("again")),
            _ => Ok(()),
        }
    });
    match turning(&world.clock, run).await {
        Ok(()) => {}
        Err(CallError::AdmissionTimedOut(_)) => assert_eq!(attempts, 0),
        Err(CallError::Failed(ran)) => assert_eq!(ran.ended_by(), Some(EndedBy::Stopping)),
        Err(error) => assert!(error.is_stopping(), "{error}"),
    }
}
