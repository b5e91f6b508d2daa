//! The test kit itself: what it lets pass, and what it does not.

use std::cell::Cell;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use bursar::testkit::{
    Step, Stepped, Subject, assert_idle, at_every_poll, at_every_wake, when_woken,
};
use bursar::{ManualClock, Policy, Runtime};
use tokio_test::assert_pending;

/// What is held, and how often the subject was dropped at each point.
#[derive(Default)]
struct World {
    held: Cell<u32>,
    door: tokio::sync::Notify,
}

struct Holds<'w>(&'w World);

impl Drop for Holds<'_> {
    fn drop(&mut self) {
        self.0.held.set(self.0.held.get() - 1);
    }
}

impl World {
    fn hold(&self) -> Holds<'_> {
        self.held.set(self.held.get() + 1);
        Holds(self)
    }

    fn point(&self, ready: bool) -> (bool, u32) {
        (ready, self.held.get())
    }
}

async fn careful(world: &World) {
    world.door.notified().await;
    let _holds = world.hold();
    world.door.notified().await;
}

async fn careless(world: &World) {
    world.door.notified().await;
    std::mem::forget(world.hold());
    world.door.notified().await;
    drop(Holds(world));
}

const SCRIPT: [Step<World, (bool, u32)>; 3] = [
    ((false, 0), |world| world.door.notify_one()),
    ((false, 1), |world| world.door.notify_one()),
    ((true, 0), |_| {}),
];

fn run(
    subject: impl for<'w> Fn(&'w World) -> Subject<'w>,
    script: &[Step<World, (bool, u32)>],
) -> u32 {
    let worlds = Cell::new(0);
    at_every_poll(
        World::default,
        subject,
        script,
        World::point,
        |world, drop_subject| {
            worlds.set(worlds.get() + 1);
            drop_subject();
            assert_eq!(world.held.get(), 0, "something is still held");
        },
    );
    worlds.get()
}

fn message(panicked: std::thread::Result<u32>) -> String {
    let panic = panicked.expect_err("it does not pass");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_subject_is_dropped_before_and_after_each_change_and_at_both_ends() {
    // Not polled at all; then after each poll and each change.
    assert_eq!(run(|world| Box::pin(careful(world)), &SCRIPT), 7);
}

#[test]
fn what_a_dropped_subject_leaves_behind_is_found() {
    let found = catch_unwind(|| run(|world| Box::pin(careless(world)), &SCRIPT));
    assert!(message(found).contains("something is still held"));
}

#[test]
fn a_script_whose_points_are_not_met_fails() {
    let mut script = SCRIPT;
    script[1].0 = (false, 2);
    let found = catch_unwind(|| run(|world| Box::pin(careful(world)), &script));
    assert!(message(found).contains("poll 2 of 3"));
    // One that goes on where the subject has ended, too.
    let mut script = SCRIPT;
    script[1].0 = (true, 1);
    let found = catch_unwind(|| run(|world| Box::pin(careful(world)), &script));
    assert!(message(found).contains("poll 2 of 3"));
}

#[test]
fn a_stepped_future_tells_whether_it_was_woken_since_its_last_poll() {
    let door = tokio::sync::Notify::new();
    let mut waits = Stepped::new(async {
        door.notified().await;
        door.notified().await;
        7
    });
    assert!(!waits.is_woken(), "not before it is polled");
    assert_pending!(waits.poll());
    assert!(!waits.is_woken());
    door.notify_waiters();
    assert!(waits.is_woken());
    assert_pending!(waits.poll());
    assert!(!waits.is_woken(), "an earlier wake-up is forgotten");
    door.notify_waiters();
    assert_eq!(waits.ready(), 7);
    let mut never = Stepped::new(pending::<()>());
    catch_unwind(AssertUnwindSafe(|| never.ready())).expect_err("it is not ready");
}

#[test]
fn idle_is_nothing_held_nobody_waiting_and_every_call_ended() {
    let builder = Runtime::builder()
        .resource("a", 1)
        .clock(ManualClock::new());
    let runtime = builder.build().unwrap();
    let idle = || catch_unwind(AssertUnwindSafe(|| assert_idle(&runtime))).is_ok();
    let claims = runtime.contract("claims", Policy::pure().claim("a", 1));
    let claims = claims.unwrap();
    let plain = runtime.contract("plain", Policy::pure()).unwrap();
    assert!(idle());
    let permit = Stepped::new(claims.admit()).ready().unwrap();
    assert!(!idle(), "a unit is held");
    let mut waits = Stepped::new(claims.admit());
    assert_pending!(waits.poll());
    assert!(!idle(), "somebody waits");
    drop(waits);
    assert!(!idle(), "a unit is held");
    drop(permit);
    let permit = Stepped::new(plain.with().key("k").admit()).ready().unwrap();
    assert!(!idle(), "a key is held");
    drop(permit);
    let permit = Stepped::new(plain.admit()).ready().unwrap();
    assert!(!idle(), "a call has not ended");
    drop(permit);
    assert!(idle());
}

#[test]
fn a_future_that_nobody_woke_is_not_polled() {
    let polls = Cell::new(0);
    let waker = Cell::new(None);
    let mut waits = Stepped::new(when_woken(std::future::poll_fn(|cx| {
        polls.set(polls.get() + 1);
        waker.set(Some(cx.waker().clone()));
        match polls.get() {
            3 => Poll::Ready(7),
            _ => Poll::Pending,
        }
    })));
    assert_pending!(waits.poll());
    assert_pending!(waits.poll());
    assert_eq!(polls.get(), 1, "the second time nobody had woken it");
    waker.take().expect("it was polled").wake();
    assert!(waits.is_woken(), "whoever polls is told");
    assert_pending!(waits.poll());
    assert_eq!(polls.get(), 2);
    waker.take().expect("it was polled").wake_by_ref();
    assert_eq!(waits.ready(), 7);
}

/// The way of [`careful`] without a script, and how many worlds it takes.
fn run_on(subject: impl for<'w> Fn(&'w World) -> Subject<'w>, points: &[(bool, u32)]) -> u32 {
    let worlds = Cell::new(0);
    at_every_wake(
        World::default,
        subject,
        points,
        |world, at, wakes| {
            assert!(!at.0, "it goes on while the subject has not ended");
            let mut wakes = Stepped::new(wakes);
            assert_pending!(wakes.poll());
            world.door.notify_one();
            wakes.ready();
        },
        World::point,
        |world, drop_subject| {
            worlds.set(worlds.get() + 1);
            drop_subject();
            assert_eq!(world.held.get(), 0, "something is still held");
        },
    );
    worlds.get()
}

async fn patient(world: &World) {
    world.door.notified().await;
    careful(world).await;
}

#[test]
fn a_subject_is_dropped_at_every_half_step_however_often_it_is_polled_at_a_point() {
    let points = SCRIPT.map(|(point, _)| point);
    // Nothing, then three polls with two changes between them.
    assert_eq!(run_on(|world| Box::pin(careful(world)), &points), 6);
    assert_eq!(
        run_on(|world| Box::pin(patient(world)), &points),
        8,
        "a poll and a change more"
    );
    let found = catch_unwind(|| run_on(|world| Box::pin(careless(world)), &points));
    assert!(message(found).contains("something is still held"));
}

#[test]
fn a_way_that_leads_elsewhere_or_ends_too_early_fails() {
    let mut points = SCRIPT.map(|(point, _)| point);
    points[1] = (false, 2);
    let found = catch_unwind(|| run_on(|world| Box::pin(careful(world)), &points));
    assert!(message(found).contains("met [(false, 0), (false, 1)] instead of"));
    let points = SCRIPT.map(|(point, _)| point);
    let found = catch_unwind(|| run_on(|_| Box::pin(async {}), &points));
    assert!(message(found).contains("met [(true, 0)] instead of"));
    let short = [(true, 0), (false, 0)];
    let found = catch_unwind(|| run_on(|_| Box::pin(async {}), &short));
    assert!(message(found).contains("without having met all"));
}

#[test]
fn whoever_waits_for_a_stepped_futures_wake_up_is_told() {
    let door = tokio::sync::Notify::new();
    let mut waits = Stepped::new(door.notified());
    assert_pending!(waits.poll());
    let mut wakes = Stepped::new(waits.wakes());
    assert_pending!(wakes.poll());
    assert!(!wakes.is_woken());
    door.notify_waiters();
    assert!(wakes.is_woken());
    wakes.ready();
    drop(wakes);
    waits.ready();
}
