//! What Bursar is measured against. Each peer is written as a competent user writes it, and where two ways are common
//! the faster one is measured.

mod composed;
mod key_mutex;

pub use composed::{Composed, Fault, Refused};
pub use key_mutex::{KeyGuard, KeyMutexes};
