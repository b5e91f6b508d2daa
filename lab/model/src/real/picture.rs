//! What a snapshot says, in the words of scenarios.

use bursar::{BudgetSnapshot, KeySnapshot, QueuedSnapshot, Snapshot};

use super::caller::{at_of, key_as};
use crate::scenario::{HeldKey, Holdings, Picture, Run};

pub(super) fn picture(of: &Snapshot) -> Picture {
    let standing = of
        .operations
        .iter()
        .map(|of| (of.waiting, of.executing, of.paused));
    let mut keys: Vec<HeldKey> = of.keys.iter().map(key).collect();
    keys.sort();
    Picture {
        phase: of.phase,
        standing: standing.collect(),
        budgets: of.budgets.iter().map(holdings).collect(),
        keys,
        keys_unnoticed: of.keys_unnoticed,
    }
}

fn holdings(of: &BudgetSnapshot) -> Holdings {
    let holders = of.holders.iter();
    let holders = holders.map(|of| (at_of(&of.operation), of.calls, of.units));
    Holdings {
        owed: of.owed,
        unnoticed: of.unnoticed,
        holders: holders.collect(),
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
