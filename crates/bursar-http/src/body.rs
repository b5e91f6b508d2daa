//! What a request carries: one source of bytes, and whether it can be sent again.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use crate::error::{BoxError, Error, ErrorKind};
use crate::multipart::{Multipart, Pieces};
use bursar::Outcome;

type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>;

/// A stream lies here until a connection asks for its first bytes, so that a request that was not sent keeps it.
type Slot = Arc<Mutex<Option<ByteStream>>>;

/// A request's body, from which each attempt makes its own [`Source`].
#[derive(Clone, Default)]
pub(crate) enum RequestBody {
    #[default]
    Empty,
    Bytes(Bytes),
    Multipart(Arc<Multipart>),
    Stream(Slot),
}

impl RequestBody {
    pub(crate) fn stream<S, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let stream: ByteStream = Box::pin(Erased(Box::pin(stream)));
        Self::Stream(Arc::new(Mutex::new(Some(stream))))
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether its bytes are gone, so that nothing can be sent again.
    pub(crate) fn is_spent(&self) -> bool {
        match self {
            Self::Stream(slot) => lock(slot).is_none(),
            Self::Empty | Self::Bytes(_) | Self::Multipart(_) => false,
        }
    }

    /// The bytes of one attempt, unless files have to be opened for them.
    pub(crate) fn at_hand(&self) -> Option<Source> {
        match self {
            Self::Empty => Some(Source::Empty),
            Self::Bytes(bytes) if bytes.is_empty() => Some(Source::Empty),
            Self::Bytes(bytes) => Some(Source::Bytes(bytes.clone())),
            Self::Multipart(_) => None,
            Self::Stream(slot) => Some(Source::Stream {
                slot: Arc::clone(slot),
                taken: None,
            }),
        }
    }

    /// The bytes of one attempt.
    pub(crate) async fn source(&self) -> Result<Source, Error> {
        let Self::Multipart(form) = self else {
            return Ok(self.at_hand().unwrap_or(Source::Empty));
        };
        let pieces = form.pieces().await.map_err(|error| {
            let what = "a file of the form cannot be read; nothing was sent";
            Error::new(ErrorKind::ProtocolError, Outcome::Permanent, what).because(error)
        })?;
        Ok(Source::Pieces(Box::new(pieces)))
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Multipart(form) => form.fmt(f),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

fn lock(slot: &Slot) -> std::sync::MutexGuard<'_, Option<ByteStream>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Turns a stream's errors into boxes.
struct Erased<S>(Pin<Box<S>>);

impl<S, E> Stream for Erased<S>
where
    S: Stream<Item = Result<Bytes, E>>,
    E: Into<BoxError>,
{
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0
            .as_mut()
            .poll_next(cx)
            .map(|next| next.map(|item| item.map_err(Into::into)))
    }
}

/// The bytes of one attempt's body.
pub(crate) enum Source {
    Empty,
    Bytes(Bytes),
    Pieces(Box<Pieces>),
    Stream {
        slot: Slot,
        taken: Option<ByteStream>,
    },
}

/// How much is handed over at a time. What was is sent, on HTTP/2 even after the caller has left.
const PIECE: usize = 256 << 10;

impl Source {
    /// What is still to come, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Pieces(pieces) => Some(pieces.length()),
            Self::Stream { .. } => None,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.length() == Some(0)
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Bytes(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE));
                if bytes.is_empty() {
                    *self = Self::Empty;
                }
                Poll::Ready(Some(Ok(piece)))
            }
            Self::Pieces(pieces) => pieces.poll_next(cx),
            Self::Stream { slot, taken } => {
                if taken.is_none() {
                    *taken = lock(slot).take();
                }
                let Some(stream) = taken else {
                    let gone = "the body's stream was already sent";
                    return Poll::Ready(Some(Err(gone.into())));
                };
                let next = ready!(stream.as_mut().poll_next(cx));
                if next.is_none() {
                    *self = Self::Empty;
                }
                Poll::Ready(next)
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?} bytes to come)", self.length())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn all(body: &RequestBody) -> Vec<u8> {
        let mut source = body.source().await.unwrap();
        let mut found = Vec::new();
        while let Some(frame) = poll_fn(|cx| source.poll_frame(cx)).await {
            found.extend_from_slice(&frame.unwrap());
        }
        assert!(source.is_ended());
        found
    }

    #[tokio::test]
    async fn g8_bytes_can_be_sent_again_and_a_stream_once_it_was_asked_for_cannot() {
        let bytes = RequestBody::Bytes(Bytes::from_static(b"abc"));
        for _ in 0..2 {
            assert!(!bytes.is_spent());
            assert_eq!(all(&bytes).await, b"abc");
        }
        let chunks = [Ok::<_, BoxError>(Bytes::from_static(b"ab")), Ok("c".into())];
        let stream = RequestBody::stream(futures_util::stream::iter(chunks));
        drop(stream.source().await.unwrap());
        assert!(!stream.is_spent(), "nobody asked for it");
        assert_eq!(all(&stream).await, b"abc");
        assert!(stream.is_spent());
        let mut again = stream.source().await.unwrap();
        assert!(poll_fn(|cx| again.poll_frame(cx)).await.unwrap().is_err());
    }
}
