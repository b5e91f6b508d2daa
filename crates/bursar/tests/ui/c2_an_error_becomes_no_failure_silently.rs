//! `?` on a plain error, and on a nested call's, inside a handler: the handler must say what they mean.

use bursar::{CallError, Contract, Failure};

async fn plain(contract: &Contract) {
    let _ = contract
        .run(|| async {
            let page: String = std::fs::read_to_string("page")?;
            Ok::<_, Failure<std::io::Error>>(page)
        })
        .await;
}

async fn nested(contract: &Contract, inner: &Contract) {
    let _ = contract
        .run(|| async {
            let page: String = inner
                .run(|| async { Ok::<_, Failure<std::io::Error>>(String::new()) })
                .await?;
            Ok::<_, Failure<CallError<std::io::Error>>>(page)
        })
        .await;
}

fn main() {}
