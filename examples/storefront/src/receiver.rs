//! The partners' side of the webhooks: a receiver that is sometimes slow, hangs up, or fails, and that keeps books.
//!
//! What it does with a delivery depends on the seed, the event and how often the event has come, so a run can be repeated.
//! Its books are the evidence: what arrived how often, and what took effect.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::Deserialize;

use crate::http::{Reply, Service};
use crate::rng::{hash, unit};

/// The header that names the event.
pub const EVENT: &str = "x-event-id";

/// What became of one event here.
#[derive(Debug, Default, Clone, Copy)]
pub struct Entry {
    /// Deliveries of which at least the headers were read.
    pub arrived: u32,
    /// Times that it took effect.
    pub applied: u32,
}

/// One partner system's books.
pub type Book = HashMap<String, Entry>;

#[derive(Debug)]
pub struct Receiver {
    seed: u64,
    /// How long a slow answer takes: longer than any sender waits.
    slow: Duration,
    notified: Mutex<Book>,
    synced: Mutex<Book>,
    /// Units of stock, summed over everything that took effect.
    stock: Mutex<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Hangs up after the headers, with the body unread.
    HangUpBefore,
    /// Does it, then hangs up instead of answering.
    HangUpAfter,
    /// Fails before it did anything; says 500.
    FailBefore,
    /// Does it and then fails; says 500.
    FailAfter,
    /// Stalls and never does it.
    StallBefore,
    /// Does it and answers too late.
    StallAfter,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    quantity: Option<u32>,
}

impl Receiver {
    pub fn new(seed: u64, slow: Duration) -> Self {
        Self {
            seed,
            slow,
            notified: Mutex::default(),
            synced: Mutex::default(),
            stock: Mutex::default(),
        }
    }

    pub fn notified(&self) -> Book {
        self.notified
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn synced(&self) -> Book {
        self.synced
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn stock(&self) -> u64 {
        *self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, id: &str, arrival: u32) -> Fault {
        match (unit(hash(self.seed, id, u64::from(arrival))) * 1_000.0) as u32 {
            0..15 => Fault::HangUpBefore,
            15..40 => Fault::HangUpAfter,
            40..55 => Fault::FailBefore,
            55..75 => Fault::FailAfter,
            75..85 => Fault::StallBefore,
            85..110 => Fault::StallAfter,
            _ => Fault::None,
        }
    }

    /// A few events concern things the partner does not sell: a fault of the request, whoever sends it how often.
    fn unknown(&self, id: &str) -> bool {
        unit(hash(self.seed, id, u64::MAX)) < 0.008
    }

    async fn answer(&self, request: Request<Incoming>) -> Reply {
        let once = match request.uri().path() {
            // Every notification is acted upon: the partner ships a parcel for each.
            "/notify" => false,
            // A synchronisation that was seen before changes nothing.
            "/sync" => true,
            path => return Reply::Answer(StatusCode::NOT_FOUND, format!("nothing at {path}")),
        };
        let book = if once { &self.synced } else { &self.notified };
        let Some(id) = request
            .headers()
            .get(EVENT)
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned)
        else {
            return Reply::Answer(
                StatusCode::BAD_REQUEST,
                format!("the header {EVENT} is missing"),
            );
        };
        let arrival = {
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = book.entry(id.clone()).or_default();
            entry.arrived += 1;
            entry.arrived
        };
        let fault = self.fault(&id, arrival);
        if fault == Fault::HangUpBefore {
            return Reply::Reset;
        }
        let Ok(body) = request.into_body().collect().await else {
            return Reply::Reset;
        };
        let Ok(body) = serde_json::from_slice::<Body>(&body.to_bytes()) else {
            return Reply::Answer(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the body is not an event".into(),
            );
        };
        if self.unknown(&id) {
            return Reply::Answer(StatusCode::NOT_FOUND, "we do not sell that".into());
        }
        match fault {
            Fault::FailBefore => {
                return Reply::Answer(StatusCode::INTERNAL_SERVER_ERROR, "failed".into());
            }
            Fault::StallBefore => {
                tokio::time::sleep(self.slow).await;
                return Reply::Reset;
            }
            _ => {}
        }
        let applied = {
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = book.entry(id).or_default();
            let applies = !once || entry.applied == 0;
            entry.applied += u32::from(applies);
            applies
        };
        if applied {
            *self.stock.lock().unwrap_or_else(PoisonError::into_inner) +=
                u64::from(body.quantity.unwrap_or(0) * u32::from(once));
        }
        match fault {
            Fault::HangUpAfter => return Reply::Reset,
            Fault::FailAfter => {
                return Reply::Answer(StatusCode::INTERNAL_SERVER_ERROR, "failed".into());
            }
            Fault::StallAfter => tokio::time::sleep(self.slow).await,
            _ => {}
        }
        Reply::Answer(
            StatusCode::OK,
            if applied {
                "done".into()
            } else {
                "known".into()
            },
        )
    }
}

impl Service for Receiver {
    async fn handle(&self, request: Request<Incoming>) -> Reply {
        self.answer(request).await
    }

    fn resets(&self, connection: u64) -> bool {
        unit(hash(self.seed, "connection", connection)) < 0.01
    }
}
