//! Who calls from inside whom.
//!
//! While a handler is polled, its call's [`Frame`] is the top of a stack that belongs to the thread; a call made from
//! inside finds its ancestors there. A frame is a small copied value, so that entering and leaving costs a few stores:
//! the top lies in cells of its own and only nested work touches what is below it.
//!
//! What leaves the thread (a blocking handler, a spawned future, a turn) takes the stack along as linked records, made
//! when somebody asks ([`links`]). A frame with a record is marked; whoever entered it keeps the record between polls
//! and ends it with the attempt.
//!
//! Invariants:
//! 1. A frame is on a thread's stack exactly while its handler runs on that thread; leaving restores the stack, on
//!    unwinding too.
//! 2. What a live frame names is held: the budgets its operation claims, its key; the gate and claim of a turn.
//! 3. A frame of a stack has at most one record, at the frame's depth in `captured`, which ascends.
//! 4. Whoever searches a chain runs no user code.
//!
//! Guards, and work spawned without [`in_chain`](links::in_chain), are outside the chain.

pub(crate) mod links;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::sync::thread_local;
use links::Node;

/// One call whose handler is running. Whole words only: a narrower field costs a failed store forwarding at each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The runtime: the address of its engine, which the call keeps alive.
    pub(crate) engine: usize,
    /// The operation's number in its runtime, and whether it claims nothing.
    pub(crate) operation: u64,
    /// The key held, by the id of its entry; 0 for none.
    pub(crate) key: u64,
}

impl Frame {
    /// What [`Frame::operation`] is for an operation.
    pub(crate) fn number(operation: u32, claims_nothing: bool) -> u64 {
        u64::from(operation) | if claims_nothing { CLAIMS_NOTHING } else { 0 }
    }
}

const TURN: u64 = 0x8000_0000_0000_0000;
const CLAIMS_NOTHING: u64 = 0x4000_0000_0000_0000;

/// A frame whose `engine` is this marks where one piece of work stands on another's, and holds nothing.
const SEAM: usize = 2;
/// The engine of a turn that belongs to no runtime. No engine has this address, nor any other that is not a multiple of 8.
const HOMELESS: usize = 4;
/// Set in `engine` while the frame has a record.
const CAPTURED: usize = 1;

/// What a frame is made of, calls and turns alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    engine: usize,
    /// A call's operation, or a turn's body under `TURN`.
    id: u64,
    /// A call's key, or a turn's gate.
    first: u64,
    /// A turn's claim; a call leaves it as it was.
    second: u64,
}

/// One live member of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Call {
        engine: usize,
        operation: u32,
        claims_nothing: bool,
        key: u64,
    },
    Turn {
        engine: usize,
        gate: u64,
        claim: u64,
    },
}

impl Stand {
    pub(crate) fn engine(self) -> usize {
        match self {
            Self::Call { engine, .. } | Self::Turn { engine, .. } => engine,
        }
    }

    /// Whether it holds a unit, a key, a gate or a claim.
    pub(crate) fn holds_something(self) -> bool {
        match self {
            Self::Call {
                claims_nothing,
                key,
                ..
            } => !claims_nothing || key != 0,
            Self::Turn { gate, claim, .. } => gate != 0 || claim != 0,
        }
    }
}

impl Words {
    const NOTHING: Self = Self {
        engine: 0,
        id: 0,
        first: 0,
        second: 0,
    };

    /// `None` for what only marks a place.
    fn stand(self) -> Option<Stand> {
        let engine = self.engine & !CAPTURED;
        match engine {
            0 | SEAM => None,
            _ if self.id & TURN != 0 => Some(Stand::Turn {
                engine,
                gate: self.first,
                claim: self.second,
            }),
            _ => Some(Stand::Call {
                engine,
                operation: self.id as u32,
                claims_nothing: self.id & CLAIMS_NOTHING != 0,
                key: self.first,
            }),
        }
    }
}

thread_local! {
    static TOP: Top = const {
        Top {
            engine: Cell::new(0),
            id: Cell::new(0),
            first: Cell::new(0),
            second: Cell::new(0),
        }
    };
    static DEEP: RefCell<Deep> = const { RefCell::new(Deep::EMPTY) };
}

/// The top frame, word by word: copied as a whole it would pass through the stack. Empty while `engine` is 0; then
/// nothing is below it either.
struct Top {
    engine: Cell<usize>,
    id: Cell<u64>,
    first: Cell<u64>,
    second: Cell<u64>,
}

impl Top {
    fn put(&self, words: Words) {
        self.engine.set(words.engine);
        self.id.set(words.id);
        self.first.set(words.first);
        self.second.set(words.second);
    }

    fn words(&self) -> Words {
        Words {
            engine: self.engine.get(),
            id: self.id.get(),
            first: self.first.get(),
            second: self.second.get(),
        }
    }

    /// Whether the frame has a record.
    #[inline(always)]
    fn is_captured(&self) -> bool {
        self.engine.get() & CAPTURED != 0
    }
}

/// What is below the top.
#[derive(Debug)]
struct Deep {
    frames: Vec<Words>,
    /// Records by the depth of their frames; the top's depth is the number of frames below it.
    captured: Vec<(usize, Arc<Node>)>,
    /// What this thread's stack stands on.
    under: Option<Arc<Node>>,
}

impl Deep {
    const EMPTY: Self = Self {
        frames: Vec::new(),
        captured: Vec::new(),
        under: None,
    };
}

/// While a thread ends its stack may be gone; then nothing runs inside anything there.
fn deep<R>(look: impl FnOnce(&mut Deep) -> R) -> Option<R> {
    DEEP.try_with(|deep| look(&mut deep.borrow_mut())).ok()
}

/// Leaves the frame when dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    nested: bool,
}

/// Makes `frame` the top of this thread's stack. `record` is what [`Entered::leave`] put there the last time.
#[inline(always)]
pub(crate) fn enter(frame: Frame, record: &mut Option<Arc<Node>>) -> Entered {
    TOP.with(|top| {
        let nested = top.engine.get() != 0;
        if nested {
            push(top);
        }
        top.engine.set(frame.engine);
        top.id.set(frame.operation);
        top.first.set(frame.key);
        if record.is_some() {
            mark(top, record.take());
        }
        Entered { nested }
    })
}

impl Entered {
    /// Leaves the frame. If somebody linked to it, its record is put into `record`, to be ended when the attempt ends.
    #[inline(always)]
    pub(crate) fn leave(self, record: &mut Option<Arc<Node>>) {
        leave(self.nested, record);
        std::mem::forget(self);
    }
}

impl Drop for Entered {
    /// The handler panicked.
    fn drop(&mut self) {
        let mut record = None;
        leave(self.nested, &mut record);
        if let Some(record) = record {
            record.end();
        }
    }
}

#[inline(always)]
fn leave(nested: bool, record: &mut Option<Arc<Node>>) {
    TOP.with(|top| {
        if top.is_captured() {
            *record = unmark();
        }
        top.engine.set(0);
        if nested {
            pop(top);
        }
    });
}

#[cold]
fn push(top: &Top) {
    let _gone = deep(|deep| deep.frames.push(top.words()));
}

#[cold]
fn pop(top: &Top) {
    if let Some(Some(words)) = deep(|deep| deep.frames.pop()) {
        top.put(words);
    }
}

/// Puts the top's record back.
#[cold]
fn mark(top: &Top, record: Option<Arc<Node>>) {
    let mut record = record;
    let kept = deep(|deep| {
        let depth = deep.frames.len();
        deep.captured
            .extend(record.take().map(|record| (depth, record)));
    });
    if kept.is_some() {
        top.engine.set(top.engine.get() | CAPTURED);
    }
    // The thread ends, and its stack is gone.
    if let Some(record) = record {
        record.end();
    }
}

/// Takes the top's record out.
#[cold]
fn unmark() -> Option<Arc<Node>> {
    deep(|deep| deep.captured.pop())
        .flatten()
        .map(|(_, record)| record)
}

/// Looks at the members of this thread's chain, the innermost first, until one yields something.
pub(crate) fn find<R>(mut look: impl FnMut(Stand) -> Option<R>) -> Option<R> {
    let top = TOP.with(Top::words);
    if top.engine == 0 {
        return None;
    }
    top.stand().and_then(&mut look).or_else(|| {
        deep(|deep| {
            let frames = deep.frames.iter().rev();
            frames
                .filter_map(|words| words.stand())
                .find_map(&mut look)
                .or_else(|| Node::find(deep.under.as_ref(), look))
        })
        .flatten()
    })
}

/// Whether work of this runtime is running on this thread, so that a call made now is nested in it.
#[inline]
pub(crate) fn inside(engine: usize) -> bool {
    find(|stand| (stand.engine() == engine).then_some(())).is_some()
}

/// Whether what runs here holds anything that others may wait for.
pub(crate) fn holds_something() -> bool {
    find(|stand| stand.holds_something().then_some(())).is_some()
}

/// Whether this thread's chain holds that key of that runtime.
pub(crate) fn holds_key(runtime: usize, id: u64) -> bool {
    let held = |stand| match stand {
        Stand::Call { engine, key, .. } => (engine == runtime && key == id).then_some(()),
        Stand::Turn { .. } => None,
    };
    find(held).is_some()
}

/// The record of what runs here, made if there is none.
fn capture() -> Option<Arc<Node>> {
    TOP.with(|top| {
        if top.engine.get() == 0 {
            return None;
        }
        deep(|deep| {
            let depth = deep.frames.len();
            // From the innermost frame that has a record, or from what the stack stands on, upwards. The lowest place of one
            // that stands on something marks just that: whoever links there links to that.
            let (mut from, mut above) = match deep.captured.last() {
                Some((at, record)) => (at + 1, Some(Arc::clone(record))),
                None => (usize::from(deep.under.is_some()), deep.under.clone()),
            };
            while from <= depth {
                let words = match deep.frames.get_mut(from) {
                    Some(words) => {
                        words.engine |= CAPTURED;
                        *words
                    }
                    None => {
                        top.engine.set(top.engine.get() | CAPTURED);
                        top.words()
                    }
                };
                let record = Node::of(words, above.take());
                deep.captured.push((from, Arc::clone(&record)));
                above = Some(record);
                from += 1;
            }
            above
        })
        .flatten()
    })
}

/// This thread's own stack, put aside while something else runs here.
#[derive(Debug)]
struct Aside {
    top: Words,
    deep: Deep,
}

/// Replaces this thread's stack by an empty one that stands on `under`.
fn put_aside(under: Option<Arc<Node>>) -> Aside {
    let stands = under.is_some();
    let deep = deep(|deep| {
        std::mem::replace(
            deep,
            Deep {
                under,
                ..Deep::EMPTY
            },
        )
    });
    let top = TOP.with(|top| {
        let before = top.words();
        top.put(Words {
            engine: if stands { SEAM } else { 0 },
            ..Words::NOTHING
        });
        before
    });
    Aside {
        top,
        deep: deep.unwrap_or(Deep::EMPTY),
    }
}

/// Puts this thread's own stack back.
fn put_back(aside: Aside) {
    let Aside {
        top: words,
        deep: own,
    } = aside;
    let theirs = deep(|deep| std::mem::replace(deep, own));
    TOP.with(|top| top.put(words));
    drop(theirs);
}

#[cfg(all(test, not(bursar_loom)))]
mod tests;
