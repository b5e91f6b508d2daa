//! Turn-based execution for Bursar.
//!
//! A *Spot* owns state and one gate. A *turn* is one piece of work that holds the gate, so that two turns never run at
//! once. What a turn awaits it awaits with the gate held, unless it yields.
//!
//! `docs/turns.md` of the repository teaches the model: when to await, when to yield, what may have changed meanwhile.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod actor;
mod beside;
mod body;
mod bound;
mod closing;
mod complete;
mod contain;
mod drain;
mod due;
mod error;
mod exec;
mod frame;
mod gate;
mod held;
mod host;
mod instance;
mod kind;
mod line;
mod making;
mod member;
mod pool;
mod registry;
mod reply;
mod resident;
mod schedule;
mod shared;
mod snapshot;
mod space;
#[cfg_attr(not(feature = "tracing"), path = "span/off.rs")]
mod span;
mod spot;
mod strand;
mod submit;
mod sync;
mod timers;
mod turn;
#[cfg_attr(not(feature = "exact"), path = "watch/off.rs")]
mod watch;
mod worker;

#[cfg(all(test, bursar_shuttle))]
mod shuttle_tests;

pub use bursar::{HostSnapshot, SpotSnapshot};

pub use actor::{Actor, ActorTurn};
pub use closing::ClosingTurn;
pub use drain::HostReport;
pub use error::{CloseReason, SpotError, SpotErrorKind};
pub use host::{Host, HostBuilder};
pub use instance::{InstanceSpot, Instances, InstancesBuilder};
pub use kind::{Instance, Kind, PerActor, SharedGate, SpotWide};
pub use making::SpotBuilder;
pub use schedule::{Overrun, Schedule, Tick};
pub use spot::Spot;
pub use timers::TimerTurn;
pub use turn::{Entered, Turn};
pub use worker::{Cancellation, Work, WorkError, Workers};

/// The examples of `docs/turns.md`, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/turns.md")]
struct TurnsTaught;
