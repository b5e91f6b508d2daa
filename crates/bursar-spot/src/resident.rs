//! Tasks that stay, for work that suspends: a new task for each would be half of what such a turn costs.
//!
//! A resident polls one piece of work until that has ended, and then lies with the thread it ended on until there is another.
//! It is a task like any other to its executor: what it is given when that shuts down is dropped, and tells its requester.
//!
//! Invariants:
//! 1. A resident has at most one piece of work, in its slot or in its task.
//! 2. It lies in at most one thread's list, only while its slot is idle, and ends with that thread.
//! 3. Work that is put into a slot is polled or dropped: whoever ends a resident takes out what lies there.
//!
//! The slot's lock is a leaf. Work and wakers are dropped and woken after it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::contain::{discard, wake};
use crate::exec::{Exec, ExecId};
use crate::frame;
use crate::sync::{Mutex, lock, thread_local};

/// What suspended, with the way of its answer.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How many a thread keeps. One that is idle takes some hundred bytes.
const KEPT: usize = 16;

enum Slot {
    /// How to wake its task.
    Idle(Waker),
    Given(Work),
    Busy,
    Gone,
}

struct Resident {
    exec: ExecId,
    slot: Mutex<Slot>,
}

/// Those of a thread. When that ends nobody else would find them: they end with it.
struct Idle(Vec<Arc<Resident>>);

impl Drop for Idle {
    fn drop(&mut self) {
        for resident in self.0.drain(..) {
            resident.dismiss();
        }
    }
}

thread_local! {
    static IDLE: RefCell<Idle> = const { RefCell::new(Idle(Vec::new())) };
}

/// Has work polled by a task of that executor from now on.
pub(crate) fn give(exec: &Exec, work: Work) {
    let mut work = Some(work);
    while let Some(resident) = idle() {
        if resident.exec != exec.id() {
            // Of an executor that is gone, or that others of this thread will miss less than a search would cost.
            resident.dismiss();
            continue;
        }
        if let Some(waker) = resident.take(&mut work) {
            wake(Some(waker));
            return;
        }
    }
    if let Some(work) = work {
        let resident = Arc::new(Resident {
            exec: exec.id(),
            slot: Mutex::new(Slot::Busy),
        });
        let task = Residence {
            resident,
            work: Some(work),
        };
        frame::spawn(exec, task);
    }
}

fn idle() -> Option<Arc<Resident>> {
    // Without a list the thread is ending.
    IDLE.try_with(|idle| idle.borrow_mut().0.pop())
        .ok()
        .flatten()
}

impl Resident {
    /// Takes work in, and says whom to wake for it. `None` if it is gone.
    fn take(&self, work: &mut Option<Work>) -> Option<Waker> {
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Busy) {
            Slot::Idle(waker) => {
                *slot = work.take().map_or(Slot::Busy, Slot::Given);
                Some(waker)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Ends it: its task ends when it is woken, or has ended.
    fn dismiss(&self) {
        match std::mem::replace(&mut *lock(&self.slot), Slot::Gone) {
            Slot::Idle(waker) => wake(Some(waker)),
            left => discard(left),
        }
    }
}

/// The task of a resident.
struct Residence {
    resident: Arc<Resident>,
    work: Option<Work>,
}

impl Residence {
    /// What it was given. `Pending` while there is nothing, ready with nothing once it is dismissed.
    fn next(&self, cx: &Context<'_>) -> Poll<Option<Work>> {
        let waker = cx.waker().clone();
        let mut slot = lock(&self.resident.slot);
        match std::mem::replace(&mut *slot, Slot::Busy) {
            Slot::Given(work) => Poll::Ready(Some(work)),
            Slot::Gone => {
                *slot = Slot::Gone;
                Poll::Ready(None)
            }
            // Woken by what its last work had to do with.
            Slot::Idle(known) => {
                *slot = Slot::Idle(known);
                Poll::Pending
            }
            Slot::Busy => {
                *slot = Slot::Idle(waker);
                drop(slot);
                let kept = IDLE.try_with(|idle| {
                    let idle = &mut idle.borrow_mut().0;
                    let room = idle.len() < KEPT;
                    if room {
                        idle.push(Arc::clone(&self.resident));
                    }
                    room
                });
                if kept == Ok(true) {
                    Poll::Pending
                } else {
                    Poll::Ready(None)
                }
            }
        }
    }
}

impl Future for Residence {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(work) = &mut self.work {
                if work.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.work = None;
            }
            match self.next(cx) {
                Poll::Ready(Some(work)) => self.work = Some(work),
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Residence {
    fn drop(&mut self) {
        let left = std::mem::replace(&mut *lock(&self.resident.slot), Slot::Gone);
        discard(left);
    }
}
