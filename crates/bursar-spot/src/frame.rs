//! Where this thread stands: in whose body, and who starts the work that comes next.
//!
//! Work that a turn's end makes due is not started where the turn ended, which may be anywhere in user code, perhaps
//! under a mutex. In a task of ours it waits until the task's own poll is over and is started there, one after the
//! other; anywhere else the executor starts it.
//!
//! Invariants:
//! 1. Due work is started with no body around it, in a task that the host's executor started for a turn: it inherits
//!    no chain, no span and no task-local of whoever ended the turn before it.
//! 2. Neither starting nor dropping work recurses: what becomes due meanwhile joins the thread's list.
//! 3. At most [`BATCH`] pieces of work are started in one poll; the rest become tasks.
//! 4. At most [`DEEPEST`] bodies are polled one inside the other's poll; what goes deeper is started as due work.
//! 5. Those that ended in a batch tell their requesters together: when it is over, or when one of them suspends.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;

use crate::contain::{contained, forget, wake};
use crate::exec::{Exec, ExecId};
use crate::resident::{self, Work};
use crate::sync::{get, replace, thread_local};

/// How much due work one poll starts. Fewer than 16 cost three to four times as much a turn.
const BATCH: usize = 64;

/// How deep requests that yielding turns wait for are polled where their requesters stand.
const DEEPEST: u32 = 16;

/// Work that holds what it needs, and has not begun. One that is dropped instead of started tells its requester so.
pub(crate) type Due = Box<dyn Start>;

/// See [`Due`].
pub(crate) trait Start: Send {
    /// Begins a turn: polls its body once.
    fn start(self: Box<Self>, cx: &mut Context<'_>) -> Begun;
}

/// What came of a start.
pub(crate) enum Begun {
    /// It has ended, and answered: whom to wake for that.
    Ended(Option<Waker>),
    /// The rest of it, to be polled by a task of ours.
    Suspended(Work),
}

/// What waits on a thread's list.
struct Entry {
    due: Due,
    /// Where it runs, unless that is the executor of the task which is polled here: a handle is counted, on a cache line
    /// that all workers share.
    elsewhere: Option<Exec>,
}

/// Tells a body from all others. Zero is none.
pub(crate) type BodyId = u64;

/// How many numbers a thread takes at once, so that bodies on different threads share no cache line.
const BLOCK: u64 = 1 << 12;

/// A number that no other body has.
#[inline]
pub(crate) fn number() -> BodyId {
    NUMBERS.with(|numbers| {
        let (next, left) = numbers.get();
        if left == 0 {
            return take_block(numbers);
        }
        numbers.set((next + 1, left - 1));
        next
    })
}

#[cold]
fn take_block(numbers: &Cell<(u64, u64)>) -> BodyId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // 2^63 of them are not used up.
    let first = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
    numbers.set((first + 1, BLOCK - 1));
    first
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing of ours is below on this thread's stack.
    Outside,
    /// In a task of ours, in this executor. What becomes due is started after its poll.
    Inside(ExecId),
    /// As inside, and there is something to do after the poll.
    Due(ExecId),
    /// Handing due work to the executor.
    Spawning,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Outside) };
    static NUMBERS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static BODY: Cell<BodyId> = const { Cell::new(0) };
    /// Whether the thread was unwinding before this body's poll.
    static UNWOUND: Cell<bool> = const { Cell::new(false) };
    static ABANDONED: Cell<bool> = const { Cell::new(false) };
    static FAILED: Cell<BodyId> = const { Cell::new(0) };
    static MAKING: Cell<BodyId> = const { Cell::new(0) };
    static LET_GO: Cell<bool> = const { Cell::new(false) };
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
    /// Room for whom to wake after a batch.
    static ENDED: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
    static DUE: RefCell<VecDeque<Entry>> = const { RefCell::new(VecDeque::new()) };
}

/// Sees to it that due work is started, in that executor.
pub(crate) fn start(due: Due, exec: &Exec) {
    let here = match get(&MODE) {
        Mode::Outside => {
            let _mode = enter(Mode::Spawning);
            spawn_due(exec, due);
            return spawn_all();
        }
        Mode::Spawning => None,
        Mode::Inside(id) | Mode::Due(id) => {
            replace(&MODE, Mode::Due(id));
            Some(id)
        }
    };
    let elsewhere = (here != Some(exec.id())).then(|| exec.clone());
    let mut entry = Some(Entry { due, elsewhere });
    list(|list| list.extend(entry.take()));
    if let Some(entry) = entry {
        entry.spawn();
    }
}

/// This thread's list, unless the thread is ending. Nothing of a user's runs while it is borrowed.
fn list<R>(of: impl FnOnce(&mut VecDeque<Entry>) -> R) -> Option<R> {
    DUE.try_with(|list| of(&mut list.borrow_mut())).ok()
}

fn pop() -> Option<Entry> {
    list(|list| {
        let due = list.pop_front();
        if list.is_empty() && list.capacity() > BATCH {
            *list = VecDeque::new();
        }
        due
    })?
}

fn spawn_all() {
    while let Some(entry) = pop() {
        entry.spawn();
    }
}

impl Entry {
    fn spawn(self) {
        // A task of ours is polled inside of its executor. Were it not, the work would be dropped and pass its gate on.
        if let Some(exec) = self.elsewhere.or_else(Exec::current) {
            spawn_due(&exec, self.due);
        }
    }
}

fn spawn_due(exec: &Exec, due: Due) {
    spawn(exec, Started::Due(due));
}

/// Due work in a task of its own.
enum Started {
    Due(Due),
    Suspended(Work),
    Over,
}

impl Future for Started {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Suspended(work) = &mut *self {
            return work.as_mut().poll(cx);
        }
        if let Self::Due(due) = std::mem::replace(&mut *self, Self::Over) {
            match due.start(cx) {
                Begun::Ended(requester) => tell(requester),
                Begun::Suspended(work) => {
                    *self = Self::Suspended(work);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(())
    }
}

/// Starts a task of ours: due work that arises in its polls is started after them.
pub(crate) fn spawn(exec: &Exec, future: impl Future<Output = ()> + Send + 'static) {
    exec.spawn(Task {
        future,
        exec: exec.id(),
    });
}

pin_project! {
    /// See [`spawn`].
    struct Task<F> {
        #[pin]
        future: F,
        exec: ExecId,
    }
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mode = enter(Mode::Inside(*this.exec));
        // A runtime may be driven inside of a turn: what is due out there is not this task's.
        let outer = (mode.before != Mode::Outside).then(|| list(std::mem::take));
        let polled = catch_unwind(AssertUnwindSafe(|| this.future.poll(cx)));
        if get(&MODE) == Mode::Due(*this.exec) {
            drain();
        }
        if let Some(Some(outer)) = outer {
            list(|due| *due = outer);
        }
        drop(mode);
        polled.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn drain() {
    // A requester that is told is woken, moves to another worker and comes back to the gate while the batch goes on: each
    // turn then waits for cache lines from over there, and costs three times as much (64 askers, two workers).
    let mut ended = replace(&ENDED, Vec::new());
    for _ in 0..BATCH {
        let Some(entry) = pop() else { break };
        // Another host's work is polled in its own executor from the first: its timers and sockets belong there.
        if entry.elsewhere.is_some() {
            entry.spawn();
            continue;
        }
        // A first poll without a waker is always followed by one with the task's.
        let mut cx = Context::from_waker(Waker::noop());
        match catch_unwind(AssertUnwindSafe(|| entry.due.start(&mut cx))) {
            Ok(Begun::Ended(requester)) => ended.extend(requester),
            Ok(Begun::Suspended(work)) => {
                wake_all(&mut ended);
                // A task of ours is polled inside of its executor.
                if let Some(exec) = Exec::current() {
                    resident::give(&exec, work);
                }
            }
            // Bodies keep their panics; what escapes is that of a user's drop, which the hook has reported.
            Err(panic) => forget(panic),
        }
    }
    wake_all(&mut ended);
    replace(&ENDED, ended);
    let _mode = enter(Mode::Spawning);
    spawn_all();
}

/// Wakes a requester: when the batch is over, if its turn's end made one due here.
pub(crate) fn tell(requester: Option<Waker>) {
    if !matches!(get(&MODE), Mode::Due(_)) {
        return wake(requester);
    }
    let mut ended = replace(&ENDED, Vec::new());
    ended.extend(requester);
    replace(&ENDED, ended);
}

fn wake_all(requesters: &mut Vec<Waker>) {
    for requester in requesters.drain(..) {
        wake(Some(requester));
    }
}

struct Entered {
    before: Mode,
}

fn enter(mode: Mode) -> Entered {
    Entered {
        before: replace(&MODE, mode),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        replace(&MODE, self.before);
    }
}

/// Polls a body under its name. True if it is to be abandoned: its Spot closed while it had yielded.
#[inline]
pub(crate) fn within<T>(body: BodyId, poll: impl FnOnce() -> T) -> (T, bool) {
    struct Leave(BodyId, bool, bool);

    impl Drop for Leave {
        fn drop(&mut self) {
            replace(&BODY, self.0);
            replace(&ABANDONED, self.1);
            replace(&UNWOUND, self.2);
        }
    }

    let leave = Leave(
        replace(&BODY, body),
        replace(&ABANDONED, false),
        replace(&UNWOUND, std::thread::panicking()),
    );
    let out = poll();
    let abandoned = get(&ABANDONED);
    drop(leave);
    (out, abandoned)
}

/// Whether a body may be polled where its requester stands.
#[inline]
pub(crate) fn may_descend() -> bool {
    get(&DEPTH) < DEEPEST
}

/// Polls a body where its requester stands.
#[inline]
pub(crate) fn descend<T>(poll: impl FnOnce() -> T) -> T {
    struct Leave(u32);

    impl Drop for Leave {
        fn drop(&mut self) {
            replace(&DEPTH, self.0);
        }
    }

    let depth = get(&DEPTH);
    let _leave = Leave(replace(&DEPTH, depth + 1));
    poll()
}

/// Whether a body is polled here.
pub(crate) fn is_in_body() -> bool {
    get(&BODY) != 0
}

/// Asks for the body around this poll to be abandoned; false if that is not the one named.
pub(crate) fn abandon(body: BodyId) -> bool {
    let inside = get(&BODY) == body;
    if inside {
        replace(&ABANDONED, true);
    }
    inside
}

/// Drops what is left of a body. If it panicked, a turn in it has panicked with it; a panic of another's has not.
#[cold]
pub(crate) fn ending(body: BodyId, panicked: bool, end: impl FnOnce()) {
    let failed = replace(&FAILED, if panicked { body } else { 0 });
    let unwound = replace(&UNWOUND, std::thread::panicking());
    contained(end);
    replace(&UNWOUND, unwound);
    replace(&FAILED, failed);
}

/// Whether a panic goes through what is polled here. One that was under way before the poll is another's: a value that is
/// dropped meanwhile may ask for a turn.
pub(crate) fn is_unwinding() -> bool {
    std::thread::panicking() && !get(&UNWOUND)
}

/// Whether a body of that name is what panicked, here.
pub(crate) fn has_failed(body: BodyId) -> bool {
    is_unwinding() || get(&FAILED) == body
}

/// A turn that its closure let go, for as long as the body lasts.
pub(crate) type Kept = Box<dyn Send>;

/// Calls the closure that makes a body's work. With the work comes the turn, if the closure let it go: one that takes no
/// notice of its turn has it all the same.
#[inline]
pub(crate) fn making<W>(body: BodyId, make: impl FnOnce() -> W) -> (W, Option<Kept>) {
    struct Leave(BodyId, bool);

    impl Drop for Leave {
        fn drop(&mut self) {
            replace(&MAKING, self.0);
            if replace(&LET_GO, self.1) {
                drop(kept());
            }
        }
    }

    let leave = Leave(replace(&MAKING, body), replace(&LET_GO, false));
    let work = make();
    let kept = if replace(&LET_GO, false) {
        kept()
    } else {
        None
    };
    drop(leave);
    (work, kept)
}

/// Whether the turn of this body is let go by the closure that makes its work.
#[inline]
pub(crate) fn is_making(body: BodyId) -> bool {
    get(&MAKING) == body
}

/// Keeps such a turn.
pub(crate) fn keep(turn: Kept) {
    KEPT.with(|kept| kept.borrow_mut().push(turn));
    replace(&LET_GO, true);
}

/// The one kept last: closures that make work may run inside of one another.
#[cold]
fn kept() -> Option<Kept> {
    KEPT.with(|kept| kept.borrow_mut().pop())
}
