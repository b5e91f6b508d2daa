//! What was borrowed before a yield may have changed after it.

use bursar_spot::Turn;

async fn body(mut turn: Turn<Vec<u32>>) {
    let first = turn.state().first_mut();
    let (_turn, ()) = turn.yield_on(async {}).await;
    drop(first);
}

fn main() {}
