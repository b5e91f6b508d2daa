//! Every public future, dropped at every poll: nothing is held, nobody is lost, and what was accepted runs once.

#[path = "../common/mod.rs"]
mod common;

mod actors;
mod asking;
mod harness;
mod instances;
mod life;
mod nested;
mod workers;
mod yields;
