//! How long calls hold what they hold, and how long a refused caller should stay away.
//!
//! Who is refused comes back when it is told to, clients that obey a server to the letter among them. So callers who were refused
//! together are told different times, evenly between the computed one and twice it: see [`spread`].
//!
//! The mean is one number, moved an eighth of the way towards each call that ends. Two calls that end at once may lose
//! one of the two moves; the mean needs no more.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bursar::Refusal;

use crate::clock;

/// Assumed where nothing has been measured.
pub(crate) const ASSUMED: Duration = Duration::from_secs(1);

/// The longest that is computed for a refused caller, and the most that its time is spread by.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// How long who is refused by a process that ends should stay away: by then those who pass requests on have noticed.
pub(crate) const ELSEWHERE: Duration = Duration::from_secs(1);

/// The mean time of holding, shared by all services of one layer.
#[derive(Debug, Default)]
pub struct Pace {
    /// Nanoseconds; 0 before the first call ends.
    mean: AtomicU64,
}

impl Pace {
    pub(crate) fn mean(&self) -> Duration {
        match self.mean.load(Ordering::Relaxed) {
            0 => ASSUMED,
            nanos => Duration::from_nanos(nanos),
        }
    }

    fn note(&self, held: Duration) {
        let held = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => held,
            mean => (mean - mean / 8).saturating_add(held / 8).max(1),
        };
        self.mean.store(mean, Ordering::Relaxed);
    }
}

/// Notes, when dropped, how long it lived.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    began: Instant,
    pace: Arc<Pace>,
}

impl Stopwatch {
    pub(crate) fn start(pace: &Arc<Pace>) -> Self {
        Self {
            began: clock::now(),
            pace: Arc::clone(pace),
        }
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        self.pace
            .note(clock::now().saturating_duration_since(self.began));
    }
}

/// When a call that was refused so is likely to find room: those before it, and itself, at the mean, as many at a time
/// as fit.
pub(crate) fn until_room(refusal: &Refusal, mean: Duration) -> Duration {
    let Some(usage) = refusal.usage() else {
        return mean.min(LONGEST);
    };
    let before = u64::from(usage.waiting) + 1;
    let units = u64::from(refusal.units().unwrap_or(1));
    let at_a_time = (u64::from(usage.capacity) / units).max(1);
    let rounds = u32::try_from(before.div_ceil(at_a_time)).unwrap_or(u32::MAX);
    mean.saturating_mul(rounds).min(LONGEST)
}

/// Whole seconds, rounded up, at least one: what `Retry-After` can say.
pub(crate) fn seconds(wait: Duration) -> u64 {
    let whole = wait.as_secs();
    let part = u64::from(wait.subsec_nanos() > 0);
    whole.saturating_add(part).max(1)
}

/// Whole milliseconds, rounded up: what `grpc-retry-pushback-ms` can say.
#[cfg(feature = "tonic")]
pub(crate) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// One of the whole numbers from `least` to twice it, each as likely as the others; never more than `most` above it.
///
/// Not below: `least` is when there is likely to be room, or what a provider asked for. And not further above than is needed
/// for those who come back to come one after another, since each waits for longer than it had to.
pub(crate) fn spread(least: u64, most: u64, random: u64) -> u64 {
    let choices = u128::from(least.min(most)) + 1;
    let above = (choices * u128::from(random)) >> 64;
    least.saturating_add(above as u64)
}

/// A number that differs from one refused call to the next. Only they draw one.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar::{CallError, Policy, Runtime};
    use std::convert::Infallible;

    #[test]
    fn the_mean_begins_at_the_first_call_and_follows_the_others() {
        let pace = Pace::default();
        assert_eq!(pace.mean(), ASSUMED);
        pace.note(Duration::from_millis(80));
        assert_eq!(pace.mean(), Duration::from_millis(80));
        pace.note(Duration::from_millis(160));
        assert_eq!(pace.mean(), Duration::from_millis(90));
        for _ in 0..200 {
            pace.note(Duration::ZERO);
        }
        assert!(pace.mean() < Duration::from_micros(1));
        for _ in 0..3 {
            pace.note(Duration::MAX);
        }
        assert!(pace.mean() > Duration::from_secs(1), "nothing overflows");
    }

    #[test]
    fn retry_after_is_in_whole_seconds_and_at_least_one() {
        for (millis, right) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_500, 60)] {
            assert_eq!(seconds(Duration::from_millis(millis)), right);
        }
        assert_eq!(seconds(Duration::MAX), u64::MAX, "nothing overflows");
    }

    #[test]
    fn callers_refused_together_are_told_every_second_from_the_computed_one_to_twice_it() {
        for (least, furthest) in [(1, 2), (2, 4), (60, 120), (100, 160), (u64::MAX, u64::MAX)] {
            assert_eq!(spread(least, 60, 0), least, "never earlier");
            assert_eq!(spread(least, 60, u64::MAX), furthest);
        }
        assert_eq!(spread(0, 60, u64::MAX), 0);
        let mut told = [0; 7];
        for _ in 0..4_000 {
            told[spread(3, 60, random()) as usize] += 1;
        }
        assert_eq!(told[..3], [0; 3]);
        let even = told[3..]
            .iter()
            .all(|callers| (800..1_200).contains(callers));
        assert!(even, "a thousand each: {told:?}");
    }

    /// A refusal at a budget of `capacity` units, `units` of which are needed, with `waiting` calls before it.
    async fn refused(capacity: u32, units: u32, waiting: usize) -> CallError<Infallible> {
        let runtime = Runtime::builder().resource("a", capacity).build().unwrap();
        let all = runtime
            .contract("all", Policy::pure().claim("a", capacity))
            .unwrap();
        let rejects = Policy::pure().claim("a", units).reject();
        let rejects = runtime.contract("rejects", rejects).unwrap();
        let _held = all.admit().await.unwrap();
        let mut waiters: Vec<_> = (0..waiting)
            .map(|_| tokio_test::task::spawn(all.admit()))
            .collect();
        for waiter in &mut waiters {
            assert!(waiter.poll().is_pending());
        }
        rejects.admit().await.unwrap_err()
    }

    #[tokio::test]
    async fn a_refused_caller_waits_for_those_before_it_as_many_at_a_time_as_fit() {
        let mean = Duration::from_secs(2);
        for (capacity, units, waiting, rounds) in [
            (1, 1, 0, 1),
            (1, 1, 3, 4),
            (4, 1, 3, 1),
            (4, 1, 4, 2),
            (4, 4, 3, 4),
            (4, 3, 1, 2),
            (1, 1, 99, 30),
        ] {
            let error = refused(capacity, units, waiting).await;
            let wait = until_room(error.refusal().unwrap(), mean);
            assert_eq!(wait, mean * rounds, "{capacity}, {units}, {waiting}");
        }
    }
}
