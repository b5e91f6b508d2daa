//! What a snapshot shows: E2.

use std::cmp::Reverse;

use bursar::Phase;

use super::{Budget, Call, Model, Stage, Wait};
use crate::scenario::{HeldKey, Holdings, Id, Picture, Run};

/// How many runs of a queue are told.
const RUNS: usize = 16;

impl Model {
    pub(super) fn picture(&self) -> Picture {
        let mut standing = vec![(0, 0, 0); self.config.operations.len()];
        for call in self.calls.values().filter(|call| call.counts()) {
            let (waiting, executing, paused) = &mut standing[call.spec.operation];
            *match (call.started, call.pausing) {
                (false, _) => waiting,
                (true, None) => executing,
                (true, Some(_)) => paused,
            } += 1;
        }
        let budgets = self.budgets.iter().enumerate();
        let keys = self.keys.iter().map(|(key, queue)| HeldKey {
            space: key.0,
            key: key.1,
            holder: self.holder(*key),
            waiting: queue.len() as u32,
            queue: self.runs(queue.iter(), |_| 0),
        });
        let unnoticed = |call: &Call| call.stage == Stage::AtKey(Wait::Granted);
        Picture {
            phase: match self.stopping {
                false => Phase::Open,
                true if self.drained() => Phase::Drained,
                true => Phase::Draining,
            },
            standing,
            budgets: budgets.map(|(at, of)| self.holdings(at, of)).collect(),
            keys: keys.collect(),
            keys_unnoticed: self.ids(unnoticed).len() as u32,
        }
    }

    fn holder(&self, key: (Option<u8>, u8)) -> usize {
        let holds = |id: &Id, call: &Call| call.key_held && self.key(*id) == Some(key);
        let mut calls = self.calls.iter().filter(|(id, call)| holds(id, call));
        let (_, call) = calls.next().expect("a key has a holder");
        call.spec.operation
    }

    fn holdings(&self, at: usize, budget: &Budget) -> Holdings {
        let mut unnoticed = 0;
        let mut holders = vec![(0, 0); self.config.operations.len()];
        for (id, call) in &self.calls {
            let held = self.op(*id).claims[..call.claims_held].iter().enumerate();
            for (place, (_, units)) in held.filter(|(_, (budget, _))| *budget == at) {
                let of = &mut holders[call.spec.operation];
                *of = (of.0 + 1, of.1 + units);
                // The last that it was given, if it does not know yet.
                let new = call.stage == Stage::AtBudget(Wait::Granted);
                unnoticed += units * u32::from(new && place + 1 == call.claims_held);
            }
        }
        let holders = holders.into_iter().enumerate();
        let holders = holders.map(|(operation, (calls, units))| (operation, calls, units));
        let mut holders: Vec<_> = holders.filter(|of| of.1 > 0).collect();
        holders.sort_by_key(|of| Reverse(of.2));
        let units = |id: Id| {
            let claims = self.op(id).claims.iter().find(|claim| claim.0 == at);
            claims.map_or(0, |claim| claim.1)
        };
        Holdings {
            owed: budget.in_use.saturating_sub(budget.capacity),
            unnoticed,
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

impl Call {
    /// Admitted, and not ended.
    fn counts(&self) -> bool {
        !self.finished && !matches!(self.stage, Stage::New | Stage::Over)
    }
}
