//! The counters (E1): what each way to end a call counts, that every reading is consistent, and how they print.

#![allow(
    clippy::disallowed_methods,
    reason = "the readings here are taken while other threads count"
)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bursar::{Contract, Failure, OperationStats, Policy, Retry, Runtime, Stats};
use common::room::Room;
use common::{Error, assert_idle, counts, ms, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

/// Admitted, rejected, started, finished, retried.
type Five = [u64; 5];

fn five(of: &OperationStats) -> Five {
    [
        of.admitted,
        of.rejected,
        of.started,
        of.finished,
        of.retried,
    ]
}

async fn seven() -> Result<u32, Failure<Error>> {
    Ok(7)
}

/// One way to end a call of "load", which claims the one unit of "db".
fn ended(
    policy: fn(Policy<bursar::Pure>) -> Policy<bursar::Pure>,
    end: fn(&Runtime, &Contract),
) -> Five {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = policy(Policy::pure().claim("db", 1));
    let load = runtime.contract("load", load).unwrap();
    end(&runtime, &load);
    assert_idle(&runtime);
    let of = counts(&runtime, "load");
    let total = runtime.stats().total();
    let other = runtime
        .stats()
        .operations
        .iter()
        .any(|of| &*of.name == "full");
    assert!(
        other || five(&total) == five(&of),
        "the runtime's are derived"
    );
    five(&of)
}

/// Holds "db" through another operation.
fn full(runtime: &Runtime) -> bursar::Permit {
    let full = Policy::pure().claim("db", 1);
    let full = runtime.contract("full", full).unwrap();
    assert_ready_ok!(spawn(full.admit()).poll())
}

#[test]
fn e1_each_way_to_end_a_call_is_counted() {
    let plain = |policy| policy;
    assert_eq!(
        ended(plain, |_, load| {
            assert_ready_ok!(spawn(load.run(seven)).poll());
        }),
        [1, 0, 1, 1, 0],
        "at once"
    );
    assert_eq!(
        ended(plain, |runtime, load| {
            let full = full(runtime);
            let mut run = spawn(load.run(seven));
            assert_pending!(run.poll());
            assert_eq!(five(&counts(runtime, "load")), [1, 0, 0, 0, 0]);
            drop(full);
            assert_ready_ok!(run.poll());
        }),
        [1, 0, 1, 1, 0],
        "after a wait"
    );
    assert_eq!(
        ended(plain, |_, load| {
            let fails = || async { Err::<(), _>(Failure::permanent("bad")) };
            assert_ready_err!(spawn(load.run(fails)).poll());
        }),
        [1, 0, 1, 1, 0],
        "failed"
    );
    assert_eq!(
        ended(plain, |_, load| {
            let room = Room::new();
            assert_pending!(spawn(load.run(|| room.stay())).poll());
        }),
        [1, 0, 1, 1, 0],
        "dropped while it executed"
    );
    assert_eq!(
        ended(plain, |_, load| {
            let mut run = spawn(load.run(|| async {
                assert!(std::hint::black_box(false), "this handler panics");
                seven().await
            }));
            assert!(catch_unwind(AssertUnwindSafe(|| run.poll())).is_err());
        }),
        [1, 0, 1, 1, 0],
        "panicked"
    );
    assert_eq!(
        ended(plain, |runtime, load| {
            let _full = full(runtime);
            assert_pending!(spawn(load.run(seven)).poll());
        }),
        [1, 0, 0, 1, 0],
        "dropped while it waited"
    );
    assert_eq!(
        ended(plain, |_, load| {
            let mut call = load.with().within(Duration::ZERO);
            assert_ready_err!(spawn(call.run(|_| seven())).poll());
        }),
        [1, 0, 0, 1, 0],
        "expired before it began"
    );
    assert_eq!(
        ended(Policy::reject, |runtime, load| {
            let _full = full(runtime);
            let mut run = spawn(load.run(seven));
            assert_pending!(run.poll());
            assert_ready_err!(run.poll());
        }),
        [1, 1, 0, 1, 0],
        "overload"
    );
    assert_eq!(
        ended(Policy::require_key, |_, load| {
            assert_ready_err!(spawn(load.run(seven)).poll());
        }),
        [1, 0, 0, 1, 0],
        "no key"
    );
    assert_eq!(
        ended(plain, |runtime, load| {
            assert_ready_ok!(spawn(runtime.shutdown()).poll());
            assert_ready_err!(spawn(load.run(seven)).poll());
            assert_ready_err!(spawn(load.with().key("k").run(|_| seven())).poll());
        }),
        [0, 2, 0, 0, 0],
        "stopping, at the gate"
    );
    assert_eq!(
        ended(plain, |runtime, load| {
            let full = full(runtime);
            let mut run = spawn(load.run(seven));
            assert_pending!(run.poll());
            let mut drain = spawn(runtime.shutdown());
            assert_pending!(drain.poll());
            assert_eq!(
                five(&counts(runtime, "load")),
                [1, 0, 0, 1, 0],
                "then and there"
            );
            assert_ready_err!(run.poll());
            drop(full);
            assert_ready_ok!(drain.poll());
        }),
        [1, 0, 0, 1, 0],
        "stopping, in a queue"
    );
    assert_eq!(
        ended(
            |policy| policy.retry(Retry::up_to(3).on_transient()),
            |_, load| {
                let fails = || async { Err::<(), _>(Failure::transient("busy")) };
                let mut run = spawn(load.run(fails));
                assert_pending!(run.poll());
                assert_pending!(run.poll());
                assert_ready_err!(run.poll());
            }
        ),
        [1, 0, 1, 1, 2],
        "retried twice"
    );
}

#[test]
fn e1_a_runtimes_numbers_are_the_sums_and_a_budgets_are_what_is_held() {
    let (runtime, _) = runtime(&[("db", 5), ("net", 2)]);
    let db = runtime
        .contract("db", Policy::pure().claim("db", 2))
        .unwrap();
    let net = runtime
        .contract("net", Policy::pure().claim("net", 2).reject())
        .unwrap();
    let held = [
        assert_ready_ok!(spawn(db.admit()).poll()),
        assert_ready_ok!(spawn(db.admit()).poll()),
        assert_ready_ok!(spawn(net.with().key("k").admit()).poll()),
    ];
    let mut waiters = [spawn(db.admit()), spawn(db.admit())];
    for waiter in &mut waiters {
        assert_pending!(waiter.poll());
    }
    let mut refused = spawn(net.admit());
    assert_pending!(refused.poll());

    let stats = runtime.stats();
    assert_eq!(five(&counts(&runtime, "db")), [4, 0, 2, 0, 0]);
    assert_eq!(five(&counts(&runtime, "net")), [2, 1, 1, 1, 0]);
    assert_eq!(five(&stats.total()), [6, 1, 3, 1, 0]);
    let budgets: Vec<_> = stats
        .budgets
        .iter()
        .map(|of| (&*of.name, of.capacity, of.in_use, of.waiting))
        .collect();
    assert_eq!(budgets, [("db", 5, 4, 2), ("net", 2, 2, 0)]);
    assert_eq!(stats.keys, 1);
    drop((waiters, held));
    assert_idle(&runtime);
}

#[track_caller]
fn assert_consistent(stats: &Stats) {
    for of in stats.operations.iter().chain([&stats.total()]) {
        assert!(of.started <= of.admitted, "\n{stats}");
        assert!(of.finished <= of.admitted, "\n{stats}");
    }
    for budget in &stats.budgets {
        assert!(budget.in_use <= budget.capacity, "\n{stats}");
    }
}

#[test]
fn e1_started_and_finished_never_exceed_admitted_in_any_reading() {
    const CALLERS: usize = 4;
    const CALLS: usize = 20_000;

    let (runtime, _) = runtime(&[("db", 2)]);
    let waits = runtime
        .contract("waits", Policy::pure().claim("db", 1))
        .unwrap();
    let rejects = runtime
        .contract("rejects", Policy::pure().claim("db", 1).reject())
        .unwrap();
    let (begin, ended) = (Barrier::new(CALLERS + 1), AtomicUsize::new(0));
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (begin, ended, waits, rejects) = (&begin, &ended, &waits, &rejects);
            scope.spawn(move || {
                begin.wait();
                for call in 0..CALLS {
                    // Polled once and dropped: run, queued and left, granted and left, or refused.
                    let contract = if (call + caller) % 2 == 0 {
                        waits
                    } else {
                        rejects
                    };
                    drop(spawn(contract.run(seven)).poll());
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        begin.wait();
        let mut before = runtime.stats();
        while ended.load(Ordering::SeqCst) < CALLERS {
            let stats = runtime.stats();
            assert_consistent(&stats);
            for (before, of) in before.operations.iter().zip(&stats.operations) {
                assert!(before.admitted <= of.admitted, "counters only grow");
                assert!(before.finished <= of.finished, "counters only grow");
            }
            before = stats;
        }
    });
    let total = runtime.stats().total();
    assert_eq!(total.admitted, (CALLERS * CALLS) as u64);
    assert_idle(&runtime);
}

#[test]
fn e1_admitted_is_finished_after_a_drain() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", load).unwrap();
    let room = Room::new();
    let mut running = spawn(load.run(|| room.stay()));
    assert_pending!(running.poll());
    let mut unpolled = spawn(load.run(seven));
    assert_pending!(unpolled.poll());
    let mut call = load.with().key("k").within(ms(10));
    let mut keyed = spawn(call.run(|_| seven()));
    assert_pending!(keyed.poll());
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    room.let_out(1);
    assert_ready_ok!(running.poll());
    // What nobody polls any more, and holds a key, keeps the drain; what holds nothing does not.
    assert_pending!(drain.poll());
    drop(keyed);
    assert_ready_ok!(drain.poll());
    assert_eq!(five(&counts(&runtime, "load")), [3, 0, 1, 3, 0]);
    assert_idle(&runtime);
    assert_ready_err!(unpolled.poll());
    assert_eq!(five(&counts(&runtime, "load")), [3, 0, 1, 3, 0]);
}

#[test]
fn e1_a_name_of_any_length_is_printed() {
    let name = "n".repeat(70_000);
    let (runtime, _) = runtime(&[(&name, 1)]);
    let load = runtime.contract(&name, Policy::pure().claim(&name, 1));
    let load = load.unwrap();
    let _held = assert_ready_ok!(spawn(load.admit()).poll());
    assert!(runtime.stats().to_string().contains(&name));
    assert!(runtime.snapshot().to_string().contains(&name));
    let bound = runtime.shutdown_within(ms(0));
    let error = assert_ready_err!(spawn(bound).poll());
    assert!(error.to_string().contains(&name));
}

#[test]
fn e1_stats_print_as_a_table() {
    let (runtime, _) = runtime(&[("a budget of a long name", 10), ("db", 2_147_483_647)]);
    let policy = Policy::pure()
        .claim("db", 1_000_000)
        .retry(Retry::up_to(2).on_transient());
    let load = runtime.contract("load \u{fc}ber", policy).unwrap();
    let mut call = load.with().key("k");
    let _held = assert_ready_ok!(spawn(call.admit()).poll());
    let mut waiter = load.with().key("k");
    let mut waiter = spawn(waiter.admit());
    assert_pending!(waiter.poll());
    let table = runtime.stats().to_string();
    let mut sections = table.split("\n\n").map(rows);
    let operations = sections.next().unwrap();
    for (name, numbers) in [
        ("load \u{fc}ber", [2, 0, 1, 0, 0]),
        ("all", [2, 0, 1, 0, 0]),
    ] {
        let columns = ["admitted", "rejected", "started", "finished", "retried"];
        for (column, number) in columns.into_iter().zip(numbers) {
            let cell = cell(&operations, name, column);
            assert_eq!(cell, number.to_string(), "{column} of {name}\n{table}");
        }
    }
    let outcomes = sections.next().unwrap();
    for column in ["success", "transient", "never ran", "panicked"] {
        assert_eq!(cell(&outcomes, "all", column), "0", "{column}\n{table}");
    }
    let budgets = sections.next().unwrap();
    for (name, numbers) in [
        ("a budget of a long name", [10, 0, 0]),
        ("db", [2_147_483_647, 1_000_000, 0]),
    ] {
        for (column, number) in ["capacity", "in use", "waiting"].into_iter().zip(numbers) {
            let cell = cell(&budgets, name, column);
            assert_eq!(cell, number.to_string(), "{column} of {name}\n{table}");
        }
    }
    assert_eq!(cell(&budgets, "keys held", "capacity"), "1", "\n{table}");
    assert_eq!(sections.next(), None, "\n{table}");
    // Columns line up.
    for section in table.split("\n\n") {
        let mut lines = section
            .lines()
            .filter(|line| !line.starts_with("keys held"));
        let width = lines.next().unwrap().chars().count();
        assert!(lines.all(|line| line.chars().count() == width), "\n{table}");
    }
}

/// The cells of a table, which at least two blanks keep apart.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let cells = |line| {
        str::split(line, "  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
    };
    section.lines().map(|line| cells(line).collect()).collect()
}

#[track_caller]
fn cell<'t>(rows: &[Vec<&'t str>], row: &str, column: &str) -> &'t str {
    let at = rows[0].iter().position(|name| *name == column).unwrap();
    let row = rows.iter().find(|cells| cells[0] == row).unwrap();
    row[at]
}

#[test]
fn e1_a_call_that_ends_at_its_first_poll_is_counted_before_the_drain_ends_or_refused() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let load = runtime
        .contract("load", Policy::pure().claim("db", 1))
        .unwrap();
    let drains = runtime.clone();
    // The drain begins and ends while the call asks its token, having passed the gate.
    let mut call = load.with().until(async move {
        drains.shutdown().await.unwrap();
    });
    let mut run = spawn(call.run(|_| async { Ok::<u32, Failure<Error>>(1) }));
    let error = assert_ready_err!(run.poll());
    assert!(error.is_stopping(), "{error}");
    let of = counts(&runtime, "load");
    assert_eq!((of.admitted, of.rejected, of.finished), (0, 1, 0));
}
