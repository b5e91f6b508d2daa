//! Contracts under gRPC servers: outcomes as statuses.

use bursar::{CallError, Outcome};
use bytes::Bytes;
use http::Response;
use http_body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::body::ContractBody;
use crate::deliver::{Server, sealed::Sealed};
use crate::layer::GrpcServer;
use crate::pace;
use crate::problem::{Kind, Problem};
use crate::service::ContractService;

/// A call that failed, as a gRPC status.
///
/// | the call | code |
/// |---|---|
/// | met a full budget and does not wait, could not start in time, was withdrawn, met a runtime that shuts down | `UNAVAILABLE` |
/// | met its key held and does not wait | `RESOURCE_EXHAUSTED` |
/// | lacks a key that is required | `INVALID_ARGUMENT` |
/// | was cut off by a deadline while it ran | `DEADLINE_EXCEEDED` |
/// | was cut off by a token while it ran | `CANCELLED` |
/// | failed, Transient | `UNAVAILABLE` |
/// | failed, Throttled | `RESOURCE_EXHAUSTED` |
/// | failed, Permanent; would have waited for what its own caller holds | `INTERNAL` |
/// | failed, Uncertain | `UNKNOWN` |
///
/// Where it is known when to come back, `grpc-retry-pushback-ms` among the trailers says so, [spread](Problem::retry_after) as
/// `Retry-After` is. The message says nothing of
/// the inside, the handler's error included: [`Problem`] turns into a status too, and has the details.
///
/// ```
/// use bursar::{Classify, Contract};
/// use bursar_tower::status;
/// use tonic::{Request, Response, Status};
///
/// async fn render(contract: &Contract, request: Request<String>) -> Result<Response<String>, Status> {
///     let brand = request.into_inner();
///     let page = contract.run(|| async { draw(&brand).await.transient() }).await.map_err(status)?;
///     Ok(Response::new(page))
/// }
/// # async fn draw(brand: &str) -> Result<String, std::io::Error> { Ok(brand.to_owned()) }
/// ```
pub fn status<E>(error: CallError<E>) -> Status {
    Problem::from(error).into()
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let mut status = Self::new(code(problem.kind()), problem.detail());
        if let Some(millis) = problem.told(pace::millis) {
            status
                .metadata_mut()
                .insert("grpc-retry-pushback-ms", millis.into());
        }
        status
    }
}

fn code(kind: Kind) -> Code {
    match kind {
        Kind::Overloaded
        | Kind::NotInTime
        | Kind::Withdrawn
        | Kind::Stopping
        | Kind::Failed(Outcome::Transient) => Code::Unavailable,
        Kind::KeyHeld | Kind::Failed(Outcome::Throttled) => Code::ResourceExhausted,
        Kind::KeyRequired => Code::InvalidArgument,
        Kind::TimedOut => Code::DeadlineExceeded,
        Kind::Cancelled => Code::Cancelled,
        Kind::Failed(Outcome::Uncertain) => Code::Unknown,
        Kind::WouldDeadlock | Kind::Impossible | Kind::Failed(_) => Code::Internal,
    }
}

impl Sealed for GrpcServer {}

impl Server for GrpcServer {
    fn hold(&self) -> bool {
        self.hold
    }

    fn instead<B: Body<Data = Bytes>>(&self, problem: Problem) -> Response<ContractBody<B>> {
        Status::from(problem).into_http()
    }
}

impl<S: NamedService, Req, J, D> NamedService for ContractService<S, Req, J, D> {
    const NAME: &'static str = S::NAME;
}
