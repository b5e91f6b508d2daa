//! Storms: many callers on tasks or threads, each making calls of every kind, while tasks are aborted, the clock is turned,
//! budgets change their size and drains begin at random.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use tokio::runtime::Runtime as Executor;
use tokio::task::{JoinHandle, yield_now};

use super::calls::call;
use super::place::Place;
use super::{Tally, wait_turning};
use crate::random::Random;

/// Callers as tasks; some are aborted.
pub fn tasks(executor: &Executor, seed: u64, random: &mut Random) -> Result<Tally, String> {
    let place = Place::new();
    let (callers, calls) = (16 + random.below(33), 10 + random.below(31));
    let callers: Vec<JoinHandle<Result<(), String>>> = (0..callers)
        .map(|caller| {
            let place = Arc::clone(&place);
            let mut random = Random::part(seed, caller);
            executor.spawn(async move {
                for _ in 0..calls {
                    call(&place, &mut random).await?;
                }
                Ok(())
            })
        })
        .collect();
    let mut drains = drains(executor, &place, random);
    drains.push(resizes(executor, &place, random));
    if random.once_in(2) {
        for caller in &callers {
            if random.once_in(3) {
                caller.abort();
            }
            if random.once_in(3) {
                thread::yield_now();
            }
        }
    }
    let watched = watch(executor, &place, random);
    let ended = wait_turning(executor, &place.clock, async {
        for caller in callers {
            match caller.await {
                Ok(answer) => answer?,
                Err(aborted) if aborted.is_cancelled() => {}
                Err(panicked) => return Err(format!("a caller panicked: {panicked}")),
            }
        }
        Ok(())
    });
    end(executor, &place, ended?, drains, watched)
}

/// Callers on threads of their own, without an executor under them.
pub fn threads(executor: &Executor, seed: u64, random: &mut Random) -> Result<Tally, String> {
    let place = Place::new();
    let (callers, calls) = (2 + random.below(7), 40 + random.below(80));
    let mut drains = drains(executor, &place, random);
    drains.push(resizes(executor, &place, random));
    let watched = watch(executor, &place, random);
    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    for caller in 0..callers {
        let place = Arc::clone(&place);
        let mut random = Random::part(seed, caller);
        let (told, handle) = (told.clone(), executor.handle().clone());
        thread::spawn(move || {
            // Blocking attempts and tokens need an executor; the callers do not run on it.
            let _entered = handle.enter();
            let ended: Result<(), String> = block_on(async {
                for _ in 0..calls {
                    call(&place, &mut random).await?;
                }
                Ok(())
            });
            drop(place);
            // Nobody listens once the round has failed.
            let _failed = told.send(ended);
        });
    }
    drop(told);
    let ended = wait_turning(executor, &place.clock, async {
        let mut heard = 0;
        while let Some(ended) = tells.recv().await {
            ended?;
            heard += 1;
        }
        if heard == callers {
            Ok(())
        } else {
            Err("a caller panicked".to_owned())
        }
    });
    end(executor, &place, ended?, drains, watched)
}

type Task = JoinHandle<Result<(), String>>;

/// None to two drains that begin some time into the round; one may be dropped and awaited anew.
fn drains(executor: &Executor, place: &Arc<Place>, random: &mut Random) -> Vec<Task> {
    (0..random.below(4).saturating_sub(1))
        .map(|_| {
            let place = Arc::clone(place);
            let (turns, polls) = (random.below(1_500), random.below(3));
            executor.spawn(async move {
                for _ in 0..turns {
                    yield_now().await;
                }
                let mut dropped = Arc::clone(&place).drain();
                for _ in 0..polls {
                    let polled = std::future::poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx)));
                    if let Poll::Ready(ended) = polled.await {
                        return ended;
                    }
                }
                drop(dropped);
                place.drain().await
            })
        })
        .collect()
}

/// Somebody who makes budgets larger and smaller meanwhile.
fn resizes(executor: &Executor, place: &Arc<Place>, random: &mut Random) -> Task {
    let place = Arc::clone(place);
    let times = random.below(40);
    let mut random = Random::part(random.below(u64::MAX), times);
    executor.spawn(async move {
        for _ in 0..times {
            place.resize(&mut random)?;
            for _ in 0..random.below(20) {
                yield_now().await;
            }
        }
        Ok(())
    })
}

/// Somebody who reads the counters while they move.
fn watch(executor: &Executor, place: &Arc<Place>, random: &mut Random) -> Task {
    let place = Arc::clone(place);
    let readings = random.below(50);
    executor.spawn(async move {
        for _ in 0..readings {
            place.plausible()?;
            yield_now().await;
        }
        Ok(())
    })
}

/// Drains for good, and looks at what is left.
fn end(
    executor: &Executor,
    place: &Arc<Place>,
    ended: Result<(), String>,
    drains: Vec<Task>,
    watched: Task,
) -> Result<Tally, String> {
    ended?;
    wait_turning(executor, &place.clock, Arc::clone(place).drain())??;
    wait_turning(executor, &place.clock, async {
        for task in drains.into_iter().chain([watched]) {
            task.await.map_err(|why| why.to_string())??;
        }
        Ok::<_, String>(())
    })??;
    place.settled()?;
    Ok(Tally {
        calls: place.seen.asked.load(Ordering::Relaxed),
        entries: place.ledger.entered(),
    })
}

/// Wakes a parked thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
