//! The ends of a request: each runs it and says what the caller gets.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use serde::de::DeserializeOwned;

use crate::codec::{Decode, Json};
use crate::download::download;
use crate::error::Error;
use crate::request::Request;
use crate::run::Live;
use crate::schedule::told;
use crate::stream::BodyStream;
use crate::submit::submit;
use crate::surface::{Detached, Registered, Surface, enter};

/// Every terminator is a future that starts nothing before its first poll, waits on no thread, and cancels its exchange
/// down to the connection when it is dropped.
impl<S: Surface, B> Request<S, B> {
    /// Completes with the response, its body decoded as JSON.
    ///
    /// # Errors
    /// See [`Error`]. A status of 400 or more is one, and carries status, headers and body.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the exchange; the server may have executed the request.
    pub async fn send<T>(self) -> Result<Response<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.send_as(Json).await
    }

    /// As [`send`](Self::send), with a decoder of one's own.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_as<T, D>(self, decoder: D) -> Result<Response<T>, Error>
    where
        T: Send + 'static,
        D: Decode<T> + 'static,
    {
        self.exchange(|live| async move { live.run().typed(&decoder).await })
            .await
    }

    /// Completes with the body, decoded as JSON.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn fetch<T>(self) -> Result<T, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.send_as(Json).await.map(Response::into_body)
    }

    /// As [`fetch`](Self::fetch), with a decoder of one's own.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn fetch_as<T, D>(self, decoder: D) -> Result<T, Error>
    where
        T: Send + 'static,
        D: Decode<T> + 'static,
    {
        self.send_as(decoder).await.map(Response::into_body)
    }

    /// Completes with the response as it is. No status is a failure, so none is retried either.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_raw(self) -> Result<Response<Bytes>, Error> {
        self.exchange(|live| async move { live.run().raw().await })
            .await
    }

    /// Completes with the head of the response; its body is read as it arrives, under the same timeout and limit. No
    /// status is a failure. What the contract spends is held until the body has ended, failed or been dropped.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn stream(self) -> Result<Response<BodyStream>, Error> {
        self.exchange(|live| async move {
            let (parts, payload, attempts, permit) = live.run().open().await?;
            let body = BodyStream::new(payload, live.ready, attempts, permit, live.host);
            Ok(Response::from_parts(parts, body))
        })
        .await
    }

    /// Completes with the response once its body is in the file at `path`, under the same timeout and limit: the value is
    /// its length in bytes. The file appears whole or not at all. No status is a failure: look at it.
    ///
    /// # Errors
    /// See [`Error`]. A file that cannot be written is [`InternalFailure`](crate::ErrorKind::InternalFailure).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send); what was written of the file is removed.
    pub async fn download(self, path: impl Into<PathBuf>) -> Result<Response<u64>, Error> {
        let path = path.into();
        self.exchange(|live| async move { download(live.run(), &path).await })
            .await
    }
}

impl<S: Surface, B> Request<S, B> {
    /// Checks the request and runs `work` on it, where the client's exchanges run.
    async fn exchange<T, W>(self, work: impl FnOnce(Live) -> W + Send) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (surface, draft) = self.into_parts();
        let entry = surface.entry()?;
        let ready = Arc::new(draft.ready(entry.client.core())?);
        let host = entry.enter().await?;
        let client = entry.client;
        let schedulers = &client.core().schedulers;
        let elsewhere = schedulers.execute.is_some().then(|| schedulers.clone());
        let live = Live {
            client,
            ready,
            host,
        };
        match elsewhere {
            // Handed on as it is and not by value: the future is large, and moving it costs more than polling it.
            None => work(live).await,
            Some(schedulers) => schedulers.exchange(Box::pin(work(live))).await,
        }
    }
}

impl<S: Detached + 'static, B: 'static> Request<S, B> {
    /// Runs the request on its own and hands the response to `callback`, for callers that await nothing. Both run on the
    /// client's schedulers, or in one task of the caller's runtime. A token ([`until`](Self::until)) is what cancels it.
    ///
    /// # Panics
    /// Outside of a tokio runtime, if the client has no execute scheduler.
    pub fn on_complete<T, C, W>(self, callback: C)
    where
        T: DeserializeOwned + Send + 'static,
        C: FnOnce(Result<Response<T>, Error>) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let schedulers = self.surface().schedulers();
        let resume = schedulers.clone();
        let host = self.surface().host();
        schedulers.start(async move {
            // A host that is shutting down refuses the request too, and the callback is told.
            let counted = enter(host.as_ref()).await;
            let response = told(self.send()).await;
            let continuation = async move {
                callback(response).await;
                drop(counted);
            };
            resume.resume(continuation).await;
        });
    }
}

impl<B> Request<Registered, B> {
    /// Completes once the transport has taken the last byte of the request, or its answer has come before that. The answer
    /// is then read to its end by the host; a failure of it is only [counted](crate::Client::submit_stats).
    ///
    /// It always speaks HTTP/1.1, where it is known when the last byte has left. Redirects are not followed.
    ///
    /// # Errors
    /// See [`Error`]. With a client that speaks HTTP/2 alone it is
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation), and nothing is sent.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send). Once it has completed, the token alone cancels what is left.
    pub async fn submit(self) -> Result<(), Error> {
        self.exchange(submit).await
    }
}
