//! Spots by name.
//!
//! Invariants:
//! 1. At most one entry a name; it stays until its Spot has ended, so that a name never means two live Spots.
//! 2. The locks are leaves; no user code runs under them.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::sync::{Mutex, lock};

/// What an entry tells of itself.
pub(crate) trait Named: Clone {
    fn name(&self) -> &str;

    /// Tells it from an earlier one of the same name.
    fn address(&self) -> usize;
}

const SHARDS: usize = 16;

/// See the module. Names may come from strangers: the hasher is seeded at random.
pub(crate) struct Registry<M> {
    shards: [Mutex<HashTable<M>>; SHARDS],
    hasher: RandomState,
}

impl<M: Named> Registry<M> {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashTable::new())),
            hasher: RandomState::default(),
        }
    }

    fn shard(&self, name: &str) -> (&Mutex<HashTable<M>>, u64) {
        let hash = self.hasher.hash_one(name);
        // The table uses the top and the bottom bits.
        let shard = (hash >> 24) as usize % SHARDS;
        (&self.shards[shard], hash)
    }

    pub(crate) fn find(&self, name: &str) -> Option<M> {
        let (shard, hash) = self.shard(name);
        let table = lock(shard);
        table.find(hash, |entry| entry.name() == name).cloned()
    }

    /// Keeps what `make` makes, unless the name is taken: then what has it. `make` runs under the lock: if it refuses to
    /// make anything because of what happened before somebody looked at [`all`](Self::all), they have seen all there is.
    pub(crate) fn find_or_insert(
        &self,
        name: &str,
        make: impl FnOnce() -> Option<M>,
    ) -> Result<M, Option<M>> {
        let (shard, hash) = self.shard(name);
        let mut table = lock(shard);
        if let Some(found) = table.find(hash, |entry| entry.name() == name) {
            return Err(Some(found.clone()));
        }
        let made = make().ok_or(None)?;
        let hasher = |entry: &M| self.hasher.hash_one(entry.name());
        table.insert_unique(hash, made.clone(), hasher);
        Ok(made)
    }

    /// Forgets an entry. Handed back, so that it is dropped after the lock.
    pub(crate) fn remove(&self, name: &str, address: usize) -> Option<M> {
        let (shard, hash) = self.shard(name);
        let mut table = lock(shard);
        let same = |entry: &M| entry.name() == name && entry.address() == address;
        let (gone, _) = table.find_entry(hash, same).ok()?.remove();
        let room = table.capacity();
        if room > 64 && table.len() < room / 8 {
            table.shrink_to(0, |entry| self.hasher.hash_one(entry.name()));
        }
        Some(gone)
    }

    pub(crate) fn all(&self) -> Vec<M> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).iter().cloned());
        }
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}
