//! The key table: which keys are held and who waits for them.
//!
//! Sixteen shards, each under its own lock, which is a leaf: nothing else is locked under it and no user code runs
//! under it. A key is found through a hash that is seeded at random for each runtime, since keys may come from
//! strangers.
//!
//! Invariants:
//! 1. An entry is in the table exactly while its key is held or passing to the next waiter: lookup, hand-over and
//!    removal happen under one lock, so two calls never hold one key and an idle key costs nothing.
//! 2. An entry's id is unique in its runtime, and only the one call that holds the key uses it to release.
//! 3. A key passes to the waiter that came first.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;

use crate::counters::Counters;
use crate::fifo::{Arrival, Line, List, Slot, Slots, State, poll_record};
use crate::key::Key;
use crate::refusal::Usage;
use crate::sync::{Mutex, lock};
use crate::wake::{Poke, WakeList, wake};

#[cfg(not(any(bursar_loom, bursar_shuttle)))]
const SHARDS: usize = 16;
#[cfg(any(bursar_loom, bursar_shuttle))]
const SHARDS: usize = 1;

/// Above this capacity, that of 64 buckets, an emptied shard gives its memory back.
const KEEP: usize = 56;

/// A set of keys that meet: policies with different spaces never serialize against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeySpace(pub(crate) u32);

/// All keys of one runtime.
#[derive(Debug)]
pub(crate) struct KeyTable {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    seed: RandomState,
}

#[derive(Debug)]
struct Shard {
    entries: HashTable<Held>,
    slots: Slots,
    next: u64,
    stopping: bool,
}

#[derive(Debug)]
struct Held {
    key: Key,
    space: KeySpace,
    hash: u64,
    id: u64,
    queue: List,
    /// The number of the operation that holds it.
    holder: u32,
}

/// A key held, or waited for: enough to find its entry again without the key's bytes. An id of 0 is no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyHold {
    hash: u64,
    id: u64,
}

impl KeyHold {
    /// Unique among the keys held in one runtime; 0 for none.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.id == 0
    }
}

/// How asking for a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Held,
    Queued(Slot),
    /// Held by another, and the call does not wait.
    Refused(Usage),
    Stopping,
}

/// One key held, as a snapshot sees it.
#[derive(Debug)]
pub(crate) struct HeldKey {
    pub(crate) id: u64,
    pub(crate) space: KeySpace,
    pub(crate) key: Key,
    /// The number of the operation that holds it.
    pub(crate) holder: u32,
    pub(crate) waiting: u32,
    pub(crate) line: Line,
}

impl KeyTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS)
                .map(|_| {
                    CachePadded::new(Mutex::new(Shard {
                        entries: HashTable::new(),
                        slots: Slots::new(),
                        next: 0,
                        stopping: false,
                    }))
                })
                .collect(),
            seed: RandomState::default(),
        }
    }

    /// Takes the key if nobody holds it. `arrival` is asked for only when the call would wait; without one the call
    /// is refused instead; it is told the id of the entry it would wait for. What it holds or waits for is put into
    /// `hold`. It runs no user code. `past_stop` lets nested work through a drain. `caller` is the
    /// operation's number.
    #[inline]
    pub(crate) fn ask<'a>(
        &self,
        space: KeySpace,
        key: &Key,
        caller: u32,
        hold: &mut KeyHold,
        past_stop: bool,
        arrival: impl FnOnce(u64) -> Option<Arrival<'a>>,
    ) -> Asked {
        let hash = self.seed.hash_one((space, key));
        let index = index_of(hash);
        let mut shard = lock(&self.shards[index]);
        if shard.stopping && !past_stop {
            return Asked::Stopping;
        }
        let Shard {
            entries,
            slots,
            next,
            ..
        } = &mut *shard;
        let same = |held: &Held| held.space == space && held.key == *key;
        match entries.entry(hash, same, |held| held.hash) {
            Entry::Vacant(vacant) => {
                *next += 1;
                let id = *next * SHARDS as u64 + index as u64;
                vacant.insert(Held {
                    key: key.clone(),
                    space,
                    hash,
                    id,
                    queue: List::new(),
                    holder: caller,
                });
                hold.hash = hash;
                hold.id = id;
                Asked::Held
            }
            Entry::Occupied(mut occupied) => {
                let held = occupied.get_mut();
                match arrival(held.id) {
                    Some(arrival) => {
                        let slot = slots.push(&mut held.queue, arrival);
                        hold.hash = hash;
                        hold.id = held.id;
                        Asked::Queued(slot)
                    }
                    None => Asked::Refused(held.usage()),
                }
            }
        }
    }

    /// Ready with `Granted` or `Stopped`, the record freed; while pending, the current waker is kept.
    pub(crate) fn poll_wait(
        &self,
        hold: KeyHold,
        slot: Slot,
        cx: &mut Context<'_>,
        counters: &Counters,
    ) -> Poll<State> {
        poll_record(cx, |current, fresh| {
            lock(self.shard(hold))
                .slots
                .poll(slot, current, fresh, counters)
        })
    }

    /// Leaves a key's queue; a key already granted passes on.
    pub(crate) fn leave(&self, hold: KeyHold, slot: Slot, counters: &Counters) -> Poke {
        let mut next = None;
        let mut shard = lock(self.shard(hold));
        let Shard { entries, slots, .. } = &mut *shard;
        let queue = entries
            .find_mut(hold.hash, |held| held.id == hold.id)
            .map(|held| &mut held.queue);
        let removed = slots.remove(queue, slot, true, counters);
        let mut poke = Poke(false);
        if removed.state == State::Granted {
            (poke, next) = shard.pass_on(hold);
        }
        drop(shard);
        drop(removed);
        wake(next);
        poke
    }

    /// Gives the key to its first waiter, or forgets it.
    #[inline]
    pub(crate) fn release(&self, hold: KeyHold) -> Poke {
        let mut shard = lock(self.shard(hold));
        let (poke, next) = shard.pass_on(hold);
        drop(shard);
        wake(next);
        poke
    }

    /// Begins the drain here: no new key is taken, and every waiter that is not nested is withdrawn and woken.
    pub(crate) fn stop(&self, counters: &[Arc<Counters>]) {
        for shard in &self.shards {
            let mut wakes = WakeList::new();
            let mut shard = lock(shard);
            shard.stopping = true;
            let Shard { entries, slots, .. } = &mut *shard;
            for held in entries.iter_mut() {
                slots.stop(&mut held.queue, counters, &mut wakes);
            }
            drop(shard);
            drop(wakes);
        }
    }

    /// Stopped, and no key held.
    pub(crate) fn drained(&self) -> bool {
        self.shards.iter().all(|shard| {
            let shard = lock(shard);
            shard.stopping && shard.entries.is_empty()
        })
    }

    /// How many keys are held.
    pub(crate) fn held(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| lock(shard).entries.len())
            .sum()
    }

    /// How many calls wait for a key, and whether it is held; for evidence.
    pub(crate) fn usage(&self, hold: KeyHold) -> Usage {
        lock(self.shard(hold))
            .entries
            .find(hold.hash, |held| held.id == hold.id)
            .map_or(Usage::default(), Held::usage)
    }

    /// Each key held, with those of its waiters that come first; and how many keys have passed to callers that have not
    /// noticed it yet.
    pub(crate) fn look(&self) -> (Vec<HeldKey>, u32) {
        let mut seen = Vec::new();
        let mut unnoticed = 0;
        for shard in &self.shards {
            let shard = lock(shard);
            let mut linked = 0;
            for held in &shard.entries {
                linked += held.queue.len();
                seen.push(HeldKey {
                    id: held.id,
                    space: held.space,
                    key: held.key.clone(),
                    holder: held.holder,
                    waiting: held.queue.len(),
                    line: Line::of(shard.slots.line(&held.queue)),
                });
            }
            let apart = shard.slots.apart(linked);
            unnoticed += apart.filter(|of| of.state == State::Granted).count() as u32;
        }
        (seen, unnoticed)
    }

    fn shard(&self, hold: KeyHold) -> &Mutex<Shard> {
        &self.shards[index_of(hold.hash)]
    }
}

/// The table below takes its bits from both ends of the hash; these lie between.
fn index_of(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

impl Shard {
    /// The waker is that of the first waiter, who holds the key now.
    #[inline]
    fn pass_on(&mut self, hold: KeyHold) -> (Poke, Option<Waker>) {
        let Ok(mut held) = self
            .entries
            .find_entry(hold.hash, |held| held.id == hold.id)
        else {
            return (Poke(false), None);
        };
        let to = held.get_mut();
        if let Some(next) = self.slots.head_operation(&to.queue) {
            to.holder = next;
            return (Poke(false), self.slots.grant_head(&mut to.queue));
        }
        held.remove();
        if self.entries.is_empty() && self.entries.capacity() > KEEP {
            self.entries = HashTable::new();
        }
        (Poke(self.stopping && self.entries.is_empty()), None)
    }
}

impl Held {
    fn usage(&self) -> Usage {
        Usage {
            capacity: 1,
            in_use: 1,
            waiting: self.queue.len(),
        }
    }
}

#[cfg(all(test, not(any(bursar_loom, bursar_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn b11_keys_that_are_held_are_told_apart_whatever_shards_they_lie_in() {
        let table = KeyTable::new();
        let held = (0..1000).map(|number: u32| {
            let mut hold = KeyHold::default();
            let key = Key::from(number.to_string());
            let asked = table.ask(KeySpace(0), &key, 0, &mut hold, false, |_| None);
            assert_eq!(asked, Asked::Held);
            hold.id()
        });
        let mut ids: Vec<u64> = held.collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
        assert!(!ids.contains(&0));
    }

    fn hold(table: &KeyTable, space: u32, text: &str) -> KeyHold {
        let mut hold = KeyHold::default();
        let asked = table.ask(KeySpace(space), &text.into(), 0, &mut hold, false, |_| None);
        assert_eq!(asked, Asked::Held, "{text} in {space}");
        hold
    }

    /// Keys held in each shard, and how many it has room for.
    fn shards(table: &KeyTable) -> Vec<(usize, usize)> {
        let shards = table.shards.iter();
        let entries = shards.map(|shard| {
            let entries = &lock(shard).entries;
            (entries.len(), entries.capacity())
        });
        entries.collect()
    }

    #[test]
    fn b6_the_same_text_in_another_space_is_another_key() {
        let table = KeyTable::new();
        // Of so many some share a shard and what a table of keys looks at first.
        for space in 0..1000 {
            let _held = hold(&table, space, "brand");
        }
        assert_eq!(table.held(), 1000);
    }

    #[test]
    fn keys_spread_over_all_shards() {
        let table = KeyTable::new();
        for number in 0..1000 {
            let _held = hold(&table, 0, &number.to_string());
        }
        let shards = shards(&table);
        assert!(shards.iter().all(|(held, _)| *held > 0), "{shards:?}");
    }

    #[test]
    fn keys_that_were_released_keep_the_memory_of_few() {
        let table = KeyTable::new();
        let held: Vec<_> = (0..10_000)
            .map(|number: u32| hold(&table, 0, &number.to_string()))
            .collect();
        assert!(shards(&table).iter().all(|(_, room)| *room > KEEP));
        for of in held {
            assert_eq!(table.release(of), Poke(false), "no drain waits for it");
        }
        assert!(shards(&table).iter().all(|(_, room)| *room <= KEEP));
        // A shard that has room for just so many keeps it.
        let mut held = Vec::new();
        while shards(&table)[0].1 < KEEP {
            held.push(hold(&table, 1, &held.len().to_string()));
        }
        for of in held {
            assert_eq!(table.release(of), Poke(false));
        }
        // A bucket may be lost for good in a run of full ones; what is given back is all there is.
        let (held, room) = shards(&table)[0];
        assert!(held == 0 && room > 0 && room <= KEEP, "{held}, {room}");
    }

    #[test]
    fn d1_a_drain_is_told_of_the_last_key_of_a_shard() {
        let table = KeyTable::new();
        let mut held = vec![hold(&table, 0, "first")];
        let of = |hold: &KeyHold| index_of(hold.hash);
        for number in 0.. {
            let next = hold(&table, 0, &number.to_string());
            held.push(next);
            if of(&next) == of(&held[0]) {
                break;
            }
        }
        table.stop(&[]);
        let last = held.pop().expect("two of one shard at least");
        assert_eq!(table.release(last), Poke(false), "the first is still held");
        assert_eq!(table.release(held[0]), Poke(true));
    }
}
