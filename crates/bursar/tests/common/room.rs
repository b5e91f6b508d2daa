//! A place that handlers stay in until they are let out, and wakers that tell.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use bursar::{Failure, Runtime};
use tokio::sync::Semaphore;

use super::Error;

/// Counts who is inside, who was at most, and who ever went in.
#[derive(Debug)]
pub struct Room {
    inside: AtomicUsize,
    peak: AtomicUsize,
    entered: AtomicUsize,
    door: Semaphore,
}

impl Room {
    /// An empty room whose door is shut.
    pub fn new() -> Self {
        Self {
            inside: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            entered: AtomicUsize::new(0),
            door: Semaphore::new(0),
        }
    }

    /// As a handler: goes in and stays until let out.
    pub async fn stay(&self) -> Result<(), Failure<Error>> {
        let _inside = self.enter();
        self.door.acquire().await.unwrap().forget();
        Ok(())
    }

    /// Goes in; leaving is dropping what this returns.
    pub fn enter(&self) -> Inside<'_> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(inside, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
        Inside(self)
    }

    /// Lets this many out.
    pub fn let_out(&self, visitors: usize) {
        self.door.add_permits(visitors);
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    /// How many were inside at most.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    /// How many have ever gone in.
    pub fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }
}

/// A visitor in a [`Room`].
#[derive(Debug)]
pub struct Inside<'r>(&'r Room);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

struct OnWake<F>(F);

impl<F: Fn() + Send + Sync> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A waker that calls a closure.
pub fn on_wake(tell: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(OnWake(tell)))
}

/// Runs what would never end if a wake-up were lost or callers waited in a circle.
///
/// No time decides a verdict here: past a minute the process says what there is to see and ends, since whoever runs it
/// must not wait for ever.
#[allow(
    clippy::disallowed_methods,
    reason = "a thread of its own has to watch"
)]
pub fn watched<T>(runtime: &Runtime, work: impl FnOnce() -> T) -> T {
    let (ended, watch) = mpsc::channel::<()>();
    let test = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        scope.spawn(move || {
            let minute = Duration::from_secs(60);
            if watch.recv_timeout(minute) == Err(RecvTimeoutError::Timeout) {
                // A runtime that is locked up answers nobody.
                let (say, said) = mpsc::channel();
                scope.spawn(move || say.send(runtime.stats().to_string()));
                let stats = said.recv_timeout(Duration::from_secs(5));
                // Not by a macro, whose output the harness would keep to itself.
                let _ = writeln!(
                    io::stderr(),
                    "test {test} ... FAILED\nnobody goes on any more:\n{}",
                    stats.unwrap_or_default()
                );
                std::process::abort();
            }
        });
        let _ended = ended;
        work()
    })
}

/// Runs on a thread of its own what would lock itself up if user code ran under a lock: then the test fails, and the thread
/// is left behind.
///
/// No time decides a verdict: a sound build ends at once, however busy the machine.
#[allow(
    clippy::disallowed_methods,
    reason = "a thread that may be left behind"
)]
pub fn ends(work: impl FnOnce() + Send + 'static) {
    let (ended, watch) = mpsc::channel::<()>();
    let worker = thread::spawn(move || {
        let _ended = ended;
        work();
    });
    let minute = Duration::from_secs(60);
    let said = watch.recv_timeout(minute);
    assert_ne!(
        said,
        Err(RecvTimeoutError::Timeout),
        "it has locked itself up"
    );
    if let Err(panicked) = worker.join() {
        resume_unwind(panicked);
    }
}
