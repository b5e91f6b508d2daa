//! Spots in disturbance: requests, sends, yields, actors, timers, workers and panics, from callers that leave at any poll,
//! while Spots are closed at random and the clock is turned.
//!
//! What is checked is told from inside turns ([`room`]): that they never overlap, that each caller's work starts in the order
//! of its acceptance, that ticks are numbered as promised, that accepted work runs once unless its Spot closed, and that
//! nothing runs after the last turn.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bursar::{ManualClock, Runtime};
use bursar_spot::{Actor, ActorTurn, Host, Overrun, Schedule, Spot, SpotErrorKind, Turn};
use tokio::runtime::Runtime as Executor;
use tokio::task::{JoinHandle, yield_now};

use super::calls::{Ended, leave_after};
use super::{Tally, wait_turning};
use crate::random::Random;

mod room;

use room::{Mark, Room, Seen};

/// Spots of a round. Work in one of them keeps its gate only while it asks one of a higher number, so that no two wait for
/// each other.
const SPOTS: usize = 3;

/// Callers of actors are numbered from here.
const ACTORS: u64 = 1 << 32;

type Shared = Spot<Room>;

struct World {
    clock: ManualClock,
    host: Host,
    spots: Vec<Shared>,
    /// One of each, whose state is how much of its work has begun.
    actors: Vec<Actor<Room, u64>>,
    seen: Vec<Arc<Seen>>,
    /// Somebody closes it during the round.
    closes: Option<usize>,
    /// The round ends with the host's shutdown, which finds work under way, and not with each Spot's close.
    shuts: bool,
}

/// One round.
pub fn round(executor: &Executor, seed: u64, random: &mut Random) -> Result<Tally, String> {
    let world = Arc::new(World::new(executor, random));
    let callers = 4 + random.below(13);
    let asks = 10 + random.below(31);
    let tasks: Vec<JoinHandle<Result<(), String>>> = (0..callers)
        .map(|caller| {
            let world = Arc::clone(&world);
            let mut random = Random::part(seed, caller);
            executor.spawn(async move {
                for number in 0..asks {
                    ask(&world, caller, number, &mut random).await?;
                }
                Ok(())
            })
        })
        .collect();
    let closer = closer(executor, &world, random);
    let aborted = random.once_in(2);
    for task in &tasks {
        if aborted && random.once_in(4) {
            task.abort();
        }
    }
    wait_turning(executor, &world.clock, async {
        for task in tasks {
            match task.await {
                Ok(answer) => answer?,
                Err(gone) if gone.is_cancelled() => {}
                Err(panicked) => return Err(format!("a caller panicked: {panicked}")),
            }
        }
        closer.await.map_err(|why| why.to_string())?
    })??;
    let tally = world.end(executor)?;
    let (clock, seen) = (world.clock.clone(), world.seen.clone());
    drop(world);
    // States, bodies and handlers hold on to these: whatever is kept for ever shows here.
    wait_turning(executor, &clock, async {
        while seen.iter().any(|seen| Arc::strong_count(seen) > 1) {
            yield_now().await;
        }
    })
    .map_err(|_| "a Spot, a body or a handler is never dropped".to_owned())?;
    Ok(tally)
}

impl World {
    fn new(executor: &Executor, random: &mut Random) -> Self {
        let clock = ManualClock::new();
        let runtime = Runtime::builder()
            .resource("unused", 1)
            .clock(clock.clone())
            .build()
            .expect("a budget");
        let _entered = executor.enter();
        let host = Host::new(&runtime);
        let seen: Vec<Arc<Seen>> = (0..SPOTS).map(|_| Arc::default()).collect();
        let spots = seen.iter().enumerate().map(|(number, seen)| {
            let last = Arc::clone(seen);
            // Small enough for callers to wait for space, whose clock is turned meanwhile.
            host.spot::<Room>(&format!("spot-{number}"))
                .queue(8)
                .send_timeout(Duration::from_secs(3600))
                .on_closing(move |mut turn, _| {
                    turn.state().last_turn();
                    last.closings.fetch_add(1, Ordering::Relaxed);
                    async move { drop(turn) }
                })
                .create(Room::new(Arc::clone(seen)))
                .expect("a name that is free")
        });
        let spots: Vec<Shared> = spots.collect();
        let world = Self {
            clock,
            host,
            actors: spots.iter().map(|spot| spot.actor(0)).collect(),
            spots,
            seen,
            shuts: random.once_in(2),
            closes: random
                .once_in(2)
                .then(|| random.below(SPOTS as u64) as usize),
        };
        for number in 0..SPOTS {
            world.timers(number, random);
        }
        world
    }

    /// A few timers, under each policy.
    fn timers(&self, spot: usize, random: &mut Random) {
        for timer in 0..random.below(4) {
            let overrun = match timer {
                0 => Overrun::SkipLateTicks,
                1 => Overrun::catch_up(3),
                _ => Overrun::DelayNextTick,
            };
            let period = Duration::from_micros(500 + random.below(5_000));
            let schedule = Schedule::every(period).overrun(overrun);
            self.timer(spot, timer, schedule, random.below(3));
        }
    }

    fn timer(&self, spot: usize, timer: u64, schedule: Schedule, yields: u64) {
        let seen = Arc::clone(&self.seen[spot]);
        // Ticks of one generation are numbered by themselves.
        let generation = seen.generation(timer);
        let registered = self.spots[spot].timer(&format!("timer-{timer}"), schedule, {
            move |mut turn: Turn<Room>, tick| {
                let mark = turn.state().begin();
                let running = seen.tick(timer, generation, tick);
                async move {
                    let (mut turn, mut mark) = (turn, mark);
                    for _ in 0..yields {
                        (turn, mark) = away(turn, mark, yield_now()).await.0;
                    }
                    mark.end();
                    drop(running);
                    drop(turn);
                }
            }
        });
        if let Err(refused) = registered {
            assert_eq!(refused.kind(), SpotErrorKind::Closed, "{refused}");
        }
    }

    fn end(&self, executor: &Executor) -> Result<Tally, String> {
        wait_turning(executor, &self.clock, async {
            if self.shuts {
                // What was accepted runs to its end first.
                let report = self.host.shutdown_within(Duration::from_secs(3600)).await;
                let report = report.map_err(|error| error.to_string())?;
                return match (report.cut_short, report.working) {
                    (0, 0) => Ok(()),
                    _ => Err(format!("a shutdown with time left: {report}")),
                };
            }
            for spot in &self.spots {
                // Behind all that was accepted: closing would turn away what has not begun.
                let last = spot.request(|mut turn| async move { turn.state().begin().end() });
                match last.await {
                    Ok(()) => {}
                    Err(gone) if gone.kind() == SpotErrorKind::Closed => {}
                    Err(other) => return Err(other.to_string()),
                }
                match self.host.close(spot.name()).await {
                    Ok(()) => {}
                    Err(gone) if gone.kind() == SpotErrorKind::NotConfigured => {}
                    Err(other) => return Err(other.to_string()),
                }
            }
            Ok(())
        })??;
        let mut tally = Tally::default();
        for (number, (seen, spot)) in self.seen.iter().zip(&self.spots).enumerate() {
            let disturbed = self.closes == Some(number);
            let turns = seen.settled(disturbed);
            tally.entries += turns.map_err(|why| format!("Spot {number}: {why}"))?;
            tally.calls += seen.asked.load(Ordering::Relaxed);
            if spot.timers() > 0 {
                return Err(format!("Spot {number} has timers after its end"));
            }
        }
        Ok(tally)
    }
}

/// Closes one Spot some time into the round.
fn closer(
    executor: &Executor,
    world: &Arc<World>,
    random: &mut Random,
) -> JoinHandle<Result<(), String>> {
    let world = Arc::clone(world);
    let turns = random.below(800);
    executor.spawn(async move {
        let Some(number) = world.closes else {
            return Ok(());
        };
        for _ in 0..turns {
            yield_now().await;
        }
        let closed = world.host.close(world.spots[number].name()).await;
        let began = world.seen[number].turns.load(Ordering::Relaxed);
        yield_now().await;
        if world.seen[number].turns.load(Ordering::Relaxed) != began {
            return Err(format!("a turn of Spot {number} began after its close"));
        }
        closed.map_err(|why| why.to_string())
    })
}

/// What one piece of work does.
#[derive(Clone, Copy)]
struct Script {
    suspends: u64,
    yields: u64,
    /// Asks another Spot with its gate kept, or while it yields.
    asks: Option<(usize, bool)>,
    works: bool,
    panics: bool,
}

impl Script {
    fn new(spot: usize, random: &mut Random) -> Self {
        let kept = random.once_in(2);
        let above = spot as u64 + 1;
        let other = if kept {
            above + random.below(SPOTS as u64)
        } else {
            random.below(SPOTS as u64)
        };
        let asks = random.once_in(4) && other < SPOTS as u64;
        Self {
            suspends: random.below(3),
            yields: random.below(3),
            asks: asks.then_some((other as usize, kept)),
            works: random.once_in(6),
            panics: random.once_in(12),
        }
    }
}

type Body = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Runs `wait` with the gate returned.
async fn away<F: Future>(turn: Turn<Room>, mark: Mark, wait: F) -> ((Turn<Room>, Mark), F::Output) {
    mark.end();
    let (mut turn, out) = turn.yield_on(wait).await;
    let mark = turn.state().resume();
    ((turn, mark), out)
}

/// The body of a turn.
fn work(world: &Arc<World>, turn: Turn<Room>, mark: Mark, script: Script, answer: u64) -> Body {
    let spots = world.spots.clone();
    Box::pin(async move {
        let (mut turn, mut mark) = (turn, mark);
        for _ in 0..script.suspends {
            yield_now().await;
        }
        for _ in 0..script.yields {
            (turn, mark) = away(turn, mark, yield_now()).await.0;
        }
        if let Some((other, kept)) = script.asks {
            let inner = spots[other].request(|mut turn| async move {
                let mark = turn.state().begin();
                yield_now().await;
                mark.end();
                drop(turn);
            });
            let answer = if kept {
                inner.await
            } else {
                let (back, answer) = away(turn, mark, inner).await;
                (turn, mark) = back;
                answer
            };
            if let Err(refused) = answer {
                // A Spot closes, or its queue is full with work that waits for this.
                assert_ne!(refused.kind(), SpotErrorKind::Panicked, "{refused}");
            }
        }
        if script.works {
            let cpu = turn.workers().cpu(|cancelled| cancelled.is_cancelled());
            (turn, mark) = away(turn, mark, cpu).await.0;
        }
        if script.panics {
            // Not through the hook, which would fill the screen.
            resume_unwind(Box::new("a turn that panics"));
        }
        mark.end();
        drop(turn);
        answer
    })
}

/// The body of an actor's turn. Its numbers are apart from the Spot's own, since the Spot's work passes it when its claim is
/// taken.
fn acts(
    mut turn: ActorTurn<Room, u64>,
    seen: &Arc<Seen>,
    caller: u64,
    number: u64,
    script: Script,
) -> impl Future<Output = u64> + Send + use<> {
    let claim = seen.claim();
    let mut mark = turn.state().begin_of(caller + ACTORS, number);
    *turn.actor() += 1;
    async move {
        // Dropped in the reverse order.
        let (mut turn, claim) = (turn, claim);
        for _ in 0..script.yields {
            let before = *turn.actor();
            mark.end();
            (turn, ()) = turn.yield_on(yield_now()).await;
            mark = turn.state().resume();
            if *turn.actor() != before {
                mark.breach("another turn of the actor ran while one had yielded");
            }
        }
        mark.end();
        drop(claim);
        drop(turn);
        number
    }
}

/// One piece of work of a caller: any form, left in any way.
async fn ask(
    world: &Arc<World>,
    caller: u64,
    number: u64,
    random: &mut Random,
) -> Result<(), String> {
    let at = random.below(SPOTS as u64) as usize;
    let (spot, seen) = (&world.spots[at], &world.seen[at]);
    let script = Script::new(at, random);
    let polls = if random.once_in(5) {
        random.below(6)
    } else {
        u64::MAX
    };
    let here = Arc::clone(world);
    let run = move |mut turn: Turn<Room>| {
        let mark = turn.state().begin_of(caller, number);
        work(&here, turn, mark, script, number)
    };
    seen.asked
        .fetch_add(u64::from(polls > 0), Ordering::Relaxed);
    // Until it is known what became of it: this task may be aborted at any await.
    let unknown = || seen.left.fetch_add(1, Ordering::Relaxed);
    let known = |accepted: bool| {
        seen.left.fetch_sub(1, Ordering::Relaxed);
        seen.accepted
            .fetch_add(u64::from(accepted), Ordering::Relaxed);
    };
    let closes = world.closes == Some(at);
    match random.below(9) {
        7 => {
            unknown();
            let seen = Arc::clone(seen);
            let work = move |turn: ActorTurn<Room, u64>| acts(turn, &seen, caller, number, script);
            match leave_after(polls, world.actors[at].request(work)).await {
                Ended::Answered(Ok(answer)) if answer == number => known(true),
                Ended::Answered(Err(error)) if error.kind() == SpotErrorKind::Closed && closes => {}
                Ended::Answered(answer) => {
                    return Err(format!("asked an actor {number}, was answered {answer:?}"));
                }
                Ended::Dropped => {}
                Ended::Panicked => return Err("a request to an actor panicked".into()),
            }
        }
        0..3 => {
            unknown();
            match leave_after(polls, spot.request(run)).await {
                Ended::Answered(Ok(answer)) if answer == number && !script.panics => known(true),
                Ended::Answered(Err(error)) if error.kind() == SpotErrorKind::Panicked => {
                    known(true);
                    if !script.panics {
                        return Err(format!("a request: {error}"));
                    }
                }
                // It may have begun.
                Ended::Answered(Err(error)) if error.kind() == SpotErrorKind::Closed && closes => {}
                Ended::Answered(answer) => {
                    return Err(format!("asked {number}, was answered {answer:?}"));
                }
                Ended::Dropped => {}
                Ended::Panicked => return Err("a request panicked".into()),
            }
        }
        3..6 => {
            unknown();
            match leave_after(polls, spot.send(run)).await {
                Ended::Answered(Ok(())) => known(true),
                Ended::Answered(Err(error)) if error.kind() == SpotErrorKind::Closed && closes => {
                    known(false);
                }
                Ended::Answered(Err(error)) => return Err(format!("a send: {error}")),
                Ended::Dropped => {}
                Ended::Panicked => return Err("a send panicked".into()),
            }
        }
        6 => match leave_after(polls, spot.enter()).await {
            Ended::Answered(Ok(mut turn)) => {
                let mark = turn.state().begin();
                if random.once_in(2) {
                    yield_now().await;
                }
                mark.end();
                drop(turn);
            }
            Ended::Answered(Err(error)) if error.kind() == SpotErrorKind::Closed && closes => {}
            Ended::Answered(Err(error)) => return Err(format!("entering: {error}")),
            Ended::Dropped => {}
            Ended::Panicked => return Err("entering panicked".into()),
        },
        _ => {
            let timer = random.below(4);
            if random.once_in(2) {
                spot.cancel_timer(&format!("timer-{timer}"));
            } else {
                let period = Duration::from_micros(500 + random.below(5_000));
                world.timer(at, timer, Schedule::every(period), random.below(3));
            }
        }
    }
    Ok(())
}
