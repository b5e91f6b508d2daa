//! Other programs that this one starts.

pub mod heap_program;
