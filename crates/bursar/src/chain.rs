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
        }
    }
}

/// The whole stack, outermost first, to be entered on another thread.
#[cfg(feature = "tokio")]
pub(crate) fn capture() -> Vec<Frame> {
    let Some(top) = TOP.with(Top::get) else {
        return Vec::new();
    };
    let mut frames = BELOW.with(|below| below.borrow().clone());
    frames.push(top);
    frames
}

/// Enters frames captured on another thread, around `work`.
#[cfg(feature = "tokio")]
pub(crate) fn within<T>(frames: &[Frame], work: impl FnOnce() -> T) -> T {
    match frames {
        [] => work(),
        [outermost, inner @ ..] => {
            let _entered = enter(*outermost);
            within(inner, work)
        }
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
                let frames = capture();
                assert_eq!(frames, [frame(1), frame(2)]);
                elsewhere(move || {
                    assert!(!inside(1));
                    within(&frames, || assert!(inside(1) && inside(2)));
                    assert!(!inside(1));
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
