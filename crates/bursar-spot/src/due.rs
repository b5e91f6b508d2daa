//! When every timer of a host is due, and the one driver that waits for the earliest of them.
//!
//! A moment is a key of an ordered map of the standard library: exact under any clock, in order of arming where two are the
//! same, and taken out when it is cancelled. A timing wheel would arm in constant time, but round moments to its slots, and a
//! clock that a test turns by hand would then ring late.
//!
//! Invariants:
//! 1. While anything is armed, the driver sleeps no longer than until the earliest moment, or has been woken.
//! 2. What is due rings once, in the order of moments. Nothing rings after it was taken out.
//! 3. There is one driver for a host, however many timers. It rings nothing itself, since what rings runs handlers: it hands
//!    over a bounded number at a time, so that the executor may run them on all its threads, and nobody's handler keeps the
//!    driver.
//!
//! One lock, a leaf: it is taken under a timer's own, and nothing rings or wakes under it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bursar::{Clock, Timer};

use crate::contain::discard;
use crate::sync::{Mutex, MutexGuard, lock};

/// What a moment belongs to.
pub(crate) trait Ring: Send + Sync {
    /// The moment has come.
    fn ring(self: Arc<Self>, moment: Moment);
}

/// Names what was armed: when it is due, and the how-many-eth it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    at: Instant,
    order: u64,
}

/// The moments of one host.
pub(crate) struct Moments {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    armed: BTreeMap<Moment, Arc<dyn Ring>>,
    order: u64,
    driver: Driver,
}

/// What the driver does.
#[derive(Default)]
enum Driver {
    /// There is none yet.
    #[default]
    Unborn,
    /// It looks at what is armed before it sleeps.
    Awake,
    /// It sleeps until then; `None` for as long as nothing is armed.
    Asleep(Option<Instant>, Waker),
    /// It ends.
    Closed,
}

/// Wakes the driver when it is dropped: after every lock.
#[must_use = "dropping it wakes the driver: drop it after the lock"]
pub(crate) struct Nudge(Option<Waker>);

impl Drop for Nudge {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

/// How much is handed over at a time.
const BATCH: usize = 64;

/// What is due, in the order of moments.
#[must_use = "what is due must ring"]
pub(crate) struct Rung(Vec<(Moment, Arc<dyn Ring>)>);

impl Rung {
    pub(crate) fn ring(self) {
        for (moment, ringer) in self.0 {
            ringer.ring(moment);
        }
    }
}

impl Moments {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::new(State::default()),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Has `ringer` ring at `at`. Once closed, nothing rings.
    pub(crate) fn arm(&self, at: Instant, ringer: Arc<dyn Ring>) -> (Moment, Nudge) {
        let mut state = self.lock();
        state.order += 1;
        let moment = Moment {
            at,
            order: state.order,
        };
        let waker = match &state.driver {
            Driver::Asleep(until, _) if until.is_none_or(|until| at < until) => state.wake(),
            Driver::Closed => {
                drop(state);
                // The ringer is dropped here, after the lock.
                return (moment, Nudge(None));
            }
            _ => None,
        };
        state.armed.insert(moment, ringer);
        (moment, Nudge(waker))
    }

    /// Takes out what has not rung; to be dropped after every lock.
    pub(crate) fn disarm(&self, moment: Moment) -> Option<Arc<dyn Ring>> {
        self.lock().armed.remove(&moment)
    }

    /// How many moments are armed.
    pub(crate) fn armed(&self) -> usize {
        self.lock().armed.len()
    }

    /// Whether nothing rings any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.lock().driver, Driver::Closed)
    }

    /// Ends the driver; nothing rings any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        let waker = state.wake();
        state.driver = Driver::Closed;
        let armed = std::mem::take(&mut state.armed);
        drop(state);
        discard(armed);
        drop(Nudge(waker));
    }

    /// The driver, for who asks first. It hands over what is to [ring](Rung::ring).
    pub(crate) fn driver<H>(
        self: &Arc<Self>,
        hand_over: H,
    ) -> Option<impl Future<Output = ()> + Send + use<H>>
    where
        H: Fn(Rung) + Send + Sync + 'static,
    {
        let mut state = self.lock();
        if !matches!(state.driver, Driver::Unborn) {
            return None;
        }
        state.driver = Driver::Awake;
        drop(state);
        let moments = Arc::clone(self);
        Some(async move {
            let mut sleep = None;
            poll_fn(|cx| moments.poll_drive(&hand_over, &mut sleep, cx)).await;
        })
    }

    fn poll_drive(
        &self,
        hand_over: &impl Fn(Rung),
        sleep: &mut Option<(Instant, Timer)>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut rung = 0;
        loop {
            let now = self.clock.now();
            let waker = cx.waker().clone();
            let mut state = self.lock();
            if matches!(state.driver, Driver::Closed) {
                return Poll::Ready(());
            }
            let due = state.take_due(now, BATCH - rung);
            rung += due.len();
            if due.is_empty() {
                let until = state.armed.first_key_value().map(|(moment, _)| moment.at);
                let old = std::mem::replace(&mut state.driver, Driver::Asleep(until, waker));
                drop(state);
                drop(old);
                let Some(until) = until else {
                    *sleep = None;
                    return Poll::Pending;
                };
                if rung == BATCH && until <= now {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                ready!(self.poll_until(until, sleep, cx));
                continue;
            }
            let old = std::mem::replace(&mut state.driver, Driver::Awake);
            drop(state);
            drop(old);
            hand_over(Rung(due));
        }
    }

    fn poll_until(
        &self,
        until: Instant,
        sleep: &mut Option<(Instant, Timer)>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !matches!(sleep, Some((at, _)) if *at == until) {
            *sleep = Some((until, self.clock.sleep_until(until)));
        }
        if let Some((_, timer)) = sleep {
            ready!(timer.as_mut().poll(cx));
        }
        *sleep = None;
        Poll::Ready(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Takes out what is due, so many at most.
    fn take_due(&mut self, now: Instant, most: usize) -> Vec<(Moment, Arc<dyn Ring>)> {
        let mut due = Vec::new();
        while let Some(first) = self.armed.first_entry() {
            if due.len() == most || first.key().at > now {
                break;
            }
            due.push(first.remove_entry());
        }
        due
    }

    /// The waker of a driver that sleeps.
    fn wake(&mut self) -> Option<Waker> {
        match std::mem::replace(&mut self.driver, Driver::Awake) {
            Driver::Asleep(_, waker) => Some(waker),
            other => {
                self.driver = other;
                None
            }
        }
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moments")
            .field("armed", &self.armed())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(bursar_shuttle)))]
mod tests {
    use super::*;
    use bursar::ManualClock;
    use std::time::Duration;
    use tokio_test::{assert_pending, assert_ready, task};

    /// Says its name when it rings.
    struct Bell {
        name: u32,
        heard: Arc<Mutex<Vec<u32>>>,
    }

    impl Ring for Bell {
        fn ring(self: Arc<Self>, _: Moment) {
            lock(&self.heard).push(self.name);
        }
    }

    struct Tower {
        clock: ManualClock,
        moments: Arc<Moments>,
        heard: Arc<Mutex<Vec<u32>>>,
    }

    impl Tower {
        fn new() -> Self {
            let clock = ManualClock::new();
            Self {
                moments: Moments::new(Arc::new(clock.clone())),
                heard: Arc::default(),
                clock,
            }
        }

        fn driver(&self) -> task::Spawn<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>> {
            task::spawn(Box::pin(
                self.moments.driver(Rung::ring).expect("the first"),
            ))
        }

        fn arm(&self, after: u64, name: u32) -> Moment {
            let heard = Arc::clone(&self.heard);
            let at = self.clock.now() + Duration::from_millis(after);
            self.moments.arm(at, Arc::new(Bell { name, heard })).0
        }

        fn turn(&self, by: u64) {
            self.clock.advance(Duration::from_millis(by));
        }

        fn heard(&self) -> Vec<u32> {
            std::mem::take(&mut *lock(&self.heard))
        }
    }

    #[test]
    fn f8_what_is_due_rings_once_in_the_order_of_moments() {
        let tower = Tower::new();
        for (after, name) in [(3, 30), (1, 10), (2, 20), (1, 11), (0, 0)] {
            tower.arm(after, name);
        }
        let mut driver = tower.driver();
        assert_pending!(driver.poll());
        assert_eq!(tower.heard(), [0]);
        tower.turn(1);
        assert!(driver.is_woken());
        assert_pending!(driver.poll());
        assert_eq!(tower.heard(), [10, 11]);
        tower.turn(5);
        assert_pending!(driver.poll());
        assert_eq!(tower.heard(), [20, 30]);
        assert_eq!((tower.moments.armed(), tower.clock.timers()), (0, 0));
    }

    #[test]
    fn f8_an_earlier_moment_wakes_the_driver_and_a_later_one_does_not() {
        let tower = Tower::new();
        let mut driver = tower.driver();
        assert_pending!(driver.poll());
        tower.arm(10, 10);
        assert!(driver.is_woken(), "it slept for ever");
        assert_pending!(driver.poll());
        tower.arm(20, 20);
        assert!(!driver.is_woken());
        tower.arm(5, 5);
        assert!(driver.is_woken());
        assert_pending!(driver.poll());
        tower.turn(5);
        assert_pending!(driver.poll());
        assert_eq!(tower.heard(), [5]);
        tower.turn(15);
        assert_pending!(driver.poll());
        assert_eq!(tower.heard(), [10, 20]);
    }

    #[test]
    fn f8_what_was_taken_out_does_not_ring() {
        let tower = Tower::new();
        let mut driver = tower.driver();
        let [first, second] = [1, 1].map(|after| tower.arm(after, after as u32));
        assert_pending!(driver.poll());
        assert!(tower.moments.disarm(first).is_some());
        assert!(tower.moments.disarm(first).is_none());
        tower.turn(1);
        assert_pending!(driver.poll());
        assert_eq!(tower.heard(), [1]);
        assert!(tower.moments.disarm(second).is_none());
    }

    #[test]
    fn f8_one_driver_hands_over_a_bounded_number_at_a_time() {
        let tower = Tower::new();
        for name in 0..200 {
            tower.arm(0, name);
        }
        let mut driver = tower.driver();
        assert!(tower.moments.driver(Rung::ring).is_none(), "one for a host");
        let mut rung = Vec::new();
        while rung.len() < 200 {
            assert_pending!(driver.poll());
            let heard = tower.heard();
            assert!(!heard.is_empty() && heard.len() <= BATCH);
            rung.extend(heard);
            assert!(driver.is_woken() || rung.len() == 200);
        }
        assert!(rung.into_iter().eq(0..200));
    }

    #[test]
    fn f8_closing_ends_the_driver_and_drops_what_was_armed() {
        let tower = Tower::new();
        let mut driver = tower.driver();
        tower.arm(1, 1);
        assert_pending!(driver.poll());
        tower.moments.close();
        assert!(driver.is_woken());
        assert_ready!(driver.poll());
        tower.arm(1, 2);
        assert_eq!(
            (tower.moments.armed(), Arc::strong_count(&tower.heard)),
            (0, 1)
        );
        assert!(tower.moments.driver(Rung::ring).is_none());
    }
}
