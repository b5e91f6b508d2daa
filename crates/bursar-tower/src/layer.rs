//! The layer: a contract, what to ask of a request, what an answer means, and whom the service is for.

use std::fmt;
use std::sync::Arc;

use bursar::{Contract, Effect, Key};
use http::{HeaderName, Request, StatusCode};
use tower_layer::Layer;

use crate::ask::Asks;
use crate::deadline::Deadline;
use crate::http_rules::{HttpAnswers, effect_of, idempotency_key};
use crate::judge::Answers;
use crate::pace::Pace;
use crate::service::{ContractService, Shared};

/// For any service: its response as it is, and [`CallError`](bursar::CallError) where there is none.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Plain;

/// For HTTP clients; see [`ContractLayer::http_client`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HttpClient {
    pub(crate) hold: bool,
}

/// For HTTP servers; see [`ContractLayer::http_server`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HttpServer {
    pub(crate) hold: bool,
    pub(crate) detailed: bool,
    pub(crate) throttled: Option<StatusCode>,
}

/// For gRPC servers; see [`ContractLayer::grpc_server`].
#[cfg(feature = "tonic")]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GrpcServer {
    pub(crate) hold: bool,
}

/// Runs a service's calls under a contract.
///
/// All services that it makes share the contract, whatever route or connection they are for: a limit holds for the whole
/// program. The service must be `Clone`, since each call has one of its own; one that is not goes behind tower's
/// `buffer`.
///
/// | made by | for | an answer is | without an answer | held until |
/// |---|---|---|---|---|
/// | [`new`](Self::new) | any service | every response | [`CallError`](bursar::CallError) | the response is there |
/// | [`http_server`](Self::http_server) | axum, hyper | every response | a [`Problem`](crate::Problem) as the response | the head is there; with [`hold_body`](Self::hold_body) the body has ended |
/// | [`http_client`](Self::http_client) | hyper-util and the like | what [`HttpAnswers`] says | `CallError` | the answer's body has ended |
/// | `grpc_server` | tonic | every response | a gRPC status | as for an HTTP server |
///
/// The inner service is made ready inside the attempt, with what it holds and under its timeout: one that may never become
/// ready wants a policy with a timeout.
///
/// A call's key, effect, idempotency key and deadline are read from the request by what the layer is given. A service
/// whose policy retries needs [`clone_requests`](Self::clone_requests) or [`copy_requests`](Self::copy_requests): a
/// request that cannot be copied is attempted once.
///
/// ```
/// use bursar::{Policy, Runtime};
/// use bursar_tower::ContractLayer;
/// use tower::{Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("renderer", 8).build()?;
/// let render = runtime.contract("render", Policy::pure().claim("renderer", 1))?;
///
/// let service = service_fn(|brand: String| async move { Ok::<_, std::io::Error>(format!("a page for {brand}")) });
/// let mut service = tower::ServiceBuilder::new()
///     .layer(ContractLayer::new(&render).serialize_with(|brand: &String| brand.clone()))
///     .service(service);
///
/// let page = service.ready().await?.call("Alba".to_owned()).await?;
/// assert_eq!(page, "a page for Alba");
/// # Ok(())
/// # }
/// ```
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct ContractLayer<Req, J = Answers, D = Plain> {
    contract: Contract,
    asks: Asks<Req>,
    judge: Arc<J>,
    deliver: D,
    pace: Option<Arc<Pace>>,
}

impl<Req> ContractLayer<Req> {
    /// For any service: every response is an answer, and nobody knows what its errors mean until [`judge`](Self::judge)
    /// says so.
    pub fn new(contract: &Contract) -> Self {
        Self::of(contract, Asks::NONE, Answers, Plain)
    }
}

impl<B: 'static> ContractLayer<Request<B>, Answers, HttpServer> {
    /// For HTTP servers. Where there is no answer a [`Problem`](crate::Problem) is the response, whose `Retry-After` is
    /// computed from how long calls of this layer hold what they hold. The [`Deadline`] that a request carries bounds
    /// its call.
    pub fn http_server(contract: &Contract) -> Self {
        let deliver = HttpServer {
            hold: false,
            detailed: false,
            throttled: None,
        };
        Self {
            pace: Some(Arc::default()),
            ..Self::of(contract, Asks::NONE, Answers, deliver).deadline(Deadline::of)
        }
    }
}

impl<B, J> ContractLayer<Request<B>, J, HttpServer> {
    /// Holds units and key until the response's body has ended or is dropped. A connection that is upgraded has no body, and is
    /// not waited for.
    ///
    /// A client that reads slowly holds them as long as it reads, past the request's deadline too, and nothing here can end
    /// that: a body that nobody reads is not polled. Have whatever stands before the service bound how long a client may take,
    /// or read the body into memory first and hold nothing.
    pub fn hold_body(mut self) -> Self {
        self.deliver.hold = true;
        self
    }

    /// Problems say what is known inside; see [`Problem::detailed`](crate::Problem::detailed).
    pub fn detailed(mut self) -> Self {
        self.deliver.detailed = true;
        self
    }

    /// Another status for what is refused for want of capacity; see
    /// [`Problem::throttled_as`](crate::Problem::throttled_as).
    pub fn throttled_as(mut self, status: StatusCode) -> Self {
        self.deliver.throttled = Some(status);
        self
    }
}

impl<B: 'static> ContractLayer<Request<B>, HttpAnswers, HttpClient> {
    /// For HTTP clients: the effect follows the method ([`effect_of`]), an `Idempotency-Key` among the headers makes the
    /// call repeatable, and answers mean what [`HttpAnswers`] says. Its policy is best
    /// [`Policy::effect_per_call`](bursar::Policy::effect_per_call).
    ///
    /// The [`Deadline`] that a request carries bounds its call: hand on the one of the request being served by inserting it
    /// into the extensions. A response that failed and is not tried again is returned as it is, with the [`Verdict`](crate::Verdict) among
    /// its extensions. Units and key are held until the body of an answer has ended or is dropped; those of a response that
    /// failed are back before it is returned. Timeout and deadline cover what comes before the body, so bound its reading.
    ///
    /// ```
    /// use bursar::{Policy, Retry, Runtime};
    /// use bursar_tower::ContractLayer;
    /// use http_body_util::Empty;
    /// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    /// use tower::Layer;
    ///
    /// # fn main() -> Result<(), bursar::ContractError> {
    /// let runtime = Runtime::builder().resource("profiles", 16).build()?;
    /// let policy = Policy::effect_per_call()
    ///     .claim("profiles", 1)
    ///     .retry(Retry::up_to(3).on_transient().on_uncertain());
    /// let profiles = runtime.contract("profiles", policy)?;
    ///
    /// let client: Client<_, Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    /// let client = ContractLayer::http_client(&profiles).clone_requests().layer(client);
    /// # async fn get(mut client: impl tower::Service<http::Request<Empty<bytes::Bytes>>>) {
    /// #     let _ = client.call(http::Request::new(Empty::new()));
    /// # }
    /// # let _ = get(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn http_client(contract: &Contract) -> Self {
        Self::of(contract, Asks::NONE, HttpAnswers, HttpClient { hold: true })
            .deadline(Deadline::of)
            .effect(|request| effect_of(request.method()))
            .idempotency_key(|request| idempotency_key(request.headers()))
    }
}

impl<B, J> ContractLayer<Request<B>, J, HttpClient> {
    /// Gives units and key back as soon as the response's head is there.
    pub fn release_at_head(mut self) -> Self {
        self.deliver.hold = false;
        self
    }
}

#[cfg(feature = "tonic")]
impl<B: 'static> ContractLayer<Request<B>, Answers, GrpcServer> {
    /// For gRPC servers. Where there is no answer a status is; see [`status`](crate::status). The `grpc-timeout` of a
    /// request, and the [`Deadline`] that it carries, bound its call.
    pub fn grpc_server(contract: &Contract) -> Self {
        let deadline = |request: &Request<B>| {
            let stated = crate::grpc_timeout(request.headers());
            let stated = stated.map_or(Deadline::NONE, Deadline::within);
            Deadline::of(request).or_earlier(stated)
        };
        Self {
            pace: Some(Arc::default()),
            ..Self::of(contract, Asks::NONE, Answers, GrpcServer { hold: false }).deadline(deadline)
        }
    }
}

#[cfg(feature = "tonic")]
impl<B, J> ContractLayer<Request<B>, J, GrpcServer> {
    /// Holds units and key until the last message of the response is out, or the stream is dropped.
    pub fn hold_stream(mut self) -> Self {
        self.deliver.hold = true;
        self
    }
}

impl<Req, J, D> ContractLayer<Req, J, D> {
    fn of(contract: &Contract, asks: Asks<Req>, judge: J, deliver: D) -> Self {
        Self {
            contract: contract.clone(),
            asks,
            judge: Arc::new(judge),
            deliver,
            pace: None,
        }
    }

    /// Serializes calls by a key of their request, evaluated once a call, before anything is held. An empty key, or
    /// `None`, serializes nothing.
    pub fn serialize_with<F, K>(mut self, key: F) -> Self
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
        K: Into<Key>,
    {
        self.asks.key = Some(Arc::new(move |request| key(request).into()));
        self
    }

    /// What a request changes. The stricter of this and the policy's effect counts.
    pub fn effect(mut self, effect: impl Fn(&Req) -> Effect + Send + Sync + 'static) -> Self {
        self.asks.effect = Some(Arc::new(effect));
        self
    }

    /// The key by which the receiver can tell a repetition; see
    /// [`Call::idempotency_key`](bursar::Call::idempotency_key).
    pub fn idempotency_key(
        mut self,
        key: impl Fn(&Req) -> Option<Arc<str>> + Send + Sync + 'static,
    ) -> Self {
        self.asks.idempotency_key = Some(Arc::new(key));
        self
    }

    /// Until when a request is worth working on: it bounds the whole call.
    pub fn deadline(mut self, deadline: impl Fn(&Req) -> Deadline + Send + Sync + 'static) -> Self {
        self.asks.deadline = Some(Arc::new(deadline));
        self
    }

    /// Copies requests, so that they can be attempted again. `None`: this one cannot, and its attempt is the last.
    pub fn copy_requests(
        mut self,
        copy: impl Fn(&Req) -> Option<Req> + Send + Sync + 'static,
    ) -> Self {
        self.asks.copy = Some(Arc::new(copy));
        self
    }

    /// Clones requests, so that they can be attempted again.
    pub fn clone_requests(self) -> Self
    where
        Req: Clone,
    {
        self.copy_requests(|request| Some(request.clone()))
    }

    /// What answers mean. See [`Judge`](crate::Judge).
    pub fn judge<K>(self, judge: K) -> ContractLayer<Req, K, D> {
        ContractLayer {
            contract: self.contract,
            asks: self.asks,
            judge: Arc::new(judge),
            deliver: self.deliver,
            pace: self.pace,
        }
    }
}

impl<B, J, D> ContractLayer<Request<B>, J, D> {
    /// Serializes calls by the value of a header; a request without it is serialized with none.
    pub fn serialize_by_header(self, name: HeaderName) -> Self {
        self.serialize_with(move |request| {
            request
                .headers()
                .get(&name)
                .map(|value| Key::from(value.as_bytes()))
        })
    }
}

/// Written by hand: the derived one would ask the request and the judge to be `Clone`.
impl<Req, J, D: Clone> Clone for ContractLayer<Req, J, D> {
    fn clone(&self) -> Self {
        Self {
            contract: self.contract.clone(),
            asks: self.asks.clone(),
            judge: Arc::clone(&self.judge),
            deliver: self.deliver.clone(),
            pace: self.pace.clone(),
        }
    }
}

impl<Req, J, D: fmt::Debug> fmt::Debug for ContractLayer<Req, J, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContractLayer")
            .field("contract", &self.contract)
            .field("asks", &self.asks)
            .field("deliver", &self.deliver)
            .finish_non_exhaustive()
    }
}

impl<S, Req, J, D: Clone> Layer<S> for ContractLayer<Req, J, D> {
    type Service = ContractService<S, Req, J, D>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        ContractService::new(
            inner,
            Shared {
                contract: layer.contract,
                asks: layer.asks,
                judge: layer.judge,
                deliver: layer.deliver,
                pace: layer.pace,
            },
        )
    }
}
