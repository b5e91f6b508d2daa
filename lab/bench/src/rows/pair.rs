//! Two tasks on two workers, at one budget or at the key table; and the key table alone.
//!
//! A batch lasts from the moment at which both tasks run until both have ended, and its time is divided by the calls of
//! both.

use std::future::Future;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bursar::Policy;
use tokio::runtime::Runtime as Tokio;
use tokio::sync::Semaphore;
use tokio::task::unconstrained;

use super::fixtures::{
    Never, Texts, contract, contract_of, forever, one_thread, runtime, two_workers,
};
use super::{COMPOSED, KEYED, RUN, SEMAPHORE};
use crate::measure::{Batch, Contender};
use crate::peers::{Composed, Fault};

/// A contender of two tasks. `task(which, n)` makes `n` calls.
fn pair<F>(
    name: &'static str,
    tokio: &'static Tokio,
    mut task: impl FnMut(u8, u32) -> F + 'static,
) -> Contender<'static>
where
    F: Future<Output = ()> + Send + 'static,
{
    Contender::timed(name, move |n| {
        let here = Arc::new(AtomicU32::new(0));
        let mut start = |which| {
            let calls = task(which, n);
            let here = Arc::clone(&here);
            tokio.spawn(unconstrained(async move {
                here.fetch_add(1, Ordering::AcqRel);
                // Occupies its worker on purpose: the other task must run on the other one.
                while here.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
                let began = Instant::now();
                calls.await;
                (began, Instant::now())
            }))
        };
        let (one, two) = (start(0), start(1));
        let ends = tokio.block_on(async { [one.await, two.await] });
        let ends = ends.map(|end| end.expect("calls that do not panic"));
        let began = ends.iter().map(|(began, _)| *began).min();
        let ended = ends.iter().map(|(_, ended)| *ended).max();
        let took = began.zip(ended).map(|(began, ended)| ended - began);
        Batch::lasting(took.unwrap_or_default(), 2 * n)
    })
}

pub(super) fn capacity_4() -> Vec<Contender<'static>> {
    contended(4)
}

pub(super) fn capacity_1() -> Vec<Contender<'static>> {
    contended(1)
}

fn contended(capacity: u32) -> Vec<Contender<'static>> {
    let tokio = two_workers();
    let semaphore = forever(Semaphore::new(capacity as usize));
    let composed = forever(Composed::new(capacity as usize, 8));
    let policy = Policy::idempotent().claim("first", 1);
    let contract = contract_of(&runtime(capacity, 8), policy);
    vec![
        pair(RUN, tokio, move |_, n| async move {
            for i in 0..n {
                let answer = contract
                    .run(|| async { Ok::<_, Never>(black_box(i)) })
                    .await;
                black_box(answer.is_ok());
            }
        }),
        pair(SEMAPHORE, tokio, move |_, n| async move {
            for i in 0..n {
                let permit = semaphore.acquire().await;
                black_box((i, permit.is_ok()));
            }
        }),
        pair(COMPOSED, tokio, move |_, n| async move {
            for i in 0..n {
                let answer = composed
                    .one(|| async { Ok::<_, Fault>(black_box(i)) })
                    .await;
                black_box(answer.is_ok());
            }
        }),
    ]
}

pub(super) fn unique_on_one() -> Vec<Contender<'static>> {
    let tokio = one_thread();
    let composed = forever(Composed::new(8, 8));
    let contract = contract(Policy::idempotent().claim("first", 1));
    let (mut ours, mut theirs) = (Texts::new(0), Texts::new(0));
    vec![
        Contender::new(KEYED, move |n| {
            tokio.block_on(unconstrained(async {
                for i in 0..n {
                    let mut call = contract.with().key(ours.another());
                    let answer = call.run(|_| async { Ok::<_, Never>(black_box(i)) }).await;
                    black_box(answer.is_ok());
                }
            }));
        }),
        Contender::new(COMPOSED, move |n| {
            tokio.block_on(unconstrained(async {
                for i in 0..n {
                    let handler = || async { Ok::<_, Fault>(black_box(i)) };
                    let answer = composed.keyed(theirs.another(), handler).await;
                    black_box(answer.is_ok());
                }
            }));
        }),
    ]
}

pub(super) fn unique_on_two() -> Vec<Contender<'static>> {
    let tokio = two_workers();
    let composed = forever(Composed::new(8, 8));
    let contract = contract(Policy::idempotent().claim("first", 1));
    let begun = || forever([0, 1].map(|which| Mutex::new(Texts::new(which))));
    let (ours, theirs) = (begun(), begun());
    // A task works on a copy, so that no lock is held across a call, and puts it back for the next batch.
    let copy = |kept: &Mutex<Texts>| kept.lock().expect("no panic").clone();
    vec![
        pair(KEYED, tokio, move |which, n| {
            let kept = &ours[usize::from(which)];
            async move {
                let mut texts = copy(kept);
                for i in 0..n {
                    let mut call = contract.with().key(texts.another());
                    let answer = call.run(|_| async { Ok::<_, Never>(black_box(i)) }).await;
                    black_box(answer.is_ok());
                }
                *kept.lock().expect("no panic") = texts;
            }
        }),
        pair(COMPOSED, tokio, move |which, n| {
            let kept = &theirs[usize::from(which)];
            async move {
                let mut texts = copy(kept);
                for i in 0..n {
                    let handler = || async { Ok::<_, Fault>(black_box(i)) };
                    let answer = composed.keyed(texts.another(), handler).await;
                    black_box(answer.is_ok());
                }
                *kept.lock().expect("no panic") = texts;
            }
        }),
    ]
}
