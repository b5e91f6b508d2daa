//! A budget for retries: how much a dependency that fails may be asked more than it would be without retries.
//!
//! Calls deposit nothing when they start, which would be a line shared by all of them: the account is settled when a
//! retry asks, from the counts that calls keep anyway. The lock is a leaf.

use std::sync::Arc;

use crate::counters::Counters;
use crate::sync::{Mutex, lock};

/// Caps retries: at most `burst` and a share of the calls started since.
///
/// Each call that comes to start earns its share, up to `burst` in all; each retry spends one. A call that was refused
/// earns nothing, and a first attempt is never refused for want of it. A retry that is refused ends its call with the
/// failure it has. One that is paid for and not made, its caller having left or run out of time, is given back.
///
/// ```
/// use bursar::{RetryBudget, Runtime};
///
/// # fn main() -> Result<(), bursar::ContractError> {
/// let runtime = Runtime::builder()
///     .resource("payments", 4)
///     .retry_budget(RetryBudget::new(10).percent(20))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "give it to a runtime's builder"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    burst: u32,
    percent: u32,
}

impl RetryBudget {
    /// `burst` retries at once, and 10 % of the calls started.
    pub const fn new(burst: u32) -> Self {
        Self { burst, percent: 10 }
    }

    /// The share of the calls started, in percent.
    pub const fn percent(self, percent: u32) -> Self {
        Self { percent, ..self }
    }
}

/// The account of one budget, among the operations that share it.
#[derive(Debug)]
pub(crate) struct Account {
    budget: RetryBudget,
    settled: Mutex<Settled>,
}

#[derive(Debug)]
struct Settled {
    members: Vec<Arc<Counters>>,
    /// Calls started when it was last settled.
    started: u64,
    /// What may be spent, in hundredths of a retry.
    balance: u64,
}

const ONE: u64 = 100;

impl Account {
    pub(crate) fn new(budget: RetryBudget) -> Self {
        Self {
            budget,
            settled: Mutex::new(Settled {
                members: Vec::new(),
                started: 0,
                balance: u64::from(budget.burst) * ONE,
            }),
        }
    }

    /// Lets an operation share the account.
    pub(crate) fn join(&self, counters: Arc<Counters>) {
        lock(&self.settled).members.push(counters);
    }

    /// Spends one retry, if there is one.
    pub(crate) fn spend(&self) -> bool {
        let mut settled = lock(&self.settled);
        let started = settled
            .members
            .iter()
            .map(|counters| counters.started())
            .sum::<u64>();
        let calls = started.saturating_sub(settled.started);
        let earned = calls.saturating_mul(u64::from(self.budget.percent));
        settled.started = started;
        settled.balance = settled
            .balance
            .saturating_add(earned)
            .min(u64::from(self.budget.burst) * ONE);
        if settled.balance < ONE {
            return false;
        }
        settled.balance -= ONE;
        true
    }

    /// Gives back what was spent on a retry that was never made. What may be spent is no more than the burst then, too.
    pub(crate) fn refund(&self) {
        let mut settled = lock(&self.settled);
        settled.balance = (settled.balance + ONE).min(u64::from(self.budget.burst) * ONE);
    }
}

#[cfg(all(test, not(bursar_loom)))]
mod tests {
    use super::*;

    fn account(burst: u32, percent: u32) -> (Account, Arc<Counters>) {
        let account = Account::new(RetryBudget::new(burst).percent(percent));
        let counters = Arc::new(Counters::new(0));
        account.join(Arc::clone(&counters));
        (account, counters)
    }

    #[test]
    fn c11_retries_are_at_most_the_burst_and_a_share_of_the_calls() {
        for (burst, percent) in [(0, 10), (1, 0), (10, 20), (3, 100), (1_000, 1)] {
            let (account, counters) = account(burst, percent);
            let mut retries = 0_u64;
            for call in 1..=10_000_u64 {
                counters.direct();
                // Everything fails, so each call asks as often as it can.
                while account.spend() {
                    retries += 1;
                }
                let most = u64::from(burst) + call * u64::from(percent) / 100;
                assert!(retries <= most, "{retries} of {most} after {call} calls");
            }
        }
    }

    #[test]
    fn c11_a_quiet_day_buys_no_more_than_the_burst() {
        let (account, counters) = account(5, 100);
        for _ in 0..1_000 {
            counters.direct();
        }
        assert_eq!((0..100).filter(|_| account.spend()).count(), 5);
        for _ in 0..3 {
            counters.direct();
        }
        assert_eq!((0..100).filter(|_| account.spend()).count(), 3);
    }

    #[test]
    fn c11_what_is_given_back_buys_no_more_than_the_burst() {
        let (account, counters) = account(2, 100);
        assert!(account.spend());
        account.refund();
        account.refund();
        assert_eq!((0..100).filter(|_| account.spend()).count(), 2);
        account.refund();
        counters.direct();
        assert_eq!((0..100).filter(|_| account.spend()).count(), 2);
        let (account, _) = self::account(0, 0);
        account.refund();
        assert!(!account.spend(), "nothing was ever there");
    }

    #[test]
    fn c11_refused_calls_earn_nothing() {
        let (account, counters) = account(1, 100);
        assert!(account.spend());
        counters.refused();
        counters.queued();
        assert!(counters.overload(false));
        counters.finished();
        assert!(!account.spend());
        counters.late();
        assert!(account.spend());
    }
}
