//! The shop itself: what it does with an event, a card to draw, a feed that came in.
//!
//! This is ordinary code. What may run at once, what waits, what is repeated and what is not stands in `contracts.rs`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar::{Attempt, Failure};
use bursar_http::Client;

use crate::catalogue;
use crate::contracts::Contracts;
use crate::http::Server;
use crate::input::{Event, Kind, Shop};
use crate::live::Live;
use crate::meter::{Meter, Verdict};
use crate::model;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::render::{RenderError, Renderer};
use crate::store::{Move, Store, StoreError};
use crate::webhook::Delivery;

/// How long a page waits for a review's score before it shows the review without one, the wait for a slot included.
const PATIENCE: Duration = Duration::from_secs(5);

/// One meter for each operation.
#[derive(Debug)]
pub struct Meters {
    pub render_card: Arc<Meter>,
    pub preview_card: Arc<Meter>,
    pub record_event: Arc<Meter>,
    pub replace_catalogue: Arc<Meter>,
    pub move_stock: Arc<Meter>,
    pub notify: Arc<Meter>,
    pub sync: Arc<Meter>,
    pub score_review: Arc<Meter>,
}

impl Meters {
    pub fn new(contracts: &Contracts) -> Self {
        let meter = |name: &str| Meter::new(name);
        Self {
            render_card: meter(contracts.render_card.name()),
            preview_card: meter(contracts.preview_card.name()),
            record_event: meter(contracts.record_event.name()),
            replace_catalogue: meter(contracts.replace_catalogue.name()),
            move_stock: meter(contracts.move_stock.name()),
            notify: meter(contracts.notify.contract().name()),
            sync: meter(contracts.sync.contract().name()),
            score_review: meter(contracts.score_review.name()),
        }
    }

    pub fn all(&self) -> [&Arc<Meter>; 8] {
        [
            &self.render_card,
            &self.preview_card,
            &self.record_event,
            &self.replace_catalogue,
            &self.move_stock,
            &self.notify,
            &self.sync,
            &self.score_review,
        ]
    }
}

/// What the shop was told about each thing it did: by event, or, of catalogue replacements, by brand.
pub type Told = Vec<(String, Verdict)>;

/// Everything the shop needs to serve.
#[derive(Debug)]
pub struct Service {
    pub shop: Arc<Shop>,
    pub plan: Plan,
    pub contracts: Contracts,
    /// Whether catalogue replacements of one brand share a key.
    pub bounded: bool,
    pub meters: Meters,
    pub renderer: Arc<Renderer>,
    pub store: Store,
    pub client: Client,
    pub live: Live,
    pub model: Server,
    /// Where snapshots are served.
    pub inspector: Server,
    pub progress: Progress,
    /// Where the first card of each brand is kept, and which brands have one.
    pub cards: PathBuf,
    pub sampled: Arc<[AtomicBool]>,
    pub recorded: Mutex<Told>,
    pub replaced: Mutex<Told>,
    pub moved: Mutex<Told>,
    pub notified: Mutex<Told>,
    pub synced: Mutex<Told>,
}

/// Whether to go on with further work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Go,
    /// The runtime is draining.
    Stop,
}

impl From<Verdict> for Flow {
    fn from(verdict: Verdict) -> Self {
        if verdict == Verdict::Stopped {
            Self::Stop
        } else {
            Self::Go
        }
    }
}

/// Keeps what was told, for the account at the end.
fn keep(told: &Mutex<Told>, id: &str, verdict: Verdict) -> Flow {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.push((id.to_owned(), verdict));
    verdict.into()
}

impl Service {
    /// An event comes in: it is recorded, and then its consequences follow.
    pub async fn event(&self, n: usize) -> Flow {
        let (id, event) = self.plan.event(&self.shop, n);
        if self.record(&id, n).await == Flow::Stop {
            return Flow::Stop;
        }
        let flow = match &event.kind {
            Kind::View { .. } => self.preview(event).await,
            Kind::Cart { .. } => self.reserve(event).await,
            Kind::Order { quantity, .. } => {
                let out = -i64::from(*quantity);
                match self.move_stock(&id, n, out).await {
                    Flow::Go => self.tell(id, event).await,
                    Flow::Stop => Flow::Stop,
                }
            }
            Kind::Restock { quantity } => match self.move_stock(&id, n, i64::from(*quantity)).await
            {
                Flow::Go => self.tell(id, event).await,
                Flow::Stop => Flow::Stop,
            },
            Kind::Price { .. } => self.tell(id, event).await,
            Kind::Review { text, .. } => self.review(text).await,
        };
        self.progress.events.inc(1);
        flow
    }

    async fn record(&self, id: &str, n: usize) -> Flow {
        let call = self.meters.record_event.begin();
        let contract = &self.contracts.record_event;
        let event = n % self.shop.events.len();
        let result = match &self.store {
            // SQLite blocks its thread, so the work gets one of its own.
            Store::Embedded(store) => {
                let (store, shop, call, id) = (
                    Arc::clone(store),
                    Arc::clone(&self.shop),
                    Arc::clone(&call),
                    id.to_owned(),
                );
                let work = move |_: &Attempt| {
                    let _running = call.enter();
                    let recorded = store.record(&shop, &id, &shop.events[event]);
                    recorded.map_err(StoreError::classified)
                };
                contract.run_blocking(work).await
            }
            Store::Postgres(store) => {
                let work = || async {
                    let _running = call.enter();
                    let recorded = store.record(&self.shop, id, &self.shop.events[event]).await;
                    recorded.map_err(StoreError::classified)
                };
                contract.run(work).await
            }
        };
        keep(&self.recorded, id, call.end(&result))
    }

    /// Moves what an order takes out, or a restock brings in.
    async fn move_stock(&self, id: &str, n: usize, units: i64) -> Flow {
        let call = self.meters.move_stock.begin();
        let contract = &self.contracts.move_stock;
        let product = self.shop.events[n % self.shop.events.len()].product;
        let sku = &self.shop.products[product].sku;
        let result = match &self.store {
            Store::Embedded(store) => {
                let (store, call) = (Arc::clone(store), Arc::clone(&call));
                let (event, sku) = (id.to_owned(), sku.clone());
                let work = move |_: &Attempt| {
                    let _running = call.enter();
                    let (event, sku) = (&event, &sku);
                    let moved = store.move_stock(&Move { event, sku, units });
                    moved.map_err(StoreError::classified)
                };
                contract.run_blocking(work).await
            }
            Store::Postgres(store) => {
                let of = Move {
                    event: id,
                    sku,
                    units,
                };
                let work = || async {
                    let _running = call.enter();
                    store.move_stock(&of).await.map_err(StoreError::classified)
                };
                contract.run(work).await
            }
        };
        let verdict = call.end(&result);
        // Sold out is an answer, and no move.
        if matches!(result, Ok(false)) {
            return verdict.into();
        }
        keep(&self.moved, id, verdict)
    }

    /// Puts a unit of the product into somebody's cart, if there is one.
    async fn reserve(&self, event: &Event) -> Flow {
        let product = &self.shop.products[event.product];
        let brand = &self.shop.brands[product.brand];
        match self.live.reserve(brand, &product.sku).await {
            Ok(_) => Flow::Go,
            // The shelves close with the runtime.
            Err(_) => Flow::Stop,
        }
    }

    /// Draws a small card for somebody who looks at the product right now, unless the renderer is busy.
    async fn preview(&self, event: &Event) -> Flow {
        let call = self.meters.preview_card.begin();
        let work = {
            let (renderer, shop, call, product) = (
                Arc::clone(&self.renderer),
                Arc::clone(&self.shop),
                Arc::clone(&call),
                event.product,
            );
            move |_: &Attempt| {
                let _running = call.enter();
                renderer
                    .card(&shop, &shop.products[product], 0.5)
                    .map_err(Failure::permanent)
            }
        };
        let result = self.contracts.preview_card.run_blocking(work).await;
        call.end(&result).into()
    }

    /// Draws the n-th card of the batch.
    pub async fn card(&self, n: usize) -> Flow {
        let call = self.meters.render_card.begin();
        let product = self.plan.card(&self.shop, n);
        let work = {
            let (renderer, shop, call) = (
                Arc::clone(&self.renderer),
                Arc::clone(&self.shop),
                Arc::clone(&call),
            );
            let (cards, sampled) = (self.cards.clone(), Arc::clone(&self.sampled));
            move |_: &Attempt| {
                let _running = call.enter();
                let product = &shop.products[product];
                let png = renderer
                    .card(&shop, product, 1.0)
                    .map_err(Failure::permanent)?;
                // One of each brand is kept for a person to look at.
                if !sampled[product.brand].swap(true, Relaxed) {
                    std::fs::write(cards.join(format!("{}.png", product.sku)), &png)
                        .map_err(|error| Failure::permanent(RenderError::Save(error)))?;
                }
                Ok(())
            }
        };
        let result = self.contracts.render_card.run_blocking(work).await;
        self.progress.cards.inc(1);
        call.end(&result).into()
    }

    /// A supplier's feed comes in: all products of a brand are replaced.
    pub async fn feed(&self, n: usize) -> Flow {
        let brand = self.plan.feeds[n];
        let key = if self.bounded {
            self.shop.brands[brand].clone()
        } else {
            format!("feed {n}")
        };
        let call = self.meters.replace_catalogue.begin();
        let mut contract = self.contracts.replace_catalogue.with().key(key);
        // Every attempt is an edition of its own: what one left behind is told from what another brought.
        let edition = move |attempt: &Attempt| n as u32 * 10 + attempt.number();
        let result = match &self.store {
            Store::Embedded(store) => {
                let (store, shop, call) =
                    (Arc::clone(store), Arc::clone(&self.shop), Arc::clone(&call));
                let work = move |attempt: &Attempt| {
                    let _running = call.enter();
                    let replaced = catalogue::replace(&store, &shop, brand, edition(attempt));
                    replaced.map_err(StoreError::classified)
                };
                contract.run_blocking(work).await
            }
            Store::Postgres(store) => {
                let work = |attempt: &Attempt| {
                    let (edition, call) = (edition(attempt), &call);
                    async move {
                        let _running = call.enter();
                        let replaced =
                            catalogue::postgres::replace(store, &self.shop, brand, edition).await;
                        replaced.map_err(StoreError::classified)
                    }
                };
                contract.run(work).await
            }
        };
        self.progress.feeds.inc(1);
        keep(&self.replaced, &self.shop.brands[brand], call.end(&result))
    }

    /// Tells partners: a new order once, news about a product until they have it.
    async fn tell(&self, id: String, event: &Event) -> Flow {
        let product = &self.shop.products[event.product];
        let body = serde_json::json!({
            "event": id,
            "kind": event.kind.name(),
            "sku": product.sku,
            "quantity": event.kind.quantity(),
            "detail": event.kind.detail(),
        });
        let (operation, meter, told) = match event.kind {
            Kind::Order { .. } => (&self.contracts.notify, &self.meters.notify, &self.notified),
            _ => (&self.contracts.sync, &self.meters.sync, &self.synced),
        };
        let call = meter.begin();
        let delivery = Delivery {
            event: id.clone(),
            sku: product.sku.clone(),
            body: body.to_string(),
            // An eighth of the partners have their primary in maintenance.
            maintenance: product.brand % 8 == 3,
            call: Arc::clone(&call),
        };
        let result = operation.call(delivery).await;
        self.progress.webhooks.inc(1);
        keep(told, &id, call.end(&result))
    }

    /// Has a model score a review; a page that has waited long enough shows it without a score.
    async fn review(&self, text: &str) -> Flow {
        let call = self.meters.score_review.begin();
        let result = self
            .contracts
            .score_review
            .with()
            .within(PATIENCE)
            .run(|_| async {
                let _running = call.enter();
                model::ask(&self.client, self.model.address, text)
                    .await
                    .map_err(bursar_http::Error::into_failure)
            })
            .await;
        self.progress.reviews.inc(1);
        call.end(&result).into()
    }
}
