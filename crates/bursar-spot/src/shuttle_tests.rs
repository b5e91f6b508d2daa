//! The strand under shuttle, which chooses every interleaving of its locks: random and PCT schedules.
//!
//! `RUSTFLAGS="--cfg bursar_shuttle" cargo test -p bursar-spot --release --lib shuttle`. `SPOT_SCHEDULES` says how many
//! schedules each scenario runs under each scheduler (2,000 unless said).

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{ManualClock, Runtime};
use shuttle::future::{block_on, spawn};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

use crate::{CloseReason, Host, PerActor, Schedule, Spot, SpotErrorKind, Turn};

fn check(scenario: fn()) {
    let schedules = std::env::var("SPOT_SCHEDULES")
        .ok()
        .and_then(|told| told.parse().ok())
        .unwrap_or(2_000);
    Runner::new(RandomScheduler::new(schedules), Config::new()).run(scenario);
    Runner::new(PctScheduler::new(3, schedules), Config::new()).run(scenario);
}

fn host() -> Host {
    host_on(ManualClock::new())
}

fn host_on(clock: ManualClock) -> Host {
    let runtime = Runtime::builder().resource("unit", 1).clock(clock);
    Host::new(&runtime.build().expect("the budget is right"))
}

/// One turn's stretch of work: nobody else is inside meanwhile.
struct Section(Arc<AtomicBool>);

impl Section {
    fn enter(inside: &Arc<AtomicBool>) -> Self {
        assert!(!inside.swap(true, Ordering::Relaxed), "two turns at once");
        Self(Arc::clone(inside))
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Gives others their turn on the executor.
async fn pause() {
    shuttle::future::yield_now().await;
}

async fn yielding(mut turn: Turn<u32>, inside: Arc<AtomicBool>) {
    let section = Section::enter(&inside);
    *turn.state() += 1;
    drop(section);
    let (mut turn, ()) = turn.yield_on(pause()).await;
    let _section = Section::enter(&inside);
    *turn.state() += 1;
}

#[test]
fn shuttle_f1_turns_exclude_each_other_and_none_is_lost() {
    check(|| {
        block_on(async {
            let host = host();
            let spot = host.create("s", 0_u32).expect("the name is free");
            let inside = Arc::new(AtomicBool::new(false));
            let askers: Vec<_> = (0..3)
                .map(|asker| {
                    let (spot, inside) = (spot.clone(), Arc::clone(&inside));
                    spawn(async move {
                        match asker {
                            0 => {
                                let asked = spot.request(move |turn| yielding(turn, inside));
                                asked.await.expect("it stays open");
                            }
                            1 => {
                                let mut turn = spot.enter().await.expect("it stays open");
                                let _section = Section::enter(&inside);
                                *turn.state() += 2;
                            }
                            _ => {
                                let sent = spot.send(move |turn| yielding(turn, inside));
                                sent.await.expect("it stays open");
                            }
                        }
                    })
                })
                .collect();
            for asker in askers {
                asker.await.expect("no asker fails");
            }
            // What was sent has been accepted, and is before this.
            loop {
                let total = spot.request(|mut turn| async move { *turn.state() });
                if total.await.expect("it stays open") == 6 {
                    break;
                }
                pause().await;
            }
        });
    });
}

#[test]
fn shuttle_f11_a_close_races_a_yield_a_request_and_an_entered_turn() {
    check(|| {
        block_on(async {
            let host = host();
            let (last, after) = (
                Arc::new(AtomicU32::new(0)),
                Arc::new(AtomicBool::new(false)),
            );
            let (closings, over) = (Arc::clone(&last), Arc::clone(&after));
            let spot: Spot<u32> = host
                .spot("s")
                .on_closing(move |_turn, reason| {
                    assert_eq!(reason, CloseReason::ExplicitClose);
                    closings.fetch_add(1, Ordering::Relaxed);
                    over.store(true, Ordering::Relaxed);
                    async {}
                })
                .create(0)
                .expect("the name is free");
            let body = |over: Arc<AtomicBool>| {
                move |turn: Turn<u32>| async move {
                    let (_turn, ()) = turn.yield_on(pause()).await;
                    assert!(!over.load(Ordering::Relaxed), "it ran after the last turn");
                }
            };
            let mut askers = Vec::new();
            for enters in [false, true] {
                let (spot, work) = (spot.clone(), body(Arc::clone(&after)));
                askers.push(spawn(async move {
                    let ended = if enters {
                        spot.enter().await.map(drop)
                    } else {
                        spot.request(work).await
                    };
                    if let Err(error) = ended {
                        assert_eq!(error.kind(), SpotErrorKind::Closed);
                    }
                }));
            }
            let closes = host.clone();
            askers.push(spawn(async move {
                closes.close("s").await.expect("there is such a Spot");
            }));
            for asker in askers {
                asker.await.expect("no asker fails");
            }
            assert_eq!(last.load(Ordering::Relaxed), 1);
            assert!(host.find::<u32>("s").is_none());
        });
    });
}

#[test]
fn shuttle_f6_a_requester_that_leaves_loses_its_result_and_nothing_else() {
    check(|| {
        block_on(async {
            let host = host();
            let spot = host.create("s", 0_u32).expect("the name is free");
            let leaves = {
                let spot = spot.clone();
                spawn(async move {
                    let work = |mut turn: Turn<u32>| async move {
                        pause().await;
                        *turn.state() += 1;
                    };
                    let mut asked = pin!(spot.request(work));
                    // Accepted at its first poll, and left there.
                    let _left = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                })
            };
            let gives_up = {
                let spot = spot.clone();
                spawn(async move {
                    let mut enters = pin!(spot.enter());
                    let mut polls = 0;
                    poll_fn(|cx| {
                        polls += 1;
                        if enters.as_mut().poll(cx).is_ready() || polls == 2 {
                            return Poll::Ready(());
                        }
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    })
                    .await;
                })
            };
            leaves.await.expect("no asker fails");
            gives_up.await.expect("no asker fails");
            let total = spot.request(|mut turn| async move { *turn.state() });
            assert_eq!(total.await.expect("it stays open"), 1);
        });
    });
}

#[test]
fn shuttle_f5_a_claim_outlasts_a_yield_and_passes_on() {
    check(|| {
        block_on(async {
            let host = host();
            let spot = host.create("s", ()).expect("the name is free");
            let actor = spot.actor(0_u32);
            let inside = Arc::new(AtomicBool::new(false));
            let askers: Vec<_> = (0..2)
                .map(|_| {
                    let (actor, spot) = (actor.clone(), spot.clone());
                    let inside = Arc::clone(&inside);
                    spawn(async move {
                        let asked = actor.request(move |turn| async move {
                            let _section = Section::enter(&inside);
                            let (mut turn, ()) = turn.yield_on(pause()).await;
                            *turn.actor() += 1;
                        });
                        asked.await.expect("it stays open");
                        spot.request(|_turn| async {}).await.expect("it stays open");
                    })
                })
                .collect();
            for asker in askers {
                asker.await.expect("no asker fails");
            }
            let total = actor.request(|mut turn| async move { *turn.actor() });
            assert_eq!(total.await.expect("it stays open"), 2);
        });
    });
}

#[test]
fn shuttle_f11_an_eviction_races_messages_and_loses_none() {
    check(|| {
        block_on(async {
            let host = host();
            let kept = Arc::new(AtomicU32::new(0));
            let sum = Arc::clone(&kept);
            let family = host
                .instances::<u32>("family")
                .on_closing(move |mut turn, _reason| {
                    sum.fetch_add(*turn.state(), Ordering::Relaxed);
                    async {}
                })
                .activate(|_| async { Ok::<_, String>(0) })
                .expect("the name is free");
            let askers: Vec<_> = (0..2)
                .map(|_| {
                    let spot = family.at("a");
                    spawn(async move {
                        spot.request(|mut turn| async move { *turn.state() += 1 })
                            .await
                            .expect("it is made again");
                    })
                })
                .collect();
            family.at("a").evict();
            pause().await;
            family.at("a").evict();
            for asker in askers {
                asker.await.expect("no asker fails");
            }
            family.at("a").close().await.expect("nobody holds it");
            assert_eq!(kept.load(Ordering::Relaxed), 2);
        });
    });
}

/// Says nothing to the hook, which under shuttle takes every panic for the end of the test.
fn panics() {
    resume_unwind(Box::new("a turn panics"));
}

#[test]
fn shuttle_f12_a_panic_passes_the_gate_on() {
    check(|| {
        block_on(async {
            let host = host();
            let spot = host.create("s", 0_u32).expect("the name is free");
            let actor = spot.actor(());
            let inside = Arc::new(AtomicBool::new(false));
            let askers: Vec<_> = (0..4)
                .map(|asker| {
                    let (spot, actor) = (spot.clone(), actor.clone());
                    let inside = Arc::clone(&inside);
                    spawn(async move {
                        let asked = match asker {
                            0 => {
                                let asked = spot.request(|turn| async move {
                                    pause().await;
                                    panics();
                                    drop(turn);
                                });
                                asked.await
                            }
                            1 => {
                                let asked = actor.request(|turn| async move {
                                    let (_turn, ()) = turn.yield_on(pause()).await;
                                    panics();
                                });
                                asked.await
                            }
                            _ => spot.request(move |turn| yielding(turn, inside)).await,
                        };
                        let panicked = asked.map_err(|error| error.kind());
                        let expected = if asker < 2 {
                            Err(SpotErrorKind::Panicked)
                        } else {
                            Ok(())
                        };
                        assert_eq!(panicked, expected);
                    })
                })
                .collect();
            for asker in askers {
                asker.await.expect("no asker fails");
            }
            let total = spot.request(|mut turn| async move { *turn.state() });
            assert_eq!(total.await.expect("it stays open"), 4);
            actor
                .request(|_turn| async {})
                .await
                .expect("the claim is free");
        });
    });
}

#[test]
fn shuttle_f12_a_panic_that_closes_its_spot_runs_the_last_turn_once() {
    check(|| {
        block_on(async {
            let host = host();
            let last = Arc::new(AtomicU32::new(0));
            let closings = Arc::clone(&last);
            let spot: Spot<u32> = host
                .spot("s")
                .close_on_panic()
                .on_closing(move |_turn, reason| {
                    assert_eq!(reason, CloseReason::Panicked);
                    closings.fetch_add(1, Ordering::Relaxed);
                    async {}
                })
                .create(0)
                .expect("the name is free");
            let askers: Vec<_> = (0..3)
                .map(|asker| {
                    let spot = spot.clone();
                    spawn(async move {
                        let asked = spot.request(move |turn| async move {
                            let (_turn, ()) = turn.yield_on(pause()).await;
                            if asker < 2 {
                                panics();
                            }
                        });
                        match asked.await.map_err(|error| error.kind()) {
                            Ok(()) => assert_eq!(asker, 2),
                            Err(SpotErrorKind::Panicked) => assert!(asker < 2),
                            Err(kind) => assert_eq!(kind, SpotErrorKind::Closed),
                        }
                    })
                })
                .collect();
            for asker in askers {
                asker.await.expect("no asker fails");
            }
            while host.find::<u32>("s").is_some() {
                pause().await;
            }
            assert_eq!(last.load(Ordering::Relaxed), 1);
        });
    });
}

#[test]
fn shuttle_f8_a_timer_registered_again_races_its_own_tick() {
    check(|| {
        block_on(async {
            let clock = ManualClock::new();
            let host = host_on(clock.clone());
            let spot = host.create("s", ()).expect("the name is free");
            let inside = Arc::new(AtomicBool::new(false));
            let ran: Arc<[AtomicU32; 2]> = Arc::default();
            let register = {
                let (spot, ran) = (spot.clone(), Arc::clone(&ran));
                move |generation: usize| {
                    let (inside, ran) = (Arc::clone(&inside), Arc::clone(&ran));
                    let each = Schedule::every(Duration::from_millis(1));
                    let registered = spot.timer("t", each, move |turn: Turn<()>, tick| {
                        let section = Section::enter(&inside);
                        let count = ran[generation].fetch_add(1, Ordering::Relaxed) + 1;
                        assert_eq!(tick.delivery, u64::from(count));
                        async move {
                            // The claim is kept: neither generation ticks meanwhile.
                            let (_turn, ()) = turn.yield_on(pause()).await;
                            drop(section);
                        }
                    });
                    registered.expect("it stays open");
                }
            };
            register(0);
            let turns = clock.clone();
            let ticks = spawn(async move { turns.advance(Duration::from_millis(1)) });
            let again = spawn(async move { register(1) });
            ticks.await.expect("no task fails");
            again.await.expect("no task fails");
            // One tick of the first was due, and whatever it had queued does not run after it.
            let counts = || [0, 1].map(|at| ran[at].load(Ordering::Relaxed));
            assert!(counts()[0] <= 1);
            clock.advance(Duration::from_millis(1));
            while counts()[1] == 0 {
                pause().await;
            }
            spot.cancel_timer("t");
            host.close("s").await.expect("nobody holds it");
            let ended = counts();
            clock.advance(Duration::from_millis(5));
            pause().await;
            assert_eq!((counts(), ended[0] <= 1), (ended, true));
        });
    });
}

#[test]
fn shuttle_f6_work_waits_for_space_no_longer_than_its_gate_is_held() {
    check(|| {
        block_on(async {
            let host = host();
            let spot = host.spot("s").kind::<PerActor>().queue(1);
            let spot = spot.create(()).expect("the name is free");
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let actor = spot.actor(0_u32);
                    spawn(async move {
                        for number in 0..2 {
                            let sent = actor.send(move |mut turn| async move {
                                pause().await;
                                assert_eq!(*turn.actor(), number);
                                *turn.actor() += 1;
                            });
                            sent.await.expect("there will be space");
                        }
                        let asked = actor.request(|mut turn| async move { *turn.actor() });
                        assert_eq!(asked.await.expect("there will be space"), 2);
                    })
                })
                .collect();
            for sender in senders {
                sender.await.expect("no sender fails");
            }
        });
    });
}

#[test]
fn shuttle_f11_a_shutdown_lets_work_end_that_is_handed_on_meanwhile() {
    check(|| {
        block_on(async {
            let host = host();
            let [a, b] = ["a", "b"].map(|name| host.create(name, ()).expect("the name is free"));
            let ran = Arc::new(AtomicU32::new(0));
            let count = Arc::clone(&ran);
            let own = a.clone();
            let sent = a.send(move |turn| async move {
                pause().await;
                let sent = b.send(move |turn| async move {
                    let back = own.send(move |_turn| async move {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                    back.await.expect("live work may");
                    drop(turn);
                });
                sent.await.expect("live work may");
                drop(turn);
            });
            sent.await.expect("it is open");
            let far = Duration::from_secs(60);
            let report = host.shutdown_within(far).await.expect("all of it ends");
            assert_eq!((report.closed, report.cut_short), (2, 0));
            assert_eq!(ran.load(Ordering::Relaxed), 1);
        });
    });
}
