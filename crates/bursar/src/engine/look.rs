//! A snapshot, put together from what budgets, keys and counters say.
//!
//! Which operation holds how much of a budget is recorded nowhere. It follows: a call that executes holds all its
//! claims; one in a queue, or taken out of it and not polled since, holds the claims before that queue's budget, and
//! that budget's too once it was granted; one that pauses holds none. So the operations' counters and the queues' records
//! give every budget's holders.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Engine, Registered};
use crate::budget::Look;
use crate::counters::Standing;
use crate::fifo::{Line, State};
use crate::key::Key;
use crate::keys::{HeldKey, KeySpace};
use crate::snapshot::{
    self, BudgetSnapshot, CallSnapshot, HolderSnapshot, KeySnapshot, OperationSnapshot, Phase,
    QueuedSnapshot, Snapshot,
};
use crate::watch::{Doing, Live};

/// The calls of one operation that have a record in one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    all: u32,
    granted: u32,
}

impl Engine {
    /// Locks no queue for longer than a look at it, and nothing while it puts things together.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let phase = match self.lifecycle.stopping() {
            false => Phase::Open,
            true if self.drained() => Phase::Drained,
            true => Phase::Draining,
        };
        let (operations, spaces) = self.registered();
        let standings: Vec<Standing> = operations.iter().map(|of| of.counters.standing()).collect();
        let live = self.watch.all();
        let watched = Exact {
            calls: live.as_deref().unwrap_or_default(),
            // Read last, so that no call is younger than nothing.
            now: live.as_ref().map(|_| self.clock.now()),
            key_holders: live
                .iter()
                .flatten()
                .filter(|of| of.key != 0 && of.doing != Doing::AtKey)
                .map(|of| (of.key, of.arrived))
                .collect(),
        };
        let looks: Vec<(Look, Vec<Here>)> = self
            .budgets
            .iter()
            .map(|budget| {
                let mut here = vec![Here::default(); operations.len()];
                let look = budget.look(|seen| {
                    if let Some(of) = here.get_mut(seen.operation as usize) {
                        of.all += 1;
                        of.granted += u32::from(seen.state == State::Granted);
                    }
                });
                (look, here)
            })
            .collect();
        let budgets = self
            .budgets
            .iter()
            .enumerate()
            .map(|(at, budget)| {
                let look = &looks[at].0;
                let holders = holders(at, &operations, &standings, &looks, &watched);
                BudgetSnapshot {
                    name: Arc::clone(budget.name()),
                    capacity: look.capacity,
                    in_use: look.in_use,
                    owed: look.owed,
                    unnoticed: look.unnoticed,
                    waiting: look.waiting,
                    unattributed: look.in_use - holders.iter().map(|of| of.units).sum::<u32>(),
                    holders,
                    queue: queued(&look.line, &operations),
                    longest_wait: watched.longest(|of| waits_for(of, at, &operations)),
                }
            })
            .collect();
        let (held, keys_unnoticed) = self.keys.look();
        let texts: HashMap<u64, String> = match live {
            Some(_) => held.iter().map(|held| (held.id, text(&held.key))).collect(),
            None => HashMap::new(),
        };
        let mut keys: Vec<KeySnapshot> = held
            .into_iter()
            .map(|held| key(held, &operations, &spaces, &watched))
            .collect();
        keys.sort_by(|a, b| (Reverse(a.waiting), &a.key).cmp(&(Reverse(b.waiting), &b.key)));
        Snapshot {
            phase,
            budgets,
            operations: operations
                .iter()
                .zip(standings)
                .map(|(of, now)| OperationSnapshot {
                    stats: of.counters.read(Arc::clone(&of.name)),
                    waiting: now.waiting,
                    executing: now.executing,
                    paused: now.paused,
                    adrift: now.adrift,
                    times: of.watched.times(),
                })
                .collect(),
            keys,
            keys_unnoticed,
            calls: live.as_deref().map(|calls| {
                let calls = calls.iter();
                calls
                    .map(|of| self.call(of, &operations, &texts, &watched))
                    .collect()
            }),
            hosts: self.members.snapshot(),
        }
    }

    /// Whether every call is watched.
    pub(crate) fn is_exact(&self) -> bool {
        self.watch.is_on()
    }

    /// One call that is watched.
    fn call(
        &self,
        of: &Live,
        operations: &[Registered],
        texts: &HashMap<u64, String>,
        watched: &Exact<'_>,
    ) -> CallSnapshot {
        let budget = match of.doing {
            Doing::AtBudget(claim) => operations
                .get(of.operation as usize)
                .and_then(|operation| operation.claims.get(claim as usize))
                .map(|(place, _)| Arc::clone(self.budgets[*place].name())),
            _ => None,
        };
        CallSnapshot {
            operation: name(of.operation, operations),
            doing: match of.doing {
                Doing::AtKey => snapshot::Doing::WaitingForKey,
                Doing::AtBudget(_) => snapshot::Doing::WaitingForUnits,
                Doing::Executing => snapshot::Doing::Executing,
                Doing::Pausing => snapshot::Doing::Pausing,
            },
            budget,
            key: texts.get(&of.key).cloned(),
            age: watched.since(of.arrived),
            doing_for: watched.since(of.since),
        }
    }
}

/// The calls that are watched, and the moment that their ages count to. None where nobody watches.
struct Exact<'c> {
    calls: &'c [Live],
    now: Option<Instant>,
    /// When the holders of keys came, by the keys' ids.
    key_holders: HashMap<u64, Instant>,
}

impl Exact<'_> {
    fn since(&self, then: Instant) -> Duration {
        self.now
            .map_or(Duration::ZERO, |now| now.saturating_duration_since(then))
    }

    /// The longest time that one of these calls has done what it does.
    fn longest(&self, which: impl Fn(&Live) -> bool) -> Option<Duration> {
        let calls = self.calls.iter().filter(|of| which(of));
        calls.map(|of| self.since(of.since)).max()
    }
}

fn waits_for(of: &Live, at: usize, operations: &[Registered]) -> bool {
    let Doing::AtBudget(claim) = of.doing else {
        return false;
    };
    operations
        .get(of.operation as usize)
        .and_then(|operation| operation.claims.get(claim as usize))
        .is_some_and(|(place, _)| *place == at)
}

/// Who holds the budget at this place, never more than is in use.
fn holders(
    at: usize,
    operations: &[Registered],
    standings: &[Standing],
    looks: &[(Look, Vec<Here>)],
    watched: &Exact<'_>,
) -> Vec<HolderSnapshot> {
    let mut holders: Vec<HolderSnapshot> = operations
        .iter()
        .zip(standings)
        .enumerate()
        .filter_map(|(number, (of, now))| {
            let (_, units) = of.claims.iter().find(|(place, _)| *place == at)?;
            let here = |place: usize| looks[place].1[number];
            let later = of.claims.iter().filter(|(place, _)| *place > at);
            let calls = now.executing
                + u64::from(here(at).granted)
                + later
                    .map(|(place, _)| u64::from(here(*place).all))
                    .sum::<u64>();
            Some(HolderSnapshot {
                operation: Arc::clone(&of.name),
                units: u32::try_from(calls * u64::from(*units)).unwrap_or(u32::MAX),
                calls: u32::try_from(calls).unwrap_or(u32::MAX),
                oldest: watched
                    .longest(|of| of.doing == Doing::Executing && of.operation as usize == number),
            })
        })
        .collect();
    holders.sort_by_key(|of| Reverse(of.units));
    let mut left = looks[at].0.in_use;
    for of in &mut holders {
        // Calls ended between two readings.
        of.units = of.units.min(left);
        left -= of.units;
    }
    holders.retain(|of| of.units > 0);
    holders
}

/// An operation built since its queue was looked at has no name here.
fn name(number: u32, operations: &[Registered]) -> Arc<str> {
    operations
        .get(number as usize)
        .map_or_else(|| "?".into(), |of| Arc::clone(&of.name))
}

fn queued(line: &Line, operations: &[Registered]) -> Vec<QueuedSnapshot> {
    line.0
        .iter()
        .map(|run| QueuedSnapshot {
            operation: name(run.operation, operations),
            calls: run.calls,
            units: run.units,
        })
        .collect()
}

fn text(key: &Key) -> String {
    String::from_utf8_lossy(&key.to_bytes()).into_owned()
}

fn key(
    held: HeldKey,
    operations: &[Registered],
    spaces: &[Arc<str>],
    watched: &Exact<'_>,
) -> KeySnapshot {
    let KeySpace(space) = held.space;
    KeySnapshot {
        space: space
            .checked_sub(1)
            .and_then(|place| spaces.get(place as usize).cloned()),
        key: text(&held.key),
        holder: name(held.holder, operations),
        waiting: held.waiting,
        queue: queued(&held.line, operations),
        holder_age: watched
            .key_holders
            .get(&held.id)
            .map(|arrived| watched.since(*arrived)),
    }
}
