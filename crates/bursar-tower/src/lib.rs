//! [Bursar](bursar)'s execution contracts where services live: as tower layers and services, under axum and tonic, around
//! HTTP clients, and at shutdown.
//!
//! ```
//! use axum::{Router, extract::Request, routing::get};
//! use bursar::{Policy, Runtime};
//! use bursar_tower::{ContractLayer, DeadlineLayer};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), bursar::ContractError> {
//! let runtime = Runtime::builder().resource("renderer", 8).build()?;
//! let render = runtime.contract("render", Policy::pure().claim("renderer", 1).max_waiting(100))?;
//!
//! let app: Router = Router::new()
//!     .route("/pages/{brand}", get(|| async { "a page" }))
//!     // One contract for all these routes and all connections; what finds no room is answered 503 with a Retry-After.
//!     .route_layer(ContractLayer::http_server(&render))
//!     .layer(DeadlineLayer::within(Duration::from_secs(2)));
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! | for | there is |
//! |---|---|
//! | any tower service | [`ContractLayer::new`] |
//! | an operation where tower expects a service | [`OperationService`] |
//! | routes of an axum server | [`ContractLayer::http_server`] |
//! | a handler that calls operations | [`Problem`] as its error, [`Deadline`] as an extractor (feature `axum`) |
//! | a tonic server | `ContractLayer::grpc_server`, `status` (feature `tonic`) |
//! | an HTTP client that is a tower service | [`ContractLayer::http_client`] |
//! | a tonic client | [`ContractLayer::new`] around its channel; the source of a status without an answer is the [`CallError`](bursar::CallError) |
//! | shutdown | [`Graceful`] |
//!
//! `docs/axum.md` of the repository puts it into an existing service step by step.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ask;
mod body;
mod clock;
mod deadline;
mod deliver;
#[cfg(feature = "axum")]
mod extract;
mod graceful;
#[cfg(feature = "tonic")]
mod grpc;
mod http_rules;
mod judge;
mod layer;
mod operation;
mod pace;
mod problem;
mod service;

pub use body::ContractBody;
pub use deadline::{Deadline, DeadlineLayer, DeadlineService, grpc_timeout, header_millis};
pub use deliver::Deliver;
pub use graceful::{Graceful, ServeError, Stop};
#[cfg(feature = "tonic")]
pub use grpc::status;
pub use http_rules::{HttpAnswers, effect_of, judge_error, judge_status};
pub use judge::{Answers, Judge, Verdict};
#[cfg(feature = "tonic")]
pub use layer::GrpcServer;
pub use layer::{ContractLayer, HttpClient, HttpServer, Plain};
pub use operation::OperationService;
pub use problem::Problem;
pub use service::ContractService;
