//! What scenarios have met, counted: a rule that no scenario comes to is not checked.

use std::collections::BTreeMap;
use std::fmt;

use bursar::EndedBy;

use crate::scenario::{Answer, Event, Holdings, Kind, Move, Step, Via};

/// How often each thing was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    met: BTreeMap<&'static str, u64>,
    /// Steps of whole scenarios.
    pub steps: u64,
}

/// Everything that is counted, and that a long run must meet.
pub const ALL: [&str; 33] = [
    "answered",
    "answered with a permit beside the value",
    "answered with a permit alone",
    "called through a builder",
    "called through a contract",
    "called through an operation",
    "cancelled",
    "drained",
    "failed",
    "granted by a resize",
    "handler panicked",
    "key required",
    "left behind by a handler",
    "made by a handler",
    "not drained in time",
    "overloaded",
    "owed after a resize",
    "refused to drain from inside",
    "refused to resize",
    "resized",
    "resized while calls waited",
    "retried after a pause",
    "retry ended by overload",
    "retry ended by shutdown",
    "retry ended by the caller",
    "retry ended by too long a wait",
    "retry ended for the chain's sake",
    "retry refused by the retry budget",
    "stopping",
    "timed out",
    "waited too long",
    "withdrawn",
    "would deadlock",
];

/// Met once in some thousands of scenarios: not in the slice of the long run that CI repeats.
pub const RARE: [&str; 1] = ["retry ended for the chain's sake"];

impl Census {
    pub(crate) fn count(&mut self, what: &'static str, times: u64) {
        debug_assert!(ALL.contains(&what), "{what} is on no list");
        if times > 0 {
            *self.met.entry(what).or_default() += times;
        }
    }

    /// A step that was taken.
    pub(crate) fn took(&mut self, step: &Step) {
        let spec = match step {
            Step::Call(_, spec) => spec,
            Step::Tell(_, Move::Nest(_, spec)) => {
                self.count("made by a handler", 1);
                spec
            }
            Step::Tell(_, Move::Spawn(_, spec)) => {
                self.count("left behind by a handler", 1);
                spec
            }
            _ => return,
        };
        let what = match spec.via {
            Via::Contract => "called through a contract",
            Via::Builder => "called through a builder",
            Via::Operation => "called through an operation",
        };
        self.count(what, 1);
    }

    /// What followed from it.
    pub(crate) fn see(&mut self, event: &Event) {
        let what = match event {
            Event::Answered(_, Answer::Value) => "answered",
            Event::Answered(_, Answer::Held) => "answered with a permit beside the value",
            Event::Answered(_, Answer::Permit) => "answered with a permit alone",
            Event::Answered(_, Answer::Error(failed)) => match (failed.kind, failed.ended_by) {
                (Kind::Failed, Some(EndedBy::Overload)) => "retry ended by overload",
                (Kind::Failed, Some(EndedBy::Stopping)) => "retry ended by shutdown",
                (Kind::Failed, Some(EndedBy::WaitTooLong)) => "retry ended by too long a wait",
                (Kind::Failed, Some(EndedBy::WouldDeadlock)) => "retry ended for the chain's sake",
                (Kind::Failed, Some(EndedBy::RetryBudget)) => "retry refused by the retry budget",
                (Kind::Failed, Some(_)) => "retry ended by the caller",
                (Kind::Failed, None) => "failed",
                (Kind::TimedOut, _) => "timed out",
                (Kind::Cancelled, _) => "cancelled",
                (Kind::Overloaded, _) => "overloaded",
                (Kind::AdmissionTimedOut, _) => "waited too long",
                (Kind::Withdrawn, _) => "withdrawn",
                (Kind::Stopping, _) => "stopping",
                (Kind::KeyRequired, _) => "key required",
                (Kind::WouldDeadlock, _) => "would deadlock",
            },
            Event::Panicked(_) => "handler panicked",
            Event::Drained(_, true, _) => "drained",
            Event::Drained(_, false, _) => "not drained in time",
            Event::Resized(_, true) => "resized",
            Event::Resized(_, false) => "refused to resize",
            Event::RefusedToDrain(_) => "refused to drain from inside",
            Event::Polled(..) | Event::Dropped(..) => return,
        };
        self.count(what, 1);
    }

    /// A budget before and after a resize.
    pub(crate) fn resized(&mut self, before: &Holdings, after: &Holdings) {
        let (waited, waiting) = (before.usage.waiting, after.usage.waiting);
        self.count("resized while calls waited", u64::from(waited > 0));
        self.count("granted by a resize", u64::from(waited - waiting));
        self.count("owed after a resize", u64::from(after.owed > 0));
    }

    /// Adds what another has counted.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        for (what, times) in &other.met {
            self.count(what, *times);
        }
    }

    /// What of [`ALL`] was never met.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let never = |what: &&&str| !self.met.contains_key(**what);
        ALL.iter().filter(never).copied().collect()
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (what, times)) in self.met.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{what} {times}")?;
        }
        Ok(())
    }
}
