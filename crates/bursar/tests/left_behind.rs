//! D1: work that a handler left behind, its chain taken along, and that ends after the handler has: a drain that waits for
//! it is told.

mod common;

use std::cell::RefCell;
use std::task::Poll;

use bursar::{Contract, Policy, Runtime, in_chain};
use common::{Answer, assert_idle, runtime};
use tokio_test::{assert_pending, assert_ready_ok, task};

async fn one() -> Answer {
    Ok(1)
}

fn claiming(runtime: &Runtime, name: &str, budget: &str) -> Contract {
    let policy = Policy::pure().claim(budget, 1);
    runtime.contract(name, policy).unwrap()
}

/// A call of `inner` that is left behind waiting by a call of `outer`, which has ended. It waits for what a call of
/// `holder` held, and gets it during the drain. Dropped before it notices, it is the last that the drain waits for.
fn leaves_what_it_was_granted(key: Option<&'static str>) {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let outer = claiming(&runtime, "outer", "a");
    let inner = match key {
        Some(_) => runtime.contract("inner", Policy::pure()).unwrap(),
        None => claiming(&runtime, "inner", "b"),
    };
    let mut with = inner.with().key(key);
    let held = assert_ready_ok!(task::spawn(with.admit()).poll());
    let child = RefCell::new(None);
    let mut call = task::spawn(outer.run(|| async {
        let inner = inner.clone();
        let work = async move { inner.with().key(key).run(|_| one()).await };
        let mut work = task::spawn(Box::pin(in_chain(work)));
        assert_pending!(work.poll());
        child.replace(Some(work));
        one().await
    }));
    assert_ready_ok!(call.poll());
    let mut child = child.take();
    let mut shutdown = task::spawn(runtime.shutdown());
    assert_pending!(shutdown.poll());
    // Its wait began inside of live work, so it was not withdrawn.
    let waits = child.as_mut().expect("made by the handler");
    assert!(!waits.is_woken());
    drop(held);
    assert!(waits.is_woken());
    assert_pending!(shutdown.poll());
    assert!(!shutdown.is_woken());
    drop(child);
    assert!(shutdown.is_woken(), "nobody told the drain");
    assert!(matches!(shutdown.poll(), Poll::Ready(Ok(_))));
    assert_idle(&runtime);
}

#[test]
fn b11_work_left_behind_by_a_call_that_has_ended_waits_for_what_that_held() {
    let (runtime, _) = runtime(&[("a", 1)]);
    let whole = claiming(&runtime, "whole", "a");
    let child = RefCell::new(None);
    // It is done in its first poll.
    let mut call = task::spawn(whole.run(|| async {
        let whole = whole.clone();
        let work = async move { whole.run(one).await };
        child.replace(Some(task::spawn(Box::pin(in_chain(work)))));
        one().await
    }));
    assert_ready_ok!(call.poll());
    let mut child = child.take().expect("made by the handler");
    let held = assert_ready_ok!(task::spawn(whole.admit()).poll());
    assert_pending!(child.poll(), "its own chain holds nothing any more");
    drop(held);
    assert_ready_ok!(child.poll());
    assert_idle(&runtime);
}

#[test]
fn d1_work_left_behind_that_drops_units_it_was_granted_ends_the_drain() {
    leaves_what_it_was_granted(None);
}

#[test]
fn d1_work_left_behind_that_drops_a_key_it_was_passed_ends_the_drain() {
    leaves_what_it_was_granted(Some("k"));
}
