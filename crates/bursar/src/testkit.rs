//! For tests of code that makes calls (feature `test-util`): futures stepped by hand, and dropped at every poll.
//!
//! In Rust a future may be dropped at any of its await points: by a timeout, a `select!`, a client that hangs up. Whoever
//! holds something across an await must give it back then. [`at_every_poll`] shows whether your code does, at each await
//! point in turn. Time is turned by hand with a [`ManualClock`](crate::ManualClock), so that no test waits and none depends
//! on how busy the machine is.
//!
//! ```toml
//! [dev-dependencies]
//! bursar = { version = "0.1", features = ["test-util"] }
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::runtime::Runtime;

/// What [`at_every_poll`] drops: a future that borrows its world.
pub type Subject<'w> = Pin<Box<dyn Future<Output = ()> + 'w>>;

/// One poll of the subject: the point where it must leave it, and what happens in the world after it.
pub type Step<W, P> = (P, fn(&W));

/// Drops a future at every await point, before and after each change that lets it go on.
///
/// `script` says how the subject comes to its end: poll it, and it is at the first point; do what the first step says, poll
/// it again, and it is at the second. For every length *n* of that way from none to all of it a fresh world is built, the
/// subject made, *n* half-steps taken (a poll, a change, a poll, …), and `afterwards` called with what drops the subject: it
/// arranges what it likes before, drops, and looks at what is left. So a grant is met both unnoticed and noticed.
///
/// `point` says where the subject is, judging by its world; it is told whether the last poll ended it. A script whose points
/// are not met fails, so that a test cannot come to test less than it says.
///
/// ```
/// use bursar::testkit::{Subject, assert_idle, at_every_poll};
/// use bursar::{Contract, Failure, ManualClock, Permit, Policy, Runtime};
/// use std::cell::RefCell;
/// use std::time::Duration;
///
/// struct World {
///     runtime: Runtime,
///     clock: ManualClock,
///     render: Contract,
///     other: RefCell<Option<Permit>>,
/// }
///
/// /// The code under test: it waits for the renderer, then draws for a second.
/// async fn page(world: &World) {
///     let tick = async { bursar::Clock::sleep_until(&world.clock, later(&world.clock)).await };
///     let drawn = world.render.run(|| async { Ok::<_, Failure<()>>(()) }).await;
///     tick.await;
///     drop(drawn);
/// }
/// # fn later(clock: &ManualClock) -> std::time::Instant { bursar::Clock::now(clock) + Duration::from_secs(1) }
///
/// fn world() -> World {
///     let clock = ManualClock::new();
///     let builder = Runtime::builder().resource("renderer", 1).clock(clock.clone());
///     let runtime = builder.build().expect("one budget");
///     let render = runtime.contract("render", Policy::pure().claim("renderer", 1)).expect("right");
///     let permit = bursar::testkit::Stepped::new(render.admit()).ready().expect("free");
///     World { runtime, clock, render, other: RefCell::new(Some(permit)) }
/// }
///
/// at_every_poll(
///     world,
///     |world| -> Subject<'_> { Box::pin(page(world)) },
///     &[
///         ("waits", |world: &World| drop(world.other.take())),
///         ("draws", |world: &World| world.clock.advance(Duration::from_secs(1))),
///         ("done", |_: &World| {}),
///     ],
///     |world, ready| match world.runtime.stats().budgets[0].waiting {
///         0 if ready => "done",
///         0 => "draws",
///         _ => "waits",
///     },
///     |world, drop_subject| {
///         drop_subject();
///         drop(world.other.take());
///         assert_idle(&world.runtime);
///     },
/// );
/// ```
///
/// # Panics
/// If a poll leaves the subject elsewhere than the script says, and where `afterwards` does.
#[track_caller]
pub fn at_every_poll<W, P>(
    build: impl Fn() -> W,
    subject: impl for<'w> Fn(&'w W) -> Subject<'w>,
    script: &[Step<W, P>],
    point: impl Fn(&W, bool) -> P,
    afterwards: impl Fn(&W, &mut dyn FnMut()),
) where
    P: Copy + fmt::Debug + PartialEq,
{
    for half_steps in 0..=2 * script.len() {
        let world = build();
        let mut future = Stepped::new(subject(&world));
        for half_step in 0..half_steps {
            let (expected, change) = script[half_step / 2];
            if half_step % 2 == 0 {
                let ready = future.poll().is_ready();
                let met = point(&world, ready);
                let (poll, polls) = (half_step / 2 + 1, script.len());
                assert_eq!(met, expected, "poll {poll} of {polls}");
            } else {
                change(&world);
            }
        }
        let mut future = Some(future);
        afterwards(&world, &mut || drop(future.take()));
    }
}

/// Completes once the subject has been woken since its last poll.
pub type Wakes<'s> = Pin<&'s mut dyn Future<Output = ()>>;

/// Drops a future at every await point where nobody can say how many there are, as with sockets and other threads.
///
/// The subject is polled, `go_on` lets the world go on until it has been woken, and so on until it ends. For every length of
/// such a way, from none to the first that leads to the end, a fresh world is built, so many half-steps are taken, and `afterwards` is called with what
/// drops the subject, as by [`at_every_poll`].
///
/// `points` are where the subject is on its way, in their order, whatever the number of polls at each; `point` says where it
/// is, judging by its world. A way that leads elsewhere fails, and so does one that ends without having met all of them.
///
/// `go_on` is told where the subject is, and given what completes with its next wake-up: to be run to its end in the world's
/// executor.
///
/// ```
/// use bursar::testkit::{Subject, at_every_wake};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
///
/// struct World {
///     executor: tokio::runtime::Runtime,
///     near: tokio::sync::Mutex<DuplexStream>,
///     far: tokio::sync::Mutex<DuplexStream>,
/// }
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Point { Reads, Done }
///
/// at_every_wake(
///     || {
///         let (near, far) = duplex(2);
///         let executor = tokio::runtime::Builder::new_current_thread().build().expect("an executor");
///         World { executor, near: near.into(), far: far.into() }
///     },
///     |world| -> Subject<'_> {
///         Box::pin(async {
///             let mut four = [0; 4];
///             world.near.lock().await.read_exact(&mut four).await.expect("they come");
///         })
///     },
///     &[Point::Reads, Point::Done],
///     |world, _, wakes| world.executor.block_on(async {
///         world.far.lock().await.write_all(b"by").await.expect("there is room");
///         wakes.await;
///     }),
///     |_, ready| if ready { Point::Done } else { Point::Reads },
///     |world, drop_subject| {
///         drop_subject();
///         assert!(world.near.try_lock().is_ok());
///     },
/// );
/// ```
///
/// # Panics
/// If the subject is elsewhere than `points` say, and where `go_on` and `afterwards` do.
#[track_caller]
pub fn at_every_wake<W, P>(
    build: impl Fn() -> W,
    subject: impl for<'w> Fn(&'w W) -> Subject<'w>,
    points: &[P],
    go_on: impl Fn(&W, P, Wakes<'_>),
    point: impl Fn(&W, bool) -> P,
    afterwards: impl Fn(&W, &mut dyn FnMut()),
) where
    P: Copy + fmt::Debug + PartialEq,
{
    let mut half_steps = 0;
    let mut ended = false;
    while !ended {
        let world = build();
        let mut future = Stepped::new(subject(&world));
        let mut met = Vec::new();
        for half_step in 0..half_steps {
            if half_step % 2 == 0 {
                ended = future.poll().is_ready();
                let at = point(&world, ended);
                if met.last() != Some(&at) {
                    met.push(at);
                }
                assert!(
                    points.starts_with(&met),
                    "met {met:?} instead of {points:?}"
                );
            } else if let Some(&at) = met.last() {
                go_on(&world, at, pin!(future.wakes()));
            }
            if ended {
                assert_eq!(met, points, "it ended without having met all");
                break;
            }
        }
        half_steps += 1;
        let mut future = Some(future);
        afterwards(&world, &mut || drop(future.take()));
    }
}

/// Polls `future` only once it has been woken, as executors do.
///
/// A subject of [`at_every_poll`] is polled whether or not it asked for that, as futures are in a `select!` or a `join!`.
/// Within this one it goes on only if it was woken, so that a wake-up which was lost shows as a point that is not met. A
/// step that leaves work to other threads returns once they have woken the subject.
///
/// ```
/// use bursar::testkit::{Stepped, when_woken};
/// use std::task::Poll;
///
/// let mut polls = 0;
/// let forgets_its_waker = std::future::poll_fn(move |_| {
///     polls += 1;
///     if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
/// });
/// let mut honest = Stepped::new(when_woken(forgets_its_waker));
/// assert!(honest.poll().is_pending());
/// assert!(honest.poll().is_pending(), "nobody woke it");
/// ```
///
/// # Cancel safety
/// That of `future`, which is dropped with it.
pub async fn when_woken<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    woken.since.store(true, Ordering::Release);
    poll_fn(|cx| {
        woken.tells(cx);
        if !woken.since.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// Asserts that nothing is held, nobody waits and every call that began has ended.
///
/// # Panics
/// If not, with the runtime's counters.
#[track_caller]
pub fn assert_idle(runtime: &Runtime) {
    let stats = runtime.stats();
    let ended = stats.operations.iter().all(|of| of.admitted == of.finished);
    let free = stats.budgets.iter().all(|of| of.in_use == 0);
    let nobody_waits = stats.budgets.iter().all(|of| of.waiting == 0);
    let idle = ended && free && nobody_waits && stats.keys == 0;
    assert!(idle, "not idle:\n{stats}");
}

/// Whether a future was woken since its last poll.
#[derive(Debug, Default)]
struct Woken {
    since: AtomicBool,
    /// Who waits for it.
    waits: Mutex<Option<Waker>>,
}

impl Woken {
    fn waits(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells that task. To be called before the look: a wake-up that comes after it then finds whom to tell.
    fn tells(&self, cx: &Context<'_>) {
        let waker = cx.waker().clone();
        let before = self.waits().replace(waker);
        drop(before);
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.since.store(true, Ordering::Release);
        let waits = self.waits().take();
        if let Some(waits) = waits {
            waits.wake();
        }
    }
}

/// A future polled by hand, with a waker of its own.
///
/// ```
/// use bursar::testkit::Stepped;
/// use bursar::{Policy, Runtime};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("db", 1).build()?;
/// let contract = runtime.contract("query", Policy::pure().claim("db", 1))?;
/// let permit = Stepped::new(contract.admit()).ready()?;
/// let mut waits = Stepped::new(contract.admit());
/// assert!(waits.poll().is_pending() && !waits.is_woken());
/// drop(permit);
/// assert!(waits.is_woken());
/// drop(waits.ready()?);
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until it is polled"]
pub struct Stepped<F> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
}

impl<F: Future> Stepped<F> {
    /// Not polled yet.
    pub fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::default(),
        }
    }

    /// Polls once, and forgets earlier wake-ups.
    ///
    /// # Panics
    /// Where the future does: most do when they have ended.
    pub fn poll(&mut self) -> Poll<F::Output> {
        self.woken.since.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// What it comes to in this poll.
    ///
    /// # Panics
    /// If it is not ready.
    #[track_caller]
    pub fn ready(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is not ready"),
        }
    }

    /// Completes once it has been woken since it was last polled. Of several that wait so, the last to be polled is told.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wakes(&self) {
        poll_fn(|cx| {
            self.woken.tells(cx);
            match self.is_woken() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Whether it has been woken since it was last polled.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.woken.since.load(Ordering::Acquire)
    }
}

impl<F> fmt::Debug for Stepped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepped")
            .field("woken", &self.woken)
            .finish_non_exhaustive()
    }
}
