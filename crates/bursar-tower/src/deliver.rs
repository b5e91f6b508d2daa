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

/// How a call ended.
#[derive(Debug)]
pub enum End<Res, E> {
    /// With an answer. What the call holds goes back when this is dropped.
    Done(Res, Held),
    /// With a response that was judged a failure.
    Judged(Res, Verdict),
    /// Without a response.
    Failed(CallError<E>),
}

/// How the end of a call becomes a service's result: [`Plain`], [`HttpClient`], [`HttpServer`], and, for gRPC servers,
/// `GrpcServer`. Not to be implemented elsewhere.
pub trait Deliver<Res, E>: sealed::Sealed {
    /// The service's response.
    type Response;
    /// The service's error.
    type Error;

    #[doc(hidden)]
    fn deliver(&self, end: End<Res, E>, pace: Option<&Pace>)
    -> Result<Self::Response, Self::Error>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Plain {}

impl<Res, E> Deliver<Res, E> for Plain {
    type Response = Res;
    type Error = CallError<E>;

    fn deliver(&self, end: End<Res, E>, _: Option<&Pace>) -> Result<Res, CallError<E>> {
        match end {
            End::Done(response, _) | End::Judged(response, _) => Ok(response),
            End::Failed(error) => Err(error),
        }
    }
}

/// The body with what its call holds, or without.
pub(crate) fn with_body<B: Body<Data = Bytes>>(
    response: Response<B>,
    held: Held,
    hold: bool,
) -> Response<ContractBody<B>> {
    if hold {
        response.map(|body| ContractBody::holding(body, held))
    } else {
        response.map(ContractBody::inner)
    }
}

impl sealed::Sealed for HttpClient {}

impl<B: Body<Data = Bytes>, E> Deliver<Response<B>, E> for HttpClient {
    type Response = Response<ContractBody<B>>;
    type Error = CallError<E>;

    fn deliver(
        &self,
        end: End<Response<B>, E>,
        _: Option<&Pace>,
    ) -> Result<Self::Response, CallError<E>> {
        match end {
            End::Done(response, held) => Ok(with_body(response, held, self.hold)),
            End::Judged(mut response, verdict) => {
                response.extensions_mut().insert(verdict);
                Ok(response.map(ContractBody::inner))
            }
            End::Failed(error) => Err(error),
        }
    }
}

/// For servers: the answer, or what takes its place when the inner service gave none. Its own error passes through.
pub(crate) fn serve<B: Body<Data = Bytes>, E>(
    end: End<Response<B>, E>,
    hold: bool,
    failed: impl FnOnce(&CallError<E>) -> Response<ContractBody<B>>,
) -> Result<Response<ContractBody<B>>, E> {
    match end {
        End::Done(response, held) => Ok(with_body(response, held, hold)),
        End::Judged(response, _) => Ok(response.map(ContractBody::inner)),
        End::Failed(error) => {
            let response = failed(&error);
            error.into_error().map_or(Ok(response), Err)
        }
    }
}

impl sealed::Sealed for HttpServer {}

impl<B: Body<Data = Bytes>, E> Deliver<Response<B>, E> for HttpServer {
    type Response = Response<ContractBody<B>>;
    type Error = E;

    fn deliver(&self, end: End<Response<B>, E>, pace: Option<&Pace>) -> Result<Self::Response, E> {
        serve(end, self.hold, |error| {
            let mean = pace.map_or(pace::ASSUMED, Pace::mean);
            let mut problem = Problem::of(error, mean);
            if let Some(status) = self.throttled {
                problem = problem.throttled_as(status);
            }
            if self.detailed {
                problem = problem.detailed();
            }
            problem.to_http().map(ContractBody::own)
        })
    }
}
