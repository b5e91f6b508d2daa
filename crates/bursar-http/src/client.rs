//! The client: what all its requests share, and the verbs.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar::{Contract, PerCall, Policy, Runtime, Timer};
use http::{HeaderMap, Method};

use crate::ambient::Clock;
use crate::attempt::Ways;
use crate::builder::ClientBuilder;
use crate::config::Base;
use crate::error::Error;
use crate::request::Request;
use crate::schedule::Schedulers;
use crate::submit::{Submissions, SubmitStats};
use crate::surface::Registered;
use crate::turn::TurnClient;

/// What a client without a contract of the user's own calls its operation.
const OPERATION: &str = "http";

/// An HTTP client: connections, options and a contract. Cheap to clone; every clone is the same client.
///
/// Build one for each service and reuse it.
///
/// ```
/// use bursar_http::Client;
///
/// # async fn f() -> Result<(), bursar_http::Error> {
/// #[derive(serde::Deserialize)]
/// struct Profile {
///     name: String,
/// }
///
/// let profiles = Client::builder().base_url("https://profiles.example.com/v1").build()?;
/// let profile: Profile = profiles.get("/players/7").fetch().await?;
/// println!("{}", profile.name);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) ways: Ways,
    pub(crate) base: Option<Base>,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) limit: u64,
    pub(crate) clock: Clock,
    pub(crate) schedulers: Schedulers,
    pub(crate) contract: Contract,
    pub(crate) submissions: Submissions,
}

impl Core {
    pub(crate) fn new(
        ways: Ways,
        base: Option<Base>,
        headers: HeaderMap,
        (timeout, limit): (Duration, u64),
        (clock, schedulers): (Clock, Schedulers),
        contract: Option<Contract>,
        policy: Option<Policy<PerCall>>,
    ) -> Result<Self, Error> {
        let contract = match contract {
            Some(contract) => contract,
            None => own_contract(&clock, policy.unwrap_or_else(Policy::effect_per_call))
                .map_err(|error| Error::usage("option `retry`").because(error))?,
        };
        Ok(Self {
            ways,
            base,
            headers,
            timeout,
            limit,
            clock,
            schedulers,
            contract,
            submissions: Submissions::default(),
        })
    }
}

/// A contract that spends nothing: a client without one of the user's goes the same path as a client with.
fn own_contract(clock: &Clock, policy: Policy<PerCall>) -> Result<Contract, bursar::ContractError> {
    // A runtime has a budget; nothing claims this one.
    let mut builder = Runtime::builder().resource(OPERATION, 1);
    if let Some(clock) = &clock.0 {
        builder = builder.clock(Shared(Arc::clone(clock)));
    }
    builder.build()?.contract(OPERATION, policy)
}

struct Shared(Arc<dyn bursar::Clock>);

impl bursar::Clock for Shared {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        self.0.sleep_until(deadline)
    }
}

impl Client {
    /// Begins a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    pub(crate) fn new(core: Core) -> Self {
        Self {
            core: Arc::new(core),
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// What became of the one-way requests of this client.
    #[must_use]
    pub fn submit_stats(&self) -> SubmitStats {
        self.core.submissions.read()
    }
}

macro_rules! verbs {
    ([$($generics:tt)*] $surface:ty => $($(#[$doc:meta])* $verb:ident $method:ident)*) => {
        impl $($generics)* $surface {
            $($(#[$doc])*
            pub fn $verb(&self, path: impl Into<String>) -> Request<Self> {
                Request::new(self.clone(), Method::$method, path.into())
            })*
        }
    };
}

macro_rules! all_verbs {
    ($([$($generics:tt)*] $surface:ty),*) => { $(
verbs! { [$($generics)*] $surface =>
    /// A GET: [`Effect::Pure`](bursar::Effect::Pure).
    get GET
    /// A HEAD: [`Effect::Pure`](bursar::Effect::Pure).
    head HEAD
    /// An OPTIONS: [`Effect::Pure`](bursar::Effect::Pure).
    options OPTIONS
    /// A PUT: [`Effect::Idempotent`](bursar::Effect::Idempotent).
    put PUT
    /// A DELETE: [`Effect::Idempotent`](bursar::Effect::Idempotent).
    delete DELETE
    /// A POST: [`Effect::NonIdempotent`](bursar::Effect::NonIdempotent), unless it has an
    /// [idempotency key](Request::idempotency_key).
    post POST
    /// A PATCH: [`Effect::NonIdempotent`](bursar::Effect::NonIdempotent), unless it has an
    /// [idempotency key](Request::idempotency_key).
    patch PATCH
}
    )* };
}

all_verbs! { [] Client, [] Registered, [<T>] TurnClient<T> }

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base", &self.core.base)
            .field("contract", &self.core.contract.name())
            .finish_non_exhaustive()
    }
}
