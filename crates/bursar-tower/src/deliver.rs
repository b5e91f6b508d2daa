//! What the caller of a service gets, in each of the worlds that a layer is made for.

use bursar::CallError;
use bytes::Bytes;
use http::Response;
use http_body::Body;

use crate::body::{ContractBody, Held};
use crate::judge::Verdict;
use crate::layer::{HttpClient, HttpServer, Plain};
use crate::pace::{self, Pace};
use crate::problem::Problem;

/// How the end of a call becomes a service's result: [`Plain`], [`HttpClient`], [`HttpServer`], and, for gRPC servers,
/// `GrpcServer`. Not to be implemented elsewhere.
pub trait Deliver<Res, E>: sealed::Sealed {
    /// The service's response.
    type Response;
    /// The service's error.
    type Error;

    /// Whether what a call holds goes on with its answer.
    #[doc(hidden)]
    fn holds(&self) -> bool;

    /// An answer. What is held goes back when that is dropped.
    #[doc(hidden)]
    fn done(&self, response: Res, held: Option<Held>) -> Self::Response;

    /// A response that was judged a failure.
    #[doc(hidden)]
    fn judged(&self, response: Res, verdict: Verdict) -> Self::Response;

    /// No response.
    #[doc(hidden)]
    fn failed(
        &self,
        error: CallError<E>,
        pace: Option<&Pace>,
    ) -> Result<Self::Response, Self::Error>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Plain {}

impl<Res, E> Deliver<Res, E> for Plain {
    type Response = Res;
    type Error = CallError<E>;

    fn holds(&self) -> bool {
        false
    }

    fn done(&self, response: Res, _: Option<Held>) -> Res {
        response
    }

    fn judged(&self, response: Res, _: Verdict) -> Res {
        response
    }

    fn failed(&self, error: CallError<E>, _: Option<&Pace>) -> Result<Res, CallError<E>> {
        Err(error)
    }
}

impl sealed::Sealed for HttpClient {}

impl<B: Body<Data = Bytes>, E> Deliver<Response<B>, E> for HttpClient {
    type Response = Response<ContractBody<B>>;
    type Error = CallError<E>;

    fn holds(&self) -> bool {
        self.hold
    }

    fn done(&self, response: Response<B>, held: Option<Held>) -> Self::Response {
        response.map(|body| ContractBody::of(body, held))
    }

    fn judged(&self, mut response: Response<B>, verdict: Verdict) -> Self::Response {
        response.extensions_mut().insert(verdict);
        response.map(|body| ContractBody::of(body, None))
    }

    fn failed(
        &self,
        error: CallError<E>,
        _: Option<&Pace>,
    ) -> Result<Self::Response, CallError<E>> {
        Err(error)
    }
}

/// A world whose caller gets a response whatever happens: what takes the place of an answer says what became of the call. The
/// inner service's own error passes through.
pub(crate) trait Server: sealed::Sealed {
    /// Whether what a call holds goes on with its answer.
    fn hold(&self) -> bool;

    /// What the caller gets instead of an answer.
    fn instead<B: Body<Data = Bytes>>(&self, problem: Problem) -> Response<ContractBody<B>>;
}

impl<S: Server, B: Body<Data = Bytes>, E> Deliver<Response<B>, E> for S {
    type Response = Response<ContractBody<B>>;
    type Error = E;

    fn holds(&self) -> bool {
        self.hold()
    }

    fn done(&self, response: Response<B>, held: Option<Held>) -> Self::Response {
        response.map(|body| ContractBody::of(body, held))
    }

    fn judged(&self, response: Response<B>, _: Verdict) -> Self::Response {
        response.map(|body| ContractBody::of(body, None))
    }

    fn failed(&self, error: CallError<E>, pace: Option<&Pace>) -> Result<Self::Response, E> {
        let mean = pace.map_or(pace::ASSUMED, Pace::mean);
        let problem = Problem::of(&error, mean);
        error
            .into_error()
            .map_or_else(|| Ok(self.instead(problem)), Err)
    }
}

impl sealed::Sealed for HttpServer {}

impl Server for HttpServer {
    fn hold(&self) -> bool {
        self.hold
    }

    fn instead<B: Body<Data = Bytes>>(&self, mut problem: Problem) -> Response<ContractBody<B>> {
        if let Some(status) = self.throttled {
            problem = problem.throttled_as(status);
        }
        if self.detailed {
            problem = problem.detailed();
        }
        problem.to_http().map(ContractBody::own)
    }
}
