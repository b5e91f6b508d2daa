use super::links::{Chain, HoldId, RuntimeId, Standing, holds, regate};
use super::*;

fn frame(engine: usize) -> Frame {
    Frame {
        engine,
        operation: Frame::number(1, false),
        key: 0,
    }
}

#[expect(clippy::disallowed_methods, reason = "another thread is the subject")]
fn elsewhere(check: impl FnOnce() + Send + 'static) {
    std::thread::spawn(check).join().expect("no check fails");
}

/// Enters a call, and what its caller keeps.
fn inside_of<R>(engine: usize, work: impl FnOnce() -> R) -> (R, Option<Arc<Node>>) {
    let mut record = None;
    let entered = enter(frame(engine), &mut record);
    let result = work();
    entered.leave(&mut record);
    (result, record)
}

#[test]
fn frames_nest_and_unwind() {
    assert!(!inside(8));
    let ((), record) = inside_of(8, || {
        let ((), record) = inside_of(16, || assert!(inside(8) && inside(16) && !inside(24)));
        assert!(record.is_none() && inside(8) && !inside(16));
        let unwound = std::panic::catch_unwind(|| inside_of(24, || panic!("inside")));
        assert!(unwound.is_err() && !inside(24) && inside(8));
    });
    assert!(record.is_none() && !inside(8));
}

#[test]
fn a_chain_goes_to_other_threads_and_ends_with_each_of_its_members() {
    let ((), outer) = inside_of(8, || {
        let (chain, inner) = inside_of(16, Chain::current);
        let inner = inner.expect("somebody linked to it");
        let there = chain.clone();
        elsewhere(move || {
            assert!(!inside(8));
            there.scope(|| {
                assert!(inside(8) && inside(16));
                let (further, own) = inside_of(24, Chain::current);
                let again = further.clone();
                elsewhere(move || again.scope(|| assert!(inside(8) && inside(24))));
                own.expect("somebody linked to it").end();
                further.scope(|| assert!(!inside(24) && !inside(8), "the whole chain is cut"));
                inner.end();
                assert!(!inside(16) && !inside(8));
            });
            assert!(!inside(24));
        });
        let ((), record) = inside_of(16, || assert!(inside(8)));
        assert!(record.is_none(), "another call, to which nobody linked");
    });
    let outer = outer.expect("the inner link stands on it");
    let (chain, again) = {
        let mut kept = Some(outer);
        let entered = enter(frame(8), &mut kept);
        let chain = Chain::current();
        entered.leave(&mut kept);
        (chain, kept)
    };
    assert!(again.is_some(), "the record is the same in each poll");
    chain.scope(|| assert!(inside(8)));
    again.expect("kept").end();
    chain.scope(|| assert!(!inside(8)));
}

#[test]
fn a_tie_cuts_what_is_above_it() {
    let ((chain, tie), _record) = inside_of(8, Chain::tied);
    chain.scope(|| assert!(inside(8)));
    drop(tie);
    chain.scope(|| assert!(!inside(8)));
    assert!(Chain::tied().0.is_empty(), "nothing is above");
}

#[test]
fn a_scope_hides_what_the_thread_stands_in() {
    let ((), _record) = inside_of(8, || {
        Chain::default().scope(|| {
            assert!(!inside(8));
            assert!(Chain::current().is_empty());
            let ((), _record) = inside_of(16, || assert!(inside(16) && !inside(8)));
        });
        assert!(inside(8));
    });
}

#[test]
fn a_turn_stands_on_its_requester_until_that_is_gone() {
    let (gate, claim) = (HoldId::unique(), HoldId::unique());
    let mut standing = Standing::new(None, 7, Some(gate), Some(claim));
    let (tie, _record) = inside_of(8, || {
        let child = standing.here(|| {
            assert!(inside(8) && holds(gate) && holds(claim));
            Chain::current()
        });
        child.scope(|| assert!(inside(8) && holds(gate)));
        assert!(!holds(gate) && inside(8));
        standing.tie()
    });
    standing.alone(|| assert!(inside(8) && holds(gate)));
    let ((), _record) = inside_of(16, || {
        standing.alone(|| assert!(!inside(16) && inside(8)));
        assert!(inside(16) && !inside(8));
    });
    let child = standing.alone(Chain::current);
    child.scope(|| assert!(inside(8) && holds(gate)));
    drop(tie);
    standing.alone(|| assert!(!inside(8) && holds(gate)));
    child.scope(|| assert!(!inside(8) && holds(gate)));
    drop(standing);
    child.scope(|| assert!(!holds(gate)));
}

#[test]
fn a_gate_is_let_go_and_taken_again_from_inside() {
    let (gate, claim) = (HoldId::unique(), HoldId::unique());
    let mut standing = Standing::new(None, 7, Some(gate), Some(claim));
    standing.alone(|| regate(7, None, Some(claim)));
    let child = standing.alone(|| {
        assert!(!holds(gate) && holds(claim));
        Chain::current()
    });
    standing.alone(|| {
        regate(8, Some(gate), Some(claim));
        assert!(!holds(gate), "that was another body");
        regate(7, Some(gate), Some(claim));
        assert!(holds(gate));
    });
    child.scope(|| assert!(holds(gate)));
    standing.alone(|| assert!(holds(gate)));
    standing.alone(|| regate(7, None, None));
    child.scope(|| assert!(!holds(gate) && !holds(claim)));
    standing.alone(|| assert!(!holds(gate) && !holds(claim)));
}

#[test]
fn a_turn_that_was_linked_to_before_it_was_tied_is_cut_all_the_same() {
    let mut standing = Standing::new(None, 7, Some(HoldId::unique()), None);
    let ((child, tie), _record) = inside_of(8, || {
        let child = standing.here(Chain::current);
        (child, standing.tie())
    });
    child.scope(|| assert!(inside(8)));
    drop(tie);
    child.scope(|| assert!(!inside(8)));
}

#[test]
fn b11_a_turn_that_was_linked_to_from_inside_stands_on_its_requester_still() {
    let gate = HoldId::unique();
    let mut standing = Standing::new(None, 7, Some(gate), None);
    let (_tie, _record) = inside_of(8, || standing.tie());
    let child = standing.alone(Chain::current);
    child.scope(|| assert!(inside(8) && holds(gate)));
    standing.alone(|| assert!(inside(8) && holds(gate)));
}

#[test]
fn b11_a_turn_to_which_nobody_linked_leaves_its_requester_s_record_alone() {
    let mut standing = Standing::new(None, 7, Some(HoldId::unique()), None);
    let (own, record) = inside_of(8, || {
        let own = Chain::current();
        standing.here(|| assert!(inside(8)));
        own
    });
    own.scope(|| assert!(inside(8)));
    record.expect("somebody linked to it").end();
    own.scope(|| assert!(!inside(8)));
}

#[test]
fn f13_a_turn_that_runs_alone_leaves_the_threads_own_chain_as_it_was() {
    let gate = HoldId::unique();
    let mut standing = Standing::new(None, 7, Some(gate), None);
    let ((), record) = inside_of(8, || {
        standing.alone(|| assert!(holds(gate) && !inside(8)));
        assert!(inside(8) && !holds(gate));
    });
    assert!(record.is_none() && !inside(8));
}

#[test]
fn f7_a_gate_that_is_let_go_from_under_a_call_is_held_no_more() {
    let (gate, claim) = (HoldId::unique(), HoldId::unique());
    let mut standing = Standing::new(None, 7, Some(gate), Some(claim));
    standing.alone(|| {
        let ((), _record) = inside_of(16, || {
            assert!(holds(gate) && holds(claim));
            regate(7, None, Some(claim));
            assert!(inside(16) && !holds(gate) && holds(claim));
        });
        assert!(!holds(gate) && holds(claim));
    });
}

#[test]
fn b11_what_ties_a_turn_to_its_requester_cuts_the_turn_alone() {
    let mut standing = Standing::new(None, 7, Some(HoldId::unique()), None);
    let ((turns, own, tie), record) = inside_of(8, || {
        let own = Chain::current();
        (standing.here(Chain::current), own, standing.tie())
    });
    drop(tie);
    turns.scope(|| assert!(!inside(8)));
    own.scope(|| assert!(inside(8), "the requester is still there"));
    record.expect("both linked to it").end();
    own.scope(|| assert!(!inside(8)));
}

#[test]
fn a_long_chain_is_dropped_without_recursion() {
    let mut chain = Chain::default();
    for _ in 0..100_000 {
        chain = chain.scope(|| inside_of(8, Chain::current).0);
    }
    chain.scope(|| assert!(inside(8)));
    drop(chain);
}

#[test]
fn what_runs_inside_of_something_is_told_what_that_holds() {
    let holds = |gate: bool, claim: bool| {
        let hold = |yes: bool| yes.then(HoldId::unique);
        let mut turn = Standing::new(Some(RuntimeId(8)), 16, hold(gate), hold(claim));
        turn.alone(|| {
            assert!(links::inside(RuntimeId(8)) && !links::inside(RuntimeId(16)));
            assert!(!Chain::current().is_empty());
            links::holds_something()
        })
    };
    assert!(!holds(false, false) && holds(true, false) && holds(false, true) && holds(true, true));
    let call = |claims_nothing: bool, key: u64| {
        let frame = Frame {
            engine: 8,
            operation: Frame::number(1, claims_nothing),
            key,
        };
        let entered = enter(frame, &mut None);
        let holds = links::holds_something();
        entered.leave(&mut None);
        holds
    };
    assert!(!call(true, 0) && call(true, 1) && call(false, 0) && call(false, 1));
    assert!(!links::holds_something() && !links::inside(RuntimeId(8)));
    assert!(Chain::current().is_empty());
}

#[test]
fn what_was_linked_to_a_call_that_panicked_is_cut_from_it() {
    let mut chain = None;
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        inside_of(8, || {
            chain = Some(Chain::current());
            panic!("inside")
        })
    }));
    assert!(unwound.is_err());
    let chain = chain.expect("it was made");
    chain.scope(|| assert!(!inside(8), "the call is over"));
}

/// Work that starts its successor and ends would otherwise leave a longer chain behind each time.
#[test]
fn who_links_to_a_chain_from_right_inside_of_it_links_to_the_same() {
    let (chain, record) = inside_of(8, Chain::current);
    let own = |of: &Chain| Arc::as_ptr(of.0.as_ref().expect("it stands in a call"));
    let again = chain.scope(Chain::current);
    assert_eq!(own(&again), own(&chain));
    chain.scope(|| {
        let (further, inner) = inside_of(16, Chain::current);
        assert_ne!(own(&further), own(&chain), "another call is between");
        further.scope(|| assert!(inside(8) && inside(16)));
        inner.expect("somebody linked to it").end();
        assert_eq!(own(&Chain::current()), own(&chain));
    });
    record.expect("somebody linked to it").end();
    again.scope(|| assert!(!inside(8)));
}
