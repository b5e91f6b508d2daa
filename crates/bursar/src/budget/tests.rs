use std::task::Waker;

use super::*;

fn budget(capacity: u32) -> Budget {
    Budget::new("renderer".into(), capacity)
}

/// A nested call that is about to wait, so that a drain leaves it where it is.
fn arrival(counters: &Counters, units: u32) -> Arrival<'_> {
    Arrival {
        counters,
        operation: 0,
        units,
        nested: true,
        bare: true,
        counted: false,
        waker: Waker::noop().clone().into(),
    }
}

/// What has come free by the time a call would queue.
fn queued(joined: Joined) -> Slot {
    match joined {
        Joined::Queued(slot) => slot,
        other => panic!("it should wait, and is {other:?}"),
    }
}

fn futile(budget: &Budget) -> u32 {
    budget.futile.load(Ordering::Relaxed)
}

#[test]
fn b2_who_is_about_to_wait_takes_what_has_come_free_first() {
    let budget = budget(2);
    assert!(!budget.take_soon(3), "there are two");
    assert_eq!((futile(&budget), budget.exact_usage().in_use), (1, 0));
    assert!(budget.take_soon(2));
    assert_eq!((futile(&budget), budget.exact_usage().in_use), (0, 2));
    assert!(!budget.take_soon(1), "none is left");
    assert!(!budget.take_soon(1));
    assert_eq!((futile(&budget), budget.exact_usage().in_use), (2, 2));
}

#[test]
fn b2_nobody_looks_past_those_who_wait_nor_past_the_stop() {
    let counters = Counters::new(0);
    let full = budget(2);
    full.take(1, false).expect("it is free");
    let _waits = queued(full.join(arrival(&counters, 2), false));
    full.futile.store(0, Ordering::Relaxed);
    assert!(!full.take_soon(1), "the head waits for more");
    assert_eq!((futile(&full), full.exact_usage().in_use), (0, 1));
    let stopped = budget(1);
    stopped.stop(&[]);
    assert!(!stopped.take_soon(1));
    assert_eq!((futile(&stopped), stopped.exact_usage().in_use), (0, 0));
}

#[test]
fn arrivals_that_look_for_nothing_come_to_look_seldom() {
    for often in [0, 1, 15, 256, 512] {
        assert_eq!(looks(often), LOOKS, "after {often}");
    }
    for seldom in [16, 17, 255, 257, 511] {
        assert_eq!(looks(seldom), 0, "after {seldom}");
    }
}

#[test]
fn d1_a_drain_is_told_of_units_that_come_back_and_of_waiters_that_leave_once_it_is_under_way() {
    let counters = Counters::new(0);
    let budget = budget(2);
    let wait = || queued(budget.join(arrival(&counters, 2), true));
    budget.take(1, false).expect("it is free");
    assert_eq!(budget.give(1), Poke(false));
    budget.take(2, false).expect("it is free");
    let slot = wait();
    assert_eq!(budget.give(1), Poke(false), "somebody waits, and no drain");
    assert_eq!(budget.leave(slot, 2, &counters), Poke(false));
    budget.take(1, false).expect("it is free");
    budget.stop(&[]);
    let slot = wait();
    assert_eq!(budget.leave(slot, 2, &counters), Poke(true), "none is free");
    let slot = wait();
    assert_eq!(budget.give(1), Poke(true));
    assert_eq!(budget.leave(slot, 2, &counters), Poke(true));
    assert!(!budget.drained());
    assert_eq!(budget.give(1), Poke(true));
    assert!(budget.drained());
}

#[test]
fn nothing_is_taken_past_waiters_and_everything_is_once_they_have_gone() {
    let counters = Counters::new(0);
    let budget = budget(2);
    budget.take(1, false).expect("it is free");
    let slot = queued(budget.join(arrival(&counters, 2), false));
    assert_eq!(budget.take(1, false), Err(NotTaken::MustWait));
    let _no_drain = budget.leave(slot, 2, &counters);
    budget.take(1, false).expect("nobody waits any more");
}
