//! What the fuzzers have kept of bytes from strangers, replayed.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

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
fn a_header_says_how_much_time_there_is() {
    replay("deadlines", inputs::deadlines);
}

#[test]
fn no_code_of_a_provider_is_a_success() {
    replay("codes", inputs::codes);
}

#[test]
fn whatever_a_server_answers_a_request_ends_and_keeps_its_secrets() {
    replay("answers", inputs::answers::answers);
}
