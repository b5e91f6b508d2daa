//! One execution contract for every operation in the process.
