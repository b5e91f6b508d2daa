//! Counts what is allocated, for `bench`: prints the figures of the rows named on the command line, as JSON.
//!
//! A program of its own, because the counting allocator that it brings slows every allocation of the program it is in.

use bench::heap::{Counted, figures};

fn main() -> serde_json::Result<()> {
    let rows: Vec<String> = std::env::args().skip(1).collect();
    let figures = figures(count, |row| {
        rows.is_empty() || rows.iter().any(|of| of == row)
    });
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}

fn count(run: &mut dyn FnMut()) -> Counted {
    let counted = allocation_counter::measure(run);
    Counted {
        allocations: counted.count_total,
        bytes: counted.bytes_total,
        peak: counted.bytes_max,
        kept: counted.bytes_current,
    }
}
