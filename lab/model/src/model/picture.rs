//! What can be read of it: E1 and E2.

use std::cmp::Reverse;

use bursar::{Outcomes, Phase};

use super::{Budget, Call, Model, Stage, Wait};
use crate::scenario::{
    ALL, Counts, HeldKey, Holdings, Id, Picture, Reading, Run, Share, Standing, Usage,
};

/// How many runs of a queue are told.
const RUNS: usize = 16;

impl Model {
    pub fn reading(&self) -> Reading {
        let budgets = self.budgets.iter().enumerate();
        Reading {
            counts: self.counts.clone(),
            total: self.total(),
            budgets: budgets.map(|(at, of)| of.usage(at)).collect(),
            keys: self.keys.len(),
            picture: self.picture(),
        }
    }

    /// E1: the runtime's numbers are the sums.
    fn total(&self) -> Counts {
        let sum = |which: fn(&Counts) -> u64| self.counts.iter().map(which).sum();
        let mut outcomes = Outcomes::default();
        outcomes.success = sum(|of| of.outcomes.success);
        outcomes.transient = sum(|of| of.outcomes.transient);
        outcomes.permanent = sum(|of| of.outcomes.permanent);
        outcomes.throttled = sum(|of| of.outcomes.throttled);
        outcomes.uncertain = sum(|of| of.outcomes.uncertain);
        outcomes.never_ran = sum(|of| of.outcomes.never_ran);
        outcomes.dropped = sum(|of| of.outcomes.dropped);
        outcomes.panicked = sum(|of| of.outcomes.panicked);
        Counts {
            name: ALL,
            admitted: sum(|of| of.admitted),
            rejected: sum(|of| of.rejected),
            started: sum(|of| of.started),
            finished: sum(|of| of.finished),
            retried: sum(|of| of.retried),
            denied: sum(|of| of.denied),
            waited: sum(|of| of.waited),
            outcomes,
        }
    }

    fn picture(&self) -> Picture {
        let budgets = self.budgets.iter().enumerate();
        let keys = self.keys.iter().map(|(key, queue)| HeldKey {
            space: key.0,
            key: key.1,
            holder: self.holder(*key),
            waiting: queue.len() as u32,
            queue: self.runs(queue.iter(), |_| 0),
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|of| Reverse(of.waiting));
        let unnoticed = |call: &Call| call.stage == Stage::AtKey(Wait::Granted);
        Picture {
            phase: match self.stopping {
                false => Phase::Open,
                true if self.drained() => Phase::Drained,
                true => Phase::Draining,
            },
            operations: self.standing(),
            budgets: budgets.map(|(at, of)| self.holdings(at, of)).collect(),
            keys,
            keys_unnoticed: self.ids(unnoticed).len() as u32,
            // No host of turns is registered.
            hosts: 0,
        }
    }

    fn standing(&self) -> Vec<Standing> {
        let standing = self.counts.iter().map(|counts| Standing {
            counts: counts.clone(),
            // No handler blocks, so none outlives its call (C7).
            adrift: 0,
            ..Standing::default()
        });
        let mut standing: Vec<Standing> = standing.collect();
        for call in self.calls.values().filter(|call| call.counts()) {
            let of = &mut standing[call.spec.operation];
            *match (call.started, call.pausing) {
                (false, _) => &mut of.waiting,
                (true, None) => &mut of.executing,
                (true, Some(_)) => &mut of.paused,
            } += 1;
        }
        standing
    }

    fn holder(&self, key: (Option<u8>, u8)) -> usize {
        let holds = |id: &Id, call: &Call| call.key_held && self.key(*id) == Some(key);
        let mut calls = self.calls.iter().filter(|(id, call)| holds(id, call));
        let (_, call) = calls.next().expect("a key has a holder");
        call.spec.operation
    }

    fn holdings(&self, at: usize, budget: &Budget) -> Holdings {
        let mut unnoticed = 0;
        let mut holders: Vec<Share> = Vec::new();
        for (id, call) in &self.calls {
            let held = self.op(*id).claims[..call.claims_held].iter().enumerate();
            for (place, (_, units)) in held.filter(|(_, (budget, _))| *budget == at) {
                let operation = call.spec.operation;
                match holders.iter_mut().find(|of| of.operation == operation) {
                    Some(of) => (of.calls, of.units) = (of.calls + 1, of.units + units),
                    None => holders.push(Share {
                        operation,
                        calls: 1,
                        units: *units,
                    }),
                }
                // The last that it was given, if it does not know yet.
                let new = call.stage == Stage::AtBudget(Wait::Granted);
                unnoticed += units * u32::from(new && place + 1 == call.claims_held);
            }
        }
        holders.sort_by_key(|of| (Reverse(of.units), of.operation));
        let units = |id: Id| {
            let claims = self.op(id).claims.iter().find(|claim| claim.0 == at);
            claims.map_or(0, |claim| claim.1)
        };
        Holdings {
            usage: budget.usage(at),
            owed: budget.in_use.saturating_sub(budget.capacity),
            unnoticed,
            // Nothing moves while it is read.
            unattributed: 0,
            holders,
            queue: self.runs(budget.queue.iter(), units),
        }
    }

    fn runs<'q>(&self, queue: impl Iterator<Item = &'q Id>, units: impl Fn(Id) -> u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for id in queue {
            let operation = self.calls[id].spec.operation;
            match runs.last_mut() {
                Some(run) if run.0 == operation => run.1 += 1,
                _ => runs.push((operation, 1, units(*id))),
            }
        }
        runs.truncate(RUNS);
        runs
    }
}

impl Budget {
    fn usage(&self, name: usize) -> Usage {
        Usage {
            name,
            capacity: self.capacity,
            in_use: self.in_use,
            waiting: self.queue.len() as u32,
        }
    }
}

impl Call {
    /// Admitted, and not ended.
    fn counts(&self) -> bool {
        !self.finished && !matches!(self.stage, Stage::New | Stage::Over)
    }
}
