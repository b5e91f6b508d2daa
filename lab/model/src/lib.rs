//! The contract as a small sequential [`model`], and a runner that steps it and the real runtime through the same
//! seeded scenarios, comparing all that can be seen after every step.

#![forbid(unsafe_code)]

pub mod census;
pub mod draws;
pub mod generate;
pub mod inputs;
pub mod model;
pub mod real;
pub mod run;
pub mod scenario;
