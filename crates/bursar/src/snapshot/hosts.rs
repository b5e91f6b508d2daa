//! What hosts of turns add to the snapshot of the runtime they are registered with.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::table::{Align, SHOWN, Table, count, more, name, number, time};

/// The Spots of one host, as they are now. Displayed, it is a table.
///
/// Each Spot's figures are of one instant; between Spots a little time passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct HostSnapshot {
    /// How many Spots there are.
    pub spots: usize,
    /// Those that do something or wait for something, the longest lines first.
    pub busy: Vec<SpotSnapshot>,
    /// Completions that were dropped because their Spot had closed, or their future panicked.
    pub lost_completions: u64,
}

/// One Spot at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct SpotSnapshot {
    /// Its name; that of an Instance Spot is its id.
    pub name: String,
    /// Turns that run or have been granted: at most one, unless its actors have gates of their own.
    pub running: u32,
    /// How long the oldest of those turns has run since it began or came back. Exact runtimes only.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "running_for_seconds",
            with = "super::seconds::optional",
            default,
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub running_for: Option<Duration>,
    /// Work, entered turns and continuations that wait for a gate or a claim.
    pub waiting: u32,
    /// Bodies that have yielded, those included that wait for the gate again.
    pub yielded: u32,
    /// Timers that have not ticked for the last time.
    pub timers: usize,
    /// Whether it takes work in.
    pub open: bool,
}

impl SpotSnapshot {
    /// Who waits, in words.
    pub(super) fn finding(&self) -> String {
        let waiting = number(self.waiting, "piece of work waits", "pieces of work wait");
        let mut text = format!("{waiting} for Spot {}", name(&self.name));
        match (self.running, self.running_for) {
            (0, _) => {}
            (1, None) => text += ", whose turn runs",
            (1, Some(age)) => text += &format!(", whose turn has run {}", time(age)),
            (turns, None) => text += &format!(", of which {turns} turns run"),
            (turns, Some(age)) => {
                text += &format!(", of which {turns} turns run, one for {}", time(age));
            }
        }
        text
    }
}

impl Display for HostSnapshot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} Spots, {} of them busy", self.spots, self.busy.len())?;
        if self.lost_completions > 0 {
            write!(f, ", {} completions lost", self.lost_completions)?;
        }
        let mut table = Table::new([
            ("spot", Align::Left),
            ("running", Align::Right),
            ("for", Align::Right),
            ("waiting", Align::Right),
            ("yielded", Align::Right),
            ("timers", Align::Right),
            ("closes", Align::Left),
        ]);
        for spot in self.busy.iter().take(SHOWN) {
            table.row([
                name(&spot.name),
                count(spot.running.into()),
                spot.running_for.map(time).unwrap_or_default(),
                count(spot.waiting.into()),
                count(spot.yielded.into()),
                count(spot.timers as u64),
                if spot.open { "" } else { "closes" }.to_owned(),
            ]);
        }
        table.draw(f)?;
        more(f, self.busy.len(), "Spots")
    }
}
