use std::any::Any;
use std::sync::Arc;

use bursar::seam::Services;
use bursar_http::TurnHttp;

/// A turn of an actor of its own: it has a gate that nobody shares.
struct Turn;

impl Services for Turn {
    fn service<T: Any + Send + Sync>(&self, _: &str) -> Option<Arc<T>> {
        None
    }
}

async fn body(turn: Turn) {
    let profiles = turn.http("profiles").unwrap();
    let _kept = profiles.get("/").fetch::<u8>().await;
    let _yielded = profiles.get("/").yield_fetch::<u8>(turn).await;
}

fn main() {
    let _ = body(Turn);
}
