//! Time: short batches of each contender in rotation.
//!
//! Invariants:
//! 1. Within one rotation every contender runs one batch, and the rotations begin with each contender in turn, so that
//!    none profits from its place.
//! 2. A batch is short (a fraction of a scheduler's slice), so that most are not interrupted, and long enough for the
//!    two clock reads around it to vanish.
//! 3. Ratios are taken within a rotation; their median is what a target is held against.

use std::time::{Duration, Instant};

use crate::figures::{median, quantile, sorted};

/// One way of doing what a row is about.
pub struct Contender<'a> {
    /// As it stands in tables.
    pub name: &'static str,
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
    /// The batch's time divided by its calls.
    pub mean: f64,
    /// Latency of single calls, where a row watches them.
    pub latency: Option<Latency>,
}

/// Latency of single calls within one batch, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Half of the calls took no longer.
    pub p50: f64,
    /// 99 of 100 calls took no longer.
    pub p99: f64,
}

impl<'a> Contender<'a> {
    /// `calls` makes that many calls; it is timed from outside.
    pub fn new(name: &'static str, mut calls: impl FnMut(u32) + 'a) -> Self {
        Self::timed(name, move |n| {
            let began = Instant::now();
            calls(n);
            Batch {
                mean: began.elapsed().as_nanos() as f64 / f64::from(n),
                latency: None,
            }
        })
    }

    /// `batch` makes that many calls and says itself how long they took.
    pub fn timed(name: &'static str, batch: impl FnMut(u32) -> Batch + 'a) -> Self {
        Self {
            name,
            batch: Box::new(batch),
        }
    }

    /// Makes `n` calls.
    pub fn run(&mut self, n: u32) -> Batch {
        (self.batch)(n)
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// How often every contender runs a batch.
    pub rotations: u32,
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
    for rotation in 0..effort.rotations as usize {
        for place in 0..count {
            let which = (rotation + place) % count;
            batches[which].push(contenders[which].run(calls[which]));
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
        let took = contender.run(calls).mean * f64::from(calls);
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

    /// One figure of every batch of a contender, ascending.
    #[must_use]
    pub fn sorted(&self, name: &str, of: impl Fn(&Batch) -> f64) -> Vec<f64> {
        sorted(self.batches[self.place(name)].iter().map(of))
    }

    /// The median of one figure over a contender's batches.
    #[must_use]
    pub fn median(&self, name: &str, of: impl Fn(&Batch) -> f64) -> f64 {
        median(self.batches[self.place(name)].iter().map(of))
    }

    /// One figure of `subject` over the same of `peer`, rotation by rotation.
    #[must_use]
    pub fn ratio(&self, subject: &str, peer: &str, of: impl Fn(&Batch) -> f64) -> Ratio {
        let (subject, peer) = (self.place(subject), self.place(peer));
        let ratios = sorted(
            self.batches[subject]
                .iter()
                .zip(&self.batches[peer])
                .map(|(subject, peer)| of(subject) / of(peer)),
        );
        Ratio {
            median: quantile(&ratios, 0.5),
            low: quantile(&ratios, 0.25),
            high: quantile(&ratios, 0.75),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(name: &'static str, means: Vec<f64>) -> Contender<'static> {
        let mut means = means.into_iter().cycle();
        Contender::timed(name, move |_| Batch {
            mean: means.next().unwrap_or(0.0),
            latency: None,
        })
    }

    const FIVE: Effort = Effort {
        rotations: 5,
        batch: Duration::ZERO,
        calls: Some(1),
    };

    #[test]
    fn what_disturbs_a_whole_rotation_leaves_the_ratio_alone() {
        let mut contenders = [
            steady("subject", vec![10.0, 80.0, 10.0, 10.0, 10.0]),
            steady("peer", vec![20.0, 160.0, 20.0, 20.0, 20.0]),
        ];
        let ratio = rotate(FIVE, &mut contenders).ratio("subject", "peer", |batch| batch.mean);
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
    }

    #[test]
    fn rotations_begin_with_each_contender_in_turn() {
        let order = std::cell::RefCell::new(Vec::new());
        let note = |name| {
            let order = &order;
            Contender::new(name, move |_| order.borrow_mut().push(name))
        };
        rotate(
            Effort {
                rotations: 2,
                ..FIVE
            },
            &mut [note("a"), note("b"), note("c")],
        );
        assert_eq!(*order.borrow(), ["a", "b", "c", "b", "c", "a"]);
    }

    #[test]
    fn a_batch_is_filled_whatever_a_call_takes() {
        let mut contender = Contender::timed("a", |_| Batch {
            mean: 100.0,
            latency: None,
        });
        assert_eq!(fit(&mut contender, Duration::from_micros(100)), 1000);
    }
}
