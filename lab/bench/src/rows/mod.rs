//! What is measured: one function a row.

mod calls;

use std::time::Duration;

use crate::measure::Effort;
use crate::report::Row;

/// How thorough the whole program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All rows in under two minutes.
    Quick,
    /// Ten times the rotations.
    Full,
}

impl Pace {
    /// For rows whose calls take well under a microsecond.
    #[must_use]
    pub fn short(self) -> Effort {
        Effort {
            rotations: match self {
                Self::Quick => 400,
                Self::Full => 4000,
            },
            batch: Duration::from_micros(150),
            calls: None,
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Names it on the command line.
    pub id: &'static str,
    /// What it measures.
    pub title: &'static str,
    /// Measures it.
    pub run: fn(&Spec, Pace) -> Row,
}

/// All of them, in the order in which they are printed.
pub const ROWS: &[Spec] = &[
    Spec {
        id: "one-budget",
        title: "a call under one budget, nothing suspends",
        run: calls::one_budget,
    },
    Spec {
        id: "two-budgets",
        title: "a call under two budgets",
        run: calls::two_budgets,
    },
    Spec {
        id: "timeout",
        title: "one budget and a timeout, the handler never suspends",
        run: calls::in_time,
    },
    Spec {
        id: "keyed",
        title: "a key and one budget",
        run: calls::keyed,
    },
    Spec {
        id: "keyed-timeout",
        title: "a key, one budget and a timeout",
        run: calls::keyed_in_time,
    },
    Spec {
        id: "reject",
        title: "refused at once, the executor's turn included",
        run: calls::reject,
    },
];
