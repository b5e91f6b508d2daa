//! A retry after Uncertain on an operation each of whose executions counts, in whatever order it is asked for.

use bursar::{Policy, Retry};

fn main() {
    let _ = Policy::non_idempotent().retry(Retry::up_to(2).on_uncertain());
    let _ = Policy::non_idempotent()
        .claim("payments", 1)
        .retry(Retry::up_to(2).on_transient().on_uncertain());
    let _ = Policy::non_idempotent().retry(Retry::up_to(2).on_uncertain().on_transient());
}
