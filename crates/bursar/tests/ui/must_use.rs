//! What does nothing unless it is used says so.

#![deny(unused_must_use)]

use bursar::{Attempt, Contract, Failure, Policy, Retry, Runtime};

async fn unused(runtime: &Runtime, contract: &Contract, attempt: &Attempt) {
    Runtime::builder().resource("db", 1);
    Policy::pure().claim("db", 1);
    Retry::up_to(2).on_transient();
    contract.with().key("k");
    contract.run(|| async { Ok::<_, Failure<()>>(()) });
    contract.admit();
    contract.admit().await.unwrap();
    attempt.cancelled();
    runtime.stats();
    runtime.shutdown();
}

fn main() {}
