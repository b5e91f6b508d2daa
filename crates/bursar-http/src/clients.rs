//! Clients registered by name: whoever hosts them owns what their requests leave over.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar::{Contract, DrainReport, Outcome, Policy, Runtime, ShutdownError};

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::surface::Registered;

/// What the host calls the requests that it counts.
const OPERATION: &str = "http requests";

/// The clients of one server, by name. Cheap to clone; every clone is the same set.
///
/// ```
/// use bursar_http::{Client, Clients};
/// use std::time::Duration;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let clients = Clients::builder()
///     .register("profiles", Client::builder().base_url("https://profiles.example.com").build()?)
///     .register("audit", Client::builder().base_url("https://audit.example.com").build()?)
///     .build()?;
///
/// // In a handler: one-way, complete once the request has left.
/// clients.get("audit")?.post("/events").json("player 7 joined").submit().await?;
///
/// // At the end: waits for what is under way, answers of one-way requests included.
/// clients.shutdown_within(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Clients {
    shared: Arc<Shared>,
}

struct Shared {
    clients: BTreeMap<String, Client>,
    /// Counts what is under way; nothing is claimed.
    host: Runtime,
    contract: Contract,
}

/// Names the clients of a [`Clients`].
#[derive(Debug, Default)]
#[must_use = "finish it with `build`"]
pub struct ClientsBuilder {
    clients: Vec<(String, Client)>,
}

impl ClientsBuilder {
    /// Registers a client under a name.
    pub fn register(mut self, name: impl Into<String>, client: Client) -> Self {
        self.clients.push((name.into(), client));
        self
    }

    /// Checks the names.
    ///
    /// # Errors
    /// [`ProtocolError`](ErrorKind::ProtocolError): a name is empty, or given twice.
    pub fn build(self) -> Result<Clients, Error> {
        let mut clients = BTreeMap::new();
        for (name, client) in self.clients {
            if name.is_empty() {
                return Err(Error::usage("a client is registered under an empty name"));
            }
            if clients.contains_key(&name) {
                return Err(Error::usage(format!(
                    "two clients are registered under the name {name:?}"
                )));
            }
            clients.insert(name, client);
        }
        let unbuilt = |error| Error::usage("the clients' host cannot be made").because(error);
        // A runtime has a budget; nothing claims this one.
        let host = Runtime::builder()
            .resource(OPERATION, 1)
            .build()
            .map_err(unbuilt)?;
        let contract = host
            .contract(OPERATION, Policy::non_idempotent())
            .map_err(unbuilt)?;
        Ok(Clients {
            shared: Arc::new(Shared {
                clients,
                host,
                contract,
            }),
        })
    }
}

impl Clients {
    /// The service name under which a host of turns has its clients.
    pub const SERVICE: &str = "http";

    /// Begins a set of clients.
    pub fn builder() -> ClientsBuilder {
        ClientsBuilder::default()
    }

    /// The client of that name.
    ///
    /// # Errors
    /// [`NotConfigured`](ErrorKind::NotConfigured), naming those that are.
    pub fn get(&self, name: &str) -> Result<Registered, Error> {
        match self.shared.clients.get(name) {
            Some(client) => Ok(Registered {
                client: client.clone(),
                host: self.shared.contract.clone(),
            }),
            None => {
                let known: Vec<_> = self.shared.clients.keys().collect();
                let what = format!("no client is registered as {name:?}; there are {known:?}");
                Err(Error::new(
                    ErrorKind::NotConfigured,
                    Outcome::Permanent,
                    what,
                ))
            }
        }
    }

    /// Refuses new requests as [`ShuttingDown`](ErrorKind::ShuttingDown) from its first poll and waits until all that are
    /// under way have ended, streamed bodies and the answers of one-way requests included.
    ///
    /// Requests and bodies whose futures nobody polls cannot end: [`shutdown_within`](Self::shutdown_within) is the form
    /// for services.
    ///
    /// # Errors
    /// None outside of a call of the clients' own host; the signature is the runtime's.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting; the clients stay closed, and the drain can be awaited again.
    pub async fn shutdown(&self) -> Result<DrainReport, ShutdownError> {
        self.shared.host.shutdown().await
    }

    /// As [`shutdown`](Self::shutdown), for at most `bound`, counted from the first poll.
    ///
    /// # Errors
    /// [`ShutdownError::StillRunning`] when the bound passes; the drain goes on and can be awaited again.
    ///
    /// # Cancel safety
    /// As [`shutdown`](Self::shutdown).
    pub async fn shutdown_within(&self, bound: Duration) -> Result<DrainReport, ShutdownError> {
        self.shared.host.shutdown_within(bound).await
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.shared.clients.keys()).finish()
    }
}
