//! Work beside the turns, on the executor and on threads, and the cancellation that it is lent.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use bursar::testkit::{Stepped, Subject};
use bursar_spot::{Cancellation, Work, WorkError};

use crate::harness::{Base, Step, drop_everywhere, drop_everywhere_on, nothing};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Waits for a thread, or to be begun.
    Queued,
    Running,
    Done,
}

use Point::{Done, Queued, Running};

/// Long enough for a thread to answer on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn receive<T>(from: &mpsc::Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("another thread answers")
}

/// Work on the executor.
struct Io {
    base: Base,
    lent: Arc<std::sync::Mutex<Option<Cancellation>>>,
}

impl AsRef<Base> for Io {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl Io {
    fn new(base: Base) -> Self {
        Self {
            base,
            lent: Arc::default(),
        }
    }

    fn work(&self) -> Work<u32> {
        let (log, door) = (self.base.log.clone(), self.base.doors.body.clone());
        let lent = Arc::clone(&self.lent);
        self.base.host.workers().io(|cancelled| async move {
            *lent.lock().expect("nobody panics") = Some(cancelled.clone());
            log.push("began");
            tokio::select! {
                biased;
                () = cancelled.cancelled() => log.push("told"),
                () = door.pass() => log.push("ended"),
            }
            7
        })
    }

    fn point(&self, ready: bool) -> Point {
        match () {
            () if ready => Done,
            () if self.base.said("began") => Running,
            () => Queued,
        }
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let (began, ended) = (self.base.said("began"), self.base.said("ended"));
        drop_subject();
        self.base.settle();
        let right: &[&str] = match (began, ended) {
            (false, _) => &[],
            (true, false) => &["began", "told"],
            (true, true) => &["began", "ended"],
        };
        assert_eq!(self.base.log.read(), right);
        let lent = self.lent.lock().expect("nobody panics").clone();
        assert_eq!(lent.is_some(), began);
        let host = &self.base.host;
        let mut ended = Stepped::new(host.shutdown_within(Duration::from_secs(1)));
        let report = ended.ready().expect("nothing is left");
        assert_eq!(report.working, 0);
    }
}

#[test]
fn f9_io_work_dropped_at_every_poll_is_told_to_stop_or_never_begins() {
    let script: [Step<Io, Point>; 5] = [
        (Queued, nothing),
        (Queued, |world| world.base.settle()),
        (Running, nothing),
        (Running, |world| world.base.open(&world.base.doors.body)),
        (Done, nothing),
    ];
    drop_everywhere(
        Io::new,
        |world| Box::pin(async { assert_eq!(world.work().await, Ok(7)) }),
        &script,
        Io::point,
        Io::afterwards,
    );
    // Its token ends the waiting.
    let fires: [Step<Io, Point>; 5] = [
        (Queued, nothing),
        (Queued, |world| world.base.settle()),
        (Running, nothing),
        (Running, |world| world.base.open(&world.base.doors.away)),
        (Done, nothing),
    ];
    drop_everywhere(
        Io::new,
        |world| {
            let token = world.base.doors.away.clone();
            let work = world.work().until(async move { token.pass().await });
            Box::pin(async { assert_eq!(work.await, Err(WorkError::Cancelled { began: true })) })
        },
        &fires,
        Io::point,
        Io::afterwards,
    );
}

/// Waits for the cancellation from elsewhere.
#[test]
fn f9_waiting_for_a_cancellation_dropped_at_every_poll_concerns_no_other() {
    struct World {
        io: Io,
        work: RefCell<Option<Stepped<Work<u32>>>>,
        lent: Cancellation,
    }
    impl AsRef<Base> for World {
        fn as_ref(&self) -> &Base {
            &self.io.base
        }
    }
    let script: [Step<World, Point>; 3] = [
        (Running, nothing),
        (Running, |world| drop(world.work.take())),
        (Done, nothing),
    ];
    drop_everywhere(
        |base| {
            let io = Io::new(base);
            let mut work = Stepped::new(io.work());
            assert!(work.poll().is_pending());
            io.base.settle();
            let lent = io.lent.lock().expect("nobody panics").take();
            World {
                io,
                work: RefCell::new(Some(work)),
                lent: lent.expect("it began"),
            }
        },
        |world| Box::pin(world.lent.cancelled()),
        &script,
        |world, ready| world.io.point(ready),
        |world, drop_subject| {
            let fired = world.work.borrow().is_none();
            assert_eq!(world.lent.is_cancelled(), fired);
            let mut other = Stepped::new(world.lent.cancelled());
            assert_eq!(other.poll().is_ready(), fired);
            drop_subject();
            assert_eq!(world.lent.is_cancelled(), fired);
            if !fired {
                drop(world.work.take());
                assert!(other.is_woken(), "who waits too is lost");
                other.ready();
            }
            drop(other);
            world.io.base.settle();
            assert_eq!(world.io.base.log.read(), ["began", "told"]);
        },
    );
}

/// Work on a host's only thread, which something else keeps busy at first. What wakes the subject rings a bell as well, so
/// that a step ends when the answer is there.
struct Cpu {
    base: Base,
    /// Keeps the thread busy until it is dropped.
    occupied: RefCell<Option<mpsc::Sender<()>>>,
    _keeps_busy: Stepped<Work<()>>,
    begins: mpsc::Sender<()>,
    begun: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    gone: RefCell<Option<mpsc::Receiver<()>>>,
    told: mpsc::Sender<bool>,
    tells: mpsc::Receiver<bool>,
    running: Cell<bool>,
    bell: Waker,
    rung: mpsc::Receiver<()>,
}

struct Bell(mpsc::Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        let _heard = self.0.send(());
    }
}

impl AsRef<Base> for Cpu {
    fn as_ref(&self) -> &Base {
        &self.base
    }
}

impl Cpu {
    fn new(base: Base) -> Self {
        let (occupied, free) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let first = begins.clone();
        let mut keeps_busy = Stepped::new(base.host.workers().cpu(move |_| {
            first.send(()).expect("the test listens");
            // Until its other end is dropped.
            let _dropped = free.recv();
        }));
        assert!(keeps_busy.poll().is_pending());
        receive(&begun);
        let (go, gone) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let (ring, rung) = mpsc::channel();
        Self {
            base,
            occupied: RefCell::new(Some(occupied)),
            _keeps_busy: keeps_busy,
            begins,
            begun,
            go,
            gone: RefCell::new(Some(gone)),
            told,
            tells,
            running: Cell::new(false),
            bell: Waker::from(Arc::new(Bell(ring))),
            rung,
        }
    }

    fn subject(&self) -> Subject<'_> {
        let (begins, told) = (self.begins.clone(), self.told.clone());
        let gone = self.gone.take().expect("one subject a world");
        let mut work = Box::pin(self.base.host.workers().cpu(move |cancelled| {
            begins.send(()).expect("the test listens");
            receive(&gone);
            told.send(cancelled.is_cancelled())
                .expect("the test listens");
            7
        }));
        Box::pin(std::future::poll_fn(move |cx| {
            let both = Waker::from(Arc::new(Both(cx.waker().clone(), self.bell.clone())));
            let mut cx = std::task::Context::from_waker(&both);
            work.as_mut()
                .poll(&mut cx)
                .map(|answer| assert_eq!(answer, Ok(7)))
        }))
    }

    fn free_thread(&self) {
        drop(self.occupied.take());
        receive(&self.begun);
        self.running.set(true);
    }

    /// Lets the work answer, and waits until the answer is there.
    fn answer(&self) {
        while self.rung.try_recv().is_ok() {}
        self.go.send(()).expect("it runs");
        receive(&self.rung);
    }

    fn point(&self, ready: bool) -> Point {
        match () {
            () if ready => Done,
            () if self.running.get() => Running,
            () => Queued,
        }
    }

    fn afterwards(&self, drop_subject: &mut dyn FnMut()) {
        let (running, answered) = (self.running.get(), self.tells.try_recv());
        drop_subject();
        // The thread is free for the next, whatever became of the subject's work.
        drop(self.occupied.take());
        if running && answered.is_err() {
            self.go.send(()).expect("it runs");
            assert!(receive(&self.tells), "it was not told that its waiter left");
        } else if let Ok(told) = answered {
            assert!(!told);
        }
        let mut next = Stepped::new(Waits {
            work: Box::pin(self.base.host.workers().cpu(|_| 8)),
            bell: self.bell.clone(),
        });
        while self.rung.try_recv().is_ok() {}
        let next = match next.poll() {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                receive(&self.rung);
                next.ready()
            }
        };
        assert_eq!(next, Ok(8));
        assert!(
            self.begun.try_recv().is_err(),
            "it began though nobody waits, or twice"
        );
        assert!(self.tells.try_recv().is_err());
    }
}

/// Wakes two.
struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

/// Work whose bell rings when it is to be polled again.
struct Waits {
    work: std::pin::Pin<Box<Work<u32>>>,
    bell: Waker,
}

impl Future for Waits {
    type Output = Result<u32, WorkError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Self::Output> {
        let bell = self.bell.clone();
        self.work
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&bell))
    }
}

#[test]
fn f9_cpu_work_dropped_at_every_poll_frees_its_thread_for_the_next() {
    let script: [Step<Cpu, Point>; 5] = [
        (Queued, nothing),
        (Queued, Cpu::free_thread),
        (Running, nothing),
        (Running, Cpu::answer),
        (Done, nothing),
    ];
    drop_everywhere_on(
        |host| host.cpu(1, 1),
        Cpu::new,
        Cpu::subject,
        &script,
        Cpu::point,
        Cpu::afterwards,
    );
}
