//! A model behind loopback HTTP that scores reviews, and refuses with 429 what exceeds two at once; and a rival, in this same
//! process, that calls it under no contract.
//!
//! A budget is local to its holders: it keeps this shop at two calls, and cannot speak for the rival. The service's refusals
//! are what is left, and the contract's part is to call them what they are.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bursar_http::Client;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::{Deserialize, Serialize};

use crate::gauge::Gauge;
use crate::http::{Reply, Service};
use crate::rng::{hash, unit};

/// How many calls the service takes at once, from whomever.
pub const AT_ONCE: usize = 2;
const CALLER: &str = "x-caller";
const SHOP: &str = "storefront";

/// The service, and what it saw.
#[derive(Debug, Default)]
pub struct Model {
    seed: u64,
    all: Gauge,
    /// Calls from the shop, refused ones included.
    pub shop: Gauge,
    pub refused_shop: AtomicUsize,
    pub refused_rival: AtomicUsize,
}

/// A score from -1 to 1, and which words it rests on.
#[derive(Debug, Serialize, Deserialize)]
pub struct Score {
    pub score: f64,
    pub words: Vec<String>,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    async fn answer(&self, from_shop: bool, request: Request<Incoming>) -> Reply {
        // All counts are taken back before the answer is sent: who has the answer has really left.
        let _from_shop = from_shop.then(|| self.shop.enter());
        let _inside = self.all.enter();
        if self.all.inside() > AT_ONCE {
            let refused = if from_shop {
                &self.refused_shop
            } else {
                &self.refused_rival
            };
            refused.fetch_add(1, Relaxed);
            return Reply::Answer(StatusCode::TOO_MANY_REQUESTS, "two at once, please".into());
        }
        let Ok(body) = request.into_body().collect().await else {
            return Reply::Reset;
        };
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        // A model thinks for a while, the longer the longer the text.
        let thought = 2.0 + 4.0 * unit(hash(self.seed, &text, 0)) + text.len() as f64 / 100.0;
        tokio::time::sleep(Duration::from_secs_f64(thought / 1_000.0)).await;
        match serde_json::to_string(&score(&text)) {
            Ok(json) => Reply::Answer(StatusCode::OK, json),
            Err(error) => Reply::Answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl Service for Model {
    async fn handle(&self, request: Request<Incoming>) -> Reply {
        let from_shop = request
            .headers()
            .get(CALLER)
            .is_some_and(|caller| caller == SHOP);
        self.answer(from_shop, request).await
    }
}

const WORDS: [(&str, f64); 24] = [
    ("love", 1.0),
    ("perfect", 1.0),
    ("beautiful", 0.9),
    ("beautifully", 0.9),
    ("excellent", 0.9),
    ("lovely", 0.8),
    ("great", 0.8),
    ("sturdy", 0.6),
    ("solid", 0.6),
    ("better", 0.4),
    ("good", 0.4),
    ("fast", 0.3),
    ("fine", 0.2),
    ("decent", 0.2),
    ("slow", -0.5),
    ("darker", -0.3),
    ("cheap", -0.5),
    ("small", -0.3),
    ("wobbles", -0.7),
    ("leaks", -0.8),
    ("scratched", -0.8),
    ("damaged", -0.8),
    ("disappointing", -0.9),
    ("broke", -1.0),
];

fn score(text: &str) -> Score {
    let text = text.to_lowercase();
    let found: Vec<_> = text
        .split(|c: char| !c.is_alphabetic())
        .filter_map(|word| WORDS.iter().find(|(known, _)| *known == word))
        .collect();
    let sum: f64 = found.iter().map(|(_, weight)| weight).sum();
    let words = found.iter().map(|(word, _)| (*word).to_owned()).collect();
    Score {
        score: sum / (found.len().max(1) as f64),
        words,
    }
}

/// Asks the service for a score.
///
/// # Errors
///
/// As the client: what went wrong and what became of it. A score that cannot be read will not be better for asking again.
pub async fn ask(
    client: &Client,
    service: SocketAddr,
    text: &str,
) -> Result<Score, bursar_http::Error> {
    request(client, service, SHOP, text).fetch().await
}

fn request(
    client: &Client,
    service: SocketAddr,
    caller: &'static str,
    text: &str,
) -> bursar_http::Request<Client, bursar_http::WithBody> {
    client
        .post(format!("http://{service}/score"))
        .header(CALLER, caller)
        .raw("text/plain", text.to_owned())
}

/// The rival: three calls at once, a pause, and again, until it is dropped.
pub async fn rival(client: Client, service: SocketAddr, calls: &AtomicUsize) {
    let texts = [
        "Great value, sturdy and fast.",
        "It leaks.",
        "A lovely colour, but the lid is slow to open.",
    ];
    loop {
        let one = |text: &str| {
            calls.fetch_add(1, Relaxed);
            request(&client, service, "rival", text).send_raw()
        };
        // Refused or not is all the same to it: it does not back off, which is what makes it a rival.
        let _ = tokio::join!(one(texts[0]), one(texts[1]), one(texts[2]));
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_follow_the_words() {
        assert!(score("Love this kettle. Beautiful!").score > 0.8);
        assert!(score("It broke, and it leaks").score < -0.8);
        assert_eq!(score("A kettle.").score.abs(), 0.0);
    }
}
