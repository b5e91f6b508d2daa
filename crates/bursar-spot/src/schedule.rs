//! When a timer ticks, and what becomes of ticks that come late: arithmetic alone, without a clock, a queue or a gate.
//!
//! A timer's *nominal* ticks are numbered from 1, the first due, a period apart. [`Ticks`] decides at the start of each tick
//! which of them it delivers, and at its end when the next is due.
//!
//! Invariants, of one generation of a timer:
//! 1. The delivery index counts what really ran: 1, 2, 3, … without a gap.
//! 2. The scheduled index rises with every tick and is never below the delivery index.
//! 3. Delivered and skipped ticks together are all nominal ticks up to the last delivered one, each once.
//! 4. Nothing overflows: a moment beyond what an `Instant` can tell never comes.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// What becomes of ticks that came due while an earlier one was waiting or running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overrun {
    /// Only the latest due tick is delivered; those before it are skipped. The default.
    #[default]
    SkipLateTicks,
    /// Passed ticks are delivered one after another in their order, at most so many in one catch-up, the youngest of them;
    /// older ones are skipped. What comes due during a catch-up belongs to the next. See [`Overrun::catch_up`].
    CatchUpBounded(NonZeroU32),
    /// No tick is late: the next is due one period after the handler of the last one ended.
    DelayNextTick,
}

impl Overrun {
    /// [`CatchUpBounded`](Self::CatchUpBounded) by at most so many ticks; 0 and 1 both mean one, its default.
    #[must_use]
    pub const fn catch_up(at_most: u32) -> Self {
        match NonZeroU32::new(at_most) {
            Some(at_most) => Self::CatchUpBounded(at_most),
            None => Self::CatchUpBounded(NonZeroU32::MIN),
        }
    }
}

/// When a timer is due, and what becomes of late ticks.
///
/// ```
/// use bursar_spot::{Overrun, Schedule};
/// use std::time::Duration;
///
/// let restock = Schedule::every(Duration::from_secs(60))
///     .first_after(Duration::ZERO)
///     .overrun(Overrun::DelayNextTick);
/// let give_up = Schedule::once(Duration::from_secs(5));
/// # let _ = (restock, give_up);
/// ```
#[must_use = "a schedule does nothing until a timer is registered with it"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    first_after: Duration,
    /// `None` ticks once.
    period: Option<Duration>,
    overrun: Overrun,
}

impl Schedule {
    /// Ticks every `period`, which must be longer than zero, for the first time one period after the registration.
    pub const fn every(period: Duration) -> Self {
        Self {
            first_after: period,
            period: Some(period),
            overrun: Overrun::SkipLateTicks,
        }
    }

    /// Ticks once, `after` the registration. Zero means at once.
    pub const fn once(after: Duration) -> Self {
        Self {
            first_after: after,
            period: None,
            overrun: Overrun::SkipLateTicks,
        }
    }

    /// Ticks for the first time so long after the registration. Zero means at once.
    pub const fn first_after(self, after: Duration) -> Self {
        Self {
            first_after: after,
            ..self
        }
    }

    /// What becomes of late ticks. The default skips them.
    pub const fn overrun(self, overrun: Overrun) -> Self {
        Self { overrun, ..self }
    }

    /// Whether a timer can follow it: a period of zero would be due for ever.
    pub(crate) fn is_valid(&self) -> bool {
        self.period.is_none_or(|period| !period.is_zero())
    }

    /// The state of a timer registered at `now`.
    pub(crate) fn begin(self, now: Instant) -> Ticks {
        Ticks {
            first: now.checked_add(self.first_after),
            next: now.checked_add(self.first_after),
            schedule: self,
            delivered: 0,
            scheduled: 0,
            catching_up_to: 0,
        }
    }
}

/// One tick of a timer, as its handler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// The how-many-eth tick this is of those that really ran since the timer was registered: 1, 2, 3, …
    pub delivery: u64,
    /// Which nominal tick this is; the first due is 1. It rises with every tick, and is never below
    /// [`delivery`](Self::delivery).
    pub scheduled: u64,
    /// How many nominal ticks were skipped between the last one delivered and this one.
    pub skipped: u64,
}

/// Where one generation of a timer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    schedule: Schedule,
    /// When nominal tick 1 is due; the others are counted from it, so that no error adds up.
    first: Option<Instant>,
    next: Option<Instant>,
    delivered: u64,
    /// The last nominal tick delivered.
    scheduled: u64,
    /// The last nominal tick of the catch-up under way, if it is beyond `scheduled`.
    catching_up_to: u64,
}

impl Ticks {
    /// When the next tick is due; in the past if it is late already. `None` for never.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Delivers a tick to a handler that starts at `now`.
    pub(crate) fn start(&mut self, now: Instant) -> Tick {
        let following = self.scheduled + 1;
        let scheduled = match self.schedule.overrun {
            Overrun::SkipLateTicks => self.latest(now).max(following),
            Overrun::CatchUpBounded(at_most) => {
                if self.catching_up_to <= self.scheduled {
                    self.catching_up_to = self.latest(now).max(following);
                    let oldest = (self.catching_up_to + 1).saturating_sub(at_most.get().into());
                    oldest.max(following)
                } else {
                    following
                }
            }
            Overrun::DelayNextTick => following,
        };
        let skipped = scheduled - following;
        self.scheduled = scheduled;
        self.delivered += 1;
        Tick {
            delivery: self.delivered,
            scheduled,
            skipped,
        }
    }

    /// The handler that was started last ended at `now`.
    pub(crate) fn end(&mut self, now: Instant) {
        self.next = self.schedule.period.and_then(|period| {
            if self.schedule.overrun == Overrun::DelayNextTick {
                return now.checked_add(period);
            }
            let nanos = period.as_nanos().checked_mul(self.scheduled.into())?;
            let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
            let after = Duration::new(seconds, (nanos % 1_000_000_000) as u32);
            self.first?.checked_add(after)
        });
    }

    /// The latest nominal tick that is due at `now`, 0 for none.
    fn latest(&self, now: Instant) -> u64 {
        let Some(late) = self
            .first
            .and_then(|first| now.checked_duration_since(first))
        else {
            return 0;
        };
        match self.schedule.period {
            None => 1,
            Some(period) => {
                let passed = late.as_nanos() / period.as_nanos().max(1);
                u64::try_from(passed).map_or(u64::MAX - 1, |passed| passed.min(u64::MAX - 2) + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar::{Clock, ManualClock};

    const PERIOD: Duration = ms(10);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Runs handlers that start and end at these moments, in milliseconds after the registration, each no sooner than it is
    /// due: what ticks they see, and when the next is due after each.
    fn run(schedule: Schedule, handlers: &[(u64, u64)]) -> Vec<((u64, u64, u64), Option<u64>)> {
        let registered = ManualClock::new().now();
        let mut ticks = schedule.begin(registered);
        let seen = handlers.iter().map(|(start, end)| {
            let due = ticks.due().expect("another tick");
            let (start, end) = (registered + ms(*start), registered + ms(*end));
            assert!(due <= start, "no tick before it is due");
            let tick = ticks.start(start);
            ticks.end(end);
            let due = ticks.due().map(|due| (due - registered).as_millis() as u64);
            ((tick.delivery, tick.scheduled, tick.skipped), due)
        });
        seen.collect()
    }

    #[test]
    fn f8_ticks_in_time_are_the_same_under_every_policy() {
        let policies = [
            Overrun::SkipLateTicks,
            Overrun::catch_up(1),
            Overrun::catch_up(3),
            Overrun::DelayNextTick,
        ];
        for overrun in policies {
            let seen = run(
                Schedule::every(PERIOD).overrun(overrun),
                &[(10, 10), (20, 20), (30, 30)],
            );
            let right = [
                ((1, 1, 0), Some(20)),
                ((2, 2, 0), Some(30)),
                ((3, 3, 0), Some(40)),
            ];
            assert_eq!(seen, right, "{overrun:?}");
        }
        assert_eq!(Overrun::default(), Overrun::SkipLateTicks);
    }

    #[test]
    fn f8_skip_late_ticks_delivers_the_latest_due_tick_alone() {
        let seen = run(
            Schedule::every(PERIOD),
            // Waits for the gate until 35; runs until 71; in time again.
            &[(10, 12), (35, 71), (71, 75), (80, 80)],
        );
        assert_eq!(
            seen,
            [
                ((1, 1, 0), Some(20)),
                ((2, 3, 1), Some(40)),
                ((3, 7, 3), Some(80)),
                ((4, 8, 0), Some(90)),
            ]
        );
    }

    #[test]
    fn f8_catch_up_delivers_passed_ticks_in_order_and_skips_the_oldest() {
        let seen = run(
            Schedule::every(PERIOD).overrun(Overrun::catch_up(3)),
            // Ticks 2 to 6 have passed at 61: 2 and 3 are skipped, and 4, 5, 6 follow each other. What passes meanwhile is
            // another catch-up: at 95, tick 7, 8 and 9.
            &[
                (10, 61),
                (61, 62),
                (62, 63),
                (63, 95),
                (95, 96),
                (96, 97),
                (97, 98),
                (100, 101),
            ],
        );
        assert_eq!(
            seen,
            [
                ((1, 1, 0), Some(20)),
                ((2, 4, 2), Some(50)),
                ((3, 5, 0), Some(60)),
                ((4, 6, 0), Some(70)),
                ((5, 7, 0), Some(80)),
                ((6, 8, 0), Some(90)),
                ((7, 9, 0), Some(100)),
                ((8, 10, 0), Some(110)),
            ]
        );
    }

    #[test]
    fn f8_catch_up_is_by_one_tick_unless_it_says_more() {
        assert_eq!(Overrun::catch_up(0), Overrun::catch_up(1));
        let seen = run(
            Schedule::every(PERIOD).overrun(Overrun::catch_up(1)),
            &[(10, 45), (45, 46), (50, 50)],
        );
        assert_eq!(
            seen,
            [
                ((1, 1, 0), Some(20)),
                ((2, 4, 2), Some(50)),
                ((3, 5, 0), Some(60)),
            ]
        );
    }

    #[test]
    fn f8_delay_next_tick_counts_from_the_end_of_the_handler() {
        let seen = run(
            Schedule::every(PERIOD).overrun(Overrun::DelayNextTick),
            &[(10, 47), (60, 60), (95, 100)],
        );
        assert_eq!(
            seen,
            [
                ((1, 1, 0), Some(57)),
                ((2, 2, 0), Some(70)),
                ((3, 3, 0), Some(110)),
            ]
        );
    }

    #[test]
    fn f8_the_first_tick_may_come_at_another_time_and_the_others_count_from_it() {
        let at_once = Schedule::every(PERIOD).first_after(Duration::ZERO);
        let seen = run(at_once, &[(0, 0), (10, 31), (31, 32)]);
        assert_eq!(
            seen,
            [
                ((1, 1, 0), Some(10)),
                ((2, 2, 0), Some(20)),
                ((3, 4, 1), Some(40)),
            ]
        );
        let later = run(Schedule::every(PERIOD).first_after(ms(25)), &[(25, 25)]);
        assert_eq!(later, [((1, 1, 0), Some(35))]);
    }

    #[test]
    fn f8_a_timer_may_tick_once() {
        for overrun in [
            Overrun::SkipLateTicks,
            Overrun::catch_up(5),
            Overrun::DelayNextTick,
        ] {
            let once = Schedule::once(ms(5)).overrun(overrun);
            assert_eq!(run(once, &[(500, 501)]), [((1, 1, 0), None)]);
        }
    }

    #[test]
    fn f8_indices_rise_and_every_nominal_tick_is_delivered_or_skipped() {
        let registered = ManualClock::new().now();
        // Lengths of handlers and of waits that have no pattern in common with the period.
        let mut random = 1_u64;
        let mut draw = move |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ms((random >> 33) % below)
        };
        for overrun in [
            Overrun::SkipLateTicks,
            Overrun::catch_up(1),
            Overrun::catch_up(4),
            Overrun::DelayNextTick,
        ] {
            let mut ticks = Schedule::every(PERIOD).overrun(overrun).begin(registered);
            let (mut now, mut last, mut skipped) = (registered, 0, 0);
            for delivery in 1..=10_000 {
                now = ticks.due().expect("another").max(now + draw(25));
                let tick = ticks.start(now);
                skipped += tick.skipped;
                assert_eq!(tick.delivery, delivery);
                assert_eq!(tick.scheduled, delivery + skipped);
                assert_eq!(tick.scheduled, last + 1 + tick.skipped);
                assert!(
                    overrun == Overrun::DelayNextTick
                        || now >= registered + PERIOD * tick.scheduled as u32
                );
                last = tick.scheduled;
                now += draw(40);
                ticks.end(now);
            }
        }
    }

    #[test]
    fn f8_nothing_overflows() {
        let now = ManualClock::new().now();
        let never = Schedule::every(Duration::MAX).begin(now);
        assert_eq!(never.due(), None);
        let mut ticks = Schedule::every(Duration::MAX)
            .first_after(Duration::ZERO)
            .begin(now);
        assert_eq!(ticks.start(now).scheduled, 1);
        ticks.end(now);
        assert_eq!(ticks.due(), None);
        let mut dense = Schedule::every(Duration::from_nanos(1))
            .overrun(Overrun::catch_up(u32::MAX))
            .begin(now);
        let late = now + Duration::from_secs(1 << 33);
        let tick = dense.start(late);
        assert_eq!(tick.scheduled, tick.skipped + 1);
        dense.end(late);
        assert!(dense.due().is_some_and(|due| due <= late));
    }

    #[test]
    fn f8_a_period_of_zero_is_no_schedule() {
        assert!(!Schedule::every(Duration::ZERO).is_valid());
        assert!(Schedule::every(Duration::from_nanos(1)).is_valid());
        assert!(Schedule::once(Duration::ZERO).is_valid());
    }
}
