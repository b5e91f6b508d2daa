//! Two concurrent runs of one builder would share an attempt.

use bursar::{Contract, Failure};

async fn both(contract: &Contract) {
    let mut call = contract.with();
    let one = call.run(|attempt| async { Ok::<_, Failure<()>>(attempt.number()) });
    let other = call.run(|attempt| async { Ok::<_, Failure<()>>(attempt.number()) });
    let _ = (one.await, other.await);
}

fn main() {}
