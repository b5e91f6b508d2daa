//! Timers as users register them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::{Handle, Handler};
use crate::beside::{self, Refused};
use crate::error::{SpotError, SpotErrorKind};
use crate::held::Held;
use crate::kind::{Kind, PerActor, SharedGate};
use crate::schedule::{Schedule, Tick};
use crate::spot::Spot;
use crate::strand::Strand;
use crate::turn::Turn;
use crate::worker::Workers;

impl<S: Send + 'static, K: SharedGate> Spot<S, K> {
    /// Registers a timer under a name: each tick of `schedule` runs `handler` as a turn of this Spot.
    ///
    /// A timer registered under the same name before is replaced: what it had queued does not run, and the new one's first
    /// tick waits until a running one of the old has ended. Two ticks of one timer never run at once; a tick that yields
    /// lets other turns run, and not its own next tick. Ticks count against no limit and are nested in nothing.
    ///
    /// A handler that panics ends its tick as any turn; the next one is due as if it had returned.
    ///
    /// ```
    /// # use bursar::Runtime;
    /// # use bursar_spot::{Host, Schedule, SpotError};
    /// # use std::time::Duration;
    /// # async fn example(runtime: &Runtime) -> Result<(), SpotError> {
    /// let host = Host::new(runtime);
    /// let stock = host.create("stock", 10_u32)?;
    /// stock.timer("restock", Schedule::every(Duration::from_secs(60)), |mut turn, tick| async move {
    ///     *turn.state() += 5 * (1 + tick.skipped as u32);
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation) for a period of zero; [`Closed`](SpotErrorKind::Closed);
    /// [`ShuttingDown`](SpotErrorKind::ShuttingDown) also when the host is gone.
    pub fn timer<F, W>(&self, name: &str, schedule: Schedule, handler: F) -> Result<(), SpotError>
    where
        F: Fn(Turn<S, K>, Tick) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let handler = Handler::new(move |held, tick| handler(Turn::new(held), tick));
        register(self.strand(), name, schedule, Arc::new(handler))
    }
}

impl<S: Send + 'static> Spot<S, PerActor> {
    /// Registers a timer under a name: each tick of `schedule` runs `handler` as a turn of the timer's own gate, beside those
    /// of the Spot, of its actors and of its other timers. Otherwise as for a Spot whose timers share its gate.
    ///
    /// # Errors
    /// [`InvalidOperation`](SpotErrorKind::InvalidOperation) for a period of zero; [`Closed`](SpotErrorKind::Closed);
    /// [`ShuttingDown`](SpotErrorKind::ShuttingDown) also when the host is gone.
    pub fn timer<F, W>(&self, name: &str, schedule: Schedule, handler: F) -> Result<(), SpotError>
    where
        F: Fn(TimerTurn<S>, Tick) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let handler = Handler::new(move |held, tick| handler(TimerTurn { held }, tick));
        register(self.strand(), name, schedule, Arc::new(handler))
    }
}

impl<S: Send + 'static, K: SharedGate> Turn<S, K> {
    /// Registers a timer of this turn's Spot; see [`Spot::timer`]. An Instance Spot has no other way to have one: it keeps
    /// its timers until it closes, and its next incarnation has none. A tick is a use of the Spot, so that one which ticks
    /// between two sweeps is not evicted.
    ///
    /// ```
    /// # use bursar::Runtime;
    /// # use bursar_spot::{Host, Instances, Schedule, SpotError};
    /// # use std::time::Duration;
    /// # async fn example(stock: Instances<u32>) -> Result<(), SpotError> {
    /// let acme = stock.at("acme-7");
    /// let restocked = acme
    ///     .request(|mut turn| async move {
    ///         *turn.state() = 0;
    ///         turn.timer("restock", Schedule::once(Duration::from_secs(60)), |mut turn, _tick| async move {
    ///             *turn.state() += 10;
    ///         })
    ///     })
    ///     .await?;
    /// # restocked
    /// # }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn timer<F, W>(&self, name: &str, schedule: Schedule, handler: F) -> Result<(), SpotError>
    where
        F: Fn(Self, Tick) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let handler = Handler::new(move |held, tick| handler(Turn::new(held), tick));
        register(self.held().strand(), name, schedule, Arc::new(handler))
    }
}

impl<S: Send + 'static> Turn<S, PerActor> {
    /// Registers a timer of this turn's Spot; see [`Spot::timer`].
    ///
    /// # Errors
    /// As there.
    pub fn timer<F, W>(&self, name: &str, schedule: Schedule, handler: F) -> Result<(), SpotError>
    where
        F: Fn(TimerTurn<S>, Tick) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let handler = Handler::new(move |held, tick| handler(TimerTurn { held }, tick));
        register(self.held().strand(), name, schedule, Arc::new(handler))
    }
}

impl<S: Send + 'static, K: Kind> Turn<S, K> {
    /// Stops a timer of this turn's Spot; see [`Spot::cancel_timer`].
    pub fn cancel_timer(&self, name: &str) -> bool {
        let strand = self.held().strand();
        beside::cancel(strand, name)
    }
}

fn register<S: Send + 'static>(
    strand: &Arc<Strand<S>>,
    name: &str,
    schedule: Schedule,
    handler: Arc<dyn Handle<S>>,
) -> Result<(), SpotError> {
    let registered = beside::register(strand, name, schedule, handler);
    registered.map_err(|refused| match refused {
        Refused::NoPeriod => SpotError::new(SpotErrorKind::InvalidOperation, &strand.name).saying(
            format!("timer {name:?} has a period of zero: it must be longer"),
        ),
        Refused::Closed => SpotError::closed(&strand.name, false),
        Refused::Stopping => SpotError::new(SpotErrorKind::ShuttingDown, &strand.name),
    })
}

/// One tick of a timer that has a gate of its own. It has no state of the Spot, and nothing to yield. Dropping it ends the
/// turn.
pub struct TimerTurn<S: Send + 'static> {
    held: Held<S>,
}

impl<S: Send + 'static> TimerTurn<S> {
    /// The name of its Spot.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.held.strand().name
    }

    /// Where work beside the turns is handed in. Its cancellation fires when the Spot closes.
    #[must_use]
    pub fn workers(&self) -> Workers {
        let strand = self.held.strand();
        beside::workers(strand)
    }
}

impl<S: Send + 'static> fmt::Debug for TimerTurn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerTurn")
            .field("spot", &self.name())
            .finish_non_exhaustive()
    }
}

impl<S: Send + 'static, K: Kind> Spot<S, K> {
    /// Stops a timer: no tick starts any more, and one that runs goes on. False if there is none of that name, or it has
    /// ticked for the last time.
    pub fn cancel_timer(&self, name: &str) -> bool {
        beside::cancel(self.strand(), name)
    }

    /// How many timers it has.
    #[must_use]
    pub fn timers(&self) -> usize {
        self.strand().beside(|beside| beside.timers())
    }
}
