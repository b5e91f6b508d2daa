//! A runtime for one round, with what its handlers and callers say of themselves.
//!
//! Budgets "a", "b", "c" are claimed by the calls of a round; "x" and "y" by calls made from inside, so that no chain waits
//! for what it holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Backoff, Contract, ManualClock, Policy, Retry, RetryBudget, Runtime};

use crate::ledger::{Claims, Ledger};
use crate::random::Random;

const CAPACITIES: [(&str, u32); 5] = [("a", 3), ("b", 2), ("c", 4), ("x", 1), ("y", 2)];

const CLAIMS: [Claims; 6] = [
    &[(0, 1)],
    &[(1, 2), (2, 1)],
    &[(0, 1), (1, 1), (2, 1)],
    &[(0, 3), (2, 4)],
    &[(2, 2)],
    &[],
];

/// What the retries of those that pause may come to: so many, and so many in a hundred calls.
const BURST: u32 = 10;
const PERCENT: u32 = 30;
const PAUSING: &str = "pausing";

/// The kinds of operation that there are for each of `CLAIMS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Waits,
    Rejects,
    /// Waits for so long, and so many of them.
    Bounded,
    /// Pauses between attempts, and spends a retry budget.
    Pauses,
}

const INNER: [Claims; 3] = [&[(3, 1)], &[(4, 1)], &[(3, 1), (4, 2)]];

/// An operation and what it claims.
#[derive(Debug)]
pub struct Operation {
    pub contract: Contract,
    pub claims: Claims,
}

/// What callers have seen, for the runtime's counters to be compared with.
#[derive(Debug, Default)]
pub struct Seen {
    /// Calls polled at least once.
    pub asked: AtomicU64,
    /// Calls whose handler was called, those on a blocking thread left out.
    pub ran: AtomicU64,
    /// Permits that were had.
    pub permits: AtomicU64,
    /// Calls for a blocking thread, polled at least once.
    pub blocking: AtomicU64,
}

impl Seen {
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// See the module.
pub struct Place {
    pub runtime: Runtime,
    pub clock: ManualClock,
    pub ledger: Ledger,
    pub seen: Seen,
    pub operations: Vec<Operation>,
    pub inner: Vec<Operation>,
}

impl Place {
    pub fn new() -> Arc<Self> {
        let clock = ManualClock::new();
        let runtime = CAPACITIES
            .into_iter()
            .fold(Runtime::builder(), |builder, (name, capacity)| {
                builder.resource(name, capacity)
            })
            .clock(clock.clone())
            .retry_group(PAUSING, RetryBudget::new(BURST).percent(PERCENT))
            .build()
            .expect("valid budgets");
        let operation = |claims: Claims, kind: Kind| {
            let retry = match kind {
                Kind::Pauses => Retry::up_to(3)
                    .on_throttled()
                    .backoff(Backoff::exponential(Duration::from_millis(2))),
                _ => Retry::up_to(2),
            };
            let policy = claims
                .iter()
                .fold(Policy::pure(), |policy, (budget, units)| {
                    policy.claim(CAPACITIES[*budget].0, *units)
                })
                .timeout(Duration::from_millis(40))
                .retry(retry.on_transient().on_uncertain());
            let policy = match kind {
                Kind::Waits => policy,
                Kind::Rejects => policy.reject(),
                Kind::Bounded => policy.max_wait(Duration::from_millis(6)).max_waiting(4),
                Kind::Pauses => policy.retry_group(PAUSING),
            };
            let name = format!("{kind:?} {claims:?}");
            Operation {
                contract: runtime.contract(&name, policy).expect("a valid policy"),
                claims,
            }
        };
        let operations = CLAIMS
            .into_iter()
            .flat_map(|claims| {
                use Kind::{Bounded, Pauses, Rejects, Waits};
                [Waits, Rejects, Bounded, Pauses].map(|kind| operation(claims, kind))
            })
            .collect();
        let inner = INNER
            .into_iter()
            .map(|claims| operation(claims, Kind::Waits))
            .collect();
        Arc::new(Self {
            ledger: Ledger::new(&CAPACITIES.map(|(_, capacity)| capacity)),
            seen: Seen::default(),
            operations,
            inner,
            runtime,
            clock,
        })
    }

    /// Makes one of the budgets that outer calls claim larger or smaller, as small as its largest claim at most.
    pub fn resize(&self, random: &mut Random) -> Result<(), String> {
        let budget = random.below(3) as usize;
        let largest = [3, 2, 4][budget];
        let capacity = largest + random.below(4) as u32;
        self.ledger.grow(budget, capacity);
        let resized = self.runtime.resize(CAPACITIES[budget].0, capacity);
        resized.map_err(|why| why.to_string())
    }

    /// A drain that checks, the moment it ends, that nothing is held and nobody is inside.
    pub fn drain(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        Box::pin(async move {
            self.runtime
                .shutdown()
                .await
                .map_err(|why| why.to_string())?;
            self.unheld()?;
            self.ledger.empty()
        })
    }

    fn unheld(&self) -> Result<(), String> {
        let stats = self.runtime.stats();
        let free = stats
            .budgets
            .iter()
            .all(|of| of.in_use == 0 && of.waiting == 0);
        if free && stats.keys == 0 {
            return Ok(());
        }
        Err(format!("something is held or waited for:\n{stats}"))
    }

    /// Everything is back, every call has ended, and the counters agree with what callers saw.
    pub fn settled(&self) -> Result<(), String> {
        self.unheld()?;
        self.ledger.empty()?;
        let stats = self.runtime.stats();
        let total = stats.total();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (asked, ran) = (load(&self.seen.asked), load(&self.seen.ran));
        let (permits, blocking) = (load(&self.seen.permits), load(&self.seen.blocking));
        let started = total.started;
        let pausing = stats
            .operations
            .iter()
            .filter(|of| of.name.starts_with("Pauses"));
        let (retried, earned) = pausing.fold((0, u64::from(BURST)), |(retried, earned), of| {
            let share = of.started as f64 * f64::from(PERCENT) / 100.0;
            (retried + of.retried, earned + share.ceil() as u64)
        });
        for (holds, what) in [
            (retried <= earned, "retries exceed their budget"),
            (self.clock.timers() == 0, "timers are left"),
            (
                stats.operations.iter().all(|of| of.admitted == of.finished),
                "not every admitted call is counted finished",
            ),
            (
                total.admitted <= asked && asked <= total.admitted + total.rejected,
                "calls are admitted or turned away, each once",
            ),
            (
                ran + permits <= started && started <= ran + permits + blocking,
                "what started is what ran",
            ),
        ] {
            if !holds {
                return Err(format!(
                    "{what}: {asked} asked, {ran} ran, {permits} permits, {blocking} for a thread, {} timers\n{stats}",
                    self.clock.timers()
                ));
            }
        }
        Ok(())
    }

    /// Read while others count: never more finished or started than admitted.
    pub fn plausible(&self) -> Result<(), String> {
        let stats = self.runtime.stats();
        let plausible = stats
            .operations
            .iter()
            .all(|of| of.finished <= of.admitted && of.started <= of.admitted);
        if plausible {
            return Ok(());
        }
        Err(format!("a snapshot that cannot be:\n{stats}"))
    }
}
