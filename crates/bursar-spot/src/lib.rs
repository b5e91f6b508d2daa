//! Turn-based execution for Bursar.
//!
//! A *Spot* owns state and one gate. A *turn* is one piece of work that holds the gate, so that two turns never run at
//! once. What a turn awaits it awaits with the gate held, unless it yields.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod kind;
mod pool;
#[cfg_attr(not(test), expect(dead_code, reason = "timers follow the gate"))]
mod schedule;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "a host that makes workers follows")
)]
mod worker;

pub use kind::{Instance, Kind, PerActor, SharedGate, SpotWide};
pub use schedule::{Overrun, Schedule, Tick};
pub use worker::{Cancellation, Work, WorkError, Workers};
