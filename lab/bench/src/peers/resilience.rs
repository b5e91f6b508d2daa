//! tower-resilience: its bulkhead around its retry, and around its time limiter.

use std::time::Duration;

use tower::{BoxError, Layer, Service, service_fn};
use tower_resilience_bulkhead::BulkheadLayer;
use tower_resilience_retry::RetryLayer;
use tower_resilience_timelimiter::{TimeLimiterError, TimeLimiterLayer};

fn bulkhead(capacity: usize) -> BulkheadLayer {
    BulkheadLayer::builder()
        .max_concurrent_calls(capacity)
        .build()
        .expect("a capacity above zero")
}

fn retries<E: Send + Sync + 'static>() -> RetryLayer<u32, u32, E> {
    RetryLayer::<u32, u32, E>::builder()
        .max_attempts(3)
        .fixed_backoff(Duration::ZERO)
        .build()
}

/// A bulkhead around retries.
pub fn resilience(capacity: usize) -> impl Service<u32, Response = u32, Error: Send> {
    bulkhead(capacity).layer(retries::<BoxError>().layer(service_fn(handler)))
}

/// A bulkhead around retries around a time limiter.
pub fn resilience_in_time(
    capacity: usize,
    timeout: Duration,
) -> impl Service<u32, Response = u32, Error: Send> {
    let limited = TimeLimiterLayer::builder()
        .timeout_duration(timeout)
        .build()
        .layer(service_fn(handler));
    bulkhead(capacity).layer(retries::<TimeLimiterError<BoxError>>().layer(limited))
}

async fn handler(input: u32) -> Result<u32, BoxError> {
    Ok(std::hint::black_box(input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt;

    #[tokio::test]
    async fn both_answer() {
        let mut plain = resilience(1);
        let mut in_time = resilience_in_time(1, Duration::from_secs(1));
        for i in 0..3 {
            assert_eq!(
                plain.ready().await.ok().unwrap().call(i).await.ok(),
                Some(i)
            );
            assert_eq!(
                in_time.ready().await.ok().unwrap().call(i).await.ok(),
                Some(i)
            );
        }
    }
}
