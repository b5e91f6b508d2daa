use std::sync::Arc;
use std::task::{Context, Waker};

use super::*;
use crate::clock::{ClockHandle, ManualClock};
use crate::engine::Engine;
use crate::policy::Policy;

#[test]
fn e1_who_holds_a_key_when_the_gate_closes_is_an_overload_and_who_holds_nothing_is_refused() {
    let clock = ClockHandle::Custom(Arc::new(ManualClock::new()));
    let budgets = vec![("renderer".to_owned(), 1)];
    let engine = Arc::new(Engine::new(budgets, clock, Some(7)).expect("a valid budget"));
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
