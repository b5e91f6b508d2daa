//! Neither a type's name nor an implementation of one's own makes an unsafe retry pass.

use bursar::{Certain, Doubtful, NonIdempotent, Permits, Policy, Retry};

impl Permits<Doubtful> for NonIdempotent {}

fn main() {
    let retry: Retry<Certain> = Retry::up_to(2).on_uncertain();
    let _ = Policy::non_idempotent().retry(retry);
}
