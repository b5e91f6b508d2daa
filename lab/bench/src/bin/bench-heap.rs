//! Counts what is allocated.
fn main() {
    let info = allocation_counter::measure(|| {});
    println!("{info:?}");
}
