//! Opening the shop and closing it: everything one run needs is made here, and all evidence is gathered here.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bursar_http::Client;
use tokio::net::TcpSocket;

use crate::checks::{self, Counted, Counters, Evidence};
use crate::cli::Args;
use crate::contracts::{
    self, BUDGETS, CATALOGUE, Contracts, DB_WRITE, MODEL_CALL, RENDERER, WEBHOOK, WEBHOOK_TIMEOUT,
};
use crate::debug::Inspector;
use crate::gauge::Gauge;
use crate::http::Server;
use crate::input::{Kind, Shop};
use crate::live::Live;
use crate::model::Model;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::receiver::Receiver;
use crate::render::Renderer;
use crate::report::{Budget, Operation, Report, seconds};
use crate::run::{self, Ended};
use crate::service::{Meters, Service};
use crate::store::{Postgres, Sqlite, Store, StoreError};
use crate::unrest::{Killed, Unrest};
use crate::webhook::{Endpoints, Sender};
use crate::{catalogue, control, stock};

type Error = Box<dyn std::error::Error>;

/// The schema of the shop's tables, where the database has such.
const SCHEMA: &str = "storefront";

/// Reads the input, serves, drains, and reports.
///
/// # Errors
///
/// If the input is wrong or the shop cannot open; a broken promise is no error but part of the report.
pub fn day(args: &Args) -> Result<Report, Error> {
    let shop = Arc::new(Shop::load(&args.data)?);
    let places = Places::new(args)?;
    let executor = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let report = executor.block_on(serve(args, shop, &places));
    // What nobody waits for any more, such as a stalled answer, need not end.
    executor.shutdown_background();
    places.tidy();
    report
}

/// Where a run writes.
struct Places {
    cards: PathBuf,
    databases: PathBuf,
    keep: bool,
}

impl Places {
    fn new(args: &Args) -> Result<Self, Error> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let cards = match &args.out {
            Some(out) => out.join("cards"),
            // Where the program is not run from its repository there is no such place.
            None => target
                .canonicalize()
                .unwrap_or_else(|_| std::env::temp_dir())
                .join("storefront"),
        };
        let databases = args.out.clone().unwrap_or_else(|| {
            std::env::temp_dir().join(format!("storefront-{}", std::process::id()))
        });
        for dir in [&cards, &databases] {
            std::fs::create_dir_all(dir)
                .map_err(|error| format!("cannot make the directory {}: {error}", dir.display()))?;
        }
        for name in ["shop.db", "control.db"] {
            for suffix in ["", "-wal", "-shm"] {
                // A database of an earlier run would bring its log along. Most often there is none.
                let _ = std::fs::remove_file(databases.join(format!("{name}{suffix}")));
            }
        }
        Ok(Self {
            cards,
            databases,
            keep: args.out.is_some(),
        })
    }

    fn tidy(&self) {
        if !self.keep {
            // A leftover in the directory for such things does no harm.
            let _ = std::fs::remove_dir_all(&self.databases);
        }
    }
}

async fn serve(args: &Args, shop: Arc<Shop>, places: &Places) -> Result<Report, Error> {
    let receiver = Arc::new(Receiver::new(args.seed, WEBHOOK_TIMEOUT * 3));
    let primary = Server::start(Arc::clone(&receiver)).await?;
    let standby = Server::start(Arc::clone(&receiver)).await?;
    // Bound and never listening: the port stays ours, and whoever connects is refused.
    let closed = TcpSocket::new_v4()?;
    closed.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let endpoints = Endpoints {
        primary: primary.address,
        standby: standby.address,
        closed: closed.local_addr()?,
    };
    let model = Arc::new(Model::new(args.seed));
    let model_server = Server::start(Arc::clone(&model)).await?;

    let client = Client::builder().http1_only().build()?;
    let sending = Arc::new(Gauge::default());
    let sender = |path| {
        Arc::new(Sender::new(
            client.clone(),
            endpoints,
            path,
            Arc::clone(&sending),
        ))
    };
    let (notify, sync) = (sender("/notify"), sender("/sync"));
    let runtime = contracts::runtime(!args.unbounded)?;
    let contracts = Contracts::new(&runtime, notify, Arc::clone(&sync))?;
    let inspector = Arc::new(Inspector {
        runtime: runtime.clone(),
    });
    let inspector = Server::start(inspector).await?;

    let store = database(args, places, SCHEMA, "shop.db").await?;
    store.stock_up(&shop).await?;
    let live = Live::open(&runtime, args.seed).await?;
    let plan = Plan::new(&shop, args.scale);
    let service = Arc::new(Service {
        meters: Meters::new(&contracts),
        progress: Progress::new(&plan),
        renderer: Arc::new(Renderer::default()),
        store: store.clone(),
        bounded: !args.unbounded,
        cards: places.cards.clone(),
        sampled: shop.brands.iter().map(|_| AtomicBool::new(false)).collect(),
        recorded: Mutex::default(),
        replaced: Mutex::default(),
        moved: Mutex::default(),
        notified: Mutex::default(),
        synced: Mutex::default(),
        model: model_server,
        inspector,
        client,
        live,
        contracts,
        plan,
        shop: Arc::clone(&shop),
    });
    let unrest = Unrest::default();
    let ended = match (&store, &args.database) {
        (Store::Postgres(store), Some(url)) if args.kill_every > 0 => tokio::select! {
            ended = run::run(&runtime, &service) => ended,
            error = unrest.go_on(url, store) => return Err(error.into()),
        },
        _ => run::run(&runtime, &service).await,
    };
    let killed = args.database.is_some().then(|| unrest.killed());
    let control = match ended.interrupted {
        true => None,
        false => {
            let store = database(args, places, "storefront_control", "control.db").await?;
            Some(control::run(&shop, &store).await?)
        }
    };

    let taken = |of: &Mutex<_>| {
        of.lock().map_or_else(
            |e| std::mem::take(&mut *e.into_inner()),
            |mut told| std::mem::take(&mut *told),
        )
    };
    let synced = (taken(&service.synced), receiver.synced());
    let counted = |budget: &str, gauge: &Gauge| {
        let capacity = BUDGETS
            .iter()
            .find(|(name, _)| *name == budget)
            .map_or(0, |(_, capacity)| *capacity as usize);
        Counted {
            capacity,
            peak: gauge.peak(),
            entered: gauge.entered(),
        }
    };
    let evidence = Evidence {
        interrupted: ended.interrupted,
        drained: (ended.drain.clone().map(drop)).map_err(|error| error.to_string()),
        renderer: counted(RENDERER, &service.renderer.gauge),
        writers: counted(DB_WRITE, &store.gauges().writers),
        replacing: counted(CATALOGUE, &store.gauges().replacing),
        model: counted(MODEL_CALL, &model.shop),
        sending: counted(WEBHOOK, &sending),
        overlaps: catalogue::overlaps(&store).await?,
        replaced: (
            taken(&service.replaced),
            catalogue::torn(&store, &shop).await?,
        ),
        moved: (taken(&service.moved), stock::book(&store).await?),
        shelves: stock::shelves(&store).await?,
        killed: killed.filter(|_| args.kill_every > 0),
        control,
        stock: (receiver.stock(), stock_told(&service, &synced.1)),
        notified: (taken(&service.notified), receiver.notified()),
        synced,
        same_product: sync.products.overlaps(),
        live: service.live.outcome().await,
        refusals: (
            model.refused_shop.load(Relaxed),
            model.refused_rival.load(Relaxed),
        ),
        scores: service.meters.score_review.tally(),
        score_retries: service.meters.score_review.retried(),
        recorded: (taken(&service.recorded), stock::recorded(&store).await?),
        operations: counters(&service, &ended),
        held: (
            ended.stats.budgets.iter().map(|budget| budget.in_use).sum(),
            ended.stats.keys,
        ),
    };
    Ok(report(args, places, &service, &ended, killed, &evidence))
}

/// The database that the command line asks for.
async fn database(
    args: &Args,
    places: &Places,
    schema: &str,
    file: &str,
) -> Result<Store, StoreError> {
    Ok(match &args.database {
        // Nobody kills what the control does: it is to show one thing alone.
        Some(url) => {
            let kill_every = if schema == SCHEMA { args.kill_every } else { 0 };
            let store = Postgres::open(url, schema, kill_every).await?;
            Store::Postgres(Arc::new(store))
        }
        None => Store::Embedded(Arc::new(Sqlite::open(&places.databases.join(file))?)),
    })
}

/// The stock that the events moved which, by the receiver's books, took effect.
fn stock_told(service: &Service, book: &crate::receiver::Book) -> u64 {
    (0..service.plan.events)
        .map(|n| service.plan.event(&service.shop, n))
        .filter(|(id, _)| book.get(id).is_some_and(|entry| entry.applied > 0))
        .map(|(_, event)| match event.kind {
            Kind::Restock { quantity } => u64::from(quantity),
            _ => 0,
        })
        .sum()
}

fn counters(service: &Service, ended: &Ended) -> Vec<Counters> {
    let stats = |name: &str| ended.stats.operations.iter().find(|of| *of.name == *name);
    service
        .meters
        .all()
        .map(|meter| Counters {
            name: meter.name.clone(),
            admitted: stats(&meter.name).map_or(0, |of| of.admitted),
            finished: stats(&meter.name).map_or(0, |of| of.finished),
            tally: meter.tally(),
        })
        .into()
}

fn report(
    args: &Args,
    places: &Places,
    service: &Service,
    ended: &Ended,
    killed: Option<Killed>,
    evidence: &Evidence,
) -> Report {
    let operations: Vec<_> = service
        .meters
        .all()
        .map(|meter| Operation::of(meter))
        .into();
    let peaks = [
        &evidence.replacing,
        &evidence.writers,
        &evidence.model,
        &evidence.renderer,
        &evidence.sending,
    ];
    let budgets = BUDGETS
        .iter()
        .zip(peaks)
        .map(|((name, capacity), counted)| Budget {
            name: (*name).to_owned(),
            capacity: *capacity,
            peak: counted.peak,
            waits: operations
                .iter()
                .filter(|of| of.claims(name))
                .map(|of| of.waited)
                .sum(),
            queue: ended.queues.get(*name).copied().unwrap_or(0),
        })
        .collect();
    Report {
        seed: args.seed,
        scale: args.scale,
        seconds: seconds(ended.took),
        interrupted: ended.interrupted.then(|| seconds(ended.drained_in)),
        operations,
        budgets,
        checks: checks::all(evidence),
        rival_calls: ended.rival_calls,
        killed,
        busiest: ended.busiest.clone(),
        cards: places.cards.clone(),
        databases: (places.keep && args.database.is_none()).then(|| places.databases.clone()),
    }
}
