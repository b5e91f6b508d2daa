//! The live part: whoever puts a product into a cart gets a unit of it, and no unit goes into two carts.
//!
//! Each brand has a shelf, which is an Instance Spot: made by the first cart of the brand, touched by one turn at a time. A
//! shelf that has nothing left asks the supplier, and yields meanwhile: other carts are served, and the shelf that comes back
//! is looked at again. A timer fills up what runs low, behind whoever waits.
//!
//! Every unit has a number that the supplier gave it, and the supplier keeps its own book: what the carts hold is held
//! against that.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar::Runtime;
use bursar_http::{Client, Clients, TurnHttp};
use bursar_spot::{Host, Instance, Instances, Schedule, SpotError, Turn};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::{Deserialize, Serialize};

use crate::http::{Reply, Server, Service};
use crate::rng::{hash, unit};
use crate::webhook::OneByOne;

/// Units asked for when a cart finds none, and by the timer for what runs low.
const ORDER: u64 = 2;
const RESTOCK: Duration = Duration::from_millis(40);

/// The number of one unit.
type Unit = u64;

/// What is in reach of one brand's carts.
#[derive(Debug, Default)]
struct Shelf(HashMap<String, VecDeque<Unit>>);

impl Shelf {
    fn take(&mut self, sku: &str) -> Option<Unit> {
        self.0.entry(sku.to_owned()).or_default().pop_front()
    }

    fn put(&mut self, sku: &str, units: Vec<Unit>) {
        self.0.entry(sku.to_owned()).or_default().extend(units);
    }

    /// A product that was asked for before and of which nothing is left.
    fn empty(&self) -> Option<String> {
        let empty = self.0.iter().find(|(_, units)| units.is_empty());
        empty.map(|(sku, _)| sku.clone())
    }
}

/// What is seen from outside the turns.
#[derive(Debug, Default)]
struct Seen {
    /// Two at work on one shelf at once.
    shelves: OneByOne,
    /// Shelves that wait for the supplier, and carts served by such a shelf meanwhile.
    waiting: Mutex<BTreeMap<String, u32>>,
    meanwhile: AtomicUsize,
    carts: Mutex<Vec<Unit>>,
    empty_handed: AtomicUsize,
    restocked: AtomicUsize,
}

/// What the live part came to.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// Units in carts, and how many of them are in another cart too, or are none of the supplier's.
    pub carts: usize,
    pub twice: usize,
    pub strange: usize,
    /// Units that the supplier gave away, by its own book.
    pub issued: usize,
    /// Carts that got nothing: the supplier did not answer.
    pub empty_handed: usize,
    /// Carts served by a shelf that was waiting for the supplier.
    pub meanwhile: usize,
    /// Deliveries that a timer asked for.
    pub restocked: usize,
    /// How often two were at work on one shelf.
    pub overlaps: usize,
}

/// The shelves of all brands.
#[derive(Debug)]
pub struct Live {
    shelves: Instances<Shelf>,
    seen: Arc<Seen>,
    supplier: Arc<Supplier>,
    clients: Clients,
    _server: Server,
}

impl Live {
    /// Opens the shelves on `runtime`, whose drain includes their turns.
    ///
    /// # Errors
    ///
    /// If there is no port for the supplier, or the parts do not fit together.
    pub async fn open(runtime: &Runtime, seed: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let supplier = Arc::new(Supplier::new(seed));
        let server = Server::start(Arc::clone(&supplier)).await?;
        let client = Client::builder()
            .base_url(format!("http://{}", server.address))
            .build()?;
        let clients = Clients::builder().register("supplier", client).build()?;
        // Named here once: no handler builds a client.
        let host = Host::builder(runtime)
            .service(Clients::SERVICE, clients.clone())
            .build()?;
        let shelves = host
            .instances("shelves")
            .activate(|_brand| async { Ok::<_, std::convert::Infallible>(Shelf::default()) })?;
        let seen = Arc::new(Seen::default());
        restock(&host, &shelves, &seen)?;
        Ok(Self {
            shelves,
            seen,
            supplier,
            clients,
            _server: server,
        })
    }

    /// Puts a unit into a cart. False if none was to be had.
    ///
    /// # Errors
    ///
    /// If the shelf is closed.
    pub async fn reserve(&self, brand: &str, sku: &str) -> Result<bool, SpotError> {
        let (seen, sku) = (Arc::clone(&self.seen), sku.to_owned());
        let shelf = self.shelves.at(brand);
        shelf.request(move |turn| reserve(turn, seen, sku)).await
    }

    /// What it came to, once all turns have ended.
    pub async fn outcome(&self) -> Outcome {
        // Answers that nobody waits for any more have a moment to come in.
        let _still_running = self.clients.shutdown_within(Duration::from_secs(5)).await;
        let seen = &self.seen;
        let carts = lock(&seen.carts);
        let issued = lock(&self.supplier.issued);
        let mut once = HashSet::new();
        Outcome {
            carts: carts.len(),
            twice: carts.iter().filter(|unit| !once.insert(**unit)).count(),
            strange: carts.iter().filter(|unit| !issued.contains(unit)).count(),
            issued: issued.len(),
            empty_handed: seen.empty_handed.load(Relaxed),
            meanwhile: seen.meanwhile.load(Relaxed),
            restocked: seen.restocked.load(Relaxed),
            overlaps: seen.shelves.overlaps(),
        }
    }
}

/// One cart's turn at its brand's shelf.
async fn reserve(mut turn: Turn<Shelf, Instance>, seen: Arc<Seen>, sku: String) -> bool {
    let brand = turn.name().to_owned();
    if let Some(unit) = seen.at_work(&brand, || turn.state().take(&sku)) {
        seen.served(&brand, unit);
        return true;
    }
    // The gate is given back while the supplier thinks.
    let (mut turn, delivered) = order(turn, &seen, &sku).await;
    // Others had their turns meanwhile: what was empty then need not be now, and what came may be gone already.
    let unit = seen.at_work(&brand, || {
        let shelf = turn.state();
        shelf.put(&sku, delivered.unwrap_or_default());
        shelf.take(&sku)
    });
    match unit {
        Some(unit) => seen.served(&brand, unit),
        None => {
            seen.empty_handed.fetch_add(1, Relaxed);
        }
    }
    unit.is_some()
}

/// Asks the supplier, with the gate given back meanwhile.
async fn order(
    turn: Turn<Shelf, Instance>,
    seen: &Seen,
    sku: &str,
) -> (Turn<Shelf, Instance>, Result<Vec<Unit>, bursar_http::Error>) {
    let supplier = match turn.http("supplier") {
        Ok(supplier) => supplier,
        Err(error) => return (turn, Err(error)),
    };
    let _waiting = seen.waits(turn.name());
    let order = Order {
        sku: sku.to_owned(),
        units: ORDER,
    };
    supplier.post("/order").json(&order).yield_fetch(turn).await
}

/// A timer that fills up, now and then, what has run out.
fn restock(host: &Host, shelves: &Instances<Shelf>, seen: &Arc<Seen>) -> Result<(), SpotError> {
    let rounds = host.create("restock", shelves.clone())?;
    let seen = Arc::clone(seen);
    rounds.timer(
        "restock",
        Schedule::every(RESTOCK),
        move |mut turn, _tick| {
            let seen = Arc::clone(&seen);
            async move {
                let shelves = turn.state().clone();
                let brands: Vec<String> = lock(&seen.waiting).keys().cloned().collect();
                for brand in brands {
                    let seen = Arc::clone(&seen);
                    let work = move |turn| fill_up(turn, seen);
                    // A shelf that is closed needs nothing.
                    let _closed = shelves.at(&brand).send(work).await;
                }
            }
        },
    )
}

async fn fill_up(mut turn: Turn<Shelf, Instance>, seen: Arc<Seen>) {
    let brand = turn.name().to_owned();
    let Some(sku) = seen.at_work(&brand, || turn.state().empty()) else {
        return;
    };
    if let (mut turn, Ok(units)) = order(turn, &seen, &sku).await {
        seen.at_work(&brand, || turn.state().put(&sku, units));
        seen.restocked.fetch_add(1, Relaxed);
    }
}

impl Seen {
    /// Counts who is at work on a shelf, from outside its gate.
    fn at_work<T>(&self, brand: &str, work: impl FnOnce() -> T) -> T {
        let _alone = self.shelves.enter(brand);
        work()
    }

    fn served(&self, brand: &str, unit: Unit) {
        let waits = lock(&self.waiting)
            .get(brand)
            .is_some_and(|count| *count > 0);
        self.meanwhile.fetch_add(usize::from(waits), Relaxed);
        lock(&self.carts).push(unit);
    }

    /// A shelf waits for the supplier until what comes back is dropped. It stays known to the timer.
    fn waits(&self, brand: &str) -> Waits<'_> {
        *lock(&self.waiting).entry(brand.to_owned()).or_default() += 1;
        Waits {
            seen: self,
            brand: brand.to_owned(),
        }
    }
}

struct Waits<'s> {
    seen: &'s Seen,
    brand: String,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(count) = lock(&self.seen.waiting).get_mut(&self.brand) {
            *count -= 1;
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    sku: String,
    units: u64,
}

/// The supplier: it numbers every unit it gives away, takes its time, and now and then dies with the answer in hand.
#[derive(Debug)]
struct Supplier {
    seed: u64,
    next: AtomicU64,
    issued: Mutex<HashSet<Unit>>,
}

impl Supplier {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            next: AtomicU64::new(1),
            issued: Mutex::default(),
        }
    }
}

impl Service for Supplier {
    async fn handle(&self, request: Request<Incoming>) -> Reply {
        let Ok(body) = request.into_body().collect().await else {
            return Reply::Reset;
        };
        let Ok(order) = serde_json::from_slice::<Order>(&body.to_bytes()) else {
            return Reply::Answer(StatusCode::BAD_REQUEST, "what is to be sent?".into());
        };
        let first = self.next.fetch_add(order.units, Relaxed);
        let luck = unit(hash(self.seed, &order.sku, first));
        tokio::time::sleep(Duration::from_secs_f64(0.001 + 0.004 * luck)).await;
        let units: Vec<Unit> = (first..first + order.units).collect();
        lock(&self.issued).extend(&units);
        if luck > 0.97 {
            // Given away, and lost on the way.
            return Reply::Reset;
        }
        match serde_json::to_string(&units) {
            Ok(json) => Reply::Answer(StatusCode::OK, json),
            Err(error) => Reply::Answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
