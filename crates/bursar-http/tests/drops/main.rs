//! Every public future, dropped at every poll: what it held is back at once, nothing more is sent, and whoever comes next is
//! served.

#[path = "../common/mod.rs"]
mod common;

mod harness;
mod hosted;
mod requests;
