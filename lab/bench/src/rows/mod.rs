//! What is measured: the rows, their contenders and their targets.

pub mod fixtures;

mod calls;
mod catalogue;
mod http;
mod mixed;
mod pair;
mod parked;
mod queued;
mod spots;
mod tower;

use std::time::Duration;

use crate::figures::quantile;
use crate::heap;
use crate::measure::{Batch, Contender, Effort, Measured, rotate};
use crate::report::{Bound, Column, Row, Seen, Verdict};

pub use catalogue::ROWS;
pub(crate) use catalogue::{BURSAR, COMPOSED, KEYED, RUN, SEMAPHORE};
pub(crate) use http::under_way;
pub use parked::{Leaving, full_composed, full_contract, leave};
pub(crate) use spots::{IDLE, KAMEO, RACTOR, REQUEST, YIELD, host, wake_ups};

/// How thorough the whole program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each row once, to see that it runs: no figure means anything.
    Smoke,
    /// All rows in under two minutes.
    Quick,
    /// More processes, and four times as many rotations in each.
    Full,
}

impl Pace {
    /// How many processes measure a row, one after another. Where code and data happen to lie moves a contender by a
    /// tenth, and stays the same for as long as a process lives.
    fn processes(self) -> u32 {
        match self {
            Self::Smoke => 1,
            Self::Quick => 3,
            Self::Full => 7,
        }
    }

    fn rotations(self, quick: u32) -> u32 {
        match self {
            Self::Smoke => 1,
            Self::Quick => quick,
            Self::Full => quick * 4,
        }
    }

    /// For calls that take well under a microsecond: as many as fill a batch.
    fn short(self) -> Effort {
        Effort {
            rotations: self.rotations(150),
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
            Self::Quick => Duration::from_millis(1_500),
            Self::Full => Duration::from_secs(15),
        }
    }

    /// For batches that start tasks on two workers, each of so many calls.
    fn tasks(self, calls: u32) -> Effort {
        Effort {
            rotations: self.rotations(20),
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
    /// A figure by itself, at most.
    Figure(&'static str, Column, f64),
    /// A figure by itself, at least.
    Least(&'static str, Column, f64),
}

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

    /// How many processes measure the row, one after another.
    #[must_use]
    pub fn processes(&self, pace: Pace) -> u32 {
        match self.kind {
            Kind::Sizes(_) => 1,
            Kind::Calls(..) | Kind::Load(..) => pace.processes(),
        }
    }

    /// Measures the row in this process.
    #[must_use]
    pub fn measure(&self, pace: Pace) -> Row {
        let mut row = Row {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
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
        let targets = self.targets.iter();
        row.verdicts = targets
            .filter_map(|target| target.of_times(measured.as_ref()?))
            .collect();
        row
    }

    /// Adds what the row's contenders allocate, and what the targets say of single figures.
    pub fn count(&self, row: &mut Row, counted: &[heap::Figure]) {
        for figure in counted.iter().filter(|figure| figure.row == self.id) {
            match row.contender(&figure.name) {
                Some(seen) => seen.set(figure.column, figure.figure),
                None => row
                    .seen
                    .push(Seen::new(&figure.name).with(figure.column, figure.figure)),
            }
        }
        let targets = self.targets.iter();
        let verdicts: Vec<Verdict> = targets
            .filter_map(|target| target.of_figures(row))
            .collect();
        row.verdicts.extend(verdicts);
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
        let shares = measured.sorted(name, queued);
        let seen = match shares.first() {
            Some(share) if !share.is_nan() => seen.with(Column::Queued, quantile(&shares, 0.5)),
            _ => seen,
        };
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

fn queued(batch: &Batch) -> f64 {
    batch.queued.map_or(f64::NAN, |share| 100.0 * share)
}

fn unpolled(batch: &Batch) -> f64 {
    batch.latency.map_or(f64::NAN, |latency| latency.unpolled)
}

impl Target {
    /// Of what was measured in rotation.
    fn of_times(self, measured: &Measured) -> Option<Verdict> {
        let (what, of, subject, peer, bound): (_, fn(&Batch) -> f64, _, _, _) = match self {
            Self::Time(subject, peer, most) => ("time", mean, subject, peer, Bound::AtMost(most)),
            Self::Rate(subject, peer, least) => {
                ("calls/s", rate, subject, peer, Bound::AtLeast(least))
            }
            Self::Slowest(subject, peer, most) => ("p99", p99, subject, peer, Bound::AtMost(most)),
            Self::Figure(..) | Self::Least(..) => return None,
        };
        let ratio = measured.ratio(subject, peer, of);
        Some(Verdict {
            what: format!("{what}, {subject} / {peer}"),
            seen: ratio.median,
            spread: Some((ratio.low, ratio.high)),
            bound,
            met: bound.keeps(ratio.median),
            disturbed: !ratio.calm,
        })
    }

    /// Of a figure by itself; `None` where it was not found.
    fn of_figures(self, row: &Row) -> Option<Verdict> {
        let (name, column, bound) = match self {
            Self::Figure(name, column, most) => (name, column, Bound::AtMost(most)),
            Self::Least(name, column, least) => (name, column, Bound::AtLeast(least)),
            Self::Time(..) | Self::Rate(..) | Self::Slowest(..) => return None,
        };
        let contender = row.seen.iter().find(|seen| seen.name == name)?;
        let seen = contender.get(column)?;
        Some(Verdict {
            what: format!("{}, {name}", column.heading()),
            seen,
            spread: None,
            bound,
            met: bound.keeps(seen),
            disturbed: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_runs_and_every_target_finds_its_contenders() {
        for spec in ROWS {
            let row = spec.measure(Pace::Smoke);
            assert!(row.seen.len() >= 2, "{}: a row has peers", spec.id);
            let ratios = spec.targets.iter();
            let ratios = ratios.filter(|of| !matches!(of, Target::Figure(..) | Target::Least(..)));
            assert_eq!(row.verdicts.len(), ratios.count(), "{}", spec.id);
            for target in spec.targets {
                if let Target::Figure(name, ..) | Target::Least(name, ..) = target {
                    assert!(row.seen.iter().any(|seen| seen.name == *name), "{name}");
                }
            }
        }
    }

    #[test]
    fn what_was_counted_is_judged() {
        let spec = ROWS.iter().find(|spec| spec.id == "keyed").unwrap();
        let mut row = spec.measure(Pace::Smoke);
        let before = row.verdicts.len();
        let figure = heap::Figure {
            row: "keyed".into(),
            name: KEYED.into(),
            column: Column::Allocations,
            figure: 1.0,
        };
        spec.count(&mut row, &[figure]);
        assert_eq!(
            row.verdicts.len(),
            before + 1,
            "the other figure is unknown"
        );
        assert!(!row.verdicts[before].met, "one is more than none");
    }

    #[test]
    fn a_case_needs_its_contender() {
        assert!(run_case("one-budget", RUN, 1).is_ok());
        assert!(run_case("one-budget", "nobody", 1).is_err());
        assert!(run_case("nothing", RUN, 1).is_err());
    }
}
