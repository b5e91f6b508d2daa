//! Telling partners: two typed operations over the same way of sending.
//!
//! `webhook-notify` must not be sent again once it may have arrived: a partner ships a parcel for each. `webhook-sync` carries
//! an event id by which the receiver knows it again. The handlers do not know which of the two they are: what may be repeated is said
//! once, in the contract.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bursar::{Attempt, Failure, Handler};
use bursar_http::Client;
use bytes::Bytes;

use crate::gauge::Gauge;
use crate::meter::Call;
use crate::receiver::EVENT;

/// Where partners listen.
#[derive(Debug, Clone, Copy)]
pub struct Endpoints {
    pub primary: SocketAddr,
    pub standby: SocketAddr,
    /// Where the primary of a partner in maintenance would be: nothing listens there, connections are refused.
    pub closed: SocketAddr,
}

/// One event on its way to a partner.
#[derive(Debug)]
pub struct Delivery {
    pub event: String,
    pub sku: String,
    pub body: String,
    /// The partner's primary is down for maintenance.
    pub maintenance: bool,
    pub call: Arc<Call>,
}

/// The sending side, with its own count of what is on the way.
#[derive(Debug)]
pub struct Sender {
    client: Client,
    endpoints: Endpoints,
    path: &'static str,
    pub gauge: Arc<Gauge>,
    pub products: Arc<OneByOne>,
}

impl Sender {
    pub fn new(
        client: Client,
        endpoints: Endpoints,
        path: &'static str,
        gauge: Arc<Gauge>,
    ) -> Self {
        Self {
            client,
            endpoints,
            path,
            gauge,
            products: Arc::default(),
        }
    }
}

impl Handler<Delivery> for Sender {
    type Output = ();
    type Error = bursar_http::Error;

    async fn handle(
        &self,
        attempt: &Attempt,
        delivery: &Delivery,
    ) -> Result<(), Failure<bursar_http::Error>> {
        let _running = delivery.call.enter();
        let _sending = self.gauge.enter();
        let _product = self.products.enter(&delivery.sku);
        // A further attempt goes where the last one did not: a partner's standby.
        let to = match (attempt.number(), delivery.maintenance) {
            (1, true) => self.endpoints.closed,
            (1, false) => self.endpoints.primary,
            _ => self.endpoints.standby,
        };
        // What the partner says beside its status is its own affair. The client knows what a failure means: it has seen
        // whether a byte left.
        self.client
            .post(format!("http://{to}{}", self.path))
            .header(EVENT, &delivery.event)
            .raw("application/json", delivery.body.clone())
            .fetch_as(|_: &_, _: &Bytes| Ok(()))
            .await
            .map_err(bursar_http::Error::into_failure)
    }
}

/// Counts how often two were at one thing at once: deliveries about a product, turns at a shelf.
#[derive(Debug, Default)]
pub struct OneByOne {
    state: Mutex<(HashSet<String>, usize)>,
}

impl OneByOne {
    pub fn enter(&self, product: &str) -> Product<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.0.insert(product.to_owned()) {
            state.1 += 1;
        }
        Product {
            of: self,
            product: product.to_owned(),
        }
    }

    pub fn overlaps(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

#[derive(Debug)]
#[must_use = "it has ended once this is dropped"]
pub struct Product<'a> {
    of: &'a OneByOne,
    product: String,
}

impl Drop for Product<'_> {
    fn drop(&mut self) {
        self.of
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .remove(&self.product);
    }
}
