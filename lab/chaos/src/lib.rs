//! The runtime under load and disturbance.
//!
//! Built as usual, rounds on real threads and a multi-thread tokio ([`rounds`]). Built under `--cfg bursar_shuttle`, without
//! tokio, scenarios whose every interleaving is chosen by shuttle (`schedules`). Both use the same ledger.

#![forbid(unsafe_code)]

pub mod ledger;
pub mod random;

#[cfg(all(feature = "tokio", not(bursar_shuttle)))]
pub mod rounds;
#[cfg(bursar_shuttle)]
pub mod schedules;
