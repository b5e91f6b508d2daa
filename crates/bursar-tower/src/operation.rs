//! An operation as a tower service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bursar::{CallError, Handler, Operation};
use tower_service::Service;

/// An [`Operation`] as a tower service: the request is its input.
///
/// Like every service here it is always ready, and holds nothing until a call is polled. Cheap to clone; every clone is
/// the same operation.
///
/// ```
/// use bursar::{Failure, Policy, Runtime, handler_fn};
/// use bursar_tower::OperationService;
/// use tower::{Service, ServiceExt};
///
/// async fn length(text: &String) -> Result<usize, Failure<std::io::Error>> {
///     Ok(text.len())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("worker", 1).build()?;
/// let operation = runtime.operation("length", Policy::pure().claim("worker", 1), handler_fn(length))?;
/// let mut service = OperationService::new(operation);
/// assert_eq!(service.ready().await?.call("seven".to_owned()).await?, 5);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// As [`Operation::call`].
pub struct OperationService<I, H> {
    operation: Arc<Operation<I, H>>,
}

impl<I, H> OperationService<I, H> {
    /// The operation as a service.
    pub fn new(operation: Operation<I, H>) -> Self {
        Self {
            operation: Arc::new(operation),
        }
    }

    /// The operation.
    pub fn operation(&self) -> &Operation<I, H> {
        &self.operation
    }
}

/// Written by hand: the derived one would ask input and handler to be `Clone`.
impl<I, H> Clone for OperationService<I, H> {
    fn clone(&self) -> Self {
        Self {
            operation: Arc::clone(&self.operation),
        }
    }
}

impl<I, H> fmt::Debug for OperationService<I, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OperationService")
            .field(&self.operation)
            .finish()
    }
}

impl<I, H> Service<I> for OperationService<I, H>
where
    I: Send + Sync + 'static,
    H: Handler<I> + 'static,
{
    type Response = H::Output;
    type Error = CallError<H::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<H::Output, CallError<H::Error>>> + Send>>;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, input: I) -> Self::Future {
        let operation = Arc::clone(&self.operation);
        Box::pin(async move { operation.call(input).await })
    }
}
