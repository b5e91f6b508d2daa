//! What calls cost and how they ended, measured by whoever makes them.
//!
//! The wait is from the call's beginning until its handler was first entered; the run is one attempt of the handler. Nothing
//! of this comes out of the runtime.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bursar::{CallError, Outcome};
use hdrhistogram::Histogram;

/// A wait shorter than this is not called one: it is within what handing work to another thread takes.
const WAITED: Duration = Duration::from_millis(1);

/// How calls of one operation ended. Every call is in exactly one of the last six.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub calls: u64,
    /// Calls whose wait was longer than a millisecond.
    pub waited: u64,
    pub ok: u64,
    /// Never ran: the budget was full, or the caller's deadline passed first.
    pub refused: u64,
    /// Never ran: the runtime was shutting down.
    pub stopped: u64,
    /// Ran, and the other side refused it for load.
    pub throttled: u64,
    /// Ran, and may have taken effect.
    pub uncertain: u64,
    /// Ran, and did not take effect.
    pub failed: u64,
}

/// How one call ended, as its maker was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    Refused,
    Stopped,
    Throttled,
    Uncertain,
    Failed,
}

impl Verdict {
    pub fn of<T, E>(result: &Result<T, CallError<E>>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) if error.is_stopping() => Self::Stopped,
            Err(error) if error.never_ran() => Self::Refused,
            Err(error) => match error.outcome() {
                Outcome::Throttled => Self::Throttled,
                Outcome::Uncertain => Self::Uncertain,
                _ => Self::Failed,
            },
        }
    }
}

/// The measurements of one operation.
#[derive(Debug)]
pub struct Meter {
    pub name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tally: Tally,
    /// In microseconds.
    wait: Histogram<u64>,
    run: Histogram<u64>,
    /// The first failures in words, for a person who wonders.
    samples: Vec<String>,
}

/// The 50th and the 99th percentile, in milliseconds; none if there is nothing to tell.
pub type Quantiles = Option<(f64, f64)>;

impl Meter {
    /// # Panics
    ///
    /// Never: the bounds of the histograms are fixed and sound.
    pub fn new(name: &str) -> Arc<Self> {
        // From a microsecond to ten minutes, to two digits.
        let histogram = || {
            Histogram::new_with_bounds(1, 600_000_000, 2)
                .expect("the bounds of the histogram are sound")
        };
        let state = State {
            tally: Tally::default(),
            wait: histogram(),
            run: histogram(),
            samples: Vec::new(),
        };
        Arc::new(Self {
            name: name.to_owned(),
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call.
    pub fn begin(self: &Arc<Self>) -> Arc<Call> {
        Arc::new(Call {
            meter: Arc::clone(self),
            begun: Instant::now(),
            entered: AtomicBool::new(false),
        })
    }

    pub fn tally(&self) -> Tally {
        self.state().tally
    }

    pub fn wait(&self) -> Quantiles {
        quantiles(&self.state().wait)
    }

    pub fn run(&self) -> Quantiles {
        quantiles(&self.state().run)
    }

    /// Attempts after a call's first.
    pub fn retried(&self) -> u64 {
        let state = self.state();
        state.run.len().saturating_sub(state.wait.len())
    }

    pub fn samples(&self) -> Vec<String> {
        self.state().samples.clone()
    }
}

fn quantiles(of: &Histogram<u64>) -> Quantiles {
    let at = |share| of.value_at_quantile(share) as f64 / 1_000.0;
    (!of.is_empty()).then(|| (at(0.5), at(0.99)))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// One call under way.
#[derive(Debug)]
pub struct Call {
    meter: Arc<Meter>,
    begun: Instant,
    entered: AtomicBool,
}

impl Call {
    /// Says that the handler was entered; it has ended once the value returned is dropped.
    pub fn enter(&self) -> Running<'_> {
        let now = Instant::now();
        if !self.entered.swap(true, Relaxed) {
            let wait = now - self.begun;
            let mut state = self.meter.state();
            state.wait.saturating_record(micros(wait));
            state.tally.waited += u64::from(wait > WAITED);
        }
        Running {
            meter: &self.meter,
            since: now,
        }
    }

    /// Says how the call ended.
    pub fn end<T, E: std::error::Error>(&self, result: &Result<T, CallError<E>>) -> Verdict {
        let verdict = Verdict::of(result);
        let mut state = self.meter.state();
        let State { tally, samples, .. } = &mut *state;
        tally.calls += 1;
        *match verdict {
            Verdict::Ok => &mut tally.ok,
            Verdict::Refused => &mut tally.refused,
            Verdict::Stopped => &mut tally.stopped,
            Verdict::Throttled => &mut tally.throttled,
            Verdict::Uncertain => &mut tally.uncertain,
            Verdict::Failed => &mut tally.failed,
        } += 1;
        if let (Verdict::Failed | Verdict::Uncertain, Err(error)) = (verdict, result)
            && samples.len() < 5
        {
            let cause = error
                .error()
                .map_or_else(String::new, |cause| format!(": {cause}"));
            samples.push(format!("{error}{cause}"));
        }
        verdict
    }
}

/// A handler at work.
#[derive(Debug)]
#[must_use = "the run has ended once this is dropped"]
pub struct Running<'a> {
    meter: &'a Meter,
    since: Instant,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.meter
            .state()
            .run
            .saturating_record(micros(self.since.elapsed()));
    }
}
