//! The two programs, as they are started.

use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.args(args).output().unwrap()
}

#[test]
fn rows_and_curves_are_listed() {
    let output = bench(&["--list"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["one-budget", "mixed-suspending", "timers"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_name_that_is_no_row_is_an_error() {
    let output = bench(&["nonsense"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--list"), "{said}");
}

#[test]
fn some_curves_are_not_written_down_for_all() {
    let output = bench(&["--growth", "--write-docs", "keys"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("leave the names out"), "{said}");
}

#[test]
fn without_valgrind_instructions_are_an_error_that_says_what_to_install() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    let output = bench
        .arg("--instructions")
        .env("PATH", "")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let wanted = if cfg!(debug_assertions) {
        "--profile bench"
    } else {
        "apt-get install valgrind"
    };
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn allocations_are_counted_a_call_and_for_each_call_that_waits() {
    let mut heap = Command::new(env!("CARGO_BIN_EXE_bench-heap"));
    let output = heap.args(["keyed", "parked"]).output().unwrap();
    assert!(output.status.success());
    let figures: Vec<bench::heap::Figure> = serde_json::from_slice(&output.stdout).unwrap();
    let of = |row: &str, name: &str, column| {
        let mut figures = figures.iter();
        let same = |figure: &&bench::heap::Figure| {
            figure.row == row && figure.name == name && figure.column == column
        };
        figures.find(same).map(|figure| figure.figure)
    };
    use bench::report::Column::{Allocations, Record, Task};
    assert_eq!(of("keyed", "bursar key().run", Allocations), Some(0.0));
    assert_eq!(of("keyed", "composed", Allocations), Some(2.0));
    assert!(of("parked", "bursar run", Record).is_some_and(|bytes| bytes > 0.0));
    assert!(of("parked", "bursar run", Task).is_some_and(|bytes| bytes > 0.0));
}
