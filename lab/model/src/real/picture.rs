//! What counters and a snapshot say, in the words of scenarios.

use bursar::{
    BudgetSnapshot, KeySnapshot, OperationSnapshot, OperationStats, QueuedSnapshot, Runtime,
    Snapshot,
};

use super::caller::{at_of, key_as};
use crate::scenario::{Counts, HeldKey, Holdings, Picture, Reading, Run, Share, Standing, Usage};

pub(super) fn reading(runtime: &Runtime) -> Reading {
    let stats = runtime.stats();
    let budgets = stats.budgets.iter().map(|of| Usage {
        name: at_of(&of.name),
        capacity: of.capacity,
        in_use: of.in_use,
        waiting: of.waiting,
    });
    Reading {
        counts: stats.operations.iter().map(counts).collect(),
        total: counts(&stats.total()),
        budgets: budgets.collect(),
        keys: stats.keys,
        picture: picture(&runtime.snapshot()),
    }
}

fn counts(of: &OperationStats) -> Counts {
    Counts {
        name: at_of(&of.name),
        admitted: of.admitted,
        rejected: of.rejected,
        started: of.started,
        finished: of.finished,
        retried: of.retried,
        denied: of.denied,
        waited: of.waited,
        outcomes: of.outcomes,
    }
}

fn picture(of: &Snapshot) -> Picture {
    let mut keys: Vec<HeldKey> = of.keys.iter().map(key).collect();
    for equal in keys.chunk_by_mut(|a, b| a.waiting == b.waiting) {
        equal.sort();
    }
    Picture {
        phase: of.phase,
        operations: of.operations.iter().map(standing).collect(),
        budgets: of.budgets.iter().map(holdings).collect(),
        keys,
        keys_unnoticed: of.keys_unnoticed,
        hosts: of.hosts.len(),
    }
}

fn standing(of: &OperationSnapshot) -> Standing {
    Standing {
        counts: counts(&of.stats),
        waiting: of.waiting,
        executing: of.executing,
        paused: of.paused,
        adrift: of.adrift,
    }
}

fn holdings(of: &BudgetSnapshot) -> Holdings {
    let holders = of.holders.iter().map(|of| Share {
        operation: at_of(&of.operation),
        calls: of.calls,
        units: of.units,
    });
    let mut holders: Vec<Share> = holders.collect();
    for equal in holders.chunk_by_mut(|a, b| a.units == b.units) {
        equal.sort();
    }
    Holdings {
        usage: Usage {
            name: at_of(&of.name),
            capacity: of.capacity,
            in_use: of.in_use,
            waiting: of.waiting,
        },
        owed: of.owed,
        unnoticed: of.unnoticed,
        unattributed: of.unattributed,
        holders,
        queue: queue(&of.queue),
    }
}

fn key(of: &KeySnapshot) -> HeldKey {
    HeldKey {
        space: of.space.as_deref().map(|name| at_of(name) as u8),
        key: key_as(&of.key),
        holder: at_of(&of.holder),
        waiting: of.waiting,
        queue: queue(&of.queue),
    }
}

fn queue(of: &[QueuedSnapshot]) -> Vec<Run> {
    let runs = of.iter();
    runs.map(|of| (at_of(&of.operation), of.calls, of.units))
        .collect()
}
