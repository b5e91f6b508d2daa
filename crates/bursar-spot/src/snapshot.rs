//! What a host's Spots do at one moment.

use std::fmt;

use crate::host::Host;

/// One Spot at one moment. Each number is exact for its own Spot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpotSnapshot {
    /// Its name; that of an Instance Spot is its id.
    pub name: String,
    /// Turns that run or have been granted: at most one, unless its actors have gates of their own.
    pub running: u32,
    /// Work, entered turns and continuations that wait for a gate or a claim.
    pub waiting: u32,
    /// Bodies that have yielded, those included that wait for the gate again.
    pub yielded: u32,
    /// Timers that have not ticked for the last time.
    pub timers: usize,
    /// Whether it takes work in.
    pub open: bool,
}

/// All Spots of a host at one moment, the longest lines first. Displayed, it is a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostSnapshot {
    /// How many Spots there are.
    pub spots: usize,
    /// Those that do something or wait for something.
    pub busy: Vec<SpotSnapshot>,
    /// Completions that were dropped because their Spot had closed, or their future panicked.
    pub lost_completions: u64,
}

impl Host {
    /// Looks at every Spot, one after the other. A turn that nobody observes pays nothing for it.
    #[must_use]
    pub fn snapshot(&self) -> HostSnapshot {
        let members = self.core.members();
        let spots = members.len();
        let mut busy: Vec<_> = members
            .iter()
            .map(|member| member.snapshot())
            .filter(SpotSnapshot::is_busy)
            .collect();
        busy.sort_by(|a, b| (b.waiting, &a.name).cmp(&(a.waiting, &b.name)));
        HostSnapshot {
            spots,
            busy,
            lost_completions: self.lost_completions(),
        }
    }
}

impl SpotSnapshot {
    fn is_busy(&self) -> bool {
        self.running > 0 || self.waiting > 0 || self.yielded > 0 || self.timers > 0 || !self.open
    }
}

impl fmt::Display for HostSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.busy.iter().map(|spot| spot.name.chars().count());
        let width = width.max().unwrap_or(0).max("spot".len());
        write!(
            f,
            "{} Spots, {} of them busy, {} completions lost\n{:width$}  {:>8}  {:>8}  {:>8}  {:>8}",
            self.spots,
            self.busy.len(),
            self.lost_completions,
            "spot",
            "running",
            "waiting",
            "yielded",
            "timers"
        )?;
        for spot in &self.busy {
            let closing = if spot.open { "" } else { "  closing" };
            write!(
                f,
                "\n{:width$}  {:>8}  {:>8}  {:>8}  {:>8}{closing}",
                spot.name, spot.running, spot.waiting, spot.yielded, spot.timers
            )?;
        }
        Ok(())
    }
}
