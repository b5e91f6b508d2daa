//! When a body that is held gives back what its call holds.

mod common;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bursar::Policy;
use bursar_tower::ContractLayer;
use bytes::Bytes;
use common::{assert_idle, runtime, usage};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use tokio_test::{assert_ready, assert_ready_ok, task};
use tower::{Layer, Service, service_fn};

/// These frames; it knows by itself that it has ended, or it does not.
#[derive(Clone, Default)]
struct Frames {
    left: VecDeque<Result<&'static str, &'static str>>,
    trailers: bool,
    knows: bool,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(match self.left.pop_front() {
            Some(frame) => Some(frame.map(|data| Frame::data(data.into()))),
            None if std::mem::take(&mut self.trailers) => {
                Some(Ok(Frame::trailers(HeaderMap::new())))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.knows && self.left.is_empty() && !self.trailers
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

/// How many units are held after the head and after each frame, until nothing is.
fn held(body: Frames) -> Vec<u32> {
    let frames = body.left.len();
    let (runtime, _) = runtime(&[("a", 1)]);
    let contract = runtime
        .contract("work", Policy::pure().claim("a", 1))
        .unwrap();
    let inner = service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(body.clone())))
    });
    let mut service = ContractLayer::http_server(&contract)
        .hold_body()
        .layer(inner);
    let response = assert_ready_ok!(task::spawn(service.call(Request::new(()))).poll());
    let mut held = vec![usage(&runtime, "a").0];
    let mut body = pin!(response.into_body());
    while held.last() == Some(&1) {
        assert!(!body.is_end_stream());
        let left = frames.saturating_sub(held.len() - 1);
        assert_eq!(body.size_hint().exact(), Some(left as u64));
        let _frame = assert_ready!(task::spawn(poll_fn(|cx| body.as_mut().poll_frame(cx))).poll());
        held.push(usage(&runtime, "a").0);
    }
    assert_idle(&runtime);
    held
}

#[test]
fn b13_what_is_held_goes_back_with_the_last_frame_if_the_body_knows_that_it_is_the_last() {
    let frames = |left: &[_], trailers, knows| Frames {
        left: left.iter().copied().collect(),
        trailers,
        knows,
    };
    assert_eq!(
        held(frames(&[], false, true)),
        [0],
        "empty, it holds nothing"
    );
    assert_eq!(held(frames(&[], false, false)), [1, 0]);
    assert_eq!(
        held(frames(&[Ok("one"), Ok("two")], false, true)),
        [1, 1, 0]
    );
    assert_eq!(
        held(frames(&[Ok("one"), Ok("two")], false, false)),
        [1, 1, 1, 0]
    );
    assert_eq!(
        held(frames(&[Ok("one")], true, true)),
        [1, 1, 0],
        "trailers are frames"
    );
    assert_eq!(
        held(frames(&[Ok("one"), Err("torn")], false, true)),
        [1, 1, 0]
    );
}
