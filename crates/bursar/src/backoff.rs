//! How long a call waits between attempts: pure functions of the attempt, a random number and the server's word.

use std::hash::BuildHasher;
use std::time::{Duration, SystemTime};

use foldhash::quality::{FixedState, RandomState};

use crate::sync::{AtomicU64, Ordering};

/// A pause between attempts that doubles each time and is drawn at random below that ("full jitter"), so that callers
/// who failed together do not come back together.
///
/// Before attempt *n* + 1 it is drawn evenly between zero and `base` x 2^(*n* - 1), at most the cap. While it lasts the
/// call holds no units; it keeps its key.
///
/// ```
/// use bursar::{Backoff, Policy, Retry};
/// use std::time::Duration;
///
/// let policy = Policy::pure().retry(
///     Retry::up_to(5)
///         .on_transient()
///         .on_throttled()
///         .backoff(Backoff::exponential(Duration::from_millis(50)).cap(Duration::from_secs(2))),
/// );
/// ```
#[must_use = "give it to a retry"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
}

impl Backoff {
    const CAP: Duration = Duration::from_secs(30);

    /// Begins at `base`, which must be longer than zero. The cap is 30 s, or `base` if that is longer.
    pub const fn exponential(base: Duration) -> Self {
        let cap = if base.as_nanos() > Self::CAP.as_nanos() {
            base
        } else {
            Self::CAP
        };
        Self { base, cap }
    }

    /// The longest pause, at least the base. A server that asks for a longer one ends the call.
    pub const fn cap(self, cap: Duration) -> Self {
        Self { cap, ..self }
    }

    /// The pause after `made` attempts.
    pub(crate) fn pause(&self, made: u32, random: u64) -> Duration {
        let doubled = 1_u32
            .checked_shl(made.saturating_sub(1))
            .and_then(|times| self.base.checked_mul(times));
        let longest = doubled.map_or(self.cap, |longest| longest.min(self.cap));
        // Duration x fraction below one, in nanoseconds: u128 holds the product of two u64.
        let nanos = u128::from(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
        Duration::from_nanos(((nanos * u128::from(random)) >> 64) as u64)
    }
}

/// Random numbers for pauses, the same ones for the same seed.
#[derive(Debug)]
pub(crate) struct Jitter {
    state: FixedState,
    drawn: AtomicU64,
}

impl Jitter {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::default().hash_one(0_u8));
        Self {
            state: FixedState::with_seed(seed),
            drawn: AtomicU64::new(0),
        }
    }

    pub(crate) fn draw(&self) -> u64 {
        self.state
            .hash_one(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}

/// Reads the value of a `Retry-After` header, in both its forms (RFC 9110, 10.2.3): seconds, or a date, which is
/// counted from `now` and is zero when it has passed. `None` if it is neither.
///
/// ```
/// use bursar::retry_after;
/// use std::time::{Duration, SystemTime};
///
/// let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
/// assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
/// assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:47 GMT", now), Some(Duration::from_secs(10)));
/// assert_eq!(retry_after("soon", now), None);
/// ```
#[must_use]
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than fit are for ever.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(all(test, not(bursar_loom)))]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn c10_a_pause_is_drawn_below_a_doubling_bound_and_a_cap() {
        let backoff = Backoff::exponential(ms(100)).cap(ms(1_000));
        for (made, longest) in [
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 800),
            (5, 1_000),
            (99, 1_000),
        ] {
            assert_eq!(backoff.pause(made, 0), Duration::ZERO);
            let half = backoff.pause(made, 1 << 63);
            assert_eq!(half, ms(longest) / 2, "after {made}");
            let most = backoff.pause(made, u64::MAX);
            assert!(most < ms(longest) && most > ms(longest) - ms(1), "{most:?}");
        }
        // Nothing overflows.
        let endless = Backoff::exponential(Duration::MAX).cap(Duration::MAX);
        assert!(endless.pause(u32::MAX, u64::MAX) > Duration::from_secs(1 << 33));
    }

    #[test]
    fn c10_the_cap_is_half_a_minute_unless_the_base_is_longer() {
        for (base, cap) in [(1, 30_000), (30_000, 30_000), (30_001, 30_001)] {
            assert_eq!(Backoff::exponential(ms(base)).cap, ms(cap));
        }
    }

    #[test]
    fn c10_pauses_are_the_same_for_the_same_seed_and_spread_evenly() {
        let draw = |seed| {
            let jitter = Jitter::new(seed);
            (0..1_000).map(|_| jitter.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(Some(7)), draw(Some(7)));
        assert_ne!(draw(Some(7)), draw(Some(8)));
        assert_ne!(draw(None), draw(None));
        let below = draw(Some(7))
            .iter()
            .filter(|drawn| **drawn < u64::MAX / 4)
            .count();
        assert!(
            (200..300).contains(&below),
            "{below} of 1,000 in the lowest quarter"
        );
    }

    #[test]
    fn c10_retry_after_reads_both_forms_and_nothing_else() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (value, right) in [
            ("0", seconds(0)),
            (" 120 ", seconds(120)),
            ("99999999999999999999999", seconds(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", seconds(60)),
            ("Sunday, 06-Nov-94 08:49:47 GMT", seconds(10)),
            ("Sun Nov  6 08:49:47 1994", seconds(10)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", seconds(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("+1", None),
            ("soon", None),
            ("Sun, 06 Nov 1994", None),
        ] {
            assert_eq!(retry_after(value, now), right, "{value:?}");
        }
    }
}
