//! A dropped or timed-out yield leaves no turn behind.

use bursar_spot::Turn;

async fn body(mut turn: Turn<u32>) {
    let yields = turn.yield_on(async {});
    drop(yields);
    *turn.state() += 1;
}

fn main() {}
