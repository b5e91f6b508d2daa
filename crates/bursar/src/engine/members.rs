//! Hosts whose work a drain includes.
//!
//! The lock is a leaf: members are called after it, as they run code of other crates.

use std::fmt;
use std::sync::{Arc, Weak};

use super::Engine;
use crate::report::Drained;
use crate::snapshot::HostSnapshot;
use crate::sync::{Mutex, lock};
use crate::wake::Poke;

/// A host whose accepted work a runtime's drain includes.
///
/// Its work counts as inside the runtime where its [`Standing`](crate::seam::Standing)s name that runtime, so that calls it makes are admitted
/// during the drain.
pub trait DrainMember: Send + Sync + 'static {
    /// Closes the intake, except to what is asked from inside live work. Called at the first poll of each shutdown;
    /// only the first call has something to do.
    fn stop(&self);

    /// Whether all accepted work has ended. Once stopped, whoever makes this true says so through
    /// [`Membership::became_idle`](crate::seam::Membership::became_idle).
    fn is_idle(&self) -> bool;

    /// What became of its work since [`stop`](Self::stop), for the drain's report.
    fn report(&self) -> Vec<Drained> {
        Vec::new()
    }

    /// What it looks like now, for the runtime's snapshot, which may be taken anywhere. `None` if it has nothing to tell.
    fn snapshot(&self) -> Option<HostSnapshot> {
        None
    }
}

#[derive(Default)]
pub(super) struct Members(Mutex<Enrolled>);

#[derive(Default)]
struct Enrolled {
    /// By number; `None` where one has parted.
    members: Vec<Option<Weak<dyn DrainMember>>>,
    stopping: bool,
}

impl Members {
    fn all(&self) -> Vec<Arc<dyn DrainMember>> {
        let enrolled = lock(&self.0);
        enrolled
            .members
            .iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect()
    }

    pub(super) fn stop(&self) {
        lock(&self.0).stopping = true;
        for member in self.all() {
            member.stop();
        }
    }

    pub(super) fn idle(&self) -> bool {
        self.all().iter().all(|member| member.is_idle())
    }

    pub(super) fn snapshot(&self) -> Vec<HostSnapshot> {
        let all = self.all();
        all.iter().filter_map(|member| member.snapshot()).collect()
    }

    pub(super) fn report(&self) -> Vec<Drained> {
        self.all()
            .iter()
            .flat_map(|member| member.report())
            .collect()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Members").field(&self.all().len()).finish()
    }
}

impl Engine {
    /// Includes a host in the drain; one that comes during a drain is stopped at once.
    pub(crate) fn join(&self, member: Weak<dyn DrainMember>) -> usize {
        let mut enrolled = lock(&self.members.0);
        let stopping = enrolled.stopping;
        enrolled.members.push(Some(Weak::clone(&member)));
        let number = enrolled.members.len() - 1;
        drop(enrolled);
        if let Some(member) = member.upgrade().filter(|_| stopping) {
            member.stop();
        }
        number
    }

    pub(crate) fn part(&self, number: usize) {
        let parted = lock(&self.members.0).members[number].take();
        drop(parted);
    }

    /// Drains look again.
    pub(crate) fn wake_drains(&self) {
        self.lifecycle.tell(Poke(true));
    }
}
