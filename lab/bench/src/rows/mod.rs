//! What is measured: the rows, their contenders and their targets.

pub mod fixtures;

mod calls;
mod mixed;
mod pair;
mod parked;

use std::time::Duration;

use crate::figures::quantile;
use crate::heap;
use crate::measure::{Batch, Contender, Effort, Measured, rotate};
use crate::report::{Bound, Column, Row, Seen, Verdict};

pub use parked::{Leaving, full_composed, full_contract, leave};

/// How thorough the whole program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each row once, to see that it runs: no figure means anything.
    Smoke,
    /// All rows in under two minutes.
    Quick,
    /// Ten times the rotations.
    Full,
}

impl Pace {
    fn rotations(self, quick: u32) -> u32 {
        match self {
            Self::Smoke => 1,
            Self::Quick => quick,
            Self::Full => quick * 10,
        }
    }

    /// For calls that take well under a microsecond: as many as fill a batch.
    fn short(self) -> Effort {
        Effort {
            rotations: self.rotations(400),
            batch: match self {
                Self::Smoke => Duration::ZERO,
                Self::Quick | Self::Full => Duration::from_micros(150),
            },
            calls: None,
            limit: self.limit(),
        }
    }

    /// How long one row may go on looking for calm.
    fn limit(self) -> Duration {
        match self {
            Self::Smoke => Duration::ZERO,
            Self::Quick => Duration::from_secs(5),
            Self::Full => Duration::from_secs(60),
        }
    }

    /// For batches that start tasks on two workers, each of so many calls.
    fn tasks(self, calls: u32) -> Effort {
        Effort {
            rotations: self.rotations(40),
            batch: Duration::ZERO,
            calls: Some(match self {
                Self::Smoke => 64,
                Self::Quick | Self::Full => calls,
            }),
            limit: self.limit(),
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
    kind: Kind,
    targets: &'static [Target],
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Contenders in rotation. What is allocated can be counted call by call.
    Calls(fn() -> Vec<Contender<'static>>, fn(Pace) -> Effort),
    /// Contenders in rotation that say how long single calls took.
    Load(fn() -> Vec<Contender<'static>>, fn(Pace) -> Effort),
    /// Figures that the row finds by itself.
    Sizes(fn(Pace) -> Vec<Seen>),
}

/// What is asked of a row.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// The subject's time a call over the peer's.
    Time(&'static str, &'static str, f64),
    /// The subject's calls a second over the peer's.
    Rate(&'static str, &'static str, f64),
    /// The subject's 99th percentile over the peer's.
    Slowest(&'static str, &'static str, f64),
    /// A figure by itself.
    Figure(&'static str, Column, f64),
}

use Target::{Figure, Rate, Slowest, Time};

const BURSAR: &str = "bursar";
pub(crate) const RUN: &str = "bursar run";
pub(crate) const KEYED: &str = "bursar key().run";
pub(crate) const COMPOSED: &str = "composed";
const SEMAPHORE: &str = "tokio Semaphore";

/// All of them, in the order in which they are printed.
pub const ROWS: &[Spec] = &[
    Spec {
        id: "one-budget",
        title: "a call under one budget, nothing suspends",
        kind: Kind::Calls(calls::one_budget, Pace::short),
        targets: &[
            Time(RUN, SEMAPHORE, 0.85),
            Figure(RUN, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "two-budgets",
        title: "a call under two budgets",
        kind: Kind::Calls(calls::two_budgets, Pace::short),
        targets: &[
            Time(RUN, COMPOSED, 0.45),
            Figure(RUN, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "timeout",
        title: "one budget and a timeout, the handler never suspends",
        kind: Kind::Calls(calls::in_time, Pace::short),
        targets: &[
            Time(RUN, COMPOSED, 0.65),
            Figure(RUN, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "suspends",
        title: "one budget, the handler suspends once",
        kind: Kind::Calls(calls::suspends, Pace::short),
        targets: &[Time(RUN, COMPOSED, 0.95)],
    },
    Spec {
        id: "suspends-timeout",
        title: "one budget and a timeout whose timer is armed, the handler suspends once",
        kind: Kind::Calls(calls::suspends_in_time, Pace::short),
        targets: &[
            Time(RUN, COMPOSED, 0.95),
            Figure(RUN, Column::Allocations, 1.0),
        ],
    },
    Spec {
        id: "keyed",
        title: "a key and one budget",
        kind: Kind::Calls(calls::keyed, Pace::short),
        targets: &[
            Time(KEYED, COMPOSED, 0.35),
            Figure(KEYED, Column::Allocations, 0.0),
            Figure(calls::LONG_KEY, Column::Allocations, 1.0),
        ],
    },
    Spec {
        id: "keyed-timeout",
        title: "a key, one budget and a timeout",
        kind: Kind::Calls(calls::keyed_in_time, Pace::short),
        targets: &[
            Time(KEYED, COMPOSED, 0.42),
            Figure(KEYED, Column::Allocations, 0.0),
        ],
    },
    Spec {
        id: "reject",
        title: "refused at once, and the one turn of the executor that follows",
        kind: Kind::Calls(calls::reject, Pace::short),
        targets: &[Time(RUN, calls::ONE_TURN, 1.1)],
    },
    Spec {
        id: "contended-4",
        title: "2 tasks on 2 workers, capacity 4",
        kind: Kind::Load(pair::capacity_4, |pace| pace.tasks(10_000)),
        targets: &[Time(RUN, SEMAPHORE, 1.0)],
    },
    Spec {
        id: "contended-1",
        title: "2 tasks on 2 workers, capacity 1",
        kind: Kind::Load(pair::capacity_1, |pace| pace.tasks(10_000)),
        targets: &[Time(RUN, SEMAPHORE, 1.0)],
    },
    Spec {
        id: "unique-1",
        title: "1,000,000 keys, each used once, 1 worker",
        kind: Kind::Calls(pair::unique_on_one, |pace| Effort {
            rotations: pace.rotations(100),
            ..pace.tasks(10_000)
        }),
        targets: &[Rate(KEYED, COMPOSED, 3.0), Figure(KEYED, Column::Peak, 1e6)],
    },
    Spec {
        id: "unique-2",
        title: "1,000,000 keys, each used once, 2 workers",
        kind: Kind::Load(pair::unique_on_two, |pace| Effort {
            rotations: pace.rotations(100),
            ..pace.tasks(5_000)
        }),
        targets: &[Rate(KEYED, COMPOSED, 2.5), Figure(KEYED, Column::Peak, 1e6)],
    },
    Spec {
        id: "parked",
        title: "a call that waits for its budget, its handler excluded",
        kind: Kind::Sizes(parked::sizes),
        targets: &[
            Figure(RUN, Column::Future, 200.0),
            Figure(RUN, Column::Record, 128.0),
            Figure(RUN, Column::Task, 448.0),
        ],
    },
    Spec {
        id: "leaving",
        title: "1,000,000 calls that wait, and leave, beside 10,000",
        kind: Kind::Sizes(parked::leaving),
        targets: &[
            Figure(parked::GROWTH[0], Column::Growth, 2.0),
            Figure(parked::GROWTH[1], Column::Growth, 2.0),
        ],
    },
    Spec {
        id: "mixed",
        title: "64 tasks, 3 operations, 2 budgets, keyed and not, 1 us of work, a turn between calls",
        kind: Kind::Load(mixed::arriving, |pace| pace.tasks(24)),
        targets: &[Rate(BURSAR, COMPOSED, 1.1), Slowest(BURSAR, COMPOSED, 1.0)],
    },
    Spec {
        id: "mixed-looping",
        title: "the same without a turn between calls: what the cooperation budget does",
        kind: Kind::Load(mixed::looping, |pace| pace.tasks(128)),
        targets: &[],
    },
    Spec {
        id: "mixed-suspending",
        title: "the same, each handler suspending once with what it holds",
        kind: Kind::Load(mixed::suspending, |pace| pace.tasks(24)),
        targets: &[Rate(BURSAR, COMPOSED, 1.1), Slowest(BURSAR, COMPOSED, 1.0)],
    },
];

/// Makes some calls of one contender, and nothing else.
///
/// # Errors
/// There is no such contender.
pub fn run_case(row: &str, contender: &str, calls: u32) -> Result<(), String> {
    let spec = ROWS.iter().find(|spec| spec.id == row);
    let contenders = spec.and_then(Spec::countable).unwrap_or_default();
    let mut wanted = contenders.into_iter().filter(|of| of.name == contender);
    match wanted.next() {
        Some(mut contender) => {
            contender.run(calls);
            Ok(())
        }
        None => Err(format!("row {row:?} has no contender {contender:?}")),
    }
}

impl Spec {
    /// The contenders of a row whose allocations can be counted call by call.
    #[must_use]
    pub fn countable(&self) -> Option<Vec<Contender<'static>>> {
        match self.kind {
            Kind::Calls(contenders, _) => Some(contenders()),
            Kind::Load(..) | Kind::Sizes(_) => None,
        }
    }

    /// Measures the row. `counted` is what its contenders allocate.
    #[must_use]
    pub fn measure(&self, pace: Pace, counted: &[&heap::Figure]) -> Row {
        let mut row = Row {
            id: self.id,
            title: self.title,
            seen: Vec::new(),
            verdicts: Vec::new(),
        };
        let measured = match self.kind {
            Kind::Sizes(sizes) => {
                row.seen = sizes(pace);
                None
            }
            Kind::Calls(contenders, effort) | Kind::Load(contenders, effort) => {
                let measured = rotate(effort(pace), &mut contenders());
                row.seen = seen(&measured);
                Some(measured)
            }
        };
        for heap::Figure {
            name,
            column,
            figure,
            ..
        } in counted
        {
            match row.contender(name) {
                Some(seen) => seen.set(*column, *figure),
                None => row.seen.push(Seen::new(name).with(*column, *figure)),
            }
        }
        let verdicts = self.targets.iter();
        row.verdicts = verdicts
            .filter_map(|target| target.judge(measured.as_ref(), &row))
            .collect();
        row
    }
}

fn seen(measured: &Measured) -> Vec<Seen> {
    let of = |name: &&'static str| {
        let means = measured.sorted(name, mean);
        let middle = quantile(&means, 0.5);
        let seen = Seen::new(*name)
            .with(Column::Batch50, middle)
            .with(Column::BatchMin, quantile(&means, 0.0))
            .with(Column::Batch99, quantile(&means, 0.99))
            .with(Column::Rate, 1e3 / middle);
        if !measured.watched() {
            return seen;
        }
        seen.with(Column::Call50, measured.median(name, p50))
            .with(Column::Call99, measured.median(name, p99))
            .with(Column::Unpolled, measured.median(name, unpolled))
    };
    measured.names().iter().map(of).collect()
}

fn mean(batch: &Batch) -> f64 {
    batch.mean
}

fn rate(batch: &Batch) -> f64 {
    1.0 / batch.mean
}

fn p50(batch: &Batch) -> f64 {
    batch.latency.map_or(f64::NAN, |latency| latency.p50)
}

fn p99(batch: &Batch) -> f64 {
    batch.latency.map_or(f64::NAN, |latency| latency.p99)
}

fn unpolled(batch: &Batch) -> f64 {
    batch.latency.map_or(f64::NAN, |latency| latency.unpolled)
}

impl Target {
    /// `None` where the figure was not measured.
    fn judge(self, measured: Option<&Measured>, row: &Row) -> Option<Verdict> {
        let (what, of, subject, peer, bound): (_, fn(&Batch) -> f64, _, _, _) = match self {
            Time(subject, peer, most) => ("time", mean, subject, peer, Bound::AtMost(most)),
            Rate(subject, peer, least) => ("calls/s", rate, subject, peer, Bound::AtLeast(least)),
            Slowest(subject, peer, most) => ("p99", p99, subject, peer, Bound::AtMost(most)),
            Figure(name, column, most) => {
                let seen = row
                    .seen
                    .iter()
                    .find(|seen| seen.name == name)?
                    .get(column)?;
                let bound = Bound::AtMost(most);
                return Some(Verdict {
                    what: format!("{}, {name}", column.heading()),
                    seen,
                    spread: None,
                    bound,
                    met: bound.keeps(seen),
                    disturbed: false,
                });
            }
        };
        let ratio = measured?.ratio(subject, peer, of);
        Some(Verdict {
            what: format!("{what}, {subject} / {peer}"),
            seen: ratio.median,
            spread: Some((ratio.low, ratio.high)),
            bound,
            met: bound.keeps(ratio.median),
            disturbed: !ratio.calm,
        })
    }
}
