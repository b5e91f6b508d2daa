//! B7, B8: a future may be dropped between any two polls. For every n each kind of call is built, polled n times while
//! its surroundings change by a script, and dropped; before and after each change, so that grants are dropped both
//! unnoticed and noticed. Afterwards nothing is held, nobody is lost, the counters balance, and a call made then starts
//! at once. Each script says at which await point each poll must have stopped, so that every point is really met.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod harness;
mod leaving;
mod nested;
mod pauses;
mod shutdowns;
mod threads;
