//! Waiting for a drain.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::chain;
use crate::clock::Alarm;
use crate::engine::Engine;
use crate::report::{DrainReport, ShutdownError};
use crate::trace;

/// A registration with the lifecycle that ends with its owner.
struct Registered<'e> {
    engine: &'e Engine,
    drain: Option<usize>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(drain) = self.drain {
            self.engine.lifecycle.unregister(drain);
        }
    }
}

/// Closes the gate at the first poll, then waits until all is back, at most for `bound`.
pub(crate) async fn shutdown(
    engine: &Engine,
    bound: Option<Duration>,
) -> Result<DrainReport, ShutdownError> {
    if chain::inside(engine.id()) {
        return Err(ShutdownError::InsideOwnCall);
    }
    // Each caller stops every word itself, so that none returns from its first poll with one still open.
    engine.stop();
    let deadline = bound.and_then(|bound| engine.clock.after(bound));
    let mut registered = Registered {
        engine,
        drain: None,
    };
    let mut alarm = Alarm::new();
    poll_fn(|cx| {
        // Registered before the scan: what is given back during it wakes this task.
        engine.lifecycle.register(&mut registered.drain, cx.waker());
        if engine.drained() {
            let report = engine.report();
            trace::drained(&report);
            return Poll::Ready(Ok(report));
        }
        match deadline {
            Some(at) if alarm.poll(&engine.clock, at, cx).is_ready() => {
                Poll::Ready(Err(ShutdownError::StillRunning(engine.report())))
            }
            _ => Poll::Pending,
        }
    })
    .await
}
