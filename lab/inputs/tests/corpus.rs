//! What the fuzzers have kept of bytes from strangers, replayed.

#![forbid(unsafe_code)]

use model::inputs::replay;

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
