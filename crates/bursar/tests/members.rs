//! D1: a host that is registered with a runtime is part of its drain.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use bursar::seam::{DrainMember, Membership, Standing};
use bursar::{Drained, Failure, HostSnapshot, Policy, Runtime, SpotSnapshot};
use common::{Error, assert_idle, runtime};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};

/// A host that counts how often it was stopped and is idle when the test says so.
#[derive(Default)]
struct Host {
    stops: AtomicU32,
    idle: AtomicBool,
}

impl DrainMember for Host {
    fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }

    fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    fn report(&self) -> Vec<Drained> {
        vec![Drained::new("host", 3, 2, u64::from(!self.is_idle()))]
    }

    fn snapshot(&self) -> Option<HostSnapshot> {
        let mut spot = SpotSnapshot::default();
        spot.name = "a \"b\"".to_owned();
        (spot.running, spot.waiting, spot.open) = (1, 2, true);
        spot.running_for = Some(std::time::Duration::from_secs(3));
        let mut host = HostSnapshot::default();
        (host.spots, host.busy, host.lost_completions) = (4, vec![spot], 5);
        self.is_idle().then_some(host)
    }
}

fn host(runtime: &Runtime) -> (Arc<Host>, Membership) {
    let host = Arc::new(Host::default());
    let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&host) as _));
    let membership = runtime.register(member);
    (host, membership)
}

#[test]
fn d1_a_drain_stops_a_registered_host_and_waits_until_it_is_idle() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let (host, membership) = host(&runtime);
    assert!(!membership.is_stopping());
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_eq!(
        host.stops.load(Ordering::Relaxed),
        0,
        "not before the first poll"
    );
    assert_pending!(shutdown.poll());
    assert_eq!(host.stops.load(Ordering::Relaxed), 1);
    assert!(membership.is_stopping());
    host.idle.store(true, Ordering::Relaxed);
    membership.became_idle();
    assert!(shutdown.is_woken());
    let report = assert_ready_ok!(shutdown.poll());
    assert_eq!(report.operations, [Drained::new("host", 3, 2, 0)]);
}

/// A host that is idle, and gives work to another one when a drain has looked at that already.
struct Giver {
    to: Arc<Host>,
    membership: Membership,
}

impl DrainMember for Giver {
    fn stop(&self) {}

    fn is_idle(&self) -> bool {
        if self.to.idle.swap(false, Ordering::Relaxed) {
            self.membership.note_late();
        }
        true
    }

    fn report(&self) -> Vec<Drained> {
        Vec::new()
    }
}

#[test]
fn d1_work_that_a_host_takes_in_behind_a_drains_look_is_seen() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let (to, membership) = host(&runtime);
    to.idle.store(true, Ordering::Relaxed);
    let giver = Arc::new(Giver {
        to: Arc::clone(&to),
        membership,
    });
    let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&giver) as _));
    let _membership = runtime.register(member);
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    assert!(!to.is_idle());
}

#[test]
fn d1_a_host_that_comes_during_a_drain_is_stopped_at_once_and_one_that_parts_is_not_waited_for() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let (first, membership) = host(&runtime);
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    let (late, late_membership) = host(&runtime);
    assert_eq!(late.stops.load(Ordering::Relaxed), 1);
    drop(membership);
    assert!(shutdown.is_woken());
    assert_pending!(shutdown.poll());
    // The host itself may go too.
    drop(late);
    late_membership.became_idle();
    assert_ready_ok!(shutdown.poll());
    drop(first);
}

#[test]
fn d1_calls_of_a_registered_hosts_turns_are_nested() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let call = runtime
        .contract("call", Policy::pure().claim("a", 1))
        .unwrap();
    let (host, membership) = host(&runtime);
    let mut ours = Standing::new(Some(runtime.id()), 1, None, None);
    let mut strangers = Standing::new(None, 2, None, None);
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    let mut nested = task::spawn(call.run(|| async { Ok::<_, Failure<Error>>(1) }));
    assert_eq!(ours.alone(|| assert_ready_ok!(nested.poll())), 1);
    let mut outside = task::spawn(call.run(|| async { Ok::<_, Failure<Error>>(1) }));
    let error = strangers.alone(|| assert_ready_err!(outside.poll()));
    assert!(error.is_stopping(), "{error}");
    host.idle.store(true, Ordering::Relaxed);
    membership.became_idle();
    assert_ready_ok!(shutdown.poll());
    assert_idle(&runtime);
}

#[test]
fn d4_a_shutdown_from_a_turn_of_a_registered_host_closes_nothing() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let (host, _membership) = host(&runtime);
    let mut turn = Standing::new(Some(runtime.id()), 1, None, None);
    let mut shutdown = task::spawn(runtime.shutdown());
    turn.alone(|| {
        assert_ready_err!(shutdown.poll());
    });
    assert_eq!(host.stops.load(Ordering::Relaxed), 0);
}

/// A host of which a snapshot is told this, or nothing.
struct Quiet(Option<HostSnapshot>);

impl DrainMember for Quiet {
    fn stop(&self) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Option<HostSnapshot> {
        self.0.clone()
    }
}

#[test]
fn e2_hosts_that_have_nothing_to_tell_take_no_room() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let text = runtime.snapshot().to_string();
    let (first, membership) = host(&runtime);
    first.idle.store(true, Ordering::Relaxed);
    let giver = Arc::new(Giver {
        to: first,
        membership,
    });
    let silent: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&giver) as _));
    let _silent = runtime.register(silent);
    assert_eq!(runtime.snapshot().hosts.len(), 1, "the other one");
    drop(giver);
    assert!(runtime.snapshot().hosts.is_empty());
    let empty = Arc::new(Quiet(Some(HostSnapshot::default())));
    let member: Weak<dyn DrainMember> = Arc::downgrade(&(Arc::clone(&empty) as _));
    let _empty = runtime.register(member);
    assert_eq!(runtime.snapshot().hosts.len(), 1);
    assert_eq!(runtime.snapshot().to_string(), text);
}

#[test]
fn e2_a_snapshot_tells_what_registered_hosts_do() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let (host, membership) = host(&runtime);
    assert!(
        runtime.snapshot().hosts.is_empty(),
        "it has nothing to tell"
    );
    host.idle.store(true, Ordering::Relaxed);
    let snapshot = runtime.snapshot();
    assert_eq!(snapshot.hosts[0].busy[0].waiting, 2);
    let text = snapshot.to_string();
    let shown = r#"
  2 pieces of work wait for Spot "a \"b\"", whose turn has run 3.0 s
"#;
    assert!(text.contains(shown), "\n{text}");
    let shown = r#"

4 Spots, 1 of them busy, 5 completions lost

spot       running    for  waiting
"a \"b\""        1  3.0 s        2"#;
    assert!(text.ends_with(shown), "\n{text}");
    drop(membership);
    assert!(runtime.snapshot().hosts.is_empty());
}

#[cfg(feature = "serde")]
#[test]
fn e2_what_hosts_add_to_a_snapshot_serializes_under_stable_names() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let (host, _membership) = host(&runtime);
    host.idle.store(true, Ordering::Relaxed);
    let snapshot = runtime.snapshot();
    let shown = serde_json::to_value(&snapshot).unwrap();
    let expected = serde_json::json!([{
        "spots": 4,
        "busy": [{
            "name": "a \"b\"",
            "running": 1,
            "running_for_seconds": 3.0,
            "waiting": 2,
            "yielded": 0,
            "timers": 0,
            "open": true,
        }],
        "lost_completions": 5,
    }]);
    assert_eq!(shown["hosts"], expected);
    let back: bursar::Snapshot = serde_json::from_value(shown).unwrap();
    assert_eq!(back, snapshot);
}
