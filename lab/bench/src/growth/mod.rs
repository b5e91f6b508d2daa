//! How cost grows: each curve from one item to a million, where that makes sense, a figure an item.
//!
//! A curve is flat when the cost of an item does not depend on how many there are. The last line of each says how far
//! the dearest point lies above the cheapest.

mod calls;
mod queues;
mod spots;

use std::time::Duration;

use serde::Serialize;

use crate::measure::Effort;
use crate::rows::{Pace, under_way};

/// A figure an item, over how many items there are.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Names the curve, and the file of its plot.
    pub id: &'static str,
    /// What grows, and what is counted.
    pub title: &'static str,
    /// What the figures count.
    pub unit: &'static str,
    /// How many items.
    pub sizes: Vec<u32>,
    /// The figures of each contender, one a size.
    pub series: Vec<Series>,
}

/// One contender of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The contender.
    pub name: &'static str,
    /// Its figures, one a size.
    pub figures: Vec<f64>,
}

impl Series {
    /// The dearest point over the cheapest.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let least = self.figures.iter().copied().fold(f64::MAX, f64::min);
        self.figures.iter().copied().fold(0.0, f64::max) / least
    }
}

/// One curve.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Names it.
    pub id: &'static str,
    /// What grows, and what is counted.
    pub title: &'static str,
    unit: &'static str,
    sizes: &'static [u32],
    measure: fn(u32, Pace) -> Vec<(&'static str, f64)>,
}

const TO_A_MILLION: &[u32] = &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// All curves, in the order in which they are printed.
pub const CURVES: &[Spec] = &[
    Spec {
        id: "keys",
        title: "A keyed call while so many other keys are held",
        unit: "ns a call",
        sizes: TO_A_MILLION,
        measure: calls::beside_keys,
    },
    Spec {
        id: "timers",
        title: "A call whose timer is armed while so many other timers are",
        unit: "ns a call",
        sizes: TO_A_MILLION,
        measure: calls::beside_timers,
    },
    Spec {
        id: "budgets",
        title: "A call under so many budgets",
        unit: "ns a budget",
        sizes: &[1, 2, 4, 8, 16, 32, 64],
        measure: calls::under_budgets,
    },
    Spec {
        id: "waiters",
        title: "So many calls queue for one unit, which passes from each to the next",
        unit: "ns a call",
        sizes: TO_A_MILLION,
        measure: queues::handed_on,
    },
    Spec {
        id: "leaving",
        title: "So many calls wait and leave, in the order in which they came",
        unit: "ns a call",
        sizes: TO_A_MILLION,
        measure: queues::leaving_in_order,
    },
    Spec {
        id: "leaving-scattered",
        title: "So many calls wait and leave, from all over the queue",
        unit: "ns a call",
        sizes: TO_A_MILLION,
        measure: queues::leaving_scattered,
    },
    Spec {
        id: "parked",
        title: "So many tokio tasks wait in calls, then finish one after another",
        unit: "ns a task",
        sizes: TO_A_MILLION,
        measure: queues::parked,
    },
    Spec {
        id: "spots",
        title: "A request to one of so many Spots, another each time",
        unit: "ns a request",
        sizes: TO_A_MILLION,
        measure: spots::requests,
    },
    Spec {
        id: "spot-lives",
        title: "So many Spots made, then closed",
        unit: "ns a Spot",
        sizes: TO_A_MILLION,
        measure: spots::lives,
    },
    Spec {
        id: "spot-timers",
        title: "So many timers registered, each of which ticks once a period",
        unit: "ns a timer",
        sizes: TO_A_MILLION,
        measure: spots::ticks,
    },
    Spec {
        id: "http-requests",
        title: "So many HTTP/1.1 requests under way at once, on loopback",
        unit: "ns a request",
        sizes: &[1, 10, 100, 1_000],
        measure: under_way,
    },
];

impl Spec {
    /// Measures the curve.
    #[must_use]
    pub fn measure(&self, pace: Pace) -> Curve {
        let mut sizes = Vec::new();
        let mut series: Vec<Series> = Vec::new();
        for size in self
            .sizes
            .iter()
            .filter(|size| pace != Pace::Smoke || **size <= 100)
        {
            sizes.push(*size);
            for (name, figure) in (self.measure)(*size, pace) {
                match series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.figures.push(figure),
                    None => series.push(Series {
                        name,
                        figures: vec![figure],
                    }),
                }
            }
        }
        Curve {
            id: self.id,
            title: self.title,
            unit: self.unit,
            sizes,
            series,
        }
    }
}

/// For the points of a curve whose calls take well under a microsecond.
fn short(pace: Pace) -> Effort {
    let (rotations, batch) = match pace {
        Pace::Smoke => (1, 0),
        Pace::Quick => (60, 150),
        Pace::Full => (600, 150),
    };
    Effort {
        rotations,
        limit: Duration::from_secs(10),
        batch: Duration::from_micros(batch),
        calls: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_has_a_figure_for_each_size() {
        for spec in CURVES {
            let curve = spec.measure(Pace::Smoke);
            assert!(curve.series.len() >= 2, "{}", curve.id);
            for series in &curve.series {
                assert_eq!(series.figures.len(), curve.sizes.len(), "{}", curve.id);
                assert!(series.figures.iter().all(|of| *of > 0.0), "{curve:?}");
            }
        }
    }

    #[test]
    fn the_spread_is_the_dearest_over_the_cheapest() {
        let series = Series {
            name: "a",
            figures: vec![20.0, 10.0, 30.0],
        };
        assert_eq!(series.spread(), 3.0);
    }
}
