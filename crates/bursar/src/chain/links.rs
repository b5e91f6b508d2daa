//! Chains that leave the thread they were made on: linked records, and what runs under them.
//!
//! Invariants:
//! 1. A record that is not live cuts the chain: neither it nor what is above it counts.
//! 2. A record is ended before what its frame names is given back. Both are sequentially consistent with a drain's
//!    scan, so that who was admitted past the stop and then found its chain live is seen by the drain.
//! 3. Chains may be long: records are dropped one by one, without recursion.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{
    Aside, CAPTURED, HOMELESS, SEAM, Stand, TOP, TURN, Words, capture, deep, find, pop, push,
    put_aside, put_back, unmark,
};
#[cfg(feature = "tokio")]
use super::{Frame, enter};

/// One member of a chain, shared by all that was started from inside it.
#[derive(Debug)]
pub(crate) struct Node {
    engine: usize,
    id: u64,
    /// A turn's gate changes when it yields, both when it ends before its body.
    first: AtomicU64,
    second: AtomicU64,
    live: AtomicBool,
    above: Option<Arc<Node>>,
}

impl Node {
    pub(super) fn of(words: Words, above: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            engine: words.engine & !CAPTURED,
            id: words.id,
            first: AtomicU64::new(words.first),
            second: AtomicU64::new(words.second),
            live: AtomicBool::new(true),
            above,
        })
    }

    /// A place where the chain can be cut.
    fn link(above: Arc<Self>) -> Arc<Self> {
        Self::of(Words::NOTHING, Some(above))
    }

    /// What it stands for is over, or the one who waited for it is gone.
    pub(crate) fn end(&self) {
        // SeqCst, with the load below: invariant 2.
        self.live.store(false, Ordering::SeqCst);
    }

    fn words(&self) -> Words {
        Words {
            engine: self.engine,
            id: self.id,
            first: self.first.load(Ordering::Relaxed),
            second: self.second.load(Ordering::Relaxed),
        }
    }

    /// As [`find`], from `node` upwards.
    pub(super) fn find<R>(
        mut node: Option<&Arc<Self>>,
        mut look: impl FnMut(Stand) -> Option<R>,
    ) -> Option<R> {
        while let Some(at) = node.filter(|at| at.live.load(Ordering::SeqCst)) {
            if let found @ Some(_) = at.words().stand().and_then(&mut look) {
                return found;
            }
            node = at.above.as_ref();
        }
        None
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut node) = above.and_then(Arc::into_inner) {
            above = node.above.take();
        }
    }
}

/// Names something that a turn holds, a gate or a claim: no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldId(NonZeroU64);

impl HoldId {
    /// One that nobody else has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // 2^64 of them are not used up.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
    }
}

fn raw(hold: Option<HoldId>) -> u64 {
    hold.map_or(0, |hold| hold.0.get())
}

/// Which runtime a piece of work belongs to; see [`Runtime::id`](crate::Runtime::id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeId(pub(crate) usize);

/// A place in the chain of who was called from inside whom, to be taken to where other work of it runs.
///
/// It counts as long as everything it was made in is live: a call whose attempt has ended, or whose caller has gone,
/// no longer counts, and neither does what was above it.
#[derive(Clone, Default)]
pub struct Chain(pub(super) Option<Arc<Node>>);

impl Chain {
    /// What the code that asks runs inside of.
    #[must_use]
    pub fn current() -> Self {
        Self(capture())
    }

    /// Whether there was nothing above.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What the code that asks runs inside of, until the tie is cut.
    pub fn tied() -> (Self, Tie) {
        let link = capture().map(Node::link);
        (Self(link.clone()), Tie(link))
    }

    /// Runs a handler on a thread of its own, as the call `frame` says, under this chain.
    #[cfg(feature = "tokio")]
    pub(crate) fn call<R>(&self, frame: Frame, handler: impl FnOnce() -> R) -> R {
        self.scope(|| {
            let mut record = None;
            let entered = enter(frame, &mut record);
            let result = handler();
            entered.leave(&mut record);
            if let Some(record) = record {
                record.end();
            }
            result
        })
    }

    /// Runs `work` under this chain instead of what this thread stands in.
    pub fn scope<R>(&self, work: impl FnOnce() -> R) -> R {
        let _restored = Restored(Some(put_aside(self.0.clone())));
        work()
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = f.debug_list();
        let _all: Option<()> = Node::find(self.0.as_ref(), |stand| {
            members.entry(&stand);
            None
        });
        members.finish()
    }
}

struct Restored(Option<Aside>);

impl Drop for Restored {
    fn drop(&mut self) {
        if let Some(aside) = self.0.take() {
            put_back(aside);
        }
    }
}

/// Cuts a chain where one piece of work stands on another's: the requester that is gone no longer counts as a holder
/// in what it left running. Dropping it cuts.
#[derive(Debug, Default)]
#[must_use = "dropping it cuts the chain"]
pub struct Tie(Option<Arc<Node>>);

impl Tie {
    /// Cuts the chain.
    pub fn cut(&self) {
        if let Some(link) = &self.0 {
            link.end();
        }
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.cut();
    }
}

/// What one turn's body stands in and holds. Kept beside the body and entered around each of its polls; dropped when
/// the body has ended, and before its gate passes on.
#[derive(Debug)]
pub struct Standing {
    engine: usize,
    body: u64,
    gate: u64,
    claim: u64,
    /// The body's own record, if somebody linked to it.
    record: Option<Arc<Node>>,
    above: Option<Arc<Node>>,
}

impl Standing {
    /// A body that holds `gate` and, for an actor's lane, `claim`. `body` tells it from all others that are alive;
    /// `home` is the runtime whose drain includes it.
    #[must_use]
    pub fn new(
        home: Option<RuntimeId>,
        body: u64,
        gate: Option<HoldId>,
        claim: Option<HoldId>,
    ) -> Self {
        Self {
            engine: home.map_or(HOMELESS, |home| home.0),
            body: body | TURN,
            gate: raw(gate),
            claim: raw(claim),
            record: None,
            above: None,
        }
    }

    /// Links the body to what the caller runs inside of, until the tie is dropped. For work that is not polled here.
    pub fn tie(&mut self) -> Tie {
        if self.above.is_none() {
            self.above = capture().map(Node::link);
        }
        Tie(self.above.clone())
    }

    /// Runs one poll of the body on top of what runs here: the requester's own poll.
    pub fn here<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let nested = TOP.with(|top| {
            let nested = top.engine.get() != 0;
            if nested {
                push(top);
                top.engine.set(SEAM);
                push(top);
            }
            nested
        });
        let seams = if nested { 2 } else { 0 };
        self.poll(seams, work)
    }

    /// Runs one poll of the body with nothing of this thread's own chain.
    pub fn alone<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let idle = TOP.with(|top| top.engine.get() == 0);
        if idle && self.above.is_none() {
            return self.poll(0, work);
        }
        let _restored = Restored(Some(put_aside(self.above.clone())));
        let nested = self.above.is_some();
        if nested {
            TOP.with(push);
        }
        self.poll(usize::from(nested), work)
    }

    #[inline(always)]
    fn poll<R>(&mut self, below: usize, work: impl FnOnce() -> R) -> R {
        let record = self.record.take();
        let marked = record.is_some();
        TOP.with(|top| {
            top.put(Words {
                engine: self.engine,
                id: self.body,
                first: self.gate,
                second: self.claim,
            });
            if marked {
                super::mark(top, record);
            }
        });
        let _stood = Stood {
            standing: self,
            below,
        };
        work()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(record) = &self.record {
            record.end();
        }
    }
}

/// One poll of a body.
struct Stood<'s> {
    standing: &'s mut Standing,
    /// Places pushed for it: none, what the thread stood in and a seam, or a seam alone.
    below: usize,
}

impl Drop for Stood<'_> {
    fn drop(&mut self) {
        let Self { standing, below } = self;
        TOP.with(|top| {
            standing.gate = top.first.get();
            standing.claim = top.second.get();
            if top.is_captured() {
                standing.record = unmark();
            }
            top.engine.set(0);
            for _ in 0..*below {
                // What was popped before is the seam: whoever linked to it is tied to the requester through it.
                if top.is_captured() {
                    standing.above = unmark();
                }
                top.engine.set(0);
                pop(top);
            }
        });
    }
}

/// What a body holds is `gate` and `claim` from now on: without the gate when it has returned it, with neither when its
/// turn ends before it. Called from inside its poll; elsewhere it does nothing.
#[inline]
pub fn regate(body: u64, gate: Option<HoldId>, claim: Option<HoldId>) {
    let id = body | TURN;
    let (gate, claim) = (raw(gate), raw(claim));
    let done = TOP.with(|top| {
        let own = top.engine.get() != 0 && top.id.get() == id;
        if own {
            top.first.set(gate);
            top.second.set(claim);
        }
        // Nothing of this body is below it.
        own && !top.is_captured()
    });
    if done {
        return;
    }
    let _done = deep(|deep| {
        for words in &mut deep.frames {
            if words.id == id {
                (words.first, words.second) = (gate, claim);
            }
        }
        for (_, record) in &deep.captured {
            if record.id == id {
                record.first.store(gate, Ordering::Relaxed);
                record.second.store(claim, Ordering::Relaxed);
            }
        }
    });
}

/// Whether what runs here is part of that runtime's live work.
#[must_use]
pub fn inside(runtime: RuntimeId) -> bool {
    super::inside(runtime.0)
}

/// Whether what runs here holds that gate or claim.
#[must_use]
pub fn holds(hold: HoldId) -> bool {
    let held = |stand| match stand {
        Stand::Turn { gate, claim, .. } => {
            (gate == raw(Some(hold)) || claim == raw(Some(hold))).then_some(())
        }
        Stand::Call { .. } => None,
    };
    find(held).is_some()
}

/// Whether what runs here holds anything others may wait for: a unit, a key, a gate, a claim. A wait from there is
/// bounded ([`Runtime::nested_wait`](crate::Runtime::nested_wait)).
#[must_use]
pub fn holds_something() -> bool {
    super::holds_something()
}

pin_project! {
    /// A future that runs inside of what it was made in; see [`in_chain`].
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct InChain<F> {
        #[pin]
        future: F,
        chain: Chain,
    }
}

/// Takes the chain along into a future that is spawned: what it calls is nested in the call or turn that made it, for
/// as long as that attempt or turn is live.
///
/// Calls that are polled by the handler itself, joined with others, behind a box or a trait object, need no such thing.
/// Without it spawned work is outside: a wait for what its parent holds is not recognised as a deadlock, and a drain
/// turns its calls away.
///
/// ```
/// # use bursar::{Classify, Policy, Runtime, in_chain};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().resource("renderer", 1).build()?;
/// let render = runtime.contract("render", Policy::pure().claim("renderer", 1))?;
/// let inner = render.clone();
/// let nested = render
///     .run(|| async {
///         let inner = inner.clone();
///         let part = in_chain(async move { inner.run(|| async { Ok::<_, bursar::Failure<()>>(()) }).await });
///         Ok::<_, bursar::Failure<()>>(tokio::spawn(part).await)
///     })
///     .await;
/// // The part would wait for the very unit that its parent holds.
/// assert!(matches!(nested, Ok(Ok(Err(bursar::CallError::WouldDeadlock(_))))));
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// That of the future it holds.
pub fn in_chain<F: Future>(future: F) -> InChain<F> {
    InChain {
        future,
        chain: Chain::current(),
    }
}

impl<F: Future> Future for InChain<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.chain.scope(|| this.future.poll(cx))
    }
}
