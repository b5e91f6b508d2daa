//! One run: the seven subsystems at once, an interruption if there is one, and the drain.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use bursar::{DrainReport, Runtime, ShutdownError, Snapshot, Stats};
use tokio::task::JoinSet;

use crate::model;
use crate::service::{Flow, Service};

/// How long an interrupted run may take to end what it has begun.
const DRAIN: Duration = Duration::from_secs(30);

/// How many of each kind are under way at once, as so many clients, jobs and connections would have it.
const EVENTS: usize = 64;
/// Fewer than the renderer has room for: the batch leaves some for who looks at a page, and waits when there are many.
const CARDS: usize = 7;
const FEEDS: usize = 10;

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub took: Duration,
    pub interrupted: bool,
    /// How long the drain took.
    pub drained_in: Duration,
    /// What the drain reported.
    pub drain: Result<DrainReport, ShutdownError>,
    /// The runtime's counters after the drain.
    pub stats: Stats,
    /// The most calls seen waiting for each budget.
    pub queues: BTreeMap<String, u32>,
    /// What the runtime looked like when most calls waited.
    pub busiest: Option<Snapshot>,
    pub rival_calls: usize,
}

/// Works through the plan, or until the first interrupt, and drains.
pub async fn run(runtime: &Runtime, service: &Arc<Service>) -> Ended {
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    // Its first poll takes the signal over. Only then does anybody learn that the run has begun.
    let early = poll_fn(|cx| Poll::Ready(interrupt.as_mut().poll(cx).is_ready())).await;
    let plan = &service.plan;
    if service.progress.is_silent() {
        eprintln!(
            "storefront: serving {} events, {} cards and {} catalogue feeds; Ctrl-C drains and reports; \
             curl http://{}/debug/bursar shows who holds what",
            plan.events,
            plan.cards,
            plan.feeds.len(),
            service.inspector.address
        );
    }
    let begun = Instant::now();
    let rival_calls = Arc::new(AtomicUsize::new(0));
    let rival = {
        let (client, address, calls) = (
            service.client.clone(),
            service.model.address,
            Arc::clone(&rival_calls),
        );
        tokio::spawn(async move { model::rival(client, address, &calls).await })
    };
    let queues = Arc::new(Mutex::new(Seen::default()));
    let watch = tokio::spawn(watch(runtime.clone(), Arc::clone(&queues)));

    let mut work = JoinSet::new();
    hands(
        &mut work,
        EVENTS,
        plan.events,
        service,
        |service, n| async move { service.event(n).await },
    );
    hands(
        &mut work,
        CARDS,
        plan.cards,
        service,
        |service, n| async move { service.card(n).await },
    );
    hands(
        &mut work,
        FEEDS,
        plan.feeds.len(),
        service,
        |service, n| async move { service.feed(n).await },
    );

    let interrupted = early
        || tokio::select! {
            () = finish(&mut work) => false,
            _ = interrupt => true,
        };
    if interrupted {
        service.progress.clear();
        eprintln!("storefront: draining; Ctrl-C again leaves at once");
        tokio::spawn(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
    }
    let draining = Instant::now();
    // The hands go on meanwhile: what runs ends, and what would begin is told that the runtime is stopping.
    let drain = runtime.shutdown_within(DRAIN).await;
    if drain.is_ok() {
        finish(&mut work).await;
    }
    let drained_in = draining.elapsed();
    rival.abort();
    watch.abort();
    service.progress.clear();
    let seen = std::mem::take(&mut *queues.lock().unwrap_or_else(PoisonError::into_inner));
    Ended {
        took: begun.elapsed(),
        interrupted,
        drained_in,
        drain,
        stats: runtime.stats(),
        queues: seen.queues,
        busiest: seen.busiest,
        rival_calls: rival_calls.load(Relaxed),
    }
}

/// Puts `hands` tasks to work on the numbers below `len`; each takes the next one that nobody has.
fn hands<W, F>(work: &mut JoinSet<()>, hands: usize, len: usize, service: &Arc<Service>, each: W)
where
    W: Fn(Arc<Service>, usize) -> F + Copy + Send + 'static,
    F: Future<Output = Flow> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..hands.min(len) {
        let (service, next) = (Arc::clone(service), Arc::clone(&next));
        work.spawn(async move {
            loop {
                let n = next.fetch_add(1, Relaxed);
                if n >= len || each(Arc::clone(&service), n).await == Flow::Stop {
                    break;
                }
            }
        });
    }
}

/// Waits for all tasks. A panic in one is a defect of this program and goes on.
async fn finish(work: &mut JoinSet<()>) {
    while let Some(ended) = work.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// What `watch` has seen.
#[derive(Debug, Default)]
struct Seen {
    queues: BTreeMap<String, u32>,
    busiest: Option<Snapshot>,
}

/// Calls that wait, for keys too.
fn waiting(of: &Snapshot) -> u64 {
    of.operations.iter().map(|of| of.waiting).sum()
}

/// Looks at the queues now and then. What is short-lived escapes it: it is an impression, no promise rests on it.
async fn watch(runtime: Runtime, seen: Arc<Mutex<Seen>>) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    loop {
        tick.tick().await;
        let snapshot = runtime.snapshot();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        for budget in &snapshot.budgets {
            let deepest = seen.queues.entry(budget.name.to_string()).or_default();
            *deepest = budget.waiting.max(*deepest);
        }
        if seen
            .busiest
            .as_ref()
            .is_none_or(|of| waiting(of) < waiting(&snapshot))
        {
            seen.busiest = Some(snapshot);
        }
    }
}
