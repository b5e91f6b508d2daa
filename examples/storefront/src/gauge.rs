//! How many are inside at once, counted where the work is done.
//!
//! A gauge knows nothing of contracts: it is what the promises are held against.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Counts who is inside, and remembers the most it saw.
#[derive(Debug, Default)]
pub struct Gauge {
    inside: AtomicUsize,
    peak: AtomicUsize,
    entered: AtomicUsize,
}

impl Gauge {
    /// Counts the caller in until the value returned is dropped.
    pub fn enter(&self) -> Inside<'_> {
        // One total order for all of it: the peak must not miss somebody who is inside.
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.peak.fetch_max(inside, SeqCst);
        self.entered.fetch_add(1, SeqCst);
        Inside(self)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(SeqCst)
    }

    pub fn inside(&self) -> usize {
        self.inside.load(SeqCst)
    }

    pub fn entered(&self) -> usize {
        self.entered.load(SeqCst)
    }
}

/// Somebody inside a gauge.
#[derive(Debug)]
#[must_use = "whoever entered has left again once this is dropped"]
pub struct Inside<'a>(&'a Gauge);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_most_at_once() {
        let gauge = Gauge::default();
        let (a, b) = (gauge.enter(), gauge.enter());
        drop(a);
        let c = gauge.enter();
        assert_eq!((gauge.inside(), gauge.peak(), gauge.entered()), (2, 2, 3));
        drop((b, c));
        assert_eq!(gauge.inside(), 0);
    }
}
