//! What a runtime draws at random for its pauses, in the order in which it draws.
//!
//! The contract says that the same seed gives the same pauses, and how a pause follows from a number drawn, not how numbers
//! are drawn. So they are asked of a runtime with [`SEED`] once, through the widest pause there is, and every scenario's
//! runtime gets that seed.

use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bursar::{Backoff, Clock, Failure, Policy, Retry, Runtime, Timer};

/// The seed of every runtime under a script.
pub const SEED: u64 = 7;

/// More than any scenario draws.
const DRAWS: usize = 1_024;

/// Below this, evenly.
const WIDEST: u64 = u64::MAX;

/// The pause that number `at` of those drawn gives, when the longest allowed is `longest` nanoseconds.
pub fn pause(at: usize, longest: u64) -> u64 {
    static DRAWN: OnceLock<Vec<u64>> = OnceLock::new();
    let drawn = DRAWN.get_or_init(draw)[at];
    ((u128::from(longest) * u128::from(drawn)) / u128::from(WIDEST)) as u64
}

/// A clock that jumps to whatever moment it is asked to wait for, and remembers the jump.
#[derive(Clone)]
struct Jumping(Arc<Mutex<(Instant, Vec<u64>)>>);

impl Clock for Jumping {
    fn now(&self) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        let mut jumps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let jump = deadline.saturating_duration_since(jumps.0);
        jumps.0 = deadline;
        if !jump.is_zero() {
            jumps.1.push(jump.as_nanos() as u64);
        }
        Box::pin(std::future::ready(()))
    }
}

fn draw() -> Vec<u64> {
    let clock = Jumping(Arc::new(Mutex::new((Instant::now(), Vec::new()))));
    let builder = Runtime::builder().resource("a", 1).seed(SEED);
    let runtime = builder.clock(clock.clone()).build().expect("one budget");
    let widest = Duration::from_nanos(WIDEST);
    let backoff = Backoff::exponential(widest).cap(widest);
    let retry = Retry::up_to(DRAWS as u32 + 1).on_transient();
    let policy = Policy::pure().retry(retry.backoff(backoff));
    let contract = runtime.contract("fails", policy).expect("a right policy");
    let mut call = pin!(contract.run(|| async { Err::<(), _>(Failure::transient(())) }));
    let mut cx = Context::from_waker(Waker::noop());
    while call.as_mut().poll(&mut cx).is_pending() {}
    let jumps = clock.0.lock().unwrap_or_else(PoisonError::into_inner);
    jumps.1.clone()
}
