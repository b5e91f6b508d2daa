//! One execution contract for every operation in the process.
//!
//! A service calls renderers, databases, webhooks and models. With Bursar each operation declares what it spends
//! (*budgets*), what it changes (its *effect*), how long it may take and what is retried; a [`Runtime`] refuses unsafe
//! contracts before serving, arbitrates the budgets among all operations in strict order of arrival, serializes by key,
//! and drains on shutdown. It is local to one process, by contract.
//!
//! ```
//! use bursar::{Classify, Policy, Retry, Runtime};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder()
//!     .resource("renderer", 8)
//!     .resource("payments", 4)
//!     .build()?;
//!
//! let render = runtime.contract(
//!     "render",
//!     Policy::idempotent()
//!         .claim("renderer", 1)
//!         .timeout(Duration::from_secs(2))
//!         .retry(Retry::up_to(3).on_transient().on_uncertain()),
//! )?;
//! let page = render.run(|| async { draw("front page").await.transient() }).await?;
//!
//! let charge = runtime.contract("charge", Policy::non_idempotent().claim("payments", 1).reject())?;
//! let receipt = charge
//!     .with()
//!     .key("customer 7")
//!     .within(Duration::from_millis(300))
//!     .run(|attempt| async { pay(attempt.number()).await.uncertain() })
//!     .await?;
//!
//! runtime.shutdown_within(Duration::from_secs(10)).await?;
//! println!("{}", runtime.stats());
//! # let _ = (page, receipt);
//! # async fn draw(page: &str) -> Result<String, std::io::Error> { Ok(page.to_owned()) }
//! # async fn pay(attempt: u32) -> Result<u32, std::io::Error> { Ok(attempt) }
//! # Ok(())
//! # }
//! ```
//!
//! What is promised, clause by clause, stands in `docs/contract.md` of the repository; how it is built, in
//! `ARCHITECTURE.md`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admit;
mod attempt;
mod backoff;
#[cfg(feature = "tokio")]
mod blocking;
mod bounds;
mod budget;
mod call;
mod chain;
mod clock;
mod contract;
mod counters;
mod drain;
mod engine;
mod error;
mod execute;
mod fifo;
mod invalid;
mod key;
mod keys;
mod lifecycle;
mod operation;
mod outcome;
mod policy;
#[cfg(feature = "metrics")]
mod publish;
mod record;
mod refusal;
mod report;
mod retry;
mod retry_budget;
mod runtime;
pub mod seam;
mod snapshot;
mod stats;
mod sync;
#[cfg(feature = "test-util")]
pub mod testkit;
mod threads;
#[cfg_attr(not(feature = "tracing"), path = "trace/off.rs")]
mod trace;
mod wake;
#[cfg_attr(not(feature = "exact"), path = "watch/off.rs")]
mod watch;

#[cfg(all(test, bursar_loom))]
mod loom_tests;

pub use attempt::{Attempt, Cancelled};
pub use backoff::{Backoff, retry_after};
pub use chain::links::{InChain, RuntimeId, in_chain};
pub use clock::{Clock, ManualClock, Timer};
pub use contract::{Call, Contract, Permit};
pub use error::{Attempted, CallError, Carry, EndedBy};
pub use invalid::ContractError;
pub use key::Key;
pub use operation::{
    AsyncHandler, BoxHandler, BoxOperation, Handler, HandlerFn, Operation, OperationCall,
    handler_fn,
};
pub use outcome::{Classify, Effect, Failure, Outcome, Reason};
pub use policy::{Dynamic, Idempotent, NonIdempotent, PerCall, Permits, Policy, Pure, Takes};
pub use refusal::{Holder, Refusal, Usage};
pub use report::{DrainReport, Drained, ShutdownError};
pub use retry::{Certain, Doubtful, Retry, Unchecked};
pub use retry_budget::RetryBudget;
pub use runtime::{Runtime, RuntimeBuilder};
pub use snapshot::{
    BudgetSnapshot, CallSnapshot, Doing, HolderSnapshot, HostSnapshot, KeySnapshot,
    OperationSnapshot, Phase, Quantiles, QueuedSnapshot, Snapshot, SpotSnapshot, Times,
};
pub use stats::{BudgetStats, OperationStats, Outcomes, Stats};
