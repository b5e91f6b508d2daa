//! Where a request gets its client from, and so which terminators it has.

use std::fmt;

use bursar::{CallError, Contract, Outcome, Permit};

use crate::builder::ClientBuilder;
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::schedule::Schedulers;

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// What a request was made through: a [`Client`], a one-shot builder, a registered client, a turn.
pub trait Surface: sealed::Sealed + Send + Sized {
    /// The client, built now if there is none yet, and who counts what it has under way.
    #[doc(hidden)]
    fn entry(self) -> Result<Entry, Error>;
}

/// A surface without a turn: its callbacks run on the resume scheduler.
pub trait Detached: Surface {
    #[doc(hidden)]
    fn schedulers(&self) -> Schedulers;

    /// Who counts a request until its callback has run.
    #[doc(hidden)]
    fn host(&self) -> Option<Contract> {
        None
    }
}

/// What a surface gives a request.
#[derive(Debug)]
pub struct Entry {
    pub(crate) client: Client,
    host: Option<Contract>,
}

impl Entry {
    /// Counts the request with its host until the permit is dropped.
    pub(crate) async fn enter(&self) -> Result<Option<Permit>, Error> {
        enter(self.host.as_ref()).await
    }
}

/// Counts something with `host`, if there is one, until the permit is dropped.
pub(crate) async fn enter(host: Option<&Contract>) -> Result<Option<Permit>, Error> {
    let Some(host) = host else {
        return Ok(None);
    };
    host.admit().await.map(Some).map_err(|error| {
        let (kind, what) = match error {
            CallError::Stopping(_) => (ErrorKind::ShuttingDown, "the clients are shutting down"),
            _ => (
                ErrorKind::InternalFailure,
                "the clients' host refused the request",
            ),
        };
        Error::new(kind, Outcome::Throttled, what)
    })
}

impl sealed::Sealed for Client {}

impl Surface for Client {
    fn entry(self) -> Result<Entry, Error> {
        Ok(Entry {
            client: self,
            host: None,
        })
    }
}

impl Detached for Client {
    fn schedulers(&self) -> Schedulers {
        self.core().schedulers.clone()
    }
}

/// A client that one request builds at its first poll and closes after it.
///
/// It is neither `Clone` nor lent: a one-shot request cannot be sent twice.
pub struct OneShot(Box<ClientBuilder>);

impl OneShot {
    pub(crate) fn new(builder: ClientBuilder) -> Self {
        Self(Box::new(builder))
    }
}

impl sealed::Sealed for OneShot {}

impl Surface for OneShot {
    fn entry(self) -> Result<Entry, Error> {
        self.0.build()?.entry()
    }
}

impl Detached for OneShot {
    fn schedulers(&self) -> Schedulers {
        self.0.schedulers.clone()
    }
}

impl fmt::Debug for OneShot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A client as its host hands it out: its requests can be one-way, since the host drains what is left of them.
#[derive(Clone, Debug)]
pub struct Registered {
    pub(crate) client: Client,
    pub(crate) host: Contract,
}

impl sealed::Sealed for Registered {}

impl Surface for Registered {
    fn entry(self) -> Result<Entry, Error> {
        Ok(Entry {
            client: self.client,
            host: Some(self.host),
        })
    }
}

impl Detached for Registered {
    fn schedulers(&self) -> Schedulers {
        self.client.schedulers()
    }

    fn host(&self) -> Option<Contract> {
        Some(self.host.clone())
    }
}
