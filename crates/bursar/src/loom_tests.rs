//! Model-checked scenarios of the three lock protocols: the budget's word and queue, the key table, the drain.
//!
//! `RUSTFLAGS="--cfg bursar_loom" cargo test -p bursar --release --no-default-features --lib loom` explores every
//! interleaving with at most [`PREEMPTIONS`] preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says. The scenarios drive
//! [`Short`] and [`Holding`] as a call's polls do, so the code they check is the one that calls run. What a section guards is
//! a counter of relaxed loads and stores: it comes out right only if the engine's own orderings carry each holder's writes to
//! the next. In each of them somebody leaves where it can race with what the scenario is about: a call that waits, or was
//! granted what it waits for and has not noticed; one that holds everything; a drain that is forgotten.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::call::{Denied, Holding, Now, Short};
use crate::chain;
use crate::clock::{ClockHandle, ManualClock};
use crate::drain;
use crate::engine::{Engine, Plan};
use crate::key::Key;
use crate::policy::Policy;

/// How often at most a thread is preempted in an execution, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
const PREEMPTIONS: usize = 3;

/// Explores every interleaving of the scenario within the bound.
fn model(scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(scenario);
}

/// A runtime with budgets "a" and "b", and what its sections guard.
struct World {
    engine: Arc<Engine>,
    guarded: AtomicU64,
    /// Not a loom type: it is the test's own view and must not order anything.
    inside: std::sync::atomic::AtomicU32,
}

impl World {
    fn new(a: u32) -> Arc<Self> {
        let clock = ClockHandle::Custom(Arc::new(ManualClock::new()));
        let budgets = vec![("a".to_owned(), a), ("b".to_owned(), 1)];
        Arc::new(Self {
            engine: Arc::new(Engine::new(budgets, clock, Some(7)).expect("valid budgets")),
            guarded: AtomicU64::new(0),
            inside: std::sync::atomic::AtomicU32::new(0),
        })
    }

    fn plan(&self, claims: &[(&str, u32)]) -> Arc<Plan> {
        self.planned(Policy::pure(), claims)
    }

    fn planned<E>(&self, mut policy: Policy<E>, claims: &[(&str, u32)]) -> Arc<Plan> {
        for (budget, units) in claims {
            policy = policy.claim(*budget, *units);
        }
        self.engine
            .plan("operation", &policy.declared)
            .expect("a valid policy")
    }

    /// One section among those that exclude each other.
    fn section(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        assert_eq!(self.inside.fetch_add(1, Relaxed), 0, "two inside at once");
        let before = self.guarded.load(Ordering::Relaxed);
        thread::yield_now();
        self.guarded.store(before + 1, Ordering::Relaxed);
        self.inside.fetch_sub(1, Relaxed);
    }

    /// Everything is back and every call is accounted for.
    fn settled(&self, sections: u64) {
        assert_eq!(self.guarded.load(Ordering::Relaxed), sections);
        let stats = self.engine.stats();
        assert_eq!(stats.keys, 0);
        for budget in &stats.budgets {
            assert_eq!((budget.in_use, budget.waiting), (0, 0), "{budget:?}");
        }
        let total = stats.total();
        assert_eq!(total.admitted, total.finished, "{total:?}");
        assert!(total.started <= total.admitted, "{total:?}");
    }
}

/// Waits for what the plan and key need.
fn acquire<'h>(
    holding: &'h mut Holding<&Plan>,
    key: &'h Key,
) -> impl Future<Output = Result<(), Denied>> + 'h {
    poll_fn(move |cx| holding.poll(cx, key))
}

/// The beginning of a call's first poll, as `execute` makes it: the short way.
fn begin<'p>(plan: &'p Plan, key: &Key) -> (Short<'p>, Now, usize) {
    let here = plan.counters.here();
    let mut short = Short::new(plan, here.expect("under a checker every thread counts"));
    let (now, taken) = short.take(key);
    (short, now, taken)
}

/// A whole call around one section; true if it came to run.
fn call(world: &World, plan: &Plan, key: &str) -> bool {
    let key = Key::from(key);
    let (short, now, taken) = begin(plan, &key);
    if now == Now::Held {
        world.section();
        short.end();
        return true;
    }
    let mut holding = Holding::new(plan);
    short.move_to(&mut holding, taken);
    if now == Now::Full && holding.refuse_now().is_some() {
        return false;
    }
    let ran = block_on(acquire(&mut holding, &key)).is_ok();
    if ran {
        world.section();
    }
    ran
}

/// A call that leaves after its first poll, whatever that found.
fn leave(plan: &Plan, key: &str) {
    let key = Key::from(key);
    let (short, now, taken) = begin(plan, &key);
    let mut holding = Holding::new(plan);
    if now == Now::Held {
        short.executing(&mut holding, None);
        return;
    }
    short.move_to(&mut holding, taken);
    let mut waiting = pin!(acquire(&mut holding, &key));
    let _either = waiting
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
}

/// A call that holds all it needs: dropped, it leaves.
fn held(plan: &Arc<Plan>, key: &str) -> Holding<Arc<Plan>> {
    let mut holding = Holding::new(Arc::clone(plan));
    let polled = poll_once(&mut holding, key);
    assert!(matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
    holding
}

/// A call that waits: dropped, it leaves, and whatever it was granted meanwhile passes on.
fn waits(plan: &Arc<Plan>, key: &str) -> Holding<Arc<Plan>> {
    let mut holding = Holding::new(Arc::clone(plan));
    assert!(poll_once(&mut holding, key).is_pending());
    holding
}

fn poll_once(holding: &mut Holding<Arc<Plan>>, key: &str) -> Poll<Result<(), Denied>> {
    let mut cx = Context::from_waker(Waker::noop());
    holding.poll(&mut cx, &Key::from(key))
}

fn spawn(world: &Arc<World>, work: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || work(&world))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

#[test]
fn loom_b2_two_waiters_are_granted_one_by_one() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let (first, now, _) = begin(&plan, &Key::NONE);
        assert_eq!(now, Now::Held);
        world.section();
        let leaving = waits(&plan, "");
        let threads = [0, 1].map(|_| {
            let plan = Arc::clone(&plan);
            spawn(&world, move |world| assert!(call(world, &plan, "")))
        });
        drop(leaving);
        first.end();
        join(threads);
        world.settled(3);
    });
}

#[test]
fn loom_b2_a_heavy_waiter_and_a_light_one() {
    model(|| {
        let world = World::new(2);
        let (heavy, light) = (world.plan(&[("a", 2)]), world.plan(&[("a", 1)]));
        let first = held(&light, "");
        let leaving = waits(&heavy, "");
        let thread = spawn(&world, move |world| assert!(call(world, &heavy, "")));
        let other = Arc::clone(&light);
        let second = spawn(&world, move |_| {
            let mut holding = Holding::new(&*other);
            assert!(block_on(acquire(&mut holding, &Key::NONE)).is_ok());
        });
        drop(leaving);
        drop(first);
        join([thread, second]);
        world.settled(1);
    });
}

#[test]
fn loom_b8_units_granted_to_one_who_left_pass_on() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let (leaving, staying) = (Arc::clone(&plan), Arc::clone(&plan));
        let holder = held(&plan, "");
        let threads = [
            spawn(&world, move |_| leave(&leaving, "")),
            spawn(&world, move |world| assert!(call(world, &staying, ""))),
        ];
        drop(holder);
        join(threads);
        world.settled(1);
    });
}

#[test]
fn loom_b8_the_head_leaves_and_the_next_is_examined() {
    model(|| {
        let world = World::new(2);
        let (heavy, light) = (world.plan(&[("a", 2)]), world.plan(&[("a", 1)]));
        let holder = held(&light, "");
        let threads = [
            spawn(&world, move |_| leave(&heavy, "")),
            spawn(&world, {
                let light = Arc::clone(&light);
                move |world| assert!(call(world, &light, ""))
            }),
        ];
        // The holder stays: only the leaving head can make way.
        join(threads);
        drop(holder);
        world.settled(1);
    });
}

#[test]
fn loom_b4_whoever_does_not_wait_gives_all_back_while_a_drain_begins() {
    model(|| {
        let world = World::new(1);
        let claims = [("a", 1)];
        let plan = world.plan(&claims);
        let holder = held(&plan, "");
        let rejecting = world.planned(Policy::pure().reject(), &claims);
        let leaving = waits(&plan, "k");
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                drop(leaving);
                u64::from(call(&world, &rejecting, "k"))
            })
        };
        drop(holder);
        block_on(drain::shutdown(&world.engine, None)).expect("drained from outside");
        let seen = world.guarded.load(Ordering::Relaxed);
        assert_eq!(seen, caller.join().expect("no panic"));
        world.settled(seen);
    });
}

#[test]
fn loom_b7_two_budgets_in_name_order_never_lock_each_other_out() {
    model(|| {
        let world = World::new(1);
        let (one, other) = (
            world.plan(&[("a", 1), ("b", 1)]),
            world.plan(&[("b", 1), ("a", 1)]),
        );
        let second = held(&world.plan(&[("b", 1)]), "");
        // It holds the first and waits for the second.
        let leaving = waits(&one, "");
        let thread = spawn(&world, move |world| {
            drop(second);
            assert!(call(world, &other, ""));
        });
        drop(leaving);
        assert!(call(&world, &one, ""));
        join([thread]);
        world.settled(2);
    });
}

#[test]
fn loom_b6_one_key_excludes_and_passes_on() {
    model(|| {
        let world = World::new(8);
        let plan = world.plan(&[]);
        let threads = [0, 1].map(|_| {
            let plan = Arc::clone(&plan);
            spawn(&world, move |world| assert!(call(world, &plan, "k")))
        });
        leave(&plan, "k");
        assert!(call(&world, &plan, "k"));
        join(threads);
        world.settled(3);
    });
}

#[test]
fn loom_b8_a_key_granted_to_one_who_left_passes_on() {
    model(|| {
        let world = World::new(8);
        let plan = world.plan(&[]);
        let (leaving, staying) = (Arc::clone(&plan), Arc::clone(&plan));
        let threads = [
            spawn(&world, move |_| leave(&leaving, "k")),
            spawn(&world, move |world| assert!(call(world, &staying, "k"))),
        ];
        assert!(call(&world, &plan, "k"));
        join(threads);
        world.settled(2);
    });
}

#[test]
fn loom_d1_a_drain_ends_after_what_it_found() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let first = held(&plan, "");
        world.section();
        let leaving = waits(&plan, "");
        let first = spawn(&world, move |_| drop(first));
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                drop(leaving);
                u64::from(call(&world, &plan, ""))
            })
        };
        block_on(drain::shutdown(&world.engine, None)).expect("drained from outside");
        // What ran before the drain ended is seen, and nothing runs after it.
        let seen = world.guarded.load(Ordering::Relaxed);
        let ran = 1 + caller.join().expect("no panic");
        assert_eq!(seen, ran);
        join([first]);
        world.settled(ran);
    });
}

#[test]
fn loom_d1_a_drain_sees_keys_and_the_lobby() {
    for key in ["k", ""] {
        model(move || {
            let world = World::new(1);
            let plan = world.plan(&[]);
            let caller = {
                let (world, plan) = (Arc::clone(&world), Arc::clone(&plan));
                thread::spawn(move || u64::from(call(&world, &plan, key)))
            };
            let leaving = Arc::clone(&plan);
            let leaving = spawn(&world, move |_| leave(&leaving, key));
            block_on(drain::shutdown(&world.engine, None)).expect("drained from outside");
            let seen = world.guarded.load(Ordering::Relaxed);
            let total = world.engine.stats().total();
            assert_eq!(total.admitted, total.finished, "{total:?}");
            let ran = caller.join().expect("no panic");
            assert_eq!(seen, ran);
            join([leaving]);
            world.settled(ran);
        });
    }
}

#[test]
fn loom_d1_a_withdrawn_waiter_that_nobody_polls_blocks_no_drain() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let holder = held(&plan, "");
        let forgotten = waits(&plan, "");
        let drains = spawn(&world, |world| {
            block_on(drain::shutdown(&world.engine, None)).expect("drained from outside");
            let total = world.engine.stats().total();
            assert_eq!(total.admitted, total.finished);
        });
        // Given back before, during or after the stop: granted to the forgotten one it would have to be passed on.
        drop(holder);
        drop(forgotten);
        join([drains]);
        world.settled(0);
    });
}

#[test]
fn loom_d1_whoever_waits_when_the_stop_comes_waits_no_more() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let first = held(&plan, "");
        let (leaving, forgotten) = (waits(&plan, ""), waits(&plan, ""));
        let caller = {
            let (world, plan) = (Arc::clone(&world), Arc::clone(&plan));
            thread::spawn(move || {
                drop(leaving);
                u64::from(call(&world, &plan, ""))
            })
        };
        let mut drain = Box::pin(drain::shutdown(&world.engine, None));
        let early = drain.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(early, Poll::Pending);
        assert_eq!(world.engine.budgets[0].exact_usage().waiting, 0);
        // Nobody polls the forgotten one, and no unit goes to it.
        drop(first);
        block_on(drain).expect("drained from outside");
        drop(forgotten);
        assert_eq!(caller.join().expect("no panic"), 0);
        world.settled(0);
    });
}

#[test]
fn loom_d1_nested_work_admitted_behind_the_scan_is_seen() {
    model(|| {
        let world = World::new(1);
        let outer = held(&world.plan(&[("b", 1)]), "");
        let inner = world.plan(&[("a", 1)]);
        let nested = spawn(&world, move |world| {
            // In the handler of the outer call: one nested caller leaves, another takes a unit that outlives the handler.
            let frame = chain::enter(outer.frame(), &mut None);
            leave(&inner, "");
            let left = held(&inner, "");
            frame.leave(&mut None);
            drop(outer);
            world.section();
            drop(left);
        });
        block_on(drain::shutdown(&world.engine, None)).expect("drained from outside");
        let seen = world.guarded.load(Ordering::Relaxed);
        assert_eq!(seen, 1, "drained too early");
        join([nested]);
        world.settled(1);
    });
}

#[test]
fn loom_d2_two_drains_both_return() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let holder = held(&plan, "");
        let other = spawn(&world, |world| {
            // Begun, and forgotten while the last units come back.
            let mut forgotten = Box::pin(drain::shutdown(&world.engine, None));
            let _either = forgotten
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            drop(forgotten);
            block_on(drain::shutdown(&world.engine, None)).expect("drained from outside");
        });
        let mut first = Box::pin(drain::shutdown(&world.engine, None));
        let early = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(early, Poll::Pending);
        drop(holder);
        block_on(first).expect("drained from outside");
        join([other]);
        world.settled(0);
    });
}

#[test]
fn loom_e1_finished_and_started_never_run_ahead_of_admitted() {
    model(|| {
        let world = World::new(1);
        let plan = world.plan(&[("a", 1)]);
        let first = held(&plan, "");
        let leaving = waits(&plan, "");
        let caller = Arc::clone(&plan);
        let threads = [
            spawn(&world, move |_| drop(leaving)),
            spawn(&world, move |world| {
                drop(first);
                assert!(call(world, &caller, ""));
            }),
        ];
        let stats = plan.counters.read("operation".into());
        assert!(stats.started <= stats.admitted, "{stats:?}");
        assert!(stats.finished <= stats.admitted, "{stats:?}");
        join(threads);
        world.settled(1);
    });
}
