//! Whole runs of the program: what it reports, that it drains when interrupted, and that its data can be made again.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::{Scratch, run, stderr, stdout, storefront};
use serde_json::Value;

fn report(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

/// Every promise that is not in this state.
fn other_than<'a>(report: &'a Value, states: &[&str]) -> Vec<&'a Value> {
    let checks = report["checks"].as_array().expect("a list of checks");
    assert!(checks.len() >= 20, "{checks:?}");
    checks
        .iter()
        .filter(|check| !states.contains(&check["state"].as_str().unwrap_or_default()))
        .collect()
}

#[test]
fn a_small_run_keeps_every_promise_and_says_so_in_json() {
    let scratch = Scratch::new();
    let output = run(storefront()
        .args(["--json", "--scale", "0.006", "--out"])
        .arg(scratch.path()));
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let report = report(&stdout(&output));
    assert_eq!(other_than(&report, &["kept"]), Vec::<&Value>::new());
    assert_eq!(report["interrupted"], Value::Null);

    let operations = report["operations"]
        .as_array()
        .expect("a list of operations");
    assert_eq!(operations.len(), 8);
    for of in operations {
        let count = |field: &str| {
            of[field]
                .as_u64()
                .unwrap_or_else(|| panic!("{field} of {of}"))
        };
        let ends = [
            "ok",
            "refused",
            "stopped",
            "throttled",
            "uncertain",
            "failed",
        ]
        .map(count);
        assert!(count("calls") > 0, "{of}");
        assert_eq!(count("calls"), ends.iter().sum::<u64>(), "{of}");
    }
    let recorded = operations
        .iter()
        .find(|of| of["name"] == "record-event")
        .expect("events are recorded");
    assert_eq!(
        (&recorded["calls"], &recorded["ok"]),
        (&60.into(), &60.into())
    );

    let budgets = report["budgets"].as_array().expect("a list of budgets");
    let renderer = budgets
        .iter()
        .find(|of| of["name"] == "renderer")
        .expect("a renderer");
    assert_eq!(renderer["capacity"], 8);

    let cards: Vec<_> = std::fs::read_dir(scratch.path().join("cards"))
        .unwrap()
        .map(|card| card.unwrap().path())
        .collect();
    assert!(cards.len() >= 10, "{cards:?}");
    let png = std::fs::read(&cards[0]).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert!(scratch.path().join("shop.db").exists() && scratch.path().join("control.db").exists());
}

#[test]
fn a_run_without_a_terminal_draws_plain_tables() {
    let scratch = Scratch::new();
    let output = run(storefront()
        .args(["--scale", "0.001", "--seed", "3", "--out"])
        .arg(scratch.path()));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(!text.contains('\x1b'), "{text}");
    for part in [
        "Operations",
        "webhook-notify",
        "Budgets",
        "db-write",
        "✓ no notification is received twice",
        "none broken",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // Bars are for terminals: here a line says what goes on.
    assert!(
        stderr(&output).starts_with("storefront: serving 60 events"),
        "{}",
        stderr(&output)
    );
    assert!(!stderr(&output).contains('━'), "{}", stderr(&output));
}

#[test]
fn without_bounds_promises_break_and_the_exit_code_says_so() {
    let scratch = Scratch::new();
    let output = run(storefront()
        .args(["--json", "--unbounded", "--scale", "0.001", "--out"])
        .arg(scratch.path()));
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let report = report(&stdout(&output));
    let broken: Vec<_> = other_than(&report, &["kept"])
        .iter()
        .filter_map(|check| check["promise"].as_str())
        .collect();
    for promise in [
        "at most 8 drawings at once",
        "at most 2 catalogue replacements at once",
        "no two replacements of one brand overlap",
    ] {
        assert!(
            broken.contains(&promise),
            "{promise} is not among {broken:?}"
        );
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_drains_and_reports_what_was_done() {
    let scratch = Scratch::new();
    let mut child = storefront()
        .args(["--json", "--scale", "100", "--out"])
        .arg(scratch.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    // It says that it serves once it listens to interrupts; at a hundred times the input it cannot be done by then.
    let mut messages = BufReader::new(child.stderr.take().expect("standard error is a pipe"));
    let mut line = String::new();
    messages.read_line(&mut line).unwrap();
    assert!(line.starts_with("storefront: serving"), "{line}");
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill can be run");
    assert!(kill.success());

    let mut text = String::new();
    child
        .stdout
        .take()
        .expect("standard output is a pipe")
        .read_to_string(&mut text)
        .unwrap();
    let status = child.wait().unwrap();
    let report = report(&text);
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(report["interrupted"].is_number(), "{text}");
    // What the interruption hid is open; nothing is broken, and the drain's own promise is kept.
    assert_eq!(other_than(&report, &["kept", "open"]), Vec::<&Value>::new());
    let checks = report["checks"].as_array().unwrap();
    let drained = checks
        .iter()
        .find(|check| check["promise"] == "after the drain, admitted = finished")
        .expect("the check is there");
    assert_eq!(drained["state"], "kept", "{drained}");
    let stopped: u64 = report["operations"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|of| of["stopped"].as_u64())
        .sum();
    assert!(stopped > 0, "{text}");
}

#[test]
fn the_committed_data_is_what_the_generator_makes() {
    let scratch = Scratch::new();
    let output = run(Command::new(env!("CARGO_BIN_EXE_generate-data"))
        .arg("--out")
        .arg(scratch.path()));
    assert!(output.status.success(), "{}", stderr(&output));
    for name in ["catalogue.csv", "events.jsonl"] {
        let made = std::fs::read(scratch.path().join(name)).unwrap();
        let committed =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/").to_owned() + name).unwrap();
        assert!(
            made == committed,
            "{name} differs: run `cargo run -p storefront --bin generate-data` and commit it"
        );
    }
}
