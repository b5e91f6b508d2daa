use std::sync::Arc;
use std::task::{Context, Waker};

use super::*;
use crate::chain;
use crate::clock::{ClockHandle, ManualClock};
use crate::engine::Engine;
use crate::policy::Policy;

/// With budgets of one unit each.
fn engine(budgets: &[&str]) -> Arc<Engine> {
    let clock = ClockHandle::Custom(Arc::new(ManualClock::new()));
    let budgets = budgets.iter().map(|name| ((*name).to_owned(), 1));
    Arc::new(Engine::new(budgets.collect(), clock, Some(7)).expect("valid budgets"))
}

/// A call that holds one unit of this budget.
fn held(engine: &Arc<Engine>, budget: &str) -> Holding<Arc<Plan>> {
    let plan = engine.plan("load", &Policy::pure().claim(budget, 1).declared);
    let mut holding = Holding::new(plan.expect("a valid policy"));
    let polled = holding.poll(&mut Context::from_waker(Waker::noop()), &Key::NONE);
    assert!(matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
    holding
}

#[test]
fn d1_nested_work_admitted_behind_a_drains_scan_makes_it_scan_anew() {
    let engine = engine(&["a", "b"]);
    let outer = held(&engine, "b");
    engine.stop();
    // A scan begins, and has come as far as "a".
    let late = engine.lifecycle.late();
    assert!(engine.lifecycle.drained() && engine.keys.drained() && engine.budgets[0].drained());
    // In the handler of the outer call a permit of "a" is taken, which outlives it.
    let frame = chain::enter(outer.frame(), &mut None);
    let left = held(&engine, "a");
    frame.leave(&mut None);
    drop(outer);
    // What is left of the scan finds nothing.
    assert!(engine.budgets[1].drained());
    assert_ne!(engine.lifecycle.late(), late, "or the drain would end now");
    assert!(!engine.drained());
    drop(left);
    assert!(engine.drained());
}

#[test]
fn e1_who_holds_a_key_when_the_gate_closes_is_an_overload_and_who_holds_nothing_is_refused() {
    let engine = engine(&["renderer"]);
    let policy = Policy::pure().claim("renderer", 1).reject();
    let plan = engine.plan("render", &policy.declared);
    let plan = plan.expect("a valid policy");
    engine.budgets[0].take(1, false).expect("it is free");
    // The stop has come as far as the lobby, and not yet to keys and budgets.
    plan.counters.close();
    engine.lifecycle.stop(&[]);
    let ask = |key: &Key| {
        let mut holding = Holding::new(&*plan);
        holding.poll(&mut Context::from_waker(Waker::noop()), key)
    };
    let counted = || {
        let total = engine.stats().total();
        (total.admitted, total.rejected, total.finished)
    };
    let bare = ask(&Key::NONE);
    assert!(matches!(bare, Poll::Ready(Err(Denied::Stopping(_)))));
    assert_eq!(counted(), (0, 1, 0));
    let keyed = ask(&Key::from("brand"));
    assert!(matches!(keyed, Poll::Ready(Err(Denied::Overloaded(_)))));
    assert_eq!(counted(), (1, 2, 1));
    assert_eq!(engine.stats().keys, 0);
}
