//! Turns: what a gate costs, beside mutexes and beside other crates' actors.
//!
//! What is asked is always the same: one is added to a number that nobody else may touch meanwhile, and what it has come to
//! comes back.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix::Actor as _;
use bursar_spot::{Host, Spot, Turn};
use kameo::actor::{ActorRef as KameoRef, Spawn as _};
use ractor::ActorRef as RactorRef;
use ractor::rpc::CallResult;
use tokio::runtime::Runtime as Tokio;
use tokio::task::unconstrained;

use super::Pace;
use super::fixtures::{forever, one_thread, runtime, two_workers};
use crate::measure::{Batch, Contender};
use crate::peers::{Actix, Add, AddLater, Kameo, Ractor, RactorAdd, suspend};
use crate::report::{Column, Seen};
use crate::work::Work;

pub(crate) const ENTER: &str = "bursar enter";
pub(crate) const REQUEST: &str = "bursar request";
pub(crate) const YIELD: &str = "bursar yield_on";
pub(crate) const IDLE: &str = "bursar Spot";
pub(super) const ACTIX: &str = "actix";
pub(crate) const RACTOR: &str = "ractor";
pub(crate) const KAMEO: &str = "kameo";
pub(super) const SPAWN: &str = "tokio spawn and await";

/// A host on this executor, which lives until the program ends.
pub(crate) fn host(tokio: &Tokio) -> &'static Host {
    let _entered = tokio.enter();
    forever(Host::new(forever(runtime(8, 8))))
}

fn spot(tokio: &Tokio) -> &'static Spot<u64> {
    forever(host(tokio).create("spot", 0).expect("a name that is free"))
}

fn ractor(tokio: &Tokio) -> RactorRef<RactorAdd> {
    let actor = tokio.block_on(ractor::Actor::spawn(None, Ractor, ()));
    actor.expect("an actor").0
}

fn kameo(tokio: &Tokio) -> KameoRef<Kameo> {
    tokio.block_on(async { Kameo::spawn(Kameo::default()) })
}

async fn add(mut turn: Turn<u64>) -> u64 {
    *turn.state() += 1;
    *turn.state()
}

async fn add_later(mut turn: Turn<u64>) -> u64 {
    suspend().await;
    *turn.state() += 1;
    *turn.state()
}

async fn of_ractor(actor: &RactorRef<RactorAdd>, add: Add) -> u64 {
    match actor.call(|back| RactorAdd(add, back), None).await {
        Ok(CallResult::Success(count)) => count,
        other => panic!("no answer: {other:?}"),
    }
}

async fn of_kameo(actor: &KameoRef<Kameo>, add: Add) -> u64 {
    actor.ask(add).await.expect("an answer")
}

/// A contender whose calls follow each other in one task of this thread's executor: a task like others, since one that the
/// executor is entered for is polled at another pace.
macro_rules! calls {
    ($name:expr, $tokio:expr, |$i:ident| $call:expr) => {{
        let tokio = $tokio;
        Contender::new($name, move |n| {
            let calls = unconstrained(async move {
                for $i in 0..n {
                    let answer = $call.await;
                    black_box(&answer);
                }
            });
            tokio.block_on(tokio.spawn(calls)).expect("no panic");
        })
    }};
}

pub(super) fn enter() -> Vec<Contender<'static>> {
    let tokio = one_thread();
    let spot = spot(tokio);
    let theirs = forever(async_lock::Mutex::new(0_u64));
    let tokios = forever(tokio::sync::Mutex::new(0_u64));
    vec![
        calls!(ENTER, tokio, |_i| async {
            let mut turn = spot.enter().await.expect("an open Spot");
            *turn.state() += 1;
            *turn.state()
        }),
        calls!("async-lock Mutex", tokio, |_i| async {
            let mut held = theirs.lock().await;
            *held += 1;
            *held
        }),
        calls!("tokio Mutex", tokio, |_i| async {
            let mut held = tokios.lock().await;
            *held += 1;
            *held
        }),
    ]
}

/// One asker on this thread; actix has an executor of its own there.
fn one_asker(suspends: bool) -> Vec<Contender<'static>> {
    let tokio = one_thread();
    let spot = spot(tokio);
    let (ractor, kameo) = (forever(ractor(tokio)), forever(kameo(tokio)));
    let system = actix::System::new();
    let actix = system.block_on(async { Actix::default().start() });
    let add_to = Add {
        suspend: suspends,
        work: Work::NONE,
    };
    let ours = if suspends {
        calls!(REQUEST, tokio, |_i| spot.request(add_later))
    } else {
        calls!(REQUEST, tokio, |_i| spot.request(add))
    };
    let spawned = if suspends {
        calls!(SPAWN, tokio, |i| tokio.spawn(async move {
            suspend().await;
            i
        }))
    } else {
        calls!(SPAWN, tokio, |i| tokio.spawn(async move { i }))
    };
    let theirs = Contender::new(ACTIX, move |n| {
        let actix = actix.clone();
        let calls = unconstrained(async move {
            for _ in 0..n {
                if suspends {
                    black_box(actix.send(AddLater).await.is_ok());
                } else {
                    black_box(actix.send(add_to).await.is_ok());
                }
            }
        });
        let done = system.block_on(async { actix::spawn(calls).await });
        done.expect("no panic");
    });
    vec![
        ours,
        theirs,
        calls!(RACTOR, tokio, |_i| of_ractor(ractor, add_to)),
        calls!(KAMEO, tokio, |_i| of_kameo(kameo, add_to)),
        spawned,
    ]
}

pub(super) fn request() -> Vec<Contender<'static>> {
    one_asker(false)
}

pub(super) fn suspends() -> Vec<Contender<'static>> {
    one_asker(true)
}

/// A contender of so many tasks on two workers. `task(n)` makes `n` calls and says how many of them had to queue, if it
/// knows.
fn tasks<F>(
    name: &'static str,
    askers: u32,
    mut task: impl FnMut(u32) -> F + 'static,
) -> Contender<'static>
where
    F: Future<Output = Option<u32>> + Send + 'static,
{
    let tokio = two_workers();
    Contender::timed(name, move |n| {
        let began = Instant::now();
        let running: Vec<_> = (0..askers).map(|_| tokio.spawn(task(n))).collect();
        let queued = tokio.block_on(async {
            let mut queued = Some(0);
            for task in running {
                let more = task.await.expect("calls that do not panic");
                queued = queued.zip(more).map(|(queued, more)| queued + more);
            }
            queued
        });
        let calls = askers * n;
        let batch = Batch::lasting(began.elapsed(), calls);
        match queued {
            Some(queued) => batch.queued(f64::from(queued) / f64::from(calls)),
            None => batch,
        }
    })
}

thread_local! {
    /// The request that this thread polls for the first time.
    static ASKING: Cell<u64> = const { Cell::new(0) };
}

/// Whether the turn did not run within the first poll of its request: then it had to queue.
async fn asks(spot: &Spot<u64>, number: u64, work: Work) -> bool {
    let work = move |turn| {
        let queued = ASKING.get() != number;
        async move {
            work.run();
            (add(turn).await, queued)
        }
    };
    let mut request = pin!(spot.request(work));
    let mut first = true;
    let answer = poll_fn(|cx| {
        if !std::mem::take(&mut first) {
            return request.as_mut().poll(cx);
        }
        ASKING.set(number);
        let polled = request.as_mut().poll(cx);
        ASKING.set(0);
        polled
    });
    let (count, queued) = answer.await.expect("an open Spot");
    black_box(count);
    queued
}

fn askers(askers: u32, work: Work) -> Vec<Contender<'static>> {
    let tokio = two_workers();
    let spot = spot(tokio);
    let (ractor, kameo) = (ractor(tokio), kameo(tokio));
    let numbers = forever(AtomicU64::new(1));
    let add = Add {
        suspend: false,
        work,
    };
    vec![
        tasks(REQUEST, askers, move |n| async move {
            let first = numbers.fetch_add(u64::from(n), Ordering::Relaxed);
            let mut queued = 0;
            for number in first..first + u64::from(n) {
                queued += u32::from(asks(spot, number, work).await);
            }
            Some(queued)
        }),
        tasks(RACTOR, askers, move |n| {
            let actor = ractor.clone();
            async move {
                for _ in 0..n {
                    black_box(of_ractor(&actor, add).await);
                }
                None
            }
        }),
        tasks(KAMEO, askers, move |n| {
            let actor = kameo.clone();
            async move {
                for _ in 0..n {
                    black_box(of_kameo(&actor, add).await);
                }
                None
            }
        }),
        tasks(SPAWN, askers, move |n| async move {
            for i in 0..n {
                black_box(tokio.spawn(async move { i }).await.is_ok());
            }
            None
        }),
    ]
}

pub(super) fn two_workers_one_asker() -> Vec<Contender<'static>> {
    askers(1, Work::NONE)
}

pub(super) fn many_askers() -> Vec<Contender<'static>> {
    askers(64, Work::NONE)
}

/// Turns so long that nobody waits for one to end but in the line. Tasks of the executor exclude nobody: they are no peers.
pub(super) fn long_turns() -> Vec<Contender<'static>> {
    let mut contenders = askers(64, Work::lasting(Duration::from_micros(5)));
    contenders.retain(|contender| contender.name != SPAWN);
    contenders
}

/// A body that yields `n` times, each time on a turn of its own Spot, which runs while the gate is returned.
async fn round_trips(spot: &'static Spot<u64>, n: u32) {
    let body = spot.request(move |mut turn| async move {
        for _ in 0..n {
            let (back, answer) = turn.yield_on(spot.request(add)).await;
            black_box(answer.is_ok());
            turn = back;
        }
    });
    body.await.expect("an open Spot");
}

/// The same between two actors of another crate, as near as they come: one asks the other and waits.
pub(super) fn yields() -> Vec<Contender<'static>> {
    let tokio = one_thread();
    let spot = spot(tokio);
    let (ractor, kameo) = (forever(ractor(tokio)), forever(kameo(tokio)));
    let add = Add {
        suspend: false,
        work: Work::NONE,
    };
    vec![
        Contender::new(YIELD, move |n| {
            let trips = tokio.spawn(unconstrained(round_trips(spot, n)));
            tokio.block_on(trips).expect("no panic");
        }),
        calls!(RACTOR, tokio, |_i| of_ractor(ractor, add)),
        calls!(KAMEO, tokio, |_i| of_kameo(kameo, add)),
    ]
}

/// Counts how often it is polled.
struct Counted<F> {
    future: Pin<Box<F>>,
    polls: Arc<AtomicU64>,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(cx)
    }
}

/// How often the executor polls what has been woken, for each round trip: the yielding body, and the turn that runs
/// meanwhile unless it is started in the body's own task.
pub(crate) fn wake_ups() -> f64 {
    const ROUNDS: u32 = 1000;
    let tokio = one_thread();
    let spot = spot(tokio);
    let polls = Arc::new(AtomicU64::new(0));
    let (of_body, of_others) = (Arc::clone(&polls), Arc::clone(&polls));
    let work = move |mut turn: Turn<u64>| {
        let future = Box::pin(async move {
            for _ in 0..ROUNDS {
                let (body, others) = (tokio::task::try_id(), Arc::clone(&of_others));
                let other = spot.request(move |turn| {
                    let elsewhere = tokio::task::try_id() != body;
                    others.fetch_add(u64::from(elsewhere), Ordering::Relaxed);
                    add(turn)
                });
                let (back, answer) = turn.yield_on(other).await;
                black_box(answer.is_ok());
                turn = back;
            }
        });
        Counted {
            future,
            polls: of_body,
        }
    };
    let ran = tokio.block_on(tokio.spawn(spot.request(work)));
    ran.expect("no panic").expect("an open Spot");
    // The first poll is the requester's.
    let woken = polls.load(Ordering::Relaxed).saturating_sub(1);
    woken as f64 / f64::from(ROUNDS)
}

/// Nothing is timed: what an idle one takes is counted by another program.
pub(super) fn idle(_: Pace) -> Vec<Seen> {
    let of = |name: &str, bytes| Seen::new(name).with(Column::Handle, bytes as f64);
    vec![
        of(IDLE, size_of::<Spot<u64>>()),
        of(RACTOR, size_of::<RactorRef<RactorAdd>>()),
        of(KAMEO, size_of::<KameoRef<Kameo>>()),
    ]
}
