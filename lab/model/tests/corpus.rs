//! What the fuzzers have kept, replayed: every input that once reached something new, and every one that once failed.

#![forbid(unsafe_code)]

use model::inputs::{self, replay};

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
