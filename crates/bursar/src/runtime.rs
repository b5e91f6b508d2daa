//! The runtime: owner of budgets, operations and the drain.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::chain::links::RuntimeId;
use crate::clock::{Clock, ClockHandle};
use crate::contract::Contract;
use crate::drain;
use crate::engine::Engine;
use crate::invalid::ContractError;
use crate::operation::{Handler, Operation};
use crate::policy::Policy;
use crate::report::{DrainReport, ShutdownError};
use crate::retry_budget::RetryBudget;
use crate::seam::{DrainMember, Membership};
use crate::snapshot::Snapshot;
use crate::stats::Stats;

/// Owns named budgets, admits calls to them, and drains. Cheap to clone; every clone is the same runtime.
///
/// Its budgets are local to this process: five processes with capacity 8 are 40 slots.
///
/// ```
/// use bursar::{Policy, Runtime};
///
/// # fn main() -> Result<(), bursar::ContractError> {
/// let runtime = Runtime::builder()
///     .resource("renderer", 8)
///     .resource("db-write", 4)
///     .build()?;
/// let render = runtime.contract("render", Policy::pure().claim("renderer", 1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime {
    engine: Arc<Engine>,
}

/// Names the budgets of a [`Runtime`].
#[must_use = "finish it with `build`"]
#[derive(Default)]
pub struct RuntimeBuilder {
    resources: Vec<(String, u32)>,
    clock: Option<Arc<dyn Clock>>,
    seed: Option<u64>,
    retry_budget: Option<RetryBudget>,
    retry_groups: Vec<(String, RetryBudget)>,
    nested_wait: Option<Duration>,
    #[cfg(feature = "exact")]
    exact: bool,
}

impl RuntimeBuilder {
    /// Adds a budget of `capacity` units, from 1 to 2^31 - 1.
    pub fn resource(mut self, name: impl Into<String>, capacity: u32) -> Self {
        self.resources.push((name.into(), capacity));
        self
    }

    /// Measures time by `clock`. The default is tokio's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Seeds the random pauses of backoffs, so that a test sees the same ones each time. The default is a random seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Caps the retries of all operations together, those of named groups excepted. The default is no cap.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.retry_budget = Some(budget);
        self
    }

    /// Caps the retries of the operations whose policies name this group
    /// ([`Policy::retry_group`](crate::Policy::retry_group)).
    pub fn retry_group(mut self, group: impl Into<String>, budget: RetryBudget) -> Self {
        self.retry_groups.push((group.into(), budget));
        self
    }

    /// How long a call may wait that was made from inside a call or turn which holds something meanwhile: others may
    /// wait for that, and each for the other. The default is 10 s; [`Duration::MAX`] is no bound.
    ///
    /// A call that would have to wait for what its own chain holds never waits:
    /// [`CallError::WouldDeadlock`](crate::CallError::WouldDeadlock).
    pub fn nested_wait(mut self, longest: Duration) -> Self {
        self.nested_wait = Some(longest);
        self
    }

    /// Watches every call: snapshots tell each call with its age, how long the oldest holders of each budget have held
    /// and the longest waiters waited, and how long calls waited and ran, in quantiles.
    ///
    /// Then a call reads the clock when it comes, when it starts to execute after a wait, and when it ends, and enters a
    /// registry. The default is not to: without it neither is touched.
    ///
    /// ```
    /// use bursar::{Doing, Policy, Runtime};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().resource("db", 1).exact().build()?;
    /// let load = runtime.contract("load", Policy::pure().claim("db", 1))?;
    ///
    /// let permit = load.admit().await?;
    /// let calls = runtime.snapshot().calls.unwrap_or_default();
    /// assert_eq!(calls[0].doing, Doing::Executing);
    /// drop(permit);
    ///
    /// let times = runtime.snapshot().operations[0].times.expect("an exact runtime");
    /// assert_eq!(times.running.count, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "exact")]
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Builds the runtime.
    ///
    /// # Errors
    /// No budget, an empty or repeated name, a capacity out of range; a nested wait of zero; without the `tokio`
    /// feature, no clock.
    pub fn build(self) -> Result<Runtime, ContractError> {
        let clock = match self.clock {
            Some(clock) => ClockHandle::Custom(clock),
            #[cfg(feature = "tokio")]
            None => ClockHandle::Tokio,
            #[cfg(not(feature = "tokio"))]
            None => return Err(ContractError::NoClock),
        };
        let mut engine = Engine::new(self.resources, clock, self.seed)?;
        engine.cap_retries(self.retry_budget, self.retry_groups)?;
        if let Some(longest) = self.nested_wait {
            engine.bound_nested_waits(longest)?;
        }
        #[cfg(feature = "exact")]
        if self.exact {
            engine.watch();
        }
        Ok(Runtime {
            engine: Arc::new(engine),
        })
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("resources", &self.resources)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Begins a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Checks a policy and makes it an operation without an input type.
    ///
    /// # Errors
    /// Whatever is wrong with the policy, naming the operation and what would be right.
    pub fn contract<E>(
        &self,
        operation: &str,
        policy: Policy<E>,
    ) -> Result<Contract, ContractError> {
        Ok(Contract::new(
            self.engine.plan(operation, &policy.declared)?,
        ))
    }

    /// Checks a policy and binds a handler to it.
    ///
    /// # Errors
    /// As [`contract`](Self::contract).
    pub fn operation<I, H, E>(
        &self,
        operation: &str,
        policy: Policy<E>,
        handler: H,
    ) -> Result<Operation<I, H>, ContractError>
    where
        I: Send + Sync,
        H: Handler<I>,
    {
        Ok(Operation::new(
            self.engine.plan(operation, &policy.declared)?,
            handler,
        ))
    }

    /// Changes a budget's capacity while serving. Growing it grants waiters at once. Shrinking it revokes nothing: what
    /// is held stays held, and nothing is granted until the new capacity allows it.
    ///
    /// # Errors
    /// No such budget; a capacity that is not from 1 to 2^31 - 1, or below what some operation claims.
    pub fn resize(&self, budget: &str, capacity: u32) -> Result<(), ContractError> {
        self.engine.resize(budget, capacity)
    }

    /// Tells this runtime from all others that are alive.
    #[must_use]
    pub fn id(&self) -> RuntimeId {
        RuntimeId(self.engine.id())
    }

    /// How long a call may wait whose chain holds something; see
    /// [`RuntimeBuilder::nested_wait`].
    #[must_use]
    pub fn nested_wait(&self) -> Duration {
        self.engine.nested_wait
    }

    /// Includes a host's work in this runtime's drain, for as long as the membership lives. One that registers during
    /// a drain is stopped at once.
    pub fn register(&self, member: Weak<dyn DrainMember>) -> Membership {
        Membership::new(Arc::clone(&self.engine), member)
    }

    /// Reads every counter. It locks nothing a call needs for longer than a look.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Whether it was built to watch every call (`RuntimeBuilder::exact`, which the feature `exact` adds).
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.engine.is_exact()
    }

    /// Looks at everything: who holds, who waits, and for what.
    ///
    /// Nothing is recorded for it while calls run: it is derived from counters and queues when asked for, and may be asked
    /// for anywhere, from inside a handler, a waker or a drop too. It walks over queues and held keys, and holds each queue's lock
    /// for that long; of one queue it looks at 65,536 calls at most. Of hosts of turns it asks every Spot.
    ///
    /// Keys are shown as they are: where they say who a customer is, so does the snapshot.
    ///
    /// ```
    /// use bursar::{Policy, Runtime};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder().resource("renderer", 8).build()?;
    /// let render = runtime.contract("render", Policy::pure().claim("renderer", 2))?;
    ///
    /// let permit = render.admit().await?;
    /// let snapshot = runtime.snapshot();
    /// let renderer = &snapshot.budgets[0];
    /// assert_eq!((renderer.in_use, renderer.capacity), (2, 8));
    /// assert_eq!(&*renderer.holders[0].operation, "render");
    /// println!("{snapshot}");
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// Tells a [`snapshot`](Self::snapshot)'s numbers to the recorder of the `metrics` facade.
    ///
    /// Counters are told as they stand and gauges as they are: publish on whatever interval the recorder is read. The
    /// names are listed in `docs/telemetry.md` of the repository.
    #[cfg(feature = "metrics")]
    pub fn publish_metrics(&self) {
        crate::publish::publish(&self.snapshot());
    }

    /// Closes the runtime and waits until everything admitted has ended.
    ///
    /// From the first poll no new call is admitted; what waits is woken with
    /// [`CallError::Stopping`](crate::CallError::Stopping); what executes runs to its end, retries that follow at once
    /// included. Calls made from inside live calls are part of that work. It may be called more than once and
    /// concurrently: every caller returns once all is drained. It spawns no task and no thread.
    ///
    /// An executing call whose future nobody polls cannot end, and neither can this:
    /// [`shutdown_within`](Self::shutdown_within) is the form for services.
    ///
    /// # Errors
    /// [`ShutdownError::InsideOwnCall`], at the first poll and closing nothing, when awaited from inside a call of
    /// this runtime. A permit held by the awaiting task is not seen.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting. The runtime stays closed and the drain can be awaited again.
    pub async fn shutdown(&self) -> Result<DrainReport, ShutdownError> {
        drain::shutdown(&self.engine, None).await
    }

    /// As [`shutdown`](Self::shutdown), for at most `bound`, counted from the first poll.
    ///
    /// # Errors
    /// [`ShutdownError::StillRunning`] with what still runs when the bound passes; the drain goes on and can be
    /// awaited again. [`ShutdownError::InsideOwnCall`] as for `shutdown`.
    ///
    /// # Panics
    /// With the default clock it needs a tokio runtime whose time is enabled, unless all is drained at once.
    ///
    /// # Cancel safety
    /// As [`shutdown`](Self::shutdown).
    pub async fn shutdown_within(&self, bound: Duration) -> Result<DrainReport, ShutdownError> {
        drain::shutdown(&self.engine, Some(bound)).await
    }

    /// The clock this runtime goes by, for what is built on it.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.engine.clock.clone())
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("budgets", &self.engine.budgets)
            .finish_non_exhaustive()
    }
}
