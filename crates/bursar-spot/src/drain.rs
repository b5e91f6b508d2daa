//! How a host shuts down: with its runtime's drain, or on its own.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bursar::seam::{DrainMember, inside};
use bursar::{DrainReport, Drained, HostSnapshot, ShutdownError};

use crate::bound::Bound;
use crate::error::CloseReason;
use crate::host::{Core, Host};
use crate::member::Member;
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

    /// Whether some Spot is busy, looked at one after the other.
    fn is_busy(&self) -> bool {
        let known = lock(&self.busy).clone();
        if known.is_some_and(|member| !member.idle()) {
            return true;
        }
        let busy = self.members().into_iter().find(|member| !member.idle());
        let found = busy.is_some();
        let before = std::mem::replace(&mut *lock(&self.busy), busy);
        drop(before);
        found
    }

    /// Begins to close every Spot there is. They come back with how many of them had not begun to, and how many of those
    /// lose work by it.
    fn close_all(&self) -> (Vec<Arc<dyn Member>>, usize, usize) {
        let members = self.members();
        let (mut closed, mut cut_short) = (0, 0);
        for member in &members {
            let idle = member.idle();
            if Arc::clone(member).close(CloseReason::HostShutdown) {
                closed += 1;
                cut_short += usize::from(!idle);
            }
        }
        (members, closed, cut_short)
    }
}

impl DrainMember for Core {
    fn stop(&self) {
        self.common.shared.drain.stop();
        // Ticks that are queued are accepted work; no more are.
        self.common.shared.moments.close();
    }

    fn is_idle(&self) -> bool {
        let drain = &self.common.shared.drain;
        loop {
            let before = drain.late();
            if self.is_busy() {
                return false;
            }
            // What was looked at early may have taken work in from what was looked at late.
            if drain.late() == before {
                return true;
            }
        }
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

    fn snapshot(&self) -> Option<HostSnapshot> {
        Some(self.look())
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
    /// Spots that it has closed; those that were closing already are not counted.
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
        let (mut closed, mut cut_short) = (0, 0);
        // A last turn may make another Spot, and give it work: until none is left.
        loop {
            poll_fn(|cx| {
                // Registered before the look: what becomes idle meanwhile wakes this task.
                shared.drain.wait(cx.waker());
                if core.is_idle() {
                    return Poll::Ready(());
                }
                end.poll(shared, cx)
            })
            .await;
            let (mut members, begun, lost) = core.close_all();
            closed += begun;
            cut_short += lost;
            if members.is_empty() || end.has_passed() {
                break;
            }
            poll_fn(|cx| {
                members.retain(|member| member.poll_closed(cx).is_pending());
                if members.is_empty() {
                    return Poll::Ready(());
                }
                end.poll(shared, cx)
            })
            .await;
        }
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

#[cfg(all(test, not(bursar_shuttle)))]
mod tests {
    use std::any::Any;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Context;

    use bursar::SpotSnapshot;

    use super::*;
    use crate::host::Kin;

    /// Idle but for work it was handed; while it is looked at it hands its own on, and is idle then.
    struct Hands {
        busy: AtomicBool,
        to: Option<Arc<Hands>>,
        host: Host,
    }

    impl Member for Hands {
        fn name(&self) -> &str {
            "hands"
        }

        fn close(self: Arc<Self>, _: CloseReason) -> bool {
            false
        }

        fn poll_closed(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        fn idle(&self) -> bool {
            if let Some(to) = &self.to {
                if self.busy.swap(false, Ordering::Relaxed) {
                    to.busy.store(true, Ordering::Relaxed);
                    self.host.core.common.shared.noted();
                }
            }
            !self.busy.load(Ordering::Relaxed)
        }

        fn is_kept_above(&self) -> bool {
            false
        }

        fn figures(&self) -> (u32, u32, u32) {
            (0, 0, 0)
        }

        fn end_timers(self: Arc<Self>) {}

        fn snapshot(&self) -> Option<SpotSnapshot> {
            None
        }

        fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
            self
        }
    }

    struct Family(Vec<Arc<Hands>>);

    impl Kin for Family {
        fn name(&self) -> &str {
            "family"
        }

        fn members(&self) -> Vec<Arc<dyn Member>> {
            let all = self.0.iter().cloned();
            all.map(|member| -> Arc<dyn Member> { member }).collect()
        }
    }

    #[tokio::test]
    async fn f11_work_handed_on_between_two_looks_is_seen() {
        let runtime = bursar::Runtime::builder().resource("unit", 1).build();
        let host = Host::new(&runtime.expect("the budget is right"));
        let hands = |busy, to| {
            let (busy, host) = (AtomicBool::new(busy), host.clone());
            Arc::new(Hands { busy, to, host })
        };
        let first = hands(false, None);
        let second = hands(true, Some(Arc::clone(&first)));
        let family = Family(vec![Arc::clone(&first), second]);
        lock(&host.core.families).push(Arc::new(family));
        host.core.stop();
        assert!(!host.core.is_idle());
        first.busy.store(false, Ordering::Relaxed);
        assert!(host.core.is_idle());
    }
}
