//! What a host's Spots do at one moment: for whoever asks the host, and in its runtime's snapshot.

use std::cmp::Reverse;

use bursar::{HostSnapshot, SpotSnapshot};

use crate::gate::Phase;
use crate::host::{Core, Host};
use crate::strand::Strand;

impl Core {
    /// Looks at every Spot, one after the other.
    pub(crate) fn look(&self) -> HostSnapshot {
        let members = self.members();
        let mut busy: Vec<_> = members
            .iter()
            .filter_map(|member| member.snapshot())
            .collect();
        busy.sort_by(|a, b| (Reverse(a.waiting), &a.name).cmp(&(Reverse(b.waiting), &b.name)));
        let mut snapshot = HostSnapshot::default();
        snapshot.spots = members.len();
        snapshot.busy = busy;
        snapshot.lost_completions = self.common.shared.lost();
        snapshot
    }
}

impl Host {
    /// Looks at every Spot, one after the other. A turn that nobody observes pays nothing for it. It is also a part of
    /// [`Runtime::snapshot`](bursar::Runtime::snapshot).
    #[must_use]
    pub fn snapshot(&self) -> HostSnapshot {
        self.core.look()
    }
}

impl<S: Send + 'static> Strand<S> {
    /// What it does. `None` while it does nothing and waits for nothing.
    pub(crate) fn snapshot(&self) -> Option<SpotSnapshot> {
        let ((running, waiting, yielded), open) =
            self.look(|gate| (gate.figures(), gate.phase() == Phase::Open));
        let timers = self.beside(|beside| beside.timers());
        let busy = running > 0 || waiting > 0 || yielded > 0 || timers > 0 || !open;
        busy.then(|| {
            let mut snapshot = SpotSnapshot::default();
            snapshot.name = self.name.to_string();
            snapshot.running = running;
            let now = || self.common.shared.clock.now();
            let began = self.watch.oldest();
            snapshot.running_for = began.map(|began| now().saturating_duration_since(began));
            snapshot.waiting = waiting;
            snapshot.yielded = yielded;
            snapshot.timers = timers;
            snapshot.open = open;
            snapshot
        })
    }
}
