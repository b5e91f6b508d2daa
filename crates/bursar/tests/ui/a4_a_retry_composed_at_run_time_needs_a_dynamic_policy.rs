//! What `Retry::on` asks for is known at run time alone, and so goes with a policy that is checked at run time.

use bursar::{Outcome, Policy, Retry};

fn main() {
    let _ = Policy::dynamic().retry(Retry::up_to(2).on(Outcome::Uncertain, true));
    let _ = Policy::non_idempotent().retry(Retry::up_to(2).on(Outcome::Uncertain, true));
    let _ = Policy::pure().retry(Retry::up_to(2).on(Outcome::Transient, true));
}
