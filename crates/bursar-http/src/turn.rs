//! Clients inside turns: the seam's traits are asked for, no host of turns is known.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use bursar::Outcome;
use bursar::seam::{CompleteTurn, Services, YieldTurn};
use http::Response;
use serde::de::DeserializeOwned;

use crate::clients::Clients;
use crate::error::{Error, ErrorKind};
use crate::request::Request;
use crate::schedule::told;
use crate::surface::{Entry, Registered, Surface, sealed};

/// Gives turns their clients by name.
///
/// The host of the turns is given a [`Clients`] as its service [`Clients::SERVICE`] at configuration; handlers build no
/// clients of their own.
pub trait TurnHttp: Services + Sized {
    /// The client registered under that name.
    ///
    /// # Errors
    /// [`NotConfigured`](ErrorKind::NotConfigured): the host has no clients, or none of that name.
    fn http(&self, name: &str) -> Result<TurnClient<Self>, Error> {
        let clients = self.service::<Clients>(Clients::SERVICE).ok_or_else(|| {
            let what = format!(
                "the turn's host has no service {:?} of type `Clients`",
                Clients::SERVICE
            );
            Error::new(ErrorKind::NotConfigured, Outcome::Permanent, what)
        })?;
        Ok(TurnClient {
            registered: clients.get(name)?,
            turn: PhantomData,
        })
    }
}

impl<T: Services> TurnHttp for T {}

/// A registered client as a turn of type `T` got it.
///
/// Awaiting a plain terminator keeps the turn. Where `T` can return its gate, requests also have
/// [`yield_send`](Request::yield_send) and [`yield_fetch`](Request::yield_fetch).
pub struct TurnClient<T> {
    pub(crate) registered: Registered,
    turn: PhantomData<fn() -> T>,
}

/// Written by hand: the derived one would ask the turn to be `Clone`.
impl<T> Clone for TurnClient<T> {
    fn clone(&self) -> Self {
        Self {
            registered: self.registered.clone(),
            turn: PhantomData,
        }
    }
}

impl<T> fmt::Debug for TurnClient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TurnClient").field(&self.registered).finish()
    }
}

impl<T> sealed::Sealed for TurnClient<T> {}

impl<T> Surface for TurnClient<T> {
    fn entry(self) -> Result<Entry, Error> {
        self.registered.entry()
    }
}

impl<T, B> Request<TurnClient<T>, B> {
    fn detached(self) -> Request<Registered, B> {
        self.through(|client| client.registered)
    }

    /// As [`submit`](Request::submit) of a registered client. Keeps the turn.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn submit(self) -> Result<(), Error> {
        self.detached().submit().await
    }
}

impl<T: YieldTurn, B> Request<TurnClient<T>, B> {
    /// Sends and returns the turn's gate while it waits: other work of the Spot runs, and its state may have changed when
    /// the turn comes back.
    ///
    /// # Errors
    /// As [`send`](Request::send), beside the turn.
    ///
    /// # Cancel safety
    /// Dropping the future ends the turn and cancels the exchange.
    pub async fn yield_send<R>(self, turn: T) -> (T, Result<Response<R>, Error>)
    where
        R: DeserializeOwned + Send + 'static,
    {
        turn.yield_on(self.detached().send()).await
    }

    /// Fetches and returns the turn's gate while it waits, as [`yield_send`](Self::yield_send).
    ///
    /// # Errors
    /// As [`fetch`](Request::fetch), beside the turn.
    ///
    /// # Cancel safety
    /// As [`yield_send`](Self::yield_send).
    pub async fn yield_fetch<R>(self, turn: T) -> (T, Result<R, Error>)
    where
        R: DeserializeOwned + Send + 'static,
    {
        turn.yield_on(self.detached().fetch()).await
    }
}

impl<T: CompleteTurn, B: 'static> Request<TurnClient<T>, B> {
    /// Sends in the background; the response enters as a new turn of the Spot that asked, in which `callback` runs. The
    /// turn goes on at once.
    pub fn on_complete<R, C, W>(self, turn: &T, callback: C)
    where
        R: DeserializeOwned + Send + 'static,
        C: FnOnce(T::Next, Result<Response<R>, Error>) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        turn.on_complete(told(self.detached().send()), callback);
    }
}
