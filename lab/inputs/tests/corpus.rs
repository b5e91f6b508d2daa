//! What the fuzzers have kept of bytes from strangers, replayed.

#![forbid(unsafe_code)]

use model::inputs::replay;

#[test]
fn a_header_says_how_much_time_there_is() {
    replay("deadlines", inputs::deadlines);
}

#[test]
fn an_address_shows_no_password_and_a_path_keeps_its_origin() {
    replay("addresses", inputs::addresses::addresses);
}

#[test]
fn keys_are_their_bytes() {
    replay("keys", inputs::core::keys);
}

#[test]
fn figures_that_are_read_are_written_as_they_were() {
    replay("figures", inputs::core::figures);
}

#[test]
fn no_code_of_a_provider_is_a_success() {
    replay("codes", inputs::codes);
}

#[test]
fn whatever_a_server_answers_a_request_ends_and_keeps_its_secrets() {
    replay("answers", inputs::answers::answers);
}
