//! Tickets: callers that joined a queue one after another start in that order, whatever leaves meanwhile.
//!
//! A permit holds the whole capacity while one thread polls each caller once: that poll takes the place, so the order is
//! known. Then the permit goes back and the callers go on as tasks, all at once, some of them leaving; in some rounds the
//! budget grows and shrinks meanwhile, in some a drain begins and withdraws those who still wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Failure, ManualClock, Policy, Runtime};
use tokio::runtime::Runtime as Executor;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::{Tally, wait_turning};
use crate::ledger::Line;
use crate::random::Random;

/// How a caller leaves: 0 is dropped, 1 by a token, 2 at a deadline; any other stays.
const STAYS: u64 = 5;

/// What a budget of six units grows to, in rounds in which it does.
const GROWN: u32 = 8;

type Caller = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Tickets of different weights for one budget.
pub fn budget(executor: &Executor, seed: u64, random: &mut Random) -> Result<Tally, String> {
    queue(executor, seed, random, false)
}

/// Tickets for one key: one after another, in order.
pub fn key(executor: &Executor, seed: u64, random: &mut Random) -> Result<Tally, String> {
    queue(executor, seed, random, true)
}

fn queue(
    executor: &Executor,
    seed: u64,
    random: &mut Random,
    keyed: bool,
) -> Result<Tally, String> {
    let capacity = if keyed { 1 } else { 1 + random.below(6) as u32 };
    let clock = ManualClock::new();
    let runtime = Runtime::builder()
        .resource("budget", 6)
        .clock(clock.clone())
        .build()
        .map_err(|why| why.to_string())?;
    let contracts: Vec<_> = (1..=capacity)
        .map(|units| {
            let units = if keyed { 1 } else { units + 6 - capacity };
            let policy = Policy::pure().claim("budget", units);
            runtime
                .contract(&format!("{units} units"), policy)
                .map_err(|why| why.to_string())
        })
        .collect::<Result<_, _>>()?;
    // The heaviest takes the whole budget, or the key. In some rounds little is held and the first ticket is the heaviest:
    // the second would fit, must wait nonetheless, and must start once the first has left, while the permit is still held.
    let heaviest = contracts.len() - 1;
    let head_leaves = !keyed && capacity >= 4 && random.once_in(2);
    let holder = &contracts[if head_leaves { 0 } else { heaviest }];
    let held_key = if keyed { "key" } else { "" };
    let held = executor
        .block_on(holder.with().key(held_key).admit())
        .map_err(|why| why.to_string())?;

    let resizes = !keyed && random.once_in(3);
    let drains = random.once_in(4);
    let most = if resizes { GROWN } else { 6 };
    let line = Arc::new(Line::new(if keyed { 1 } else { most }));
    let mut tokens = Vec::new();
    let mut leavers = Vec::new();
    let mut stayers = Vec::new();
    for place in 0..4 + random.below(40) {
        let (which, leaves) = match place {
            0 if head_leaves => (heaviest as u32, 0),
            1 if head_leaves => (0, STAYS),
            _ => (random.below(u64::from(capacity)) as u32, random.below(6)),
        };
        let units = if keyed { 1 } else { which + 1 + 6 - capacity };
        let ticket = line.draw(units);
        let contract = contracts[which as usize].clone();
        let (fire, token) = oneshot::channel::<()>();
        let mut random = Random::part(seed, place);
        if leaves == 2 {
            // Nobody hears of a deadline before the runtime does: such a ticket vouches for itself alone.
            line.done(ticket);
        }
        let line = Arc::clone(&line);
        let mut caller: Caller = Box::pin(async move {
            let line = &line;
            let mut call = contract.with().key(held_key);
            if leaves == 1 {
                call = call.until(async move {
                    // Whoever dropped the sender has fired it.
                    let _fired = token.await;
                    line.done(ticket);
                });
            }
            if leaves == 2 {
                call = call.within(Duration::from_millis(1 + random.below(3)));
            }
            let suspends = random.below(4);
            let answer = call
                .run(|_| async move {
                    line.start(ticket);
                    for _ in 0..suspends {
                        yield_now().await;
                    }
                    line.done(ticket);
                    Ok::<_, Failure<()>>(())
                })
                .await;
            match answer {
                Err(error) if drains && error.is_stopping() => Ok(()),
                Err(error) if leaves != 1 && leaves != 2 => Err(error.to_string()),
                _ => Ok(()),
            }
        });
        let poll = caller
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if poll != Poll::Pending {
            return Err(format!("ticket {ticket} does not wait: {poll:?}"));
        }
        match leaves {
            0 => leavers.push((ticket, caller)),
            1 => {
                tokens.push(fire);
                stayers.push(caller);
            }
            _ => stayers.push(caller),
        }
    }

    // All at once, on whatever thread: those who leave, the tokens, the permit, those who stay.
    let mut tasks: Vec<_> = stayers
        .into_iter()
        .map(|caller| executor.spawn(caller))
        .collect();
    let leaving = {
        let line = Arc::clone(&line);
        executor.spawn(async move {
            for (ticket, caller) in leavers {
                line.done(ticket);
                drop(caller);
            }
            Ok(())
        })
    };
    let firing = executor.spawn(async move {
        for fire in tokens {
            // The call may have run already.
            let _over = fire.send(());
            yield_now().await;
        }
        Ok(())
    });
    if resizes {
        let (runtime, times) = (runtime.clone(), 2 + random.below(8));
        tasks.push(executor.spawn(async move {
            for time in 0..times {
                let capacity = if time % 2 == 0 { GROWN } else { 6 };
                let resized = runtime.resize("budget", capacity);
                resized.map_err(|why| why.to_string())?;
                yield_now().await;
            }
            Ok(())
        }));
    }
    if drains {
        let (runtime, turns) = (runtime.clone(), random.below(20));
        tasks.push(executor.spawn(async move {
            for _ in 0..turns {
                yield_now().await;
            }
            let drained = runtime.shutdown().await;
            drained.map_err(|why| why.to_string())?;
            let total = runtime.stats().total();
            match total.admitted == total.finished {
                true => Ok(()),
                false => Err(format!("drained too early: {total:?}")),
            }
        }));
    }
    if head_leaves {
        let second = tasks.remove(0);
        wait_turning(executor, &clock, second)?.map_err(|why| why.to_string())??;
    }
    drop(held);
    tasks.extend([leaving, firing]);
    wait_turning(executor, &clock, async {
        for task in tasks {
            task.await.map_err(|why| why.to_string())??;
        }
        Ok::<_, String>(())
    })??;
    line.kept()?;
    let stats = runtime.stats();
    let total = stats.total();
    let idle = total.admitted == total.finished
        && stats.keys == 0
        && stats.budgets.iter().all(|of| of.in_use + of.waiting == 0)
        && clock.timers() == 0;
    if idle {
        Ok(Tally {
            calls: total.admitted,
            entries: total.started,
        })
    } else {
        Err(format!("{} timers are left, and:\n{stats}", clock.timers()))
    }
}
