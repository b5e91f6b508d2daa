//! What is no handler is told how to become one.

use bursar::{Failure, Policy, Runtime};

async fn length(text: &String) -> Result<usize, Failure<std::io::Error>> {
    Ok(text.len())
}

fn main() {
    let runtime = Runtime::builder().resource("db", 1).build().unwrap();
    let _ = runtime.operation::<String, _, _>("length", Policy::pure(), length);
}
