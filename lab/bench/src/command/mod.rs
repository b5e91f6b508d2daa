//! Other programs that this one starts.

pub mod callgrind;
pub mod heap_program;
pub mod row_process;
