//! What does nothing when it is dropped says so.

#![deny(unused_must_use)]

use bursar_spot::{Host, Spot, Turn};

async fn unused(host: Host, spot: Spot<u32>, turn: Turn<u32>) {
    spot.request(|_turn| async {});
    spot.send(|_turn| async {});
    spot.enter();
    spot.enter().await.unwrap();
    turn.yield_on(async {});
    host.spot::<u32>("s");
    host.close("s");
}

fn main() {}
