//! One request under a contract: what is asked of it, admission, attempts, and what the caller gets.
//!
//! 1. Nothing is held, and nothing of the inner service is touched, before the returned future is polled and admitted:
//!    the inner service's own readiness is awaited inside the attempt.
//! 2. A request that cannot be copied is attempted once, whatever the policy says.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bursar::{Attempt, CallError, Contract, Failure};
use tower_service::Service;

use crate::ask::Asks;
use crate::body::Held;
use crate::deliver::Deliver;
use crate::judge::{Answers, Fault, Judge, Verdict, verdict};
use crate::layer::Plain;
use crate::pace::{Pace, Stopwatch};

/// What the services of one layer share.
pub(crate) struct Shared<Req, J, D> {
    pub(crate) contract: Contract,
    pub(crate) asks: Asks<Req>,
    pub(crate) judge: Arc<J>,
    pub(crate) deliver: D,
    /// Kept where refusals tell when to come back.
    pub(crate) pace: Option<Arc<Pace>>,
}

/// A service whose calls run under a contract; made by [`ContractLayer`](crate::ContractLayer).
///
/// It is always ready, and a ready service holds nothing: key and units are taken when the call is polled, and the inner
/// service is made ready after that, as part of the attempt. So an idle clone, kept for a connection that may never
/// send anything, costs nobody anything. What chooses among services by their readiness learns nothing from it: tower's
/// `balance` goes by load, and a policy that rejects says so in its answer.
///
/// # Cancel safety
/// Dropping a call's future while it waits loses its place and nothing else. While the inner service runs, its future is
/// dropped at its await point; units and key are back at once.
pub struct ContractService<S, Req, J = Answers, D = Plain> {
    inner: S,
    shared: Arc<Shared<Req, J, D>>,
}

impl<S, Req, J, D> ContractService<S, Req, J, D> {
    pub(crate) fn new(inner: S, shared: Shared<Req, J, D>) -> Self {
        Self {
            inner,
            shared: Arc::new(shared),
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The contract.
    pub fn contract(&self) -> &Contract {
        &self.shared.contract
    }
}

/// Written by hand: the derived one would ask the request to be `Clone`.
impl<S: Clone, Req, J, D> Clone for ContractService<S, Req, J, D> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, Req, J, D> fmt::Debug for ContractService<S, Req, J, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContractService")
            .field("contract", &self.shared.contract)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, Req, J, D> Service<Req> for ContractService<S, Req, J, D>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Send,
    S::Error: Send,
    S::Future: Send,
    Req: Send + 'static,
    J: Judge<S::Response, S::Error> + Send + Sync + 'static,
    D: Deliver<S::Response, S::Error> + Send + Sync + 'static,
{
    type Response = D::Response;
    type Error = D::Error;
    type Future = Pin<Box<dyn Future<Output = Result<D::Response, D::Error>> + Send>>;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), D::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(run(shared, self.inner.clone(), request))
    }
}

/// One call. A block and no `async fn`: what a block is given is stored once, and a function's arguments again as its
/// locals; requests are not small.
fn run<S, Req, J, D>(
    shared: Arc<Shared<Req, J, D>>,
    service: S,
    request: Req,
) -> impl Future<Output = Result<D::Response, D::Error>>
where
    S: Service<Req> + Clone,
    J: Judge<S::Response, S::Error>,
    D: Deliver<S::Response, S::Error>,
{
    let mut next = Some((service, request));
    async move {
        let Some((_, request)) = &next else {
            unreachable!("it begins with a request");
        };
        let (mut call, effect) = shared.asks.call(&shared.contract, request);
        let attempt = |attempt: &Attempt| {
            let (mut service, request) = next.take().expect("none follows one that was the last");
            next = shared
                .asks
                .copy(&request)
                .map(|copy| (service.clone(), copy));
            if next.is_none() {
                attempt.forbid_retry();
            }
            // It ends with its attempt, should that fail: between attempts nothing need be held.
            let watch = shared.pace.as_ref().map(Stopwatch::start);
            let judge = &*shared.judge;
            async move {
                // Not called, it did nothing.
                poll_fn(|cx| service.poll_ready(cx))
                    .await
                    .map_err(|error| Failure::transient(Fault::Error(error)))?;
                let answer = service.call(request).await;
                verdict(judge, effect, answer).map(|response| (response, watch))
            }
        };
        let done = if shared.deliver.holds() {
            let held = call.run_held(attempt).await;
            held.map(|((response, watch), permit)| (response, Some(Held::new(permit, watch))))
        } else {
            call.run(attempt)
                .await
                .map(|(response, _)| (response, None))
        };
        match done {
            Ok((response, held)) => Ok(shared.deliver.done(response, held)),
            Err(error) => failed(&shared, error),
        }
    }
}

/// A call that has no answer: a response that was judged a failure, or none.
#[cold]
fn failed<Res, E, Req, J, D: Deliver<Res, E>>(
    shared: &Shared<Req, J, D>,
    error: CallError<Fault<Res, E>>,
) -> Result<D::Response, D::Error> {
    let verdict = Verdict {
        outcome: error.outcome(),
        attempts: error.attempts(),
    };
    let found = error.try_map(|fault| match fault {
        Fault::Error(error) => Ok(error),
        Fault::Response(response) => Err(response),
    });
    match found {
        Ok(error) => shared.deliver.failed(error, shared.pace.as_deref()),
        Err(response) => Ok(shared.deliver.judged(response, verdict)),
    }
}
