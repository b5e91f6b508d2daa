//! A response's body that keeps what its call holds until it has ended.
//!
//! 1. What is held goes back when the body yields its end or an error, when it says that it has ended, or when it is
//!    dropped, whichever comes first.
//! 2. Dropped early, the inner body goes before what is held does. One that has come to its end may still be there.

use std::pin::Pin;
use std::task::{Context, Poll};

use bursar::Permit;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::pace::Stopwatch;

/// What a call holds, until it is dropped.
#[derive(Debug)]
pub struct Held {
    _watch: Option<Stopwatch>,
    _permit: Permit,
}

impl Held {
    pub(crate) fn new(permit: Permit, watch: Option<Stopwatch>) -> Self {
        Self {
            _watch: watch,
            _permit: permit,
        }
    }
}

pin_project! {
    /// The body of a response that went through a contract: the inner service's, or the layer's own where the inner
    /// service was not called or did not answer.
    ///
    /// With `hold_body` the call's units and key are held until it has ended or is dropped.
    #[derive(Debug)]
    pub struct ContractBody<B> {
        #[pin]
        content: Content<B>,
        held: Option<Held>,
    }
}

pin_project! {
    #[project = ContentProjection]
    #[derive(Debug)]
    enum Content<B> {
        Inner { #[pin] body: B },
        Own { bytes: Bytes },
    }
}

impl<B> ContractBody<B> {
    /// The inner service's. Gives `held` back when it ends.
    pub(crate) fn of(body: B, held: Option<Held>) -> Self
    where
        B: Body,
    {
        let held = held.filter(|_| !body.is_end_stream());
        Self {
            content: Content::Inner { body },
            held,
        }
    }

    /// Whole, and the layer's own.
    pub(crate) fn own(bytes: Bytes) -> Self {
        Self {
            content: Content::Own { bytes },
            held: None,
        }
    }
}

/// An empty body of the layer's own.
impl<B> Default for ContractBody<B> {
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>> Body for ContractBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let mut body = match this.content.project() {
            ContentProjection::Inner { body } => body,
            ContentProjection::Own { bytes } if bytes.is_empty() => return Poll::Ready(None),
            ContentProjection::Own { bytes } => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))));
            }
        };
        let polled = body.as_mut().poll_frame(cx);
        let over = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
            Poll::Ready(None | Some(Err(_))) => true,
        };
        if over {
            this.held.take();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Own { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Own { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
