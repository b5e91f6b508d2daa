//! What is wrong with the input or the command line is said before anything runs, with its place, and exit code 2.

mod common;

use std::path::Path;
use std::process::Output;

use common::{Scratch, run, stderr, stdout, storefront};

const CATALOGUE: &str = "\
sku,brand,name,category,price_cents,stock,colour,hex,description
A-1,Acme,\"Lamp, small\",Lighting,4900,3,Moss,#5f7043,A lamp.
A-2,Acme,Kettle,Coffee & Tea,3900,0,Rust,#94472a,\"A kettle, for two.\"
";
const EVENTS: &str = "\
{\"id\":\"e-1\",\"ts\":\"2025-11-28T00:00:00Z\",\"kind\":\"view\",\"sku\":\"A-1\",\"customer\":\"c-1\"}
{\"id\":\"e-2\",\"ts\":\"2025-11-28T00:00:01Z\",\"kind\":\"restock\",\"sku\":\"A-2\",\"quantity\":6}
";

/// Runs with this input and returns what is complained about, without the directory.
fn complaint(catalogue: Option<&str>, events: Option<&str>) -> String {
    let scratch = Scratch::new();
    for (name, text) in [("catalogue.csv", catalogue), ("events.jsonl", events)] {
        if let Some(text) = text {
            std::fs::write(scratch.path().join(name), text).unwrap();
        }
    }
    let out = scratch.path().join("out");
    let output = run(storefront()
        .arg("--data")
        .arg(scratch.path())
        .arg("--out")
        .arg(&out));
    refused(&output, &out);
    let dir = format!("{}/", scratch.path().display());
    stderr(&output).replace(&dir, "").trim_end().to_owned()
}

#[track_caller]
fn refused(output: &Output, out: &Path) {
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}{}",
        stdout(output),
        stderr(output)
    );
    assert_eq!(stdout(output), "");
    assert!(!out.exists(), "something ran");
}

#[track_caller]
fn says(complaint: &str, start: &str) {
    assert!(complaint.starts_with(start), "{complaint}");
}

#[test]
fn a_missing_file_is_named() {
    says(
        &complaint(None, Some(EVENTS)),
        "storefront: catalogue.csv: cannot be read: No such file or directory",
    );
    says(
        &complaint(Some(CATALOGUE), None),
        "storefront: events.jsonl: cannot be read: No such file or directory",
    );
}

#[test]
fn an_empty_file_is_named() {
    says(
        &complaint(Some(""), Some(EVENTS)),
        "storefront: catalogue.csv:1:1: is empty; it starts with the line `sku,brand,",
    );
    says(
        &complaint(Some(CATALOGUE), Some("")),
        "storefront: events.jsonl:1:1: is empty; it has one event a line",
    );
    let header = CATALOGUE.lines().next();
    says(
        &complaint(header, Some(EVENTS)),
        "storefront: catalogue.csv:2:1: has no products below its first line",
    );
}

#[test]
fn a_missing_column_is_named() {
    let catalogue = CATALOGUE.replace("price_cents,", "");
    says(
        &complaint(Some(&catalogue), Some(EVENTS)),
        "storefront: catalogue.csv:1:53: has no column `price_cents`; the columns are sku, brand, name",
    );
}

#[test]
fn a_bad_number_is_located() {
    let catalogue = CATALOGUE.replace("4900", "49.00");
    says(
        &complaint(Some(&catalogue), Some(EVENTS)),
        "storefront: catalogue.csv:2:33: price_cents is \"49.00\", which is not a whole number",
    );
    let events = EVENTS.replace("\"quantity\":6", "\"quantity\":-6");
    says(
        &complaint(Some(CATALOGUE), Some(&events)),
        "storefront: events.jsonl:2:82: is not an event: invalid value: integer `-6`",
    );
}

#[test]
fn a_duplicate_sku_is_located_with_the_first() {
    let catalogue = CATALOGUE.replace("A-2", "A-1");
    says(
        &complaint(Some(&catalogue), Some(EVENTS)),
        "storefront: catalogue.csv:3:1: sku \"A-1\" was already given to the product on line 2",
    );
}

#[test]
fn an_open_quotation_is_located() {
    let catalogue = CATALOGUE.replace("for two.\"", "for two.");
    says(
        &complaint(Some(&catalogue), Some(EVENTS)),
        "storefront: catalogue.csv:3:50: this quoted field is never closed",
    );
}

#[test]
fn bad_json_is_located() {
    let events = EVENTS.replace("\"kind\":\"restock\",", "\"kind\":\"restock\"");
    says(
        &complaint(Some(CATALOGUE), Some(&events)),
        "storefront: events.jsonl:2:57: is not an event: expected `,` or `}`",
    );
}

#[test]
fn an_unknown_sku_is_located() {
    let events = EVENTS.replace("A-2", "B-9");
    says(
        &complaint(Some(CATALOGUE), Some(&events)),
        "storefront: events.jsonl:2:58: sku \"B-9\" is not in the catalogue",
    );
}

#[test]
fn an_unknown_kind_and_a_repeated_event_are_located() {
    let events = EVENTS.replace("restock", "refund");
    says(
        &complaint(Some(CATALOGUE), Some(&events)),
        "storefront: events.jsonl:2:41: kind is \"refund\"; it is view, cart,",
    );
    let events = EVENTS.replace("e-2", "e-1");
    says(
        &complaint(Some(CATALOGUE), Some(&events)),
        "storefront: events.jsonl:2:2: id \"e-1\" was already given to the event on line 1",
    );
}

#[test]
fn text_that_is_no_text_is_located() {
    let scratch = Scratch::new();
    let mut bytes = CATALOGUE.as_bytes().to_vec();
    let at = CATALOGUE.find("Kettle").unwrap();
    bytes[at] = 0xff;
    std::fs::write(scratch.path().join("catalogue.csv"), bytes).unwrap();
    let out = scratch.path().join("out");
    let output = run(storefront()
        .arg("--data")
        .arg(scratch.path())
        .arg("--out")
        .arg(&out));
    refused(&output, &out);
    assert!(
        stderr(&output).contains("catalogue.csv:3:10: is not UTF-8 text from here on"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_place_that_cannot_be_written_to_is_named() {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = run(storefront()
        .args(["--scale", "0.001", "--out"])
        .arg(file.join("below")));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("cannot make the directory"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_command_line_is_checked_and_explained() {
    for wrong in [
        &["--scale", "0"][..],
        &["--scale", "much"],
        &["--seed", "x"],
        &["--colour"],
        &["extra"],
    ] {
        let output = run(storefront().args(wrong));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert_eq!(stdout(&output), "", "{wrong:?}");
    }
    let output = run(storefront().arg("--help"));
    assert_eq!(output.status.code(), Some(0));
    for part in ["Examples:", "--scale", "--json", "Ctrl-C", "Exit status"] {
        assert!(stdout(&output).contains(part), "{part}");
    }
}
