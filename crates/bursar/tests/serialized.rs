//! E2: a snapshot as JSON. The names of its fields are what dashboards and scripts rest on: they are stated here.

#![cfg(feature = "serde")]

mod common;

use bursar::{Failure, Policy, Snapshot, Stats};
use common::{Answer, Error, runtime};
use serde_json::{Value, json};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};

#[test]
fn e2_a_snapshot_serializes_under_stable_names_and_comes_back() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let policy = Policy::pure().claim("db", 3).key_space("brands");
    let load = runtime.contract("load", policy).unwrap();
    assert_ready_ok!(spawn(load.run(|| async { Answer::Ok(7) })).poll());
    let fails = || async { Err::<(), _>(Failure::<Error>::uncertain("?")) };
    assert_ready_err!(spawn(load.run(fails)).poll());
    let mut call = load.with().key("acme");
    let held = assert_ready_ok!(spawn(call.admit()).poll());
    let mut waits = spawn(load.admit());
    assert_pending!(waits.poll());

    let snapshot = runtime.snapshot();
    let shown = serde_json::to_value(&snapshot).unwrap();
    let expected = json!({
        "phase": "open",
        "budgets": [{
            "name": "db",
            "capacity": 4,
            "in_use": 3,
            "owed": 0,
            "unnoticed": 0,
            "waiting": 1,
            "holders": [{ "operation": "load", "units": 3, "calls": 1 }],
            "unattributed": 0,
            "queue": [{ "operation": "load", "calls": 1, "units": 3 }],
        }],
        "operations": [{
            "name": "load",
            "admitted": 4,
            "rejected": 0,
            "started": 3,
            "finished": 2,
            "retried": 0,
            "denied": 0,
            "waited": 1,
            "outcomes": {
                "success": 1,
                "transient": 0,
                "permanent": 0,
                "throttled": 0,
                "uncertain": 1,
                "never_ran": 0,
                "dropped": 0,
                "panicked": 0,
            },
            "waiting": 1,
            "executing": 1,
            "paused": 0,
            "adrift": 0,
        }],
        "keys": [{
            "space": "brands",
            "key": "acme",
            "holder": "load",
            "waiting": 0,
            "queue": [],
        }],
        "keys_unnoticed": 0,
    });
    assert_eq!(shown, expected, "{shown:#}");
    let back: Snapshot = serde_json::from_value(shown).unwrap();
    assert_eq!(back, snapshot);
    drop((held, waits));
}

#[test]
fn e2_counters_and_drain_reports_serialize_too() {
    let (runtime, _) = runtime(&[("db", 4)]);
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    assert_ready_ok!(spawn(load.run(|| async { Answer::Ok(7) })).poll());
    let stats = runtime.stats();
    let shown = serde_json::to_value(&stats).unwrap();
    assert_eq!(shown["operations"][0]["outcomes"]["success"], 1);
    assert_eq!(shown["budgets"][0]["in_use"], 0);
    assert_eq!(serde_json::from_value::<Stats>(shown).unwrap(), stats);
    let report = assert_ready_ok!(spawn(runtime.shutdown()).poll());
    let shown: Value = serde_json::to_value(&report).unwrap();
    let expected = json!({ "operation": "load", "ended": 0, "withdrawn": 0, "running": 0 });
    assert_eq!(shown["operations"][0], expected);
}

#[cfg(feature = "exact")]
#[test]
fn e2_an_exact_snapshot_comes_back_with_its_times() {
    let clock = bursar::ManualClock::new();
    let builder = bursar::Runtime::builder().clock(clock.clone()).exact();
    let runtime = builder.resource("db", 1).build().unwrap();
    let policy = Policy::pure().claim("db", 1);
    let load = runtime.contract("load", policy).unwrap();
    let mut call = load.with().key("acme");
    let held = assert_ready_ok!(spawn(call.admit()).poll());
    let mut waits = spawn(load.admit());
    assert_pending!(waits.poll());
    clock.advance(common::ms(1_500));
    let snapshot = runtime.snapshot();
    let shown = serde_json::to_value(&snapshot).unwrap();
    assert_eq!(shown["budgets"][0]["longest_wait_seconds"], 1.5);
    assert_eq!(shown["budgets"][0]["holders"][0]["oldest_seconds"], 1.5);
    assert_eq!(shown["calls"][0]["age_seconds"], 1.5);
    let back: Snapshot = serde_json::from_value(shown.clone()).unwrap();
    assert_eq!(back, snapshot);
    // One that was written by hand may leave out what a runtime always tells.
    let mut untold = shown;
    untold["calls"][1]["budget"] = Value::Null;
    let untold: Snapshot = serde_json::from_value(untold).unwrap();
    let text = untold.to_string();
    assert!(text.contains(" waits "), "\n{text}");
    let negative = json!({ "count": 1, "p50_seconds": -1.0, "p90_seconds": 0, "p99_seconds": 0, "max_seconds": 0 });
    assert!(serde_json::from_value::<bursar::Quantiles>(negative).is_err());
    drop((held, waits));
}

#[test]
fn e1_figures_from_elsewhere_may_be_of_any_size() {
    let (runtime, _) = runtime(&[("db", 1)]);
    for name in ["load", "save"] {
        runtime.contract(name, Policy::pure()).unwrap();
    }
    let most = |mut json: Value| {
        for operation in json["operations"].as_array_mut().unwrap() {
            let operation = operation.as_object_mut().unwrap();
            for (_, count) in operation.iter_mut().filter(|(_, of)| of.is_number()) {
                *count = json!(u64::MAX);
            }
        }
        json
    };
    let stats: Stats = serde_json::from_value(most(json!(runtime.stats()))).unwrap();
    assert_eq!(stats.total().admitted, u64::MAX);
    assert!(stats.to_string().contains(&u64::MAX.to_string()));
    let snapshot: Snapshot = serde_json::from_value(most(json!(runtime.snapshot()))).unwrap();
    let begins = format!("open: {} executing", u64::MAX);
    assert!(snapshot.to_string().starts_with(&begins), "{snapshot}");
}
