//! Two operations share one budget: a renderer that may be repeated, and a charge that must not.
//!
//! `cargo run -p quickstart`

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bursar::{CallError, Failure, Policy, Retry, Runtime, handler_fn};

/// The upstream's own error: business code knows no budget and no retry.
#[derive(Debug)]
struct Upstream(&'static str);

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Upstream {}

async fn render(job: &String) -> Result<String, Failure<Upstream>> {
    if job == "flaky" {
        return Err(Failure::transient(Upstream("upstream hiccup")));
    }
    Ok(format!("rendered: {job}"))
}

async fn charge(customer: &String) -> Result<String, Failure<Upstream>> {
    Ok(format!("charged: {customer}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().resource("worker", 4).build()?;

    // May be repeated: waits for capacity, tries up to three times after a failure that took no effect.
    let render = runtime.operation(
        "render",
        Policy::idempotent()
            .claim("worker", 1)
            .timeout(Duration::from_secs(2))
            .retry(Retry::up_to(3).on_transient()),
        handler_fn(render),
    )?;

    // Must not be repeated: fails at once when the workers are busy, retries nothing, one call a customer at a time.
    // `.retry(Retry::up_to(2).on_uncertain())` here would not compile.
    let charge = runtime
        .operation(
            "charge",
            Policy::non_idempotent().claim("worker", 1).reject(),
            handler_fn(charge),
        )?
        .serialize_by(|customer: &String| customer.as_str());

    println!("{}", render.call("job-42".to_owned()).await?);
    println!("{}", charge.call("customer-7".to_owned()).await?);

    match render.call("flaky".to_owned()).await {
        Err(CallError::Failed(call)) => println!(
            "{} failed after {} attempts ({}): {}",
            call.operation(),
            call.attempts(),
            call.outcome(),
            call.failure(),
        ),
        other => println!("unexpected: {other:?}"),
    }

    runtime.shutdown_within(Duration::from_secs(5)).await?;
    println!("\n{}", runtime.stats());
    Ok(())
}
