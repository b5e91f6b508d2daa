//! One call of a storm: any operation, any form, left in any way.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bursar::{CallError, Failure};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::place::{Operation, Place, Seen};
use crate::random::Random;

type Error = &'static str;

/// By which a receiver would know a repetition.
const KEY: &str = "order 7";

/// Tells a handler's panic, which is wanted, from any other.
struct Wanted;

/// How a future that was polled a number of times ended.
pub(super) enum Ended<T> {
    Answered(T),
    Dropped,
    /// A handler panicked, as it was told to.
    Panicked,
}

/// Polls a future this often at most, then drops it.
pub(super) async fn leave_after<F: Future>(polls: u64, future: F) -> Ended<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(Ended::Dropped);
        }
        left -= 1;
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(Poll::Ready(answer)) => return Poll::Ready(Ended::Answered(answer)),
            Ok(Poll::Pending) => {}
            Err(panic) if panic.is::<Wanted>() => return Poll::Ready(Ended::Panicked),
            Err(panic) => resume_unwind(panic),
        }
        if left == 0 {
            // It leaves in a poll of its own, when others may have run meanwhile.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// What one attempt does.
#[derive(Clone, Copy)]
struct Script {
    operation: usize,
    key: Option<u64>,
    suspends: u64,
    nested: Option<usize>,
    /// Whether it calls its own operation from inside.
    itself: bool,
    ends: u64,
}

impl Script {
    fn end(self) -> Result<(), Failure<Error>> {
        match self.ends {
            0 => Err(Failure::transient("busy")),
            1 => Err(Failure::uncertain("lost")),
            3 => Err(Failure::throttled("busy")),
            4 => Err(Failure::transient("busy").after(Duration::from_millis(3))),
            // Without the hook: nobody needs to read of a panic that is wanted.
            2 => resume_unwind(Box::new(Wanted) as Box<dyn Any + Send>),
            _ => Ok(()),
        }
    }

    async fn run(self, place: &Place) -> Result<(), Failure<Error>> {
        let _inside = place
            .ledger
            .enter(place.operations[self.operation].claims, self.key);
        for _ in 0..self.suspends {
            yield_now().await;
        }
        if self.itself {
            itself(place, &place.operations[self.operation]).await?;
        }
        if let Some(nested) = self.nested {
            inner(place, &place.inner[nested]).await?;
        }
        self.end()
    }
}

/// From inside a live call, so no drain refuses it.
async fn inner(place: &Place, operation: &Operation) -> Result<(), Failure<Error>> {
    Seen::count(&place.seen.asked);
    let mut counted = false;
    let answer = operation
        .contract
        .run(|| {
            if !std::mem::replace(&mut counted, true) {
                Seen::count(&place.seen.ran);
            }
            let inside = place.ledger.enter(operation.claims, None);
            async move {
                let _inside = inside;
                yield_now().await;
                Ok::<_, Failure<Error>>(())
            }
        })
        .await;
    match answer {
        Err(error) if error.is_stopping() => Err(Failure::permanent("nested work was refused")),
        _ => Ok(()),
    }
}

/// The operation's own budgets, from inside: what would have to wait for them is refused at once (B11). It fails with what
/// should not be.
async fn itself(place: &Place, operation: &Operation) -> Result<(), Failure<Error>> {
    Seen::count(&place.seen.asked);
    let mut counted = false;
    let answer = operation
        .contract
        .run(|| {
            count_once(place, &mut counted);
            let inside = place.ledger.enter(operation.claims, None);
            async move {
                let _inside = inside;
                Ok::<_, Failure<Error>>(())
            }
        })
        .await;
    match answer {
        Ok(()) | Err(CallError::WouldDeadlock(_) | CallError::Overloaded(_)) => Ok(()),
        Err(error) => {
            place
                .ledger
                .broken(format!("a call of its own budgets: {error}"));
            Ok(())
        }
    }
}

/// One call.
///
/// # Errors
/// An answer that the contract does not allow.
pub async fn call(place: &Arc<Place>, random: &mut Random) -> Result<(), String> {
    let script = Script {
        operation: random.below(place.operations.len() as u64) as usize,
        key: Some(random.below(6)).filter(|key| *key < 3),
        suspends: random.below(3),
        nested: Some(random.below(3) as usize).filter(|_| random.once_in(4)),
        itself: random.once_in(6),
        ends: random.below(12),
    };
    let operation = &place.operations[script.operation];
    let mut call = operation.contract.with();
    if let Some(key) = script.key {
        call = call.key(key);
    }
    let known = random.once_in(4);
    if known {
        call = call.idempotency_key(KEY);
    }
    if random.once_in(3) {
        let (fire, token) = oneshot::channel::<()>();
        call = call.until(token);
        let after = random.below(8);
        // Through another task, so that the token fires from another thread.
        tokio::spawn(async move {
            for _ in 0..after {
                yield_now().await;
            }
            // The call may be over.
            let _over = fire.send(());
        });
    }
    if random.once_in(3) {
        call = call.within(Duration::from_millis(random.below(20)));
    }
    let polls = match random.below(4) {
        0 => random.below(4),
        _ => u64::MAX,
    };
    if polls > 0 {
        Seen::count(&place.seen.asked);
    }
    match random.below(8) {
        0 | 1 => {
            if let Ended::Answered(Ok(permit)) = leave_after(polls, call.admit()).await {
                Seen::count(&place.seen.permits);
                let inside = place.ledger.enter(operation.claims, script.key);
                for _ in 0..script.suspends {
                    yield_now().await;
                }
                drop(inside);
                drop(permit);
            }
            Ok(())
        }
        2 => {
            if polls > 0 {
                Seen::count(&place.seen.blocking);
            }
            let shared = Arc::clone(place);
            let handler = move |_: &bursar::Attempt| {
                let claims = shared.operations[script.operation].claims;
                let _inside = shared.ledger.enter(claims, script.key);
                std::thread::yield_now();
                script.end()
            };
            judge(&leave_after(polls, call.run_blocking(handler)).await)
        }
        3 => {
            let mut counted = false;
            let run = call.run_held(|_| {
                count_once(place, &mut counted);
                script.run(place)
            });
            let ended = leave_after(polls, run).await;
            if let Ended::Answered(Ok((_, permit))) = ended {
                let inside = place.ledger.enter(operation.claims, script.key);
                yield_now().await;
                drop(inside);
                drop(permit);
                return Ok(());
            }
            judge(&ended)
        }
        _ => {
            let mut counted = false;
            let run = call.run(|attempt| {
                count_once(place, &mut counted);
                if attempt.idempotency_key() != known.then_some(KEY) {
                    place.ledger.broken(format!("another key in {attempt:?}"));
                }
                script.run(place)
            });
            judge(&leave_after(polls, run).await)
        }
    }
}

/// A call that is tried again has still run once.
fn count_once(place: &Place, counted: &mut bool) {
    if !std::mem::replace(counted, true) {
        Seen::count(&place.seen.ran);
    }
}

/// An error tells the truth about attempts, and nested work was never refused.
fn judge<T>(ended: &Ended<Result<T, CallError<Error>>>) -> Result<(), String> {
    let Ended::Answered(Err(error)) = ended else {
        return Ok(());
    };
    if error.never_ran() != (error.attempts() == 0) {
        return Err(format!("{} attempts, and yet: {error}", error.attempts()));
    }
    if error.error() == Some(&"nested work was refused") {
        return Err("nested work was refused".to_owned());
    }
    Ok(())
}
