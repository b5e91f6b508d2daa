//! The caller's token, which outlives the head of an answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

type Fires = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that stands for the caller's presence, shared by the call and by the body that outlasts it. Fired once, it
/// stays fired.
#[derive(Clone)]
pub(crate) struct Token(Arc<Mutex<Option<Fires>>>);

impl Token {
    pub(crate) fn new(token: impl Future + Send + 'static) -> Self {
        let fires: Fires = Box::pin(async move {
            token.await;
        });
        Self(Arc::new(Mutex::new(Some(fires))))
    }
}

impl Future for Token {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // One of the holders polls at a time: the body begins where the call ends.
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fires) = &mut *slot {
            if fires.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *slot = None;
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}
