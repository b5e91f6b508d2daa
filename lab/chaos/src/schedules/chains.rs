//! Calls from inside calls, between threads (B11, D1).

use std::sync::Arc;
use std::time::Duration;

use bursar::{CallError, in_chain};
use shuttle::future::block_on;
use shuttle::thread;

use super::world::{Fails, Operation, World, pause, turn, turning};

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
    let outer = world.operation("outer", &[(2, 1)], false);
    let inner = Arc::new(world.operation("inner", &[(0, 1)], false));
    let shared = Arc::clone(&world);
    let caller = thread::spawn(move || {
        let ran = block_on(outer.contract.run(|| async {
            let (world, inner) = (Arc::clone(&shared), Arc::clone(&inner));
            let part = in_chain(async move {
                let ran = inner
                    .contract
                    .run(|| async {
                        let _inside = world.ledger.enter(inner.claims, None);
                        turn().await;
                        Ok::<_, Fails>(())
                    })
                    .await;
                assert!(
                    ran.as_ref().map_or_else(CallError::is_stopping, |()| true),
                    "{ran:?}"
                );
            });
            let part = thread::spawn(move || block_on(part));
            turn().await;
            Ok::<_, Fails>(part)
        }));
        // Refused when the drain came first.
        if let Ok(part) = ran {
            part.join().expect("the part ends");
        }
    });
    pause();
    block_on(world.drain_and_count());
    caller.join().expect("no caller fails");
    world.assert_idle();
}
