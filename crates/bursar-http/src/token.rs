//! The caller's token, which outlives the head of an answer.
//!
//! Its future is the user's: it is taken out of its place while it is polled, and polled under no lock.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

type Fires = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that stands for the caller's presence, shared by the call and by the body that outlasts it. Fired once, it
/// stays fired.
#[derive(Clone)]
pub(crate) struct Token(Arc<Mutex<State>>);

enum State {
    Waits(Fires),
    /// Somebody polls it; who asks meanwhile is woken afterwards.
    Polled(Vec<Waker>),
    Fired,
}

impl Token {
    pub(crate) fn new(token: impl Future + Send + 'static) -> Self {
        let fires: Fires = Box::pin(async move {
            token.await;
        });
        Self(Arc::new(Mutex::new(State::Waits(fires))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the state back after a poll. A token that panicked has fired.
struct Turn<'a> {
    token: &'a Token,
    next: State,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = mem::replace(&mut self.next, State::Fired);
        let before = mem::replace(&mut *self.token.lock(), next);
        if let State::Polled(wakers) = before {
            for waker in wakers {
                waker.wake();
            }
        }
    }
}

impl Future for Token {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let mut fires = match &mut *state {
            State::Fired => return Poll::Ready(()),
            State::Polled(wakers) => {
                wakers.push(waker);
                return Poll::Pending;
            }
            State::Waits(_) => match mem::replace(&mut *state, State::Polled(Vec::new())) {
                State::Waits(fires) => fires,
                other => {
                    *state = other;
                    return Poll::Pending;
                }
            },
        };
        drop(state);
        let mut turn = Turn {
            token: &self,
            next: State::Fired,
        };
        let polled = fires.as_mut().poll(cx);
        if polled.is_pending() {
            turn.next = State::Waits(fires);
        }
        polled
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(token: &mut Token, waker: &Waker) -> Poll<()> {
        Pin::new(token).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn g10_a_token_is_polled_under_no_lock() {
        let place = Arc::new(OnceLock::<Token>::new());
        let count = Arc::new(Count::default());
        let asks = Waker::from(Arc::clone(&count));
        let inner = Arc::clone(&place);
        let mut polls = 0;
        let mut token = Token::new(poll_fn(move |_| {
            polls += 1;
            let mut same = inner.get().unwrap().clone();
            assert!(poll(&mut same, &asks).is_pending(), "it is being polled");
            if polls == 1 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        }));
        place.set(token.clone()).ok().unwrap();
        let waker = Waker::noop();
        assert!(poll(&mut token, waker).is_pending());
        assert_eq!(
            count.0.load(Ordering::SeqCst),
            1,
            "who asked meanwhile is woken"
        );
        assert!(poll(&mut token, waker).is_ready());
        assert!(poll(&mut token.clone(), waker).is_ready(), "it stays fired");
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn g10_a_token_that_panics_has_fired() {
        let mut token = Token::new(poll_fn(|_| -> Poll<()> { panic!("the token's own") }));
        let waker = Waker::noop();
        let caught = catch_unwind(AssertUnwindSafe(|| poll(&mut token, waker)));
        assert!(caught.is_err());
        assert!(poll(&mut token, waker).is_ready());
    }
}
