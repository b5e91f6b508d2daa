//! Time: short batches of each contender in rotation.
//!
//! Invariants:
//! 1. Within one rotation every contender runs one batch, and the rotations begin with each contender in turn, so that
//!    none profits from its place.
//! 2. A batch is short (a fraction of a scheduler's slice), so that most are not interrupted, and long enough for the
//!    two clock reads around it to vanish.
//! 3. Ratios are taken within a rotation; their median is what a target is held against.
//! 4. Only calm batches count ([`crate::calm`]), unless too few were calm; a row then says so.

use std::time::{Duration, Instant};

use crate::calm::{self, Waits};
use crate::figures::{quantile, sorted};

/// One way of doing what a row is about.
pub struct Contender<'a> {
    /// As it stands in tables.
    pub name: &'static str,
    waits: Waits,
    batch: Box<dyn FnMut(u32) -> Batch + 'a>,
}

impl std::fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Contender").field(&self.name).finish()
    }
}

/// What one batch took, in nanoseconds a call.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The batch's time.
    pub took: f64,
    /// The batch's time divided by its calls.
    pub mean: f64,
    /// Latency of single calls, where a row watches them.
    pub latency: Option<Latency>,
    /// The share of calls that had to queue, where a row watches it.
    pub queued: Option<f64>,
    /// Whether it had the processors to itself.
    pub calm: bool,
}

impl Batch {
    /// A batch of `calls` that took so long.
    #[must_use]
    pub fn lasting(took: Duration, calls: u32) -> Self {
        let took = took.as_nanos() as f64;
        Self {
            took,
            mean: took / f64::from(calls),
            latency: None,
            queued: None,
            calm: true,
        }
    }

    /// The same batch, of which this share of the calls had to queue.
    #[must_use]
    pub fn queued(self, share: f64) -> Self {
        Self {
            queued: Some(share),
            ..self
        }
    }
}

/// Latency of single calls within one batch, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Half of the calls took no longer.
    pub p50: f64,
    /// 99 of 100 calls took no longer.
    pub p99: f64,
    /// The longest that a task stood ready without being polled.
    pub unpolled: f64,
}

impl<'a> Contender<'a> {
    /// `calls` makes that many calls on this thread; it is timed from outside.
    pub fn new(name: &'static str, mut calls: impl FnMut(u32) + 'a) -> Self {
        let batch = move |n| {
            let began = Instant::now();
            calls(n);
            Batch::lasting(began.elapsed(), n)
        };
        Self {
            name,
            waits: Waits::of_this_thread(),
            batch: Box::new(batch),
        }
    }

    /// `batch` makes that many calls, on other threads, and says itself how long they took.
    pub fn timed(name: &'static str, batch: impl FnMut(u32) -> Batch + 'a) -> Self {
        Self {
            name,
            waits: Waits::Others,
            batch: Box::new(batch),
        }
    }

    /// Makes `n` calls.
    pub fn run(&mut self, n: u32) -> Batch {
        let waited = self.waits.so_far();
        let mut batch = (self.batch)(n);
        let waited = self.waits.so_far().saturating_sub(waited);
        batch.calm &= waited.as_nanos() as f64 <= calm::MOST * batch.took;
        batch
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often every contender runs a batch; up to four times as often, until that many rotations were calm.
    pub rotations: u32,
    /// How long to look for calm.
    pub limit: Duration,
    /// How long a batch shall take.
    pub batch: Duration,
    /// A batch's calls, instead of as many as fill `batch`.
    pub calls: Option<u32>,
}

/// What all rotations of one row took: contenders in their order, for each its batches in the order of rotations.
#[derive(Debug)]
pub struct Measured {
    names: Vec<&'static str>,
    batches: Vec<Vec<Batch>>,
}

/// Runs the rotations.
pub fn rotate(effort: Effort, contenders: &mut [Contender<'_>]) -> Measured {
    let calls: Vec<u32> = contenders
        .iter_mut()
        .map(|contender| effort.calls.unwrap_or_else(|| fit(contender, effort.batch)))
        .collect();
    let count = contenders.len();
    let mut batches: Vec<Vec<Batch>> = vec![Vec::new(); count];
    let mut calm = 0;
    let began = Instant::now();
    for rotation in 0..4 * effort.rotations as usize {
        for place in 0..count {
            let which = (rotation + place) % count;
            batches[which].push(contenders[which].run(calls[which]));
        }
        calm += u32::from(batches.iter().all(|of| of[rotation].calm));
        let enough = rotation + 1 >= effort.rotations as usize;
        if calm == effort.rotations || enough && began.elapsed() >= effort.limit {
            break;
        }
    }
    Measured {
        names: contenders.iter().map(|contender| contender.name).collect(),
        batches,
    }
}

/// How many calls fill `batch`. Warms the contender up on the way.
fn fit(contender: &mut Contender<'_>, batch: Duration) -> u32 {
    let mut calls = 16;
    loop {
        let took = contender.run(calls).took;
        let wanted = batch.as_nanos() as f64;
        if took >= wanted / 2.0 || calls >= 1 << 24 {
            // The best of three: a disturbed batch would make all others too short.
            let best = (0..3)
                .map(|_| contender.run(calls).mean)
                .fold(f64::MAX, f64::min);
            return ((wanted / best) as u32).clamp(1, 1 << 24);
        }
        calls *= 2;
    }
}

/// A ratio between two contenders over all rotations.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    /// Half of the rotations saw less.
    pub median: f64,
    /// A quarter of the rotations saw less.
    pub low: f64,
    /// A quarter of the rotations saw more.
    pub high: f64,
    /// Whether enough rotations had the processors to themselves.
    pub calm: bool,
}

impl Measured {
    fn place(&self, name: &str) -> usize {
        self.names
            .iter()
            .position(|known| *known == name)
            .unwrap_or_else(|| panic!("no contender is named {name:?}: {:?}", self.names))
    }

    /// The contenders, in their order.
    #[must_use]
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Whether single calls were watched.
    #[must_use]
    pub fn watched(&self) -> bool {
        let mut batches = self.batches.iter().flatten();
        batches.any(|batch| batch.latency.is_some())
    }

    /// One figure of every batch of a contender, ascending; of the calm ones, if there are enough.
    #[must_use]
    pub fn sorted(&self, name: &str, of: impl Fn(&Batch) -> f64) -> Vec<f64> {
        let batches = &self.batches[self.place(name)];
        let (chosen, _) = choose(batches.iter().map(|batch| (batch, batch.calm)));
        sorted(chosen.into_iter().map(of))
    }

    /// The median of one figure over a contender's batches.
    #[must_use]
    pub fn median(&self, name: &str, of: impl Fn(&Batch) -> f64) -> f64 {
        quantile(&self.sorted(name, of), 0.5)
    }

    /// One figure of `subject` over the same of `peer`, rotation by rotation.
    #[must_use]
    pub fn ratio(&self, subject: &str, peer: &str, of: impl Fn(&Batch) -> f64) -> Ratio {
        let (subject, peer) = (self.place(subject), self.place(peer));
        let pairs = self.batches[subject].iter().zip(&self.batches[peer]);
        let (chosen, calm) =
            choose(pairs.map(|(subject, peer)| ((subject, peer), subject.calm && peer.calm)));
        let ratios = chosen
            .into_iter()
            .map(|(subject, peer)| of(subject) / of(peer));
        let ratios = sorted(ratios);
        Ratio {
            median: quantile(&ratios, 0.5),
            low: quantile(&ratios, 0.25),
            high: quantile(&ratios, 0.75),
            calm,
        }
    }
}

/// How many calm batches tell more than many disturbed ones.
const ENOUGH: usize = 5;

/// Those marked as calm, or all if these are too few; and whether it is those.
fn choose<T: Copy>(marked: impl Iterator<Item = (T, bool)>) -> (Vec<T>, bool) {
    let all: Vec<(T, bool)> = marked.collect();
    let calm: Vec<T> = all
        .iter()
        .filter(|(_, calm)| *calm)
        .map(|(of, _)| *of)
        .collect();
    if calm.len() >= ENOUGH.min(all.len()) {
        return (calm, true);
    }
    (all.into_iter().map(|(of, _)| of).collect(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One call a batch, taking so many nanoseconds; a negative figure is a disturbed batch.
    fn steady(name: &'static str, took: &'static [f64]) -> Contender<'static> {
        let mut took = took.iter().cycle();
        let mut contender = Contender::timed(name, move |_| {
            let next = took.next().copied().unwrap_or(0.0);
            Batch {
                calm: next > 0.0,
                ..Batch::lasting(Duration::from_nanos(next.abs() as u64), 1)
            }
        });
        contender.waits = Waits::Thread(None);
        contender
    }

    const FIVE: Effort = Effort {
        rotations: 5,
        batch: Duration::ZERO,
        calls: Some(1),
        limit: Duration::MAX,
    };

    #[test]
    fn what_disturbs_a_whole_rotation_leaves_the_ratio_alone() {
        let mut contenders = [
            steady("subject", &[10.0, 80.0, 10.0, 10.0, 10.0]),
            steady("peer", &[20.0, 160.0, 20.0, 20.0, 20.0]),
        ];
        let ratio = rotate(FIVE, &mut contenders).ratio("subject", "peer", |batch| batch.mean);
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
        assert!(ratio.calm);
    }

    #[test]
    fn disturbed_batches_are_left_out_and_made_up_for() {
        let mut contenders = [
            steady("subject", &[10.0, -80.0, -80.0]),
            steady("peer", &[20.0, 20.0, 20.0]),
        ];
        let measured = rotate(FIVE, &mut contenders);
        assert_eq!(measured.batches[0].len(), 13, "until five were calm");
        assert_eq!(measured.median("subject", |batch| batch.mean), 10.0);
        let ratio = measured.ratio("subject", "peer", |batch| batch.mean);
        assert_eq!((ratio.high, ratio.calm), (0.5, true));
    }

    #[test]
    fn without_a_calm_batch_all_count_and_the_ratio_says_so() {
        let mut contenders = [steady("subject", &[-10.0]), steady("peer", &[20.0])];
        let measured = rotate(FIVE, &mut contenders);
        assert_eq!(measured.batches[0].len(), 20, "and no more");
        let ratio = measured.ratio("subject", "peer", |batch| batch.mean);
        assert_eq!((ratio.median, ratio.calm), (0.5, false));
    }

    #[test]
    fn rotations_begin_with_each_contender_in_turn() {
        let order = std::cell::RefCell::new(Vec::new());
        let note = |name| {
            let order = &order;
            Contender::timed(name, move |n| {
                order.borrow_mut().push(name);
                Batch::lasting(Duration::from_secs(1), n)
            })
        };
        let effort = Effort {
            rotations: 2,
            ..FIVE
        };
        rotate(effort, &mut [note("a"), note("b"), note("c")]);
        assert_eq!(order.borrow()[..6], ["a", "b", "c", "b", "c", "a"]);
    }

    #[test]
    fn a_batch_is_filled_whatever_a_call_takes() {
        let mut contender =
            Contender::timed("a", |n| Batch::lasting(Duration::from_nanos(100) * n, n));
        assert_eq!(fit(&mut contender, Duration::from_micros(100)), 1000);
    }
}
