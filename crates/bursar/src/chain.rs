//! Who calls from inside whom.
//!
//! While a handler is polled, its call's [`Frame`] is the top of a stack that belongs to the thread; a call made from
//! inside finds its ancestors there. A frame is a small copied value, so that entering and leaving costs a few stores:
//! the top lies in a cell of its own and only nested work touches the rest of the stack.
//!
//! Invariants:
//! 1. A frame is on a thread's stack exactly while its handler runs on that thread; leaving restores the stack on
//!    unwinding too.
//! 2. A call whose frame is on the stack holds what it was admitted with.
//!
//! A blocking handler runs on another thread, under a [`Link`] to what its requester stood in. The link is severed
//! when the requester goes: what ran there may have ended, and the handler's thread has only its own call above it.
//!
//! Guards and work spawned onto other tasks are outside the chain.

use std::cell::{Cell, RefCell};

use crate::sync::thread_local;

/// One call whose handler is running. Whole words only: a narrower field costs a failed store forwarding at each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The runtime: the address of its engine, which the call keeps alive. 0 stands for no frame.
    pub(crate) engine: usize,
    /// The operation's number in its runtime.
    pub(crate) operation: u64,
    /// The key held, by the id of its entry; 0 for none.
    pub(crate) key: u64,
}

thread_local! {
    static TOP: Top = const {
        Top {
            engine: Cell::new(0),
            operation: Cell::new(0),
            key: Cell::new(0),
        }
    };
    static BELOW: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// The top frame, word by word: copied as a whole it would pass through the stack. Empty while `engine` is 0.
struct Top {
    engine: Cell<usize>,
    operation: Cell<u64>,
    key: Cell<u64>,
}

impl Top {
    #[inline]
    fn set(&self, frame: Frame) {
        self.engine.set(frame.engine);
        self.operation.set(frame.operation);
        self.key.set(frame.key);
    }

    #[inline]
    fn get(&self) -> Option<Frame> {
        (self.engine.get() != 0).then(|| Frame {
            engine: self.engine.get(),
            operation: self.operation.get(),
            key: self.key.get(),
        })
    }
}

/// Leaves the frame when dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    nested: bool,
}

/// Makes `frame` the top of this thread's stack.
#[inline(always)]
pub(crate) fn enter(frame: Frame) -> Entered {
    TOP.with(|top| {
        let nested = top.engine.get() != 0;
        if nested {
            push_below(top);
        }
        top.set(frame);
        Entered { nested }
    })
}

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {
        TOP.with(|top| {
            top.engine.set(0);
            if self.nested {
                pop_below(top);
            }
        });
    }
}

#[cold]
fn push_below(top: &Top) {
    BELOW.with(|below| below.borrow_mut().extend(top.get()));
}

#[cold]
fn pop_below(top: &Top) {
    if let Some(frame) = BELOW.with(|below| below.borrow_mut().pop()) {
        top.set(frame);
    }
}

/// Whether work of this runtime is running on this thread, so that a call made now is nested in it.
pub(crate) fn inside(engine: usize) -> bool {
    match TOP.with(|top| top.engine.get()) {
        0 => false,
        top => {
            top == engine
                || BELOW.with(|below| below.borrow().iter().any(|frame| frame.engine == engine))
                || linked(engine)
        }
    }
}

#[cfg(not(feature = "tokio"))]
fn linked(_: usize) -> bool {
    false
}

#[cfg(feature = "tokio")]
pub(crate) use link::Link;
#[cfg(feature = "tokio")]
use link::linked;

#[cfg(feature = "tokio")]
mod link {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::{BELOW, Frame, TOP, Top, enter};

    std::thread_local! {
        static LINK: RefCell<Option<Arc<Link>>> = const { RefCell::new(None) };
    }

    /// What a requester stood in when it handed work to another thread.
    #[derive(Debug)]
    pub(crate) struct Link {
        frames: Vec<Frame>,
        severed: AtomicBool,
        /// What the requester's own thread was linked to.
        above: Option<Arc<Link>>,
    }

    impl Link {
        /// The stack of this thread and what it is linked to.
        pub(crate) fn capture() -> Arc<Self> {
            let mut frames = BELOW.with(|below| below.borrow().clone());
            frames.extend(TOP.with(Top::get));
            Arc::new(Self {
                frames,
                severed: AtomicBool::new(false),
                above: LINK.with_borrow(Option::clone),
            })
        }

        /// The requester is gone.
        pub(crate) fn sever(&self) {
            // Release, with the Acquire below: who sees a later state of the requester's runtime sees this.
            self.severed.store(true, Ordering::Release);
        }

        /// Runs `work` as the call `own`, linked to its requester.
        pub(crate) fn enter<T>(self: &Arc<Self>, own: Frame, work: impl FnOnce() -> T) -> T {
            struct Restore(Option<Arc<Link>>);

            impl Drop for Restore {
                fn drop(&mut self) {
                    LINK.with_borrow_mut(|link| *link = self.0.take());
                }
            }

            let _restore = Restore(LINK.replace(Some(Arc::clone(self))));
            let _entered = enter(own);
            work()
        }
    }

    pub(super) fn linked(engine: usize) -> bool {
        LINK.with_borrow(|link| {
            let mut link = link.as_ref();
            while let Some(to) = link.filter(|to| !to.severed.load(Ordering::Acquire)) {
                if to.frames.iter().any(|frame| frame.engine == engine) {
                    return true;
                }
                link = to.above.as_ref();
            }
            false
        })
    }
}

#[cfg(all(test, not(bursar_loom)))]
mod tests {
    use super::*;

    fn frame(engine: usize) -> Frame {
        Frame {
            engine,
            operation: 0,
            key: 0,
        }
    }

    #[cfg(feature = "tokio")]
    #[expect(clippy::disallowed_methods, reason = "another thread is the subject")]
    fn elsewhere(check: impl FnOnce() + Send + 'static) {
        std::thread::spawn(check).join().expect("no check fails");
    }

    #[test]
    fn frames_nest_and_unwind() {
        assert!(!inside(1));
        let outer = enter(frame(1));
        {
            let _inner = enter(frame(2));
            assert!(inside(1) && inside(2) && !inside(3));
            #[cfg(feature = "tokio")]
            {
                let link = Link::capture();
                let there = std::sync::Arc::clone(&link);
                elsewhere(move || {
                    assert!(!inside(1));
                    there.enter(frame(4), || {
                        assert!(inside(1) && inside(2) && inside(4));
                        // Handed on to a third thread.
                        let further = Link::capture();
                        elsewhere(move || {
                            further.enter(frame(5), || {
                                assert!(inside(1) && inside(4) && inside(5));
                                further.sever();
                                assert!(!inside(1) && !inside(4) && inside(5));
                            });
                        });
                        there.sever();
                        assert!(!inside(1) && !inside(2) && inside(4));
                    });
                    assert!(!inside(4));
                });
            }
            let unwound = std::panic::catch_unwind(|| {
                let _third = enter(frame(3));
                panic!("while a third frame is entered");
            });
            assert!(unwound.is_err() && !inside(3) && inside(2));
        }
        assert!(inside(1) && !inside(2));
        drop(outer);
        assert!(!inside(1));
    }
}
