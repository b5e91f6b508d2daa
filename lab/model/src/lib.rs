//! The contract as a sequential [`model`], and a runner that steps it and the real runtime through the same seeded
//! scenarios, comparing all that can be seen after every step.
//!
//! In the order in which it reads best:
//! 1. [`scenario`], the words: what a runtime is built with, what is done to it, what can be seen. Nothing is decided there.
//! 2. [`model`] and the files under it, which say what follows. Its head says which of them are the contract.
//! 3. [`run`], which takes each step on both sides and compares; [`real`] is the runtime in the same words.
//! 4. [`generate`] makes scenarios, [`census`] counts what they come to, [`draws`] asks for a runtime's random numbers,
//!    [`inputs`] is what fuzzers call.
//!
//! Not modelled: `run_blocking`, whose handlers have threads of their own; the exact mode; registered hosts of turns; a
//! builder that runs more than once; `forbid_retry`, and the attempt's cancellation awaited as a future.

#![forbid(unsafe_code)]

pub mod census;
pub mod draws;
pub mod generate;
pub mod inputs;
pub mod model;
pub mod real;
pub mod run;
pub mod scenario;
