//! tower's own layers: a concurrency limit, retries, a timeout.

use std::future::{Ready, ready};
use std::time::Duration;

use tower::retry::Policy;
use tower::{BoxError, Service, ServiceBuilder, service_fn};

/// Retries a failed request a few times, at once.
#[derive(Clone, Copy, Debug)]
struct Retries(u32);

impl<Request: Clone, Response, Error> Policy<Request, Response, Error> for Retries {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request,
        result: &mut Result<Response, Error>,
    ) -> Option<Ready<()>> {
        if result.is_ok() || self.0 == 0 {
            return None;
        }
        self.0 -= 1;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        Some(request.clone())
    }
}

/// A limit around retries.
pub fn tower(capacity: usize) -> impl Service<u32, Response = u32, Error = BoxError> {
    ServiceBuilder::new()
        .concurrency_limit(capacity)
        .retry(Retries(2))
        .service(service_fn(handler))
}

/// A limit around retries around a timeout.
pub fn tower_in_time(
    capacity: usize,
    timeout: Duration,
) -> impl Service<u32, Response = u32, Error = BoxError> {
    ServiceBuilder::new()
        .concurrency_limit(capacity)
        .retry(Retries(2))
        .timeout(timeout)
        .service(service_fn(handler))
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
        let mut plain = tower(1);
        let mut in_time = tower_in_time(1, Duration::from_secs(1));
        for i in 0..3 {
            assert_eq!(plain.ready().await.unwrap().call(i).await.unwrap(), i);
            assert_eq!(in_time.ready().await.unwrap().call(i).await.unwrap(), i);
        }
    }
}
