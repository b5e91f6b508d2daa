//! What scenarios have met, counted: a rule that no scenario comes to is not checked.

use std::collections::BTreeMap;
use std::fmt;

use bursar::EndedBy;

use crate::scenario::{Answer, Event, Kind};

/// How often each thing was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    met: BTreeMap<&'static str, u64>,
    /// Steps of whole scenarios.
    pub steps: u64,
}

/// What every long run, and the slice of it that CI repeats, must meet.
pub const ALL: [&str; 22] = [
    "answered",
    "held",
    "cancelled",
    "drained",
    "not drained in time",
    "failed",
    "handler panicked",
    "key required",
    "overloaded",
    "refused to drain from inside",
    "refused to resize",
    "resized",
    "retried after a pause",
    "retry ended by overload",
    "retry ended by shutdown",
    "retry ended by the caller",
    "retry refused by the retry budget",
    "stopping",
    "timed out",
    "waited too long",
    "withdrawn",
    "would deadlock",
];

impl Census {
    pub(crate) fn count(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.met.entry(what).or_default() += times;
        }
    }

    pub(crate) fn see(&mut self, event: &Event) {
        let what = match event {
            Event::Answered(_, Answer::Value) => "answered",
            Event::Answered(_, Answer::Held | Answer::Permit) => "held",
            Event::Answered(_, Answer::Error(failed)) => match (failed.kind, failed.ended_by) {
                (Kind::Failed, Some(EndedBy::Overload)) => "retry ended by overload",
                (Kind::Failed, Some(EndedBy::Stopping)) => "retry ended by shutdown",
                (Kind::Failed, Some(EndedBy::WaitTooLong)) => "retry ended by too long a wait",
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
