//! Only a dynamic policy's effect is stated by a method.

use bursar::{Effect, Policy, Retry};

fn main() {
    let _ = Policy::pure()
        .retry(Retry::up_to(2).on_uncertain())
        .effect(Effect::NonIdempotent);
}
