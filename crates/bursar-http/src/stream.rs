//! A response's body that the caller reads as it arrives.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bursar::{Outcome, Permit};
use bytes::Bytes;
use futures_core::Stream;

use crate::error::{Error, ErrorKind};
use crate::payload::Payload;
use crate::request::Ready;
use crate::token::Token;

/// A response's body, read as it arrives: [`chunk`](Self::chunk), or as a [`Stream`].
///
/// Until it ends, fails or is dropped the request goes on: its timeout and its token hold, and what its contract spends
/// stays spent. Dropping it cancels what is left of the exchange, down to the connection.
#[must_use = "dropping the body cancels what is left of the exchange"]
pub struct BodyStream {
    live: Option<Live>,
}

struct Live {
    /// Before the permits: the exchange ends before its units are back.
    payload: Payload,
    /// What was asked for, with the caller's token.
    ready: Arc<Ready>,
    token: Option<Token>,
    /// That were made, the one whose answer this is included.
    attempts: u32,
    _permit: Permit,
    _host: Option<Permit>,
}

impl BodyStream {
    pub(crate) fn new(
        payload: Payload,
        ready: Arc<Ready>,
        attempts: u32,
        permit: Permit,
        host: Option<Permit>,
    ) -> Self {
        Self {
            live: Some(Live {
                payload,
                token: ready.bounds.token.clone(),
                ready,
                attempts,
                _permit: permit,
                _host: host,
            }),
        }
    }

    /// The next bytes. `None` is the end.
    ///
    /// # Errors
    /// The body is larger than the limit, did not arrive in time, cannot be decompressed, or the connection was lost.
    /// After an error there is nothing more.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_chunk(cx)).await.transpose()
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let Some(live) = &mut self.live else {
            return Poll::Ready(None);
        };
        let fired = live
            .token
            .as_mut()
            .is_some_and(|token| Pin::new(token).poll(cx).is_ready());
        let next = if fired {
            let what = "the caller's token fired while the answer's body arrived";
            Some(Err(Error::new(
                ErrorKind::Cancelled,
                Outcome::Uncertain,
                what,
            )))
        } else {
            let next = std::task::ready!(live.payload.poll_chunk(cx));
            live.payload.in_time(next)
        };
        let (plan, attempts) = (&live.ready.plan, live.attempts);
        let next = next.map(|next| {
            next.map_err(|error| error.to(&plan.method, &plan.uri).attempted(attempts))
        });
        if !matches!(next, Some(Ok(_))) {
            self.live = None;
        }
        Poll::Ready(next)
    }
}

impl Stream for BodyStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_chunk(cx)
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.live.as_ref().map(|live| &live.payload);
        f.debug_tuple("BodyStream").field(&payload).finish()
    }
}
