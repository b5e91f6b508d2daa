//! What turns say of themselves, checked while they run.
//!
//! A [`Room`] is the state of a Spot: whoever is inside has it. A [`Mark`] stands for being inside; that two are at once is a
//! breach. A breach is kept, not thrown: work is made to panic anyway, and a panic would pass for one of those.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar_spot::Tick;

/// What is known of one Spot from outside its turns.
#[derive(Debug, Default)]
pub struct Seen {
    /// Pieces of work handed in, and polled at least once.
    pub asked: AtomicU64,
    /// Pieces of work of callers that are known to have been accepted, and not to have been turned away.
    pub accepted: AtomicU64,
    /// Callers that left: whether their work was accepted is not known.
    pub left: AtomicU64,
    /// Turns that began, of all kinds.
    pub turns: AtomicU64,
    /// Turns that began of callers' requests and sends.
    pub ran: AtomicU64,
    /// Last turns.
    pub closings: AtomicU64,
    inside: AtomicBool,
    /// Work of the Spot's actor is under way, yielded or not.
    claimed: AtomicBool,
    ticks: Mutex<HashMap<u64, Ticks>>,
    breach: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Ticks {
    generation: u64,
    /// The generation of the ticks that are told of, and the last of them.
    last: (u64, u64, u64),
    running: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn breach(&self, what: impl FnOnce() -> String) {
        lock(&self.breach).get_or_insert_with(what);
    }

    /// A timer is about to be registered.
    pub fn generation(&self, timer: u64) -> u64 {
        let mut ticks = lock(&self.ticks);
        let timer = ticks.entry(timer).or_default();
        timer.generation += 1;
        timer.generation
    }

    /// A tick begins; it ends when what comes back is dropped.
    pub fn tick(self: &Arc<Self>, timer: u64, generation: u64, tick: Tick) -> Running {
        let mut ticks = lock(&self.ticks);
        let of = ticks.entry(timer).or_default();
        if std::mem::replace(&mut of.running, true) {
            self.breach(|| format!("two ticks of timer {timer} run at once"));
        }
        let (known, delivery, scheduled) = of.last;
        let (delivery, scheduled) = if known == generation {
            (delivery, scheduled)
        } else {
            (0, 0)
        };
        // Registrations race, so generations may come in any order; within one the figures are exact.
        let right = tick.delivery == delivery + 1
            && tick.scheduled == scheduled + 1 + tick.skipped
            && tick.scheduled >= tick.delivery;
        if !right {
            self.breach(|| {
                format!("timer {timer} ticks {tick:?} after delivery {delivery} of nominal tick {scheduled}")
            });
        }
        of.last = (generation, tick.delivery, tick.scheduled);
        Running {
            seen: Arc::clone(self),
            timer,
        }
    }

    /// A turn of the actor begins; its claim ends when what comes back is dropped.
    pub fn claim(self: &Arc<Self>) -> Claim {
        if self.claimed.swap(true, Ordering::AcqRel) {
            self.breach(|| "two turns of one actor are under way".into());
        }
        Claim(Arc::clone(self))
    }

    /// Looks at what is left once the Spot has closed; how many turns there were. `disturbed` if it was closed while callers
    /// asked.
    pub fn settled(&self, disturbed: bool) -> Result<u64, String> {
        if let Some(breach) = lock(&self.breach).take() {
            return Err(breach);
        }
        if self.inside.load(Ordering::Relaxed) || self.claimed.load(Ordering::Relaxed) {
            return Err("somebody is still inside".into());
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (accepted, left, ran) = (read(&self.accepted), read(&self.left), read(&self.ran));
        if read(&self.closings) != 1 {
            return Err(format!("{} last turns", read(&self.closings)));
        }
        // Each once: what was accepted, and of those who left some.
        if ran > accepted + left || !disturbed && ran < accepted {
            return Err(format!(
                "{ran} pieces of work ran, of {accepted} accepted and {left} whose callers left"
            ));
        }
        Ok(read(&self.turns))
    }
}

/// An actor's turn that is under way.
#[derive(Debug)]
pub struct Claim(Arc<Seen>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.claimed.store(false, Ordering::Release);
    }
}

/// A tick that runs.
#[derive(Debug)]
pub struct Running {
    seen: Arc<Seen>,
    timer: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(of) = lock(&self.seen.ticks).get_mut(&self.timer) {
            of.running = false;
        }
    }
}

/// The state of a Spot.
#[derive(Debug)]
pub struct Room {
    seen: Arc<Seen>,
    /// The last number of each caller that began.
    last: HashMap<u64, u64>,
    closed: bool,
}

impl Room {
    pub fn new(seen: Arc<Seen>) -> Self {
        Self {
            seen,
            last: HashMap::new(),
            closed: false,
        }
    }

    /// A turn begins.
    pub fn begin(&mut self) -> Mark {
        self.seen.turns.fetch_add(1, Ordering::Relaxed);
        self.resume()
    }

    /// A turn of a caller's numbered work begins: later than what the caller had accepted before.
    pub fn begin_of(&mut self, caller: u64, number: u64) -> Mark {
        self.seen.ran.fetch_add(1, Ordering::Relaxed);
        let before = self.last.insert(caller, number);
        if before.is_some_and(|before| before >= number) {
            let what = format!("caller {caller}'s {number} begins after its {before:?}");
            self.seen.breach(|| what);
        }
        self.begin()
    }

    /// A turn has its gate again.
    pub fn resume(&mut self) -> Mark {
        if self.closed {
            self.seen
                .breach(|| "somebody is inside after the last turn".into());
        }
        if self.seen.inside.swap(true, Ordering::AcqRel) {
            self.seen.breach(|| "two are inside at once".into());
        }
        Mark(Some(Arc::clone(&self.seen)))
    }

    /// The last turn: nobody is inside, and nobody will be.
    pub fn last_turn(&mut self) {
        drop(self.resume());
        self.closed = true;
    }
}

/// Being inside; also left by being dropped, as by a panic.
#[derive(Debug)]
pub struct Mark(Option<Arc<Seen>>);

impl Mark {
    /// Keeps what is wrong.
    pub fn breach(&self, what: &str) {
        if let Some(seen) = &self.0 {
            seen.breach(|| what.to_owned());
        }
    }

    /// Leaves.
    pub fn end(self) {}
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(seen) = self.0.take() {
            seen.inside.store(false, Ordering::Release);
        }
    }
}
