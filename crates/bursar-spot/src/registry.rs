//! Spots by name.
//!
//! A name is a Spot's of some type; Spots of one type lie in a table of their own, an address each, and share the lock of
//! their names' shard with those of all other types.
//!
//! Invariants:
//! 1. At most one entry a name, over all types; it stays until its Spot has ended, so that a name never means two live Spots.
//! 2. The locks are leaves; no user code runs under them.

use std::any::Any;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::member::Member;
use crate::shared::Registrar;
use crate::strand::Strand;
use crate::sync::{Mutex, lock};

const SHARDS: usize = 16;

/// See the module. Names may come from strangers: the hasher is seeded at random.
pub(crate) struct Registry {
    /// A table for each type of state. There are few types.
    shards: [Mutex<Vec<Box<dyn Table>>>; SHARDS],
    hasher: RandomState,
}

/// Why a name has no new Spot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// A Spot that has not ended has it.
    Taken,
    /// Its maker made none.
    Refused,
}

/// Spots of one type.
trait Table: Any + Send {
    fn find(&self, hash: u64, name: &str) -> Option<Arc<dyn Member>>;
    /// Takes out the one of that name at that address.
    fn remove(
        &mut self,
        hash: u64,
        name: &str,
        address: usize,
        hasher: &RandomState,
    ) -> Option<Arc<dyn Member>>;
    fn all(&self, members: &mut Vec<Arc<dyn Member>>);
    fn len(&self) -> usize;
}

struct Typed<S: Send + 'static>(HashTable<Arc<Strand<S>>>);

impl<S: Send + 'static> Table for Typed<S> {
    fn find(&self, hash: u64, name: &str) -> Option<Arc<dyn Member>> {
        let found = self.0.find(hash, |strand| *strand.name == *name)?;
        Some(Arc::<Strand<S>>::clone(found))
    }

    fn remove(
        &mut self,
        hash: u64,
        name: &str,
        address: usize,
        hasher: &RandomState,
    ) -> Option<Arc<dyn Member>> {
        let same = |strand: &Arc<Strand<S>>| {
            *strand.name == *name && Arc::as_ptr(strand).addr() == address
        };
        let (gone, _) = self.0.find_entry(hash, same).ok()?.remove();
        let room = self.0.capacity();
        if room > 64 && self.0.len() < room / 8 {
            self.0.shrink_to(0, |strand| hasher.hash_one(&*strand.name));
        }
        Some(gone)
    }

    fn all(&self, members: &mut Vec<Arc<dyn Member>>) {
        members.extend(
            self.0
                .iter()
                .map(|strand| -> Arc<dyn Member> { Arc::<Strand<S>>::clone(strand) }),
        );
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The Spots of one type in a shard, if it has had any.
fn typed<S: Send + 'static>(shard: &mut [Box<dyn Table>]) -> Option<&mut Typed<S>> {
    shard.iter_mut().find_map(|table| {
        let table: &mut dyn Any = &mut **table;
        table.downcast_mut()
    })
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Vec::new())),
            hasher: RandomState::default(),
        }
    }

    fn shard(&self, name: &str) -> (&Mutex<Vec<Box<dyn Table>>>, u64) {
        let hash = self.hasher.hash_one(name);
        // The table uses the top and the bottom bits.
        let shard = (hash >> 24) as usize % SHARDS;
        (&self.shards[shard], hash)
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Member>> {
        let (shard, hash) = self.shard(name);
        lock(shard).iter().find_map(|table| table.find(hash, name))
    }

    /// As `find`, among Spots of one type.
    pub(crate) fn find_typed<S: Send + 'static>(&self, name: &str) -> Option<Arc<Strand<S>>> {
        let (shard, hash) = self.shard(name);
        let mut shard = lock(shard);
        let table = typed::<S>(&mut shard)?;
        table.0.find(hash, |strand| *strand.name == *name).cloned()
    }

    /// Keeps what `make` makes, unless the name is taken. `make` runs under the lock: if it refuses to make anything
    /// because of what happened before somebody looked at [`all`](Self::all), they have seen all there is.
    pub(crate) fn insert<S: Send + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> Option<Arc<Strand<S>>>,
    ) -> Result<Arc<Strand<S>>, NotMade> {
        let (shard, hash) = self.shard(name);
        let mut shard = lock(shard);
        if shard.iter().any(|table| table.find(hash, name).is_some()) {
            return Err(NotMade::Taken);
        }
        let made = make().ok_or(NotMade::Refused)?;
        let entry = Arc::clone(&made);
        let hasher = |strand: &Arc<Strand<S>>| self.hasher.hash_one(&*strand.name);
        match typed::<S>(&mut shard) {
            Some(table) => {
                table.0.insert_unique(hash, entry, hasher);
            }
            None => {
                let mut table = HashTable::new();
                table.insert_unique(hash, entry, hasher);
                shard.push(Box::new(Typed(table)));
            }
        }
        Ok(made)
    }

    pub(crate) fn all(&self) -> Vec<Arc<dyn Member>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            lock(shard).iter().for_each(|table| table.all(&mut all));
        }
        all
    }

    /// As `all`, of one type.
    pub(crate) fn all_typed<S: Send + 'static>(&self) -> Vec<Arc<Strand<S>>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            if let Some(table) = typed::<S>(&mut lock(shard)) {
                all.extend(table.0.iter().cloned());
            }
        }
        all
    }

    pub(crate) fn len(&self) -> usize {
        let of = |shard: &Mutex<Vec<Box<dyn Table>>>| -> usize {
            lock(shard).iter().map(|table| table.len()).sum()
        };
        self.shards.iter().map(of).sum()
    }
}

impl Registrar for Registry {
    fn gone(&self, name: &str, address: usize) {
        let (shard, hash) = self.shard(name);
        let gone = lock(shard)
            .iter_mut()
            .find_map(|table| table.remove(hash, name, address, &self.hasher));
        // After the lock: it may be the last owner of user values.
        drop(gone);
    }
}
