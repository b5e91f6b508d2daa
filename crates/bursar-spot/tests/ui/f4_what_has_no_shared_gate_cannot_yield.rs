//! Neither a turn of a `PerActor` Spot, nor an entered one, nor the last, nor code outside of a turn.

use bursar_spot::{ActorTurn, ClosingTurn, Entered, PerActor, Spot, Turn};

async fn apart(turn: Turn<u32, PerActor>) {
    turn.yield_on(async {}).await;
}

async fn actor(turn: ActorTurn<u32, u32, PerActor>) {
    turn.yield_on(async {}).await;
}

async fn entered(turn: Entered<'_, u32>) {
    turn.yield_on(async {}).await;
}

async fn last(turn: ClosingTurn<u32>) {
    turn.yield_on(async {}).await;
}

async fn outside(spot: Spot<u32>) {
    spot.yield_on(async {}).await;
}

async fn through_the_seam(turn: Turn<u32, PerActor>) {
    bursar::seam::YieldTurn::yield_on(turn, async {}).await;
}

fn main() {}
