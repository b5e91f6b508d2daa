//! Whole runs on a real Postgres, with connections killed meanwhile. `lab/providers/run` starts it and runs this.

mod common;

use common::{Scratch, run, stderr, stdout, storefront};
use serde_json::Value;

fn database() -> String {
    std::env::var("BURSAR_POSTGRES_URL")
        .expect("BURSAR_POSTGRES_URL is not set: run these tests by lab/providers/run, which starts the server")
}

#[test]
fn every_promise_is_kept_on_postgres_while_connections_are_killed() {
    let scratch = Scratch::new();
    let output = run(storefront()
        .args([
            "--json",
            "--scale",
            "0.05",
            "--kill-every",
            "25",
            "--database",
            &database(),
            "--out",
        ])
        .arg(scratch.path()));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let report: Value = serde_json::from_str(&text).expect("a report in JSON");

    let checks = report["checks"].as_array().expect("a list of checks");
    let broken: Vec<_> = checks
        .iter()
        .filter(|check| check["state"] != "kept")
        .collect();
    assert_eq!(broken, Vec::<&Value>::new(), "{text}");
    let met = |promise: &str| checks.iter().any(|check| check["promise"] == promise);
    assert!(met("connections are killed meanwhile"), "{text}");
    for what in ["stock move", "recorded event"] {
        let accounted = format!("every uncertain {what} is accounted for");
        assert!(met(&accounted), "{text}");
    }

    let count = |name: &str, field: &str| {
        let operations = report["operations"]
            .as_array()
            .expect("a list of operations");
        let of = operations.iter().find(|of| of["name"] == name);
        of.and_then(|of| of[field].as_u64())
            .unwrap_or_else(|| panic!("no {field} of {name}: {text}"))
    };
    // The promises were put to the test: commits were lost, and only what may be repeated was.
    assert!(report["killed"]["committing"].as_u64() > Some(0), "{text}");
    assert!(count("move-stock", "uncertain") > 0, "{text}");
    assert!(count("record-event", "retried") > 0, "{text}");
    // Nothing of it was kept anywhere else.
    assert!(!scratch.path().join("shop.db").exists());
}

#[test]
fn a_database_that_is_not_there_is_told() {
    let output = run(storefront().args([
        "--scale",
        "0.001",
        "--database",
        "postgres://nobody@127.0.0.1:1/nowhere",
    ]));
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(
        stderr(&output).starts_with("storefront: the database cannot begin a transaction"),
        "{}",
        stderr(&output)
    );
}
