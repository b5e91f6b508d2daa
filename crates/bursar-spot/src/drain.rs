//! How a host shuts down: with its runtime's drain, or on its own.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bursar::seam::{DrainMember, inside};
use bursar::{DrainReport, Drained, ShutdownError};

use crate::bound::Bound;
use crate::error::CloseReason;
use crate::host::{Core, Host, Member};
use crate::sync::lock;

impl Core {
    pub(crate) fn members(&self) -> Vec<Arc<dyn Member>> {
        let mut members = self.spots.all();
        let families = lock(&self.families).clone();
        for family in families {
            members.extend(family.members());
        }
        members
    }
}

impl DrainMember for Core {
    fn stop(&self) {
        self.common.shared.drain.stop();
        // Ticks that are queued are accepted work; no more are.
        self.common.shared.moments.close();
    }

    fn is_idle(&self) -> bool {
        let known = lock(&self.busy).clone();
        if known.is_some_and(|member| !member.idle()) {
            return false;
        }
        let busy = self.members().into_iter().find(|member| !member.idle());
        let idle = busy.is_none();
        let before = std::mem::replace(&mut *lock(&self.busy), busy);
        drop(before);
        idle
    }

    fn report(&self) -> Vec<Drained> {
        let mut rows = Vec::new();
        for member in self.members() {
            let (running, waiting, yielded) = member.figures();
            let live = u64::from(running) + u64::from(waiting) + u64::from(yielded);
            if live > 0 {
                let name = format!("spot {:?}", Member::name(&*member));
                rows.push(Drained::new(name, 0, 0, live));
            }
        }
        rows
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.common.shared.moments.close();
        // A timer holds on to its Spot, and that to its timers.
        for member in self.members() {
            member.end_timers();
        }
    }
}

/// What the shutdown of a host and its runtime did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// Spots that were closed.
    pub closed: usize,
    /// Those among them that still had work when the bound passed, and lost it.
    pub cut_short: usize,
    /// Pieces of work beside the turns ([`Workers`](crate::Workers)) that had not ended when the bound passed. They have
    /// been told to stop.
    pub working: usize,
    /// What the runtime's drain did.
    pub runtime: DrainReport,
}

impl fmt::Display for HostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} Spots closed, {} of them with work left",
            self.closed, self.cut_short
        )?;
        if self.working > 0 {
            writeln!(f, "{} pieces of work go on beside them", self.working)?;
        }
        write!(f, "{}", self.runtime)
    }
}

impl Host {
    /// Shuts the host down, and then its runtime, for at most `bound` together, counted from the first poll.
    ///
    /// In this order: nothing is taken in any more but what live turns ask for; what was accepted runs to its end, until
    /// `bound` passes; every Spot closes with [`CloseReason::HostShutdown`] and runs its last turn; work beside the turns is told to stop
    /// and ends; the runtime drains.
    ///
    /// # Errors
    /// [`ShutdownError::InsideOwnCall`], at the first poll and closing nothing, when awaited from inside of a turn of this
    /// host or a call of its runtime. [`ShutdownError::StillRunning`] when the bound passes first: what still runs is
    /// named, waiting work and yielded bodies are gone, the rest goes on to its end, and it can be awaited again.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting. The intake stays closed, and it can be awaited again.
    pub async fn shutdown_within(&self, bound: Duration) -> Result<HostReport, ShutdownError> {
        let core = &self.core;
        let shared = &core.common.shared;
        if inside(shared.home) {
            return Err(ShutdownError::InsideOwnCall);
        }
        core.stop();
        let began = shared.clock.now();
        let mut end = Bound::of(bound);
        poll_fn(|cx| {
            // Registered before the look: what becomes idle meanwhile wakes this task.
            shared.drain.wait(cx.waker());
            if core.is_idle() {
                return Poll::Ready(());
            }
            end.poll(shared, cx)
        })
        .await;
        let mut members = core.members();
        let (closed, mut cut_short) = (members.len(), 0);
        for member in &members {
            cut_short += usize::from(!member.idle());
            Arc::clone(member).close(CloseReason::HostShutdown);
        }
        poll_fn(|cx| {
            members.retain(|member| member.poll_closed(cx).is_pending());
            if members.is_empty() {
                return Poll::Ready(());
            }
            end.poll(shared, cx)
        })
        .await;
        shared.workers.close();
        let mut ended = pin!(shared.workers.ended());
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => end.poll(shared, cx),
        })
        .await;
        let working = shared.workers.live();
        let spent = shared.clock.now().saturating_duration_since(began);
        let runtime = core
            .runtime
            .shutdown_within(bound.saturating_sub(spent))
            .await?;
        Ok(HostReport {
            closed,
            cut_short,
            working,
            runtime,
        })
    }
}
