//! What one runtime owns, and what an operation's policy becomes when it is checked against it.

mod checks;
mod holders;
mod look;
mod members;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::Jitter;
use crate::budget::Budget;
use crate::chain::Frame;
use crate::clock::ClockHandle;
use crate::counters::Counters;
use crate::invalid::ContractError;
use crate::keys::{KeySpace, KeyTable};
use crate::lifecycle::Lifecycle;
use crate::outcome::Effect;
use crate::policy::Declared;
use crate::refusal::Names;
use crate::report::{DrainReport, Drained};
use crate::retry::RetryPlan;
use crate::retry_budget::{Account, RetryBudget};
use crate::stats::{BudgetStats, Stats};
use crate::sync::{AtomicU64, Mutex, lock};
use crate::trace;
use crate::wake::Poke;
use crate::watch::{Calls, Watched};
pub use members::DrainMember;
use members::Members;

/// How long a wait lasts at most whose chain holds something, unless the runtime is told otherwise.
pub(crate) const NESTED_WAIT: Duration = Duration::from_secs(10);

/// The state of one runtime. Two engines share nothing.
#[derive(Debug)]
pub(crate) struct Engine {
    /// In byte order of their names, which is the order of acquisition.
    pub(crate) budgets: Box<[Arc<Budget>]>,
    pub(crate) keys: KeyTable,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) clock: ClockHandle,
    /// The moment of construction.
    pub(crate) epoch: Instant,
    pub(crate) jitter: Jitter,
    /// How long a wait may last whose chain holds something.
    pub(crate) nested_wait: Duration,
    watch: Calls,
    retries: Option<Arc<Account>>,
    retry_groups: Vec<(String, Arc<Account>)>,
    /// Hosts whose work a drain includes.
    members: Members,
    /// Never taken on the path of a call. Held over a budget's lock (resizing) and a retry account's (building).
    registry: Mutex<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    operations: Vec<Registered>,
    /// When shutdown began, each operation's calls finished and withdrawn.
    at_stop: Option<Vec<(u64, u64)>>,
    /// Key spaces by name; a space's number is its place, and 0 is the common one.
    spaces: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
struct Registered {
    name: Arc<str>,
    counters: Arc<Counters>,
    watched: Watched,
    /// Budgets, by their place, and units.
    claims: Vec<(usize, u32)>,
}

/// Units of one budget that an operation spends.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) budget: Arc<Budget>,
    pub(crate) units: u32,
}

/// A policy checked against its runtime.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) engine: Arc<Engine>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) watched: Watched,
    /// In byte order of the budgets' names.
    pub(crate) claims: Box<[Claim]>,
    pub(crate) names: Arc<Names>,
    /// The operation's number in its runtime, as its calls' frames say it.
    pub(crate) number: u64,
    pub(crate) reject: bool,
    pub(crate) key_required: bool,
    pub(crate) key_space: KeySpace,
    /// `None` when each call states its own.
    pub(crate) effect: Option<Effect>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) max_waiting: Option<u32>,
    /// Calls waiting, counted only where `max_waiting` bounds them.
    pub(crate) waiting: AtomicU64,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) retry: RetryPlan,
    /// What its retries spend.
    pub(crate) retries: Option<Arc<Account>>,
}

impl Engine {
    /// # Errors
    /// A budget that breaks A1, or none.
    pub(crate) fn new(
        resources: Vec<(String, u32)>,
        clock: ClockHandle,
        seed: Option<u64>,
    ) -> Result<Self, ContractError> {
        if resources.is_empty() {
            return Err(ContractError::NoBudgets);
        }
        let mut budgets: Vec<Arc<Budget>> = Vec::with_capacity(resources.len());
        for (name, capacity) in resources {
            if name.is_empty() {
                return Err(ContractError::EmptyBudgetName);
            }
            if budgets.iter().any(|budget| **budget.name() == *name) {
                return Err(ContractError::DuplicateBudget { budget: name });
            }
            if capacity == 0 || i32::try_from(capacity).is_err() {
                return Err(ContractError::InvalidCapacity {
                    budget: name,
                    capacity,
                });
            }
            budgets.push(Arc::new(Budget::new(name.into(), capacity)));
        }
        budgets.sort_by(|a, b| a.name().as_bytes().cmp(b.name().as_bytes()));
        Ok(Self {
            budgets: budgets.into(),
            keys: KeyTable::new(),
            lifecycle: Lifecycle::new(),
            epoch: clock.now(),
            clock,
            jitter: Jitter::new(seed),
            nested_wait: NESTED_WAIT,
            watch: Calls::new(false),
            retries: None,
            retry_groups: Vec::new(),
            members: Members::default(),
            registry: Mutex::default(),
        })
    }

    /// Tells this runtime from all others that are alive.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Checks a policy and registers its operation.
    ///
    /// # Errors
    /// Whatever A2 to A6 refuse.
    pub(crate) fn plan(
        self: &Arc<Self>,
        operation: &str,
        declared: &Declared,
    ) -> Result<Arc<Plan>, ContractError> {
        if operation.is_empty() {
            return Err(ContractError::EmptyOperationName);
        }
        let effect = checks::effect(operation, declared)?;
        checks::durations(operation, declared)?;
        if declared.key_space.as_deref() == Some("") {
            return Err(ContractError::EmptyKeySpace {
                operation: operation.to_owned(),
            });
        }
        let retries = self.account(operation, declared.retry_group.as_deref())?;
        let name: Arc<str> = operation.into();
        // One lock for checking claims and for resizing, so that no claim outgrows its budget between the two.
        let mut registry = lock(&self.registry);
        let claims = self.claims(operation, &declared.claims)?;
        let names = claims
            .iter()
            .map(|claim| (Arc::clone(claim.budget.name()), claim.units))
            .collect();
        let number = registry.operations.len() as u32;
        let counters = Arc::new(Counters::new(number));
        let watched = self.watch.operation(number, &name);
        if registry.at_stop.is_some() {
            counters.close();
        }
        registry.operations.push(Registered {
            name: Arc::clone(&name),
            counters: Arc::clone(&counters),
            watched: watched.clone(),
            claims: claims
                .iter()
                .map(|claim| (self.place(claim.budget.name()), claim.units))
                .collect(),
        });
        if let Some(account) = &retries {
            account.join(Arc::clone(&counters));
        }
        let key_space = registry.space(declared.key_space.as_deref());
        let stopping = registry.at_stop.is_some();
        drop(registry);
        if stopping {
            // Who closes the gate may not have come to every queue yet, and does not know this operation: it must not
            // meet calls of it there.
            self.stop();
        }
        Ok(Arc::new(Plan {
            engine: Arc::clone(self),
            counters,
            number: Frame::number(number, claims.is_empty()),
            watched,
            claims,
            names: Arc::new(Names {
                operation: name,
                claims: names,
            }),
            reject: declared.reject,
            key_required: declared.key_required,
            key_space,
            effect,
            max_wait: declared.max_wait,
            max_waiting: declared.max_waiting,
            waiting: AtomicU64::new(0),
            timeout: declared.timeout,
            grace: declared.grace.filter(|grace| !grace.is_zero()),
            retry: declared.retry,
            retries,
        }))
    }

    /// Watches every call. For an engine that has no operation yet.
    #[cfg(feature = "exact")]
    pub(crate) fn watch(&mut self) {
        self.watch = Calls::new(true);
    }

    /// Declares what retries may spend.
    pub(crate) fn cap_retries(
        &mut self,
        all: Option<RetryBudget>,
        groups: Vec<(String, RetryBudget)>,
    ) -> Result<(), ContractError> {
        self.retries = all.map(|budget| Arc::new(Account::new(budget)));
        for (group, budget) in groups {
            if group.is_empty() || self.retry_groups.iter().any(|(name, _)| *name == group) {
                return Err(ContractError::InvalidRetryGroup { group });
            }
            self.retry_groups
                .push((group, Arc::new(Account::new(budget))));
        }
        Ok(())
    }

    /// Bounds the waits of calls whose chain holds something.
    pub(crate) fn bound_nested_waits(&mut self, longest: Duration) -> Result<(), ContractError> {
        if longest.is_zero() {
            return Err(ContractError::ZeroNestedWait);
        }
        self.nested_wait = longest;
        Ok(())
    }

    fn account(
        &self,
        operation: &str,
        group: Option<&str>,
    ) -> Result<Option<Arc<Account>>, ContractError> {
        let Some(group) = group else {
            return Ok(self.retries.clone());
        };
        match self.retry_groups.iter().find(|(name, _)| name == group) {
            Some((_, account)) => Ok(Some(Arc::clone(account))),
            None => Err(ContractError::UnknownRetryGroup {
                operation: operation.to_owned(),
                group: group.to_owned(),
            }),
        }
    }

    /// Where a budget stands among the others.
    fn place(&self, budget: &str) -> usize {
        self.budgets
            .partition_point(|other| other.name().as_bytes() < budget.as_bytes())
    }

    fn names(&self) -> Vec<String> {
        self.budgets
            .iter()
            .map(|budget| format!("{:?}", budget.name()))
            .collect()
    }

    /// Changes a budget's capacity.
    pub(crate) fn resize(&self, name: &str, capacity: u32) -> Result<(), ContractError> {
        if capacity == 0 || i32::try_from(capacity).is_err() {
            return Err(ContractError::InvalidCapacity {
                budget: name.to_owned(),
                capacity,
            });
        }
        let place = self.place(name);
        let Some(budget) = self
            .budgets
            .get(place)
            .filter(|budget| **budget.name() == *name)
        else {
            return Err(ContractError::NoSuchBudget {
                budget: name.to_owned(),
                known: self.names(),
            });
        };
        let registry = lock(&self.registry);
        for of in &registry.operations {
            for (at, units) in &of.claims {
                if *at == place && *units > capacity {
                    return Err(ContractError::CapacityBelowClaim {
                        budget: name.to_owned(),
                        capacity,
                        operation: of.name.to_string(),
                        units: *units,
                    });
                }
            }
        }
        let wakes = budget.resize(capacity);
        drop(registry);
        drop(wakes);
        trace::resized(name, capacity);
        // A drain that looked between two states of the budget looks again.
        self.lifecycle.tell(Poke(true));
        Ok(())
    }

    /// What became of each operation's calls since shutdown began.
    pub(crate) fn report(&self) -> DrainReport {
        let registry = lock(&self.registry);
        let before = registry.at_stop.clone().unwrap_or_default();
        let operations = registry.operations.clone();
        drop(registry);
        let operations = operations.into_iter().enumerate().map(|(at, of)| {
            let (finished, withdrawn) = before.get(at).copied().unwrap_or_default();
            let withdrawn = of.counters.withdrawals().saturating_sub(withdrawn);
            let now = of.counters.read(Arc::clone(&of.name));
            let ended = now.finished.saturating_sub(finished);
            Drained {
                operation: of.name,
                ended: ended.saturating_sub(withdrawn),
                withdrawn,
                running: now.admitted.saturating_sub(now.finished),
            }
        });
        DrainReport {
            operations: operations.chain(self.members.report()).collect(),
        }
    }

    fn claims(
        &self,
        operation: &str,
        declared: &[(String, u32)],
    ) -> Result<Box<[Claim]>, ContractError> {
        let mut claims: Vec<Claim> = Vec::with_capacity(declared.len());
        for (name, units) in declared {
            let Some(budget) = self.budgets.iter().find(|budget| **budget.name() == **name) else {
                return Err(ContractError::UnknownBudget {
                    operation: operation.to_owned(),
                    budget: name.clone(),
                    known: self.names(),
                });
            };
            if claims
                .iter()
                .any(|claim| Arc::ptr_eq(&claim.budget, budget))
            {
                return Err(ContractError::DuplicateClaim {
                    operation: operation.to_owned(),
                    budget: name.clone(),
                });
            }
            if *units == 0 || *units > budget.capacity() {
                return Err(ContractError::InvalidUnits {
                    operation: operation.to_owned(),
                    budget: name.clone(),
                    units: *units,
                    capacity: budget.capacity(),
                });
            }
            claims.push(Claim {
                budget: Arc::clone(budget),
                units: *units,
            });
        }
        claims.sort_by(|a, b| a.budget.name().as_bytes().cmp(b.budget.name().as_bytes()));
        Ok(claims.into())
    }

    /// Every word stopped and back to full, and nobody admitted behind the scan.
    pub(crate) fn drained(&self) -> bool {
        let mut late = self.lifecycle.late();
        loop {
            // Members first: what they run may call here, and what runs here makes them no new work unnoted.
            let idle = self.members.idle()
                && self.lifecycle.drained()
                && self.keys.drained()
                && self.budgets.iter().all(|budget| budget.drained());
            let now = self.lifecycle.late();
            if !idle || now == late {
                return idle;
            }
            // Scanned anew, not left for later: whoever came late may be gone already, and will wake nobody.
            late = now;
        }
    }

    /// Closes the gate everywhere. Idempotent; returns once every word is stopped, whoever stopped it.
    pub(crate) fn stop(&self) {
        let mut registry = lock(&self.registry);
        let first = registry.at_stop.is_none();
        if first {
            for of in &registry.operations {
                of.counters.close();
            }
            let counts = registry.operations.iter().map(|of| {
                let now = of.counters.read(Arc::clone(&of.name));
                (now.finished, of.counters.withdrawals())
            });
            registry.at_stop = Some(counts.collect());
        }
        let counters: Vec<_> = registry.counters().collect();
        drop(registry);
        // The lobby first: whoever sees another word stopped, under its lock, sees the lobby stopped.
        self.lifecycle.stop(&counters);
        self.keys.stop(&counters);
        for budget in &self.budgets {
            budget.stop(&counters);
        }
        self.members.stop();
        if first {
            trace::draining();
        }
    }

    /// The operations, and the key spaces that have names.
    fn registered(&self) -> (Vec<Registered>, Vec<Arc<str>>) {
        let registry = lock(&self.registry);
        (registry.operations.clone(), registry.spaces.clone())
    }

    pub(crate) fn stats(&self) -> Stats {
        let operations = lock(&self.registry).operations.clone();
        Stats {
            operations: operations
                .into_iter()
                .map(|of| of.counters.read(of.name))
                .collect(),
            budgets: self
                .budgets
                .iter()
                .map(|budget| {
                    let usage = budget.exact_usage();
                    BudgetStats {
                        name: Arc::clone(budget.name()),
                        capacity: usage.capacity,
                        in_use: usage.in_use,
                        waiting: usage.waiting,
                    }
                })
                .collect(),
            keys: self.keys.held(),
        }
    }
}

impl Registry {
    /// By the operations' numbers.
    fn counters(&self) -> impl Iterator<Item = Arc<Counters>> {
        self.operations.iter().map(|of| Arc::clone(&of.counters))
    }

    fn space(&mut self, name: Option<&str>) -> KeySpace {
        let Some(name) = name else {
            return KeySpace(0);
        };
        let place = self
            .spaces
            .iter()
            .position(|space| **space == *name)
            .unwrap_or_else(|| {
                self.spaces.push(name.into());
                self.spaces.len() - 1
            });
        KeySpace(place as u32 + 1)
    }
}
