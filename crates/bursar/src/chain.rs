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

/// One call whose handler is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The runtime: the address of its engine, which the call keeps alive. 0 stands for no frame.
    pub(crate) engine: usize,
    /// The operation's number in its runtime.
    pub(crate) operation: u32,
    /// The key held, by the id of its entry; 0 for none.
    pub(crate) key: u64,
}

impl Frame {
    const NONE: Self = Self {
        engine: 0,
        operation: 0,
        key: 0,
    };
}

thread_local! {
    static TOP: Cell<Frame> = const { Cell::new(Frame::NONE) };
    static BELOW: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Leaves the frame when dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    before: Frame,
}

/// Makes `frame` the top of this thread's stack.
#[inline]
pub(crate) fn enter(frame: Frame) -> Entered {
    let before = TOP.replace(frame);
    if before != Frame::NONE {
        BELOW.with_borrow_mut(|below| below.push(before));
    }
    Entered { before }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        TOP.set(self.before);
        if self.before != Frame::NONE {
            BELOW.with_borrow_mut(Vec::pop);
        }
    }
}

/// Whether work of this runtime is running on this thread, so that a call made now is nested in it.
pub(crate) fn inside(engine: usize) -> bool {
    let top = TOP.get();
    top != Frame::NONE
        && (top.engine == engine
            || BELOW.with_borrow(|below| below.iter().any(|frame| frame.engine == engine)))
}

/// The whole stack, outermost first, to be entered on another thread.
pub(crate) fn capture() -> Vec<Frame> {
    let top = TOP.get();
    if top == Frame::NONE {
        return Vec::new();
    }
    let mut frames = BELOW.with_borrow(Vec::clone);
    frames.push(top);
    frames
}

/// Enters frames captured on another thread, around `work`.
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

    #[test]
    fn frames_nest_and_unwind() {
        assert!(!inside(1));
        let outer = enter(frame(1));
        {
            let _inner = enter(frame(2));
            assert!(inside(1) && inside(2) && !inside(3));
            let frames = capture();
            assert_eq!(frames, [frame(1), frame(2)]);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(!inside(1));
                    within(&frames, || assert!(inside(1) && inside(2)));
                    assert!(!inside(1));
                });
            });
            let unwound = std::panic::catch_unwind(|| {
                let _third = enter(frame(3));
                panic!("while a third frame is entered");
            });
            assert!(unwound.is_err() && !inside(3) && inside(2));
        }
        assert!(inside(1) && !inside(2));
        drop(outer);
        assert!(!inside(1));
        assert!(capture().is_empty());
    }
}
