//! One call under the client's contract: attempts, and what the caller is told.

use std::sync::Arc;

use bursar::{Attempt, Attempted, Call, CallError, Failure, Outcome, Permit};
use bytes::Bytes;
use http::Response;
use http::response::Parts;

use crate::attempt::failed_status;
use crate::client::{Client, Core};
use crate::codec::Decode;
use crate::error::{Error, ErrorKind};
use crate::payload::Payload;
use crate::request::Ready;
use crate::verdict;

/// How a request is run: the client's side and the request's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) core: &'a Core,
    pub(crate) ready: &'a Ready,
}

/// A request under way, with everything it needs.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) client: Client,
    pub(crate) ready: Arc<Ready>,
    /// Counts it with its host.
    pub(crate) host: Option<Permit>,
}

impl Live {
    pub(crate) fn run(&self) -> Run<'_> {
        Run {
            core: self.client.core(),
            ready: &self.ready,
        }
    }
}

impl<'a> Run<'a> {
    /// The call's builder, with everything the request states.
    pub(crate) fn call(&self) -> Call<'a> {
        let Ready { plan, bounds, .. } = self.ready;
        let mut call = self.core.contract.with().effect(plan.effect);
        if let Some(key) = &self.ready.idempotency_key {
            call = call.idempotency_key(key.clone());
        }
        if let Some(key) = &bounds.key {
            call = call.key(key.clone());
        }
        if let Some(within) = bounds.within {
            call = call.within(within);
        }
        if let Some(deadline) = bounds.deadline {
            call = call.deadline(deadline);
        }
        if let Some(token) = &bounds.token {
            call = call.until(token.clone());
        }
        call
    }

    /// Runs until the whole answer is here and `decoder` has read it.
    pub(crate) async fn typed<T, D: Decode<T>>(&self, decoder: &D) -> Result<Response<T>, Error> {
        let run = *self;
        run.call()
            .run(|attempt| async move {
                let answered = run.collected(attempt, true).await;
                answered
                    .and_then(|response| run.decoded(response, decoder))
                    .map_err(|error| run.failure(attempt, error))
            })
            .await
            .map_err(|error| self.concluded(error))
    }

    /// Runs until the whole answer is here, whatever its status.
    pub(crate) async fn raw(&self) -> Result<Response<Bytes>, Error> {
        let run = *self;
        run.call()
            .run(|attempt| async move {
                let answered = run.collected(attempt, false).await;
                answered.map_err(|error| run.failure(attempt, error))
            })
            .await
            .map_err(|error| self.concluded(error))
    }

    /// Runs until the head of the answer is here; its body comes with what the call holds and how many attempts it took.
    pub(crate) async fn open(&self) -> Result<(Parts, Payload, u32, Permit), Error> {
        let run = *self;
        let ((parts, payload, attempts), permit) = run
            .call()
            .run_held(|attempt| async move {
                let answered = run.exchange(attempt).await;
                answered
                    .map(|(parts, payload)| (parts, payload, attempt.number()))
                    .map_err(|error| run.failure(attempt, error))
            })
            .await
            .map_err(|error| self.concluded(error))?;
        Ok((parts, payload, attempts, permit))
    }

    /// One attempt up to the head of its answer.
    pub(crate) async fn exchange(&self, attempt: &Attempt) -> Result<(Parts, Payload), Error> {
        let Self { core, ready } = self;
        let deadline = core.clock.deadline(ready.timeout, attempt.deadline());
        core.ways
            .exchange(&ready.plan, deadline, Some(attempt))
            .await
    }

    /// One attempt up to the end of its answer.
    async fn collected(&self, attempt: &Attempt, typed: bool) -> Result<Response<Bytes>, Error> {
        let (parts, mut payload) = self.exchange(attempt).await?;
        let failed = typed && verdict::is_failure(parts.status);
        let (body, ended_by) = payload.collect(Some(attempt)).await;
        let response = Response::from_parts(parts, body);
        if failed {
            // Known already; what is left of its body changes nothing.
            let floor = payload.floor();
            return Err(failed_status(&self.ready.plan, response).at_least(floor));
        }
        match ended_by {
            Some(error) => Err(error),
            None => Ok(response),
        }
    }

    fn decoded<T, D: Decode<T>>(
        &self,
        response: Response<Bytes>,
        decoder: &D,
    ) -> Result<Response<T>, Error> {
        let (parts, body) = response.into_parts();
        match decoder.decode(&parts.headers, &body) {
            Ok(value) => Ok(Response::from_parts(parts, value)),
            Err(error) => {
                let plan = &self.ready.plan;
                let what = "the answer's body is not what was asked for";
                Err(
                    Error::new(ErrorKind::ProtocolError, Outcome::Permanent, what)
                        .at_least(verdict::once_answered(parts.status, plan.effect))
                        .hopeless()
                        .because(error)
                        .to(&plan.method, &plan.uri),
                )
            }
        }
    }

    /// What the contract is told of a failed attempt.
    pub(crate) fn failure(&self, attempt: &Attempt, error: Error) -> Failure<Error> {
        if self.ready.plan.body.is_spent() || error.is_hopeless() {
            attempt.forbid_retry();
        }
        error
            .to(&self.ready.plan.method, &self.ready.plan.uri)
            .into_failure()
    }

    /// What the caller is told of a failed call.
    pub(crate) fn concluded(&self, error: CallError<Error>) -> Error {
        let plan = &self.ready.plan;
        let (kind, what) = match &error {
            CallError::Overloaded(_) => (ErrorKind::CapacityExceeded, error.to_string()),
            CallError::AdmissionTimedOut(_) => (ErrorKind::DeadlineExceeded, error.to_string()),
            CallError::Withdrawn(_) => (ErrorKind::Cancelled, error.to_string()),
            CallError::Stopping(_) => (ErrorKind::ShuttingDown, error.to_string()),
            CallError::TimedOut(_) => (ErrorKind::DeadlineExceeded, error.to_string()),
            CallError::Cancelled(_) => (ErrorKind::Cancelled, error.to_string()),
            CallError::Failed(_) => {
                return match error {
                    CallError::Failed(ran) => self.failed(ran),
                    other => Error::invalid(other.to_string()),
                };
            }
            _ => (ErrorKind::InvalidOperation, error.to_string()),
        };
        let (outcome, attempts) = (error.outcome(), error.attempts());
        let ended = Error::new(kind, outcome, what)
            .attempted(attempts)
            .to(&plan.method, &plan.uri);
        match error.into_error() {
            Some(source) => ended.because(source),
            None => ended,
        }
    }

    fn failed(&self, ran: Attempted<Error>) -> Error {
        let (outcome, attempts) = (ran.outcome(), ran.attempts());
        match ran.into_failure().into_error() {
            Some(error) => error.concluded(outcome, attempts),
            None => Error::new(
                ErrorKind::DeadlineExceeded,
                outcome,
                "the attempt was cut off",
            )
            .attempted(attempts)
            .to(&self.ready.plan.method, &self.ready.plan.uri),
        }
    }
}
