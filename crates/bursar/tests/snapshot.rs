//! E2: what a snapshot says of those who hold and those who wait, stepped by hand.

mod common;

use std::sync::{Arc, Mutex};

use bursar::{
    Backoff, BudgetSnapshot, Contract, Failure, KeySnapshot, OperationSnapshot, Phase, Policy,
    QueuedSnapshot, Retry, Runtime,
};
use common::room::{ends, on_wake};
use common::{Answer, Error, Script, lock, ms, runtime};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

fn contract(runtime: &Runtime, name: &str, claims: &[(&str, u32)]) -> Contract {
    let mut policy = Policy::pure();
    for (budget, units) in claims {
        policy = policy.claim(*budget, *units);
    }
    runtime.contract(name, policy).unwrap()
}

fn budget(runtime: &Runtime, name: &str) -> BudgetSnapshot {
    let budgets = runtime.snapshot().budgets;
    let found = budgets.into_iter().find(|of| &*of.name == name);
    found.expect("the budget exists")
}

fn operation(runtime: &Runtime, name: &str) -> OperationSnapshot {
    let operations = runtime.snapshot().operations;
    let found = operations.into_iter().find(|of| &*of.stats.name == name);
    found.expect("the operation exists")
}

/// Who holds: operation, units, calls.
fn holders(of: &BudgetSnapshot) -> Vec<(&str, u32, u32)> {
    assert_eq!(of.unattributed, 0, "{of:?}");
    of.holders
        .iter()
        .map(|of| (&*of.operation, of.units, of.calls))
        .collect()
}

/// Who stands in line: operation, calls in a row, units of each.
fn line(queue: &[QueuedSnapshot]) -> Vec<(&str, u32, u32)> {
    queue
        .iter()
        .map(|of| (&*of.operation, of.calls, of.units))
        .collect()
}

#[test]
fn e2_a_budget_says_who_holds_it_and_who_waits_in_which_order() {
    let (runtime, _) = runtime(&[("db", 6), ("net", 1)]);
    let load = contract(&runtime, "load", &[("db", 1)]);
    let heavy = contract(&runtime, "heavy", &[("db", 4)]);
    let idle = contract(&runtime, "idle", &[("db", 1), ("net", 1)]);
    let of = budget(&runtime, "db");
    assert_eq!((of.capacity, of.in_use, of.waiting), (6, 0, 0));
    assert!(of.holders.is_empty() && of.queue.is_empty());

    let mut held: Vec<_> = (0..2)
        .map(|_| assert_ready_ok!(spawn(load.admit()).poll()))
        .collect();
    held.push(assert_ready_ok!(spawn(heavy.admit()).poll()));
    let mut waiting: Vec<_> = [&load, &load, &heavy, &load, &idle]
        .into_iter()
        .map(|contract| spawn(contract.admit()))
        .collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    let of = budget(&runtime, "db");
    assert_eq!(holders(&of), [("heavy", 4, 1), ("load", 2, 2)]);
    assert_eq!((of.in_use, of.owed, of.unnoticed, of.waiting), (6, 0, 0, 5));
    assert_eq!(
        line(&of.queue),
        [
            ("load", 2, 1),
            ("heavy", 1, 4),
            ("load", 1, 1),
            ("idle", 1, 1)
        ]
    );
    let of = operation(&runtime, "load");
    assert_eq!((of.executing, of.waiting, of.paused), (2, 3, 0));
    assert_eq!(operation(&runtime, "idle").waiting, 1);
    assert_eq!(budget(&runtime, "net").in_use, 0);

    drop((held, waiting));
    assert!(runtime.snapshot().budgets.iter().all(|of| of.in_use == 0));
    assert_eq!(operation(&runtime, "load").waiting, 0);
}

#[test]
fn e2_a_call_that_waits_holds_what_comes_before() {
    let (runtime, _) = runtime(&[("a", 4), ("b", 4), ("c", 1)]);
    let all = contract(&runtime, "all", &[("a", 2), ("b", 1), ("c", 1)]);
    let last = contract(&runtime, "last", &[("c", 1)]);
    let held = assert_ready_ok!(spawn(last.admit()).poll());
    let mut waits = spawn(all.admit());
    assert_pending!(waits.poll());
    let before = runtime.snapshot();
    assert_eq!(holders(&before.budgets[0]), [("all", 2, 1)]);
    assert_eq!(holders(&before.budgets[1]), [("all", 1, 1)]);
    assert_eq!(holders(&before.budgets[2]), [("last", 1, 1)]);

    // Granted, and its caller has not looked yet.
    drop(held);
    let granted = runtime.snapshot();
    assert_eq!(holders(&granted.budgets[2]), [("all", 1, 1)]);
    assert_eq!(granted.budgets[2].unnoticed, 1);
    let text = granted.to_string();
    assert!(text.contains("that nobody has polled since"), "\n{text}");
    assert_eq!(holders(&granted.budgets[0]), [("all", 2, 1)]);
    assert_eq!(
        (
            granted.operations[0].waiting,
            granted.operations[0].executing
        ),
        (1, 0),
        "it has not started"
    );
    let permit = assert_ready_ok!(waits.poll());
    let noticed = runtime.snapshot();
    assert_eq!(holders(&noticed.budgets[2]), [("all", 1, 1)]);
    assert_eq!(noticed.budgets[2].unnoticed, 0);
    let text = noticed.to_string();
    assert!(!text.contains("that nobody has polled since"), "\n{text}");
    assert_eq!(noticed.operations[0].executing, 1);
    drop(permit);
}

#[test]
fn e2_a_waiter_that_shutdown_withdrew_holds_what_comes_before_until_it_is_polled() {
    let (runtime, _) = runtime(&[("a", 1), ("b", 1)]);
    let both = contract(&runtime, "both", &[("a", 1), ("b", 1)]);
    let second = contract(&runtime, "second", &[("b", 1)]);
    let held = assert_ready_ok!(spawn(second.admit()).poll());
    let mut waits = spawn(both.admit());
    assert_pending!(waits.poll());
    assert_eq!(runtime.snapshot().phase, Phase::Open);
    let mut drain = spawn(runtime.shutdown());
    assert_pending!(drain.poll());
    let draining = runtime.snapshot();
    assert_eq!(draining.phase, Phase::Draining);
    assert_eq!(holders(&draining.budgets[0]), [("both", 1, 1)]);
    assert_eq!(draining.budgets[1].waiting, 0);
    assert_ready_err!(waits.poll());
    drop(held);
    assert_ready_ok!(drain.poll());
    assert_eq!(runtime.snapshot().phase, Phase::Drained);
}

#[test]
fn e2_a_call_that_pauses_holds_its_key_alone() {
    let (runtime, clock) = runtime(&[("db", 1)]);
    let retry = Retry::up_to(2)
        .on_transient()
        .backoff(Backoff::exponential(ms(10)).cap(ms(10)));
    let policy = Policy::pure().claim("db", 1).retry(retry);
    let load = runtime.contract("load", policy).unwrap();
    let other = contract(&runtime, "other", &[("db", 1)]);
    let script = Script::new();
    let mut call = load.with().key("k");
    let mut run = spawn(call.run(|_| script.answer()));
    script.say(Err(Failure::transient("again")));
    assert_pending!(run.poll());
    let paused = runtime.snapshot();
    assert_eq!(holders(&paused.budgets[0]), []);
    assert_eq!(
        (paused.operations[0].executing, paused.operations[0].paused),
        (0, 1)
    );
    assert_eq!(&*paused.keys[0].holder, "load");

    let held = assert_ready_ok!(spawn(other.admit()).poll());
    clock.advance(ms(10));
    assert_pending!(run.poll());
    let again = runtime.snapshot();
    assert_eq!(holders(&again.budgets[0]), [("other", 1, 1)]);
    assert_eq!(line(&again.budgets[0].queue), [("load", 1, 1)]);
    let of = &again.operations[0];
    assert_eq!((of.executing, of.paused, of.waiting), (0, 1, 0));

    drop(held);
    assert_eq!(holders(&budget(&runtime, "db")), [("load", 1, 1)]);
    assert_pending!(run.poll());
    let of = operation(&runtime, "load");
    assert_eq!((of.executing, of.paused, of.stats.retried), (1, 0, 1));
    script.say(Ok(7));
    assert_ready_ok!(run.poll());
}

fn key(runtime: &Runtime) -> KeySnapshot {
    let mut keys = runtime.snapshot().keys;
    assert_eq!(keys.len(), 1);
    keys.remove(0)
}

#[test]
fn e2_a_key_says_who_holds_it_and_who_waits() {
    let (runtime, _) = runtime(&[("db", 9)]);
    let load = contract(&runtime, "load", &[("db", 1)]);
    let policy = Policy::pure().claim("db", 1);
    let store = runtime.contract("store", policy).unwrap();
    let mut calls = [&load, &load, &store, &load].map(|of| of.with().key("customer 7"));
    let [first, rest @ ..] = &mut calls;
    let first = assert_ready_ok!(spawn(first.admit()).poll());
    let mut rest = rest.each_mut().map(|call| spawn(call.admit()));
    for waiter in &mut rest {
        assert_pending!(waiter.poll());
    }
    let of = key(&runtime);
    assert_eq!((&*of.key, of.space.as_deref()), ("customer 7", None));
    assert_eq!((&*of.holder, of.waiting), ("load", 3));
    assert_eq!(
        line(&of.queue),
        [("load", 1, 0), ("store", 1, 0), ("load", 1, 0)]
    );
    assert_eq!(holders(&budget(&runtime, "db")), [("load", 1, 1)]);

    drop(first);
    let [second, third, fourth] = &mut rest;
    let passed = runtime.snapshot();
    assert_eq!(passed.keys_unnoticed, 1);
    let said = "1 key passed to calls that nobody has polled since";
    assert!(passed.to_string().contains(said), "\n{passed}");
    let second = assert_ready_ok!(second.poll());
    let noticed = runtime.snapshot();
    assert_eq!(noticed.keys_unnoticed, 0);
    assert!(!noticed.to_string().contains(said), "\n{noticed}");
    drop(second);
    let third = assert_ready_ok!(third.poll());
    let of = key(&runtime);
    assert_eq!((&*of.holder, of.waiting), ("store", 1));
    drop(third);
    drop(assert_ready_ok!(fourth.poll()));
    assert!(runtime.snapshot().keys.is_empty());
}

#[test]
fn e2_keys_say_their_space_and_the_longest_queue_comes_first() {
    let (runtime, _) = runtime(&[("db", 9)]);
    let policy = Policy::pure().claim("db", 1).key_space("brands");
    let brands = runtime.contract("brands", policy).unwrap();
    let policy = Policy::pure().claim("db", 1).key_space("users");
    let users = runtime.contract("users", policy).unwrap();
    let mut calls = [&brands, &users, &users].map(|of| of.with().key(7_u64));
    let [brand, user, behind] = &mut calls;
    let brand = assert_ready_ok!(spawn(brand.admit()).poll());
    let user = assert_ready_ok!(spawn(user.admit()).poll());
    let mut behind = spawn(behind.admit());
    assert_pending!(behind.poll());
    let keys = runtime.snapshot().keys;
    let spaces: Vec<_> = keys
        .iter()
        .map(|of| (of.space.as_deref(), &*of.holder, of.waiting))
        .collect();
    assert_eq!(
        spaces,
        [(Some("users"), "users", 1), (Some("brands"), "brands", 0)]
    );
    let text = runtime.snapshot().to_string();
    assert!(
        text.contains(" of brands ") && text.contains(" of users "),
        "\n{text}"
    );
    drop((brand, user));
}

#[test]
fn e2_a_shrunk_budget_says_what_it_owes() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let load = contract(&runtime, "load", &[("db", 2)]);
    let held = [(); 2].map(|()| assert_ready_ok!(spawn(load.admit()).poll()));
    runtime.resize("db", 3).unwrap();
    let of = budget(&runtime, "db");
    assert_eq!((of.capacity, of.in_use, of.owed), (3, 4, 1));
    assert_eq!(holders(&of), [("load", 4, 2)]);
    let text = runtime.snapshot().to_string();
    assert!(text.contains("budget db owes 1 unit"), "\n{text}");
    drop(held);
    assert_eq!(budget(&runtime, "db").owed, 0);
}

#[test]
fn e2_a_snapshot_may_be_taken_anywhere() {
    ends(|| {
        let (runtime, _) = runtime(&[("db", 1)]);
        let load = contract(&runtime, "load", &[("db", 1)]);
        let seen: Arc<Mutex<Vec<(u32, u32, usize)>>> = Arc::default();
        let look = {
            let (runtime, seen) = (runtime.clone(), Arc::clone(&seen));
            move || {
                let snapshot = runtime.snapshot();
                let of = &snapshot.budgets[0];
                lock(&seen).push((of.in_use, of.unnoticed, snapshot.keys.len()));
            }
        };

        struct OnDrop<F: Fn()>(F);
        impl<F: Fn()> Drop for OnDrop<F> {
            fn drop(&mut self) {
                (self.0)();
            }
        }

        // In a key function, in a handler, in what a handler drops, and in a waker.
        async fn seven(_: &()) -> Answer {
            Ok(7)
        }
        let policy = Policy::pure().claim("db", 1);
        let keyed = runtime.operation("keyed", policy, bursar::handler_fn(seven));
        let in_key = look.clone();
        let keyed = keyed.unwrap().serialize_by(move |()| {
            in_key();
            "k"
        });
        assert_ready_ok!(spawn(keyed.call(())).poll());
        let mut call = load.with().key("k");
        let run = call.run(|_| async {
            look();
            let _dropped = OnDrop(look.clone());
            Answer::Ok(7)
        });
        assert_ready_ok!(spawn(run).poll());
        assert_eq!(*lock(&seen), [(0, 0, 0), (1, 0, 1), (1, 0, 1)]);

        lock(&seen).clear();
        let held = assert_ready_ok!(spawn(load.admit()).poll());
        let mut waits = Box::pin(load.admit());
        let waker = on_wake(look);
        let mut cx = std::task::Context::from_waker(&waker);
        assert_pending!(waits.as_mut().poll(&mut cx));
        drop(held);
        assert_eq!(*lock(&seen), [(1, 1, 0)], "the waker ran");
        drop(waits);
        assert_eq!(budget(&runtime, "db").in_use, 0);
    });
}

#[test]
fn e2_a_long_queue_is_told_by_its_beginning() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let pair = ["one", "two"].map(|name| contract(&runtime, name, &[("db", 1)]));
    let held = assert_ready_ok!(spawn(pair[0].admit()).poll());
    let mut waiting: Vec<_> = (0..100).map(|at| spawn(pair[at % 2].admit())).collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    let of = budget(&runtime, "db");
    assert_eq!((of.waiting, of.queue.len()), (100, 16));
    let text = runtime.snapshot().to_string();
    assert!(text.contains("one, two, one, two, ..."), "\n{text}");
    drop((held, waiting));
}

#[test]
fn e2_a_person_reads_what_is_stuck_first() {
    let (runtime, _) = runtime(&[("db-write", 4), ("renderer", 8)]);
    let render = contract(&runtime, "render", &[("renderer", 2)]);
    let load = contract(&runtime, "load", &[("db-write", 1)]);
    let store = contract(&runtime, "store", &[("db-write", 3)]);
    assert_ready_ok!(spawn(load.run(|| async { Ok::<_, Failure<Error>>(()) })).poll());
    let fails = || async { Err::<(), _>(Failure::<Error>::uncertain("?")) };
    assert_ready_err!(spawn(load.run(fails)).poll());
    let mut call = load.with().key("customer 7\nforged: line");
    let held = (
        assert_ready_ok!(spawn(call.admit()).poll()),
        assert_ready_ok!(spawn(store.admit()).poll()),
        assert_ready_ok!(spawn(render.admit()).poll()),
    );
    let mut waiting: Vec<_> = [&store, &load, &load, &store]
        .into_iter()
        .map(|contract| spawn(contract.admit()))
        .collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    let mut call = store.with().key("customer 7\nforged: line");
    let mut keyed = spawn(call.admit());
    assert_pending!(keyed.poll());
    let text = runtime.snapshot().to_string();
    let shown = r#"open: 3 executing, 0 paused, 5 waiting
  4 calls wait for budget db-write: 4 of 4 in use, held by store 3 (1 call), load 1; the first in line needs 3
  1 call waits for key "customer 7\nforged: line", held by load

budget    capacity  in use  waiting  held by                 first in line
db-write         4       4        4  store 3 (1 call), load 1  store, load x2, store
renderer         8       2           render 2 (1 call)

operation  executing  waiting  admitted  success  uncertain
render             1                  1
load               1        2         5        1          1
store              1        3         4

key                         held by  waiting  first in line
"customer 7\nforged: line"  load           1  store"#;
    let squeeze = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    };
    assert_eq!(squeeze(&text), squeeze(shown), "\n{text}");
    // Columns line up: each head stands over its cells.
    let lines: Vec<&str> = text.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with("budget"))
        .unwrap();
    let held_by = lines[at].find("held by").unwrap();
    assert!(lines[at + 1][held_by..].starts_with("store 3"), "\n{text}");
    assert!(lines[at + 2][held_by..].starts_with("render 2"), "\n{text}");
    drop((held, waiting));
}

/// A long queue is told from its beginning, up to where its runs become too many.
#[test]
fn e2_a_keys_queue_is_told_from_its_beginning() {
    let (runtime, _) = runtime(&[("db", 1)]);
    let (even, odd) = (
        contract(&runtime, "even", &[]),
        contract(&runtime, "odd", &[]),
    );
    let held = assert_ready_ok!(spawn(even.with().key("k").admit()).poll());
    let mut calls: Vec<_> = (0..20)
        .map(|place| if place % 2 == 0 { &even } else { &odd })
        .map(|of| of.with().key("k"))
        .collect();
    let mut waiting: Vec<_> = calls.iter_mut().map(|call| spawn(call.admit())).collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    let key = &runtime.snapshot().keys[0];
    assert_eq!(key.waiting, 20);
    let told = line(&key.queue);
    let first: Vec<_> = [("even", 1, 0), ("odd", 1, 0)].repeat(8);
    assert_eq!(told, first);
    drop((held, waiting));
}
