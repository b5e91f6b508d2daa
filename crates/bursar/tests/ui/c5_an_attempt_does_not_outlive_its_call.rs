//! What a handler is lent stays with its call's builder.

use bursar::{Attempt, Contract, Failure};

async fn keep(contract: &Contract) {
    let mut kept: Option<&Attempt> = None;
    {
        let mut call = contract.with();
        let _ = call
            .run(|attempt| {
                kept = Some(attempt);
                async { Ok::<_, Failure<()>>(()) }
            })
            .await;
    }
    println!("{kept:?}");
}

fn main() {}
