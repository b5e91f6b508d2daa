//! What the fuzzers have kept, replayed: every input that once reached something new, and every one that once failed.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use model::inputs;

fn replay(target: &str, input: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut replayed = 0;
    for entry in fs::read_dir(&corpus).expect("a corpus for each target") {
        let path = entry.expect("it can be read").path();
        input(&fs::read(&path).expect("it can be read"));
        replayed += 1;
    }
    assert!(replayed >= 10, "{replayed} inputs in {}", corpus.display());
}

#[test]
fn scenarios_keep_to_the_contract() {
    replay("scenario", inputs::scenario);
}

#[test]
fn headers_are_read_as_they_say() {
    replay("retry_after", inputs::retry_after);
}

#[test]
fn policies_are_accepted_when_they_are_right() {
    replay("policy", inputs::policy);
}
