//! F8: ticks are turns, in their Spot's gate and on its host's clock.
//!
//! Everything runs on one thread and by a clock turned by hand: after [`World::settle`] whatever could run has run.

#![allow(clippy::disallowed_methods, reason = "askers are tasks of their own")]

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar::{ManualClock, Runtime};
use bursar_spot::{Host, Overrun, PerActor, Schedule, Spot, SpotErrorKind, Tick};
use tokio::sync::Notify;
use tokio::task::yield_now;

const PERIOD: Duration = ms(10);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct World {
    clock: ManualClock,
    host: Host,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let runtime = Runtime::builder()
            .resource("unused", 1)
            .clock(clock.clone())
            .build()
            .expect("a runtime");
        Self {
            host: Host::new(&runtime),
            clock,
        }
    }

    fn spot(&self) -> Spot<Log> {
        self.host
            .create("spot", Log::default())
            .expect("a name that is free")
    }

    /// Lets everything run that can.
    async fn settle(&self) {
        for _ in 0..64 {
            yield_now().await;
        }
    }

    async fn turn(&self, by: u64) {
        self.clock.advance(ms(by));
        self.settle().await;
    }
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, what: impl Into<String>) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.push(what.into());
    }

    fn tick(&self, name: &str, tick: Tick) {
        let Tick {
            delivery,
            scheduled,
            skipped,
            ..
        } = tick;
        self.say(format!("{name} {delivery}/{scheduled}-{skipped}"));
    }

    fn said(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A timer whose handler notes its tick.
fn notes(spot: &Spot<Log>, log: &Log, name: &'static str, schedule: Schedule) {
    let log = log.clone();
    let registered = spot.timer(name, schedule, move |_, tick| {
        log.tick(name, tick);
        async {}
    });
    registered.expect("a schedule");
}

/// Holds the Spot's gate until told to end.
async fn hold(spot: &Spot<Log>) -> Arc<Notify> {
    let end = Arc::new(Notify::new());
    let told = Arc::clone(&end);
    let held = spot.send(move |turn| async move {
        told.notified().await;
        drop(turn);
    });
    held.await.expect("room in the queue");
    yield_now().await;
    end
}

/// A tick's work that waits to be told to end.
fn waits(end: &Arc<Notify>) -> impl Future<Output = ()> + Send + use<> {
    let end = Arc::clone(end);
    async move { end.notified().await }
}

#[tokio::test]
async fn f8_ticks_are_turns_that_come_when_they_are_due() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    let registered = spot.timer("t", Schedule::every(PERIOD), |mut turn, tick| async move {
        turn.state().tick("t", tick);
    });
    registered.expect("a schedule");
    let state = spot.request(|mut turn| async move { turn.state().clone() });
    let state = state.await.expect("a turn");
    world.turn(9).await;
    assert_eq!(state.said(), [] as [&str; 0]);
    world.turn(1).await;
    assert_eq!(state.said(), ["t 1/1-0"]);
    world.turn(10).await;
    assert_eq!(state.said(), ["t 2/2-0"]);
    // Once, for a name that is forgotten then.
    notes(&spot, &log, "once", Schedule::once(Duration::ZERO));
    world.settle().await;
    assert_eq!(
        (log.said(), spot.timers()),
        (vec!["once 1/1-0".to_owned()], 1)
    );
}

#[tokio::test]
async fn f8_while_a_turn_keeps_its_gate_no_tick_starts_and_late_ones_are_skipped() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    let end = hold(&spot).await;
    world.turn(35).await;
    assert_eq!(log.said(), [] as [&str; 0], "the gate is held");
    end.notify_one();
    world.settle().await;
    assert_eq!(log.said(), ["t 1/3-2"]);
    world.turn(5).await;
    assert_eq!(log.said(), ["t 2/4-0"]);
}

#[tokio::test]
async fn f8_catch_up_runs_passed_ticks_one_after_another_behind_what_waits() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    let schedule = Schedule::every(PERIOD).overrun(Overrun::catch_up(3));
    notes(&spot, &log, "t", schedule);
    let end = hold(&spot).await;
    world.turn(55).await;
    let said = log.clone();
    let request = spot.send(move |_| async move { said.say("request") });
    request.await.expect("room in the queue");
    end.notify_one();
    world.settle().await;
    assert_eq!(log.said(), ["t 1/3-2", "request", "t 2/4-0", "t 3/5-0"]);
    world.turn(5).await;
    assert_eq!(log.said(), ["t 4/6-0"]);
}

#[tokio::test]
async fn f8_a_delayed_tick_is_due_one_period_after_the_handler_ended() {
    let world = World::new();
    let (spot, log, end) = (world.spot(), Log::default(), Arc::new(Notify::new()));
    let (says, ends) = (log.clone(), Arc::clone(&end));
    let schedule = Schedule::every(PERIOD).overrun(Overrun::DelayNextTick);
    let registered = spot.timer("t", schedule, move |turn, tick| {
        says.tick("t", tick);
        let end = waits(&ends);
        async move {
            end.await;
            drop(turn);
        }
    });
    registered.expect("a schedule");
    world.turn(10).await;
    world.turn(27).await;
    assert_eq!(log.said(), ["t 1/1-0"], "it runs still");
    end.notify_one();
    world.settle().await;
    world.turn(9).await;
    assert_eq!(log.said(), [] as [&str; 0]);
    world.turn(1).await;
    assert_eq!(log.said(), ["t 2/2-0"]);
}

#[tokio::test]
async fn f8_what_an_earlier_generation_queued_does_not_run() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    world.turn(10).await;
    assert_eq!(log.said(), ["t 1/1-0"]);
    let end = hold(&spot).await;
    world.turn(10).await;
    let again = log.clone();
    let registered = spot.timer("t", Schedule::every(ms(3)), move |_, tick| {
        again.tick("again", tick);
        async {}
    });
    registered.expect("a schedule");
    end.notify_one();
    world.settle().await;
    assert_eq!(log.said(), [] as [&str; 0], "the queued tick is gone");
    world.turn(3).await;
    assert_eq!(log.said(), ["again 1/1-0"], "counted anew");
    world.turn(3).await;
    assert_eq!(
        (log.said(), spot.timers()),
        (vec!["again 2/2-0".to_owned()], 1)
    );
}

#[tokio::test]
async fn f8_two_ticks_of_one_timer_never_run_at_once_whatever_their_generation() {
    let world = World::new();
    let (spot, log, end) = (world.spot(), Log::default(), Arc::new(Notify::new()));
    let (says, ends) = (log.clone(), Arc::clone(&end));
    let registered = spot.timer("t", Schedule::every(PERIOD), move |turn, _| {
        says.say("old begins");
        let (says, end) = (says.clone(), waits(&ends));
        async move {
            let (turn, ()) = turn.yield_on(end).await;
            says.say("old ends");
            drop(turn);
        }
    });
    registered.expect("a schedule");
    world.turn(10).await;
    // Its own next tick does not start while it has yielded, nor does that of another generation; other turns do.
    world.turn(30).await;
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    world.turn(25).await;
    let said = log.clone();
    let request = spot.request(move |_| async move { said.say("request") });
    request.await.expect("the gate is free");
    assert_eq!(log.said(), ["old begins", "request"]);
    end.notify_one();
    world.settle().await;
    assert_eq!(log.said(), ["old ends", "t 1/2-1"]);
    world.turn(5).await;
    assert_eq!(log.said(), ["t 2/3-0"]);
}

#[tokio::test]
async fn f8_cancelling_stops_what_has_not_started_and_nothing_else() {
    let world = World::new();
    let (spot, log, end) = (world.spot(), Log::default(), Arc::new(Notify::new()));
    assert!(!spot.cancel_timer("t"), "there is none");
    // Armed.
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    assert!(spot.cancel_timer("t"));
    assert!(!spot.cancel_timer("t"), "it is gone");
    world.turn(10).await;
    // Queued.
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    let holds = hold(&spot).await;
    world.turn(10).await;
    assert!(spot.cancel_timer("t"));
    holds.notify_one();
    world.settle().await;
    assert_eq!((log.said().len(), spot.timers()), (0, 0));
    // Running: it goes on, and nothing follows.
    let (says, ends) = (log.clone(), Arc::clone(&end));
    let registered = spot.timer("t", Schedule::every(PERIOD), move |turn, tick| {
        says.tick("t", tick);
        let (says, end) = (says.clone(), waits(&ends));
        async move {
            end.await;
            says.say("end");
            drop(turn);
        }
    });
    registered.expect("a schedule");
    world.turn(10).await;
    assert!(spot.cancel_timer("t"));
    end.notify_one();
    world.turn(50).await;
    assert_eq!(log.said(), ["t 1/1-0", "end"]);
    assert_eq!(spot.timers(), 0, "and the name is forgotten");
}

#[tokio::test]
async fn f8_a_handler_may_cancel_or_replace_its_own_timer() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    let (this, says) = (spot.clone(), log.clone());
    let registered = spot.timer("t", Schedule::every(PERIOD), move |_, tick| {
        says.tick("t", tick);
        if tick.delivery == 2 {
            notes(&this, &says, "t", Schedule::once(ms(1)));
        }
        async {}
    });
    registered.expect("a schedule");
    let (this, says) = (spot.clone(), log.clone());
    let registered = spot.timer("u", Schedule::every(ms(15)), move |_, tick| {
        says.tick("u", tick);
        assert!(this.cancel_timer("u"));
        async {}
    });
    registered.expect("a schedule");
    for _ in 0..5 {
        world.turn(10).await;
    }
    assert_eq!(log.said(), ["t 1/1-0", "u 1/1-0", "t 2/2-0", "t 1/1-0"]);
    assert_eq!(spot.timers(), 0);
}

#[tokio::test]
async fn f8_a_panic_ends_its_tick_alone() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    let says = log.clone();
    let registered = spot.timer("t", Schedule::every(PERIOD), move |_, tick| {
        says.tick("t", tick);
        assert!(tick.delivery != 1, "the first one panics while it is made");
        async move { assert!(tick.delivery != 2, "the second one while it runs") }
    });
    registered.expect("a schedule");
    for _ in 0..3 {
        world.turn(10).await;
    }
    assert_eq!(log.said(), ["t 1/1-0", "t 2/2-0", "t 3/3-0"]);
}

#[tokio::test]
async fn f8_a_timer_that_is_always_late_lets_other_work_in() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    let (clock, says) = (world.clock.clone(), log.clone());
    let schedule = Schedule::every(ms(1)).overrun(Overrun::catch_up(5));
    let registered = spot.timer("t", schedule, move |_, _| {
        // Each takes longer than a period, so another is due as soon as it ends.
        clock.advance(ms(2));
        says.say("tick");
        async {}
    });
    registered.expect("a schedule");
    world.clock.advance(ms(1));
    let asker = spot.clone();
    let asked = tokio::spawn(async move {
        for _ in 0..10 {
            let request = asker.request(|_| async {});
            request.await.expect("the gate comes free");
            yield_now().await;
        }
    });
    asked.await.expect("requests that end");
    assert!(spot.cancel_timer("t"));
    assert!(!log.said().is_empty(), "and the other work lets it in");
}

#[tokio::test]
async fn f8_timers_cost_no_task_each() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for n in 0..10_000_u32 {
        let schedule = Schedule::every(PERIOD + Duration::from_micros(n.into()));
        let log = log.clone();
        let name = format!("t{n}");
        let registered = spot.timer(&name, schedule, move |_, _| {
            log.say("");
            async {}
        });
        registered.expect("a schedule");
    }
    world.settle().await;
    assert_eq!(metrics.num_alive_tasks() - before, 1, "the driver");
    assert_eq!(spot.timers(), 10_000);
    world.clock.advance(ms(20));
    for _ in 0..10_000 {
        yield_now().await;
    }
    assert_eq!(log.said().len(), 10_000, "each once");
}

#[tokio::test]
async fn f8_a_period_of_zero_is_an_invalid_operation() {
    let world = World::new();
    let spot = world.spot();
    let refused = spot.timer("t", Schedule::every(Duration::ZERO), |_, _| async {});
    let refused = refused.expect_err("it would be due for ever");
    assert_eq!(refused.kind(), SpotErrorKind::InvalidOperation);
    assert_eq!(
        refused.to_string(),
        "invalid operation on Spot \"spot\": timer \"t\" has a period of zero: it must be longer"
    );
}

#[tokio::test]
async fn f8_a_spot_that_closes_ticks_no_more() {
    let world = World::new();
    let (spot, log, end) = (world.spot(), Log::default(), Arc::new(Notify::new()));
    notes(&spot, &log, "armed", Schedule::every(ms(50)));
    notes(&spot, &log, "queued", Schedule::every(PERIOD));
    let (says, ends) = (log.clone(), Arc::clone(&end));
    let registered = spot.timer("running", Schedule::every(ms(5)), move |turn, tick| {
        says.tick("running", tick);
        let (says, end) = (says.clone(), waits(&ends));
        async move {
            end.await;
            says.say("end");
            drop(turn);
        }
    });
    registered.expect("a schedule");
    world.turn(5).await;
    world.turn(10).await;
    let mut closed = tokio_test::task::spawn(world.host.close("spot"));
    assert!(closed.poll().is_pending(), "a tick runs");
    let refused = spot.timer("late", Schedule::once(ms(1)), |_, _| async {});
    assert_eq!(
        refused.map_err(|refused| refused.kind()),
        Err(SpotErrorKind::Closed)
    );
    assert!(!spot.cancel_timer("armed"), "it is cancelled already");
    end.notify_one();
    closed.await.expect("a Spot");
    world.turn(100).await;
    assert_eq!(log.said(), ["running 1/1-0", "end"]);
    assert_eq!((spot.timers(), Arc::strong_count(&log.0)), (0, 1));
}

/// A timer whose handler posts to its own Spot; the Spot is closed at any time.
async fn close_among_ticks(host: &Host, clock: &ManualClock, name: &str, mut random: u64) {
    for _ in 0..1_250 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let spot = host.create(name, 0_u32).expect("the last one has ended");
        let closed = Arc::new(AtomicBool::new(false));
        let (this, told) = (spot.clone(), Arc::clone(&closed));
        let registered = spot.timer("t", Schedule::every(ms(1)), move |mut turn, _| {
            assert!(!told.load(Ordering::SeqCst), "a tick after the close");
            *turn.state() += 1;
            let this = this.clone();
            async move {
                let posted = this
                    .send(|mut turn| async move { *turn.state() += 1 })
                    .await;
                if let Err(refused) = posted {
                    assert_eq!(refused.kind(), SpotErrorKind::Closed);
                }
                drop(turn);
            }
        });
        registered.expect("a schedule");
        for _ in 0..(random >> 33) % 4 {
            clock.advance(ms(1));
            for _ in 0..(random >> 40) % 4 {
                yield_now().await;
            }
        }
        // A close that waits for a tick that waits for the close would wait for ever.
        let closing = tokio::time::timeout(Duration::from_secs(60), host.close(name));
        let ended = closing.await.expect("a close that ends");
        ended.expect("a Spot");
        closed.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_30_a_spot_closes_among_ticks_that_post_to_it_and_none_starts_after() {
    let world = Arc::new(World::new());
    let rounds: Vec<_> = (0..4)
        .map(|which| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let name = format!("spot-{which}");
                close_among_ticks(&world.host, &world.clock, &name, which).await;
            })
        })
        .collect();
    for rounds in rounds {
        rounds.await.expect("no tick after a close");
    }
}

#[tokio::test]
async fn f8_where_gates_are_not_shared_a_timer_has_one_of_its_own() {
    let world = World::new();
    let (log, end) = (Log::default(), Arc::new(Notify::new()));
    let made = world.host.spot("spot").kind::<PerActor>().create(());
    let spot = made.expect("a name that is free");
    let (says, ends) = (log.clone(), Arc::clone(&end));
    let registered = spot.timer("slow", Schedule::every(PERIOD), move |turn, tick| {
        says.tick("slow", tick);
        let end = waits(&ends);
        async move {
            end.await;
            drop(turn);
        }
    });
    registered.expect("a schedule");
    let says = log.clone();
    let registered = spot.timer("other", Schedule::every(ms(15)), move |turn, tick| {
        assert_eq!(turn.name(), "spot");
        says.tick("other", tick);
        async {}
    });
    registered.expect("a schedule");
    world.turn(10).await;
    world.turn(10).await;
    // The Spot's own turns go on as well.
    spot.request(|_| async {}).await.expect("a turn");
    world.turn(15).await;
    assert_eq!(log.said(), ["slow 1/1-0", "other 1/1-0", "other 2/2-0"]);
    end.notify_one();
    world.settle().await;
    assert_eq!(
        log.said(),
        ["slow 2/3-1"],
        "and its own next tick has waited"
    );
}

#[tokio::test]
async fn f8_a_host_that_shuts_down_lets_queued_ticks_run_and_takes_in_no_more() {
    let world = World::new();
    let (spot, log) = (world.spot(), Log::default());
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    let end = hold(&spot).await;
    world.turn(10).await;
    let mut shutdown = tokio_test::task::spawn(world.host.shutdown_within(ms(1_000)));
    assert!(shutdown.poll().is_pending(), "a turn runs");
    world.turn(50).await;
    end.notify_one();
    let report = shutdown.await.expect("all ends");
    assert_eq!((report.closed, report.cut_short, report.working), (1, 0, 0));
    assert_eq!(log.said(), ["t 1/6-5"], "the accepted one alone");
    assert_eq!(Arc::strong_count(&log.0), 1);
}

#[tokio::test]
async fn f8_timers_end_with_the_last_handle_of_their_host() {
    let World { clock, host } = World::new();
    let spot = host.create("spot", Log::default()).expect("a free name");
    let log = Log::default();
    notes(&spot, &log, "t", Schedule::every(PERIOD));
    drop(host);
    clock.advance(PERIOD);
    for _ in 0..64 {
        yield_now().await;
    }
    assert_eq!(log.said(), [] as [&str; 0]);
    assert_eq!((spot.timers(), Arc::strong_count(&log.0)), (0, 1));
    let refused = spot.timer("late", Schedule::once(PERIOD), |_, _| async {});
    let refused = refused.map_err(|refused| refused.kind());
    assert_eq!(refused, Err(SpotErrorKind::ShuttingDown));
}
