//! What every operation of the shop spends, changes and may repeat: the page to read first.

use std::sync::Arc;
use std::time::Duration;

use bursar::{Backoff, Contract, ContractError, Operation, Policy, Retry, RetryBudget, Runtime};

use crate::webhook::{Delivery, Sender};

pub const RENDERER: &str = "renderer";
pub const DB_WRITE: &str = "db-write";
pub const CATALOGUE: &str = "catalogue";
pub const WEBHOOK: &str = "webhook";
pub const MODEL_CALL: &str = "model-call";

/// The budgets and their capacities.
pub const BUDGETS: [(&str, u32); 5] = [
    (CATALOGUE, 2),
    (DB_WRITE, 4),
    (MODEL_CALL, 2),
    (RENDERER, 8),
    (WEBHOOK, 12),
];

/// How long a partner may take to answer a webhook.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_millis(250);

/// The operations whose retries partners have to bear, together.
const PARTNERS: &str = "partners";

/// A pause before another attempt: at random up to 10 ms, then 20, and so on up to 200.
fn soon() -> Backoff {
    Backoff::exponential(Duration::from_millis(10)).cap(Duration::from_millis(200))
}

/// A runtime with the shop's budgets. Were all partners down, retries would add half as much again to what they are asked,
/// and a hundred to begin with: not three times as much.
///
/// Without bounds every budget is so large that no claim ever waits: that is the shop without its contracts, for comparison.
///
/// # Errors
///
/// If the table above makes no sense.
pub fn runtime(bounds: bool) -> Result<Runtime, ContractError> {
    let times = if bounds { 1 } else { 1_000 };
    let budgets = BUDGETS.iter();
    let partners = RetryBudget::new(100).percent(50);
    let builder = Runtime::builder().retry_group(PARTNERS, partners);
    budgets
        .fold(builder, |builder, (name, capacity)| {
            builder.resource(*name, capacity * times)
        })
        .build()
}

/// The shop's operations.
#[derive(Debug)]
pub struct Contracts {
    pub render_card: Contract,
    pub preview_card: Contract,
    pub record_event: Contract,
    pub replace_catalogue: Contract,
    pub move_stock: Contract,
    pub notify: Operation<Delivery, Arc<Sender>>,
    pub sync: Operation<Delivery, Arc<Sender>>,
    pub score_review: Contract,
}

impl Contracts {
    /// Has the runtime check every policy, before anything is served.
    ///
    /// # Errors
    ///
    /// The first policy that is not sound, in words.
    pub fn new(
        runtime: &Runtime,
        notify: Arc<Sender>,
        sync: Arc<Sender>,
    ) -> Result<Self, ContractError> {
        Ok(Self {
            // A batch of cards waits its turn. It writes files, the same ones each time.
            render_card: runtime.contract(
                "render-card",
                Policy::idempotent()
                    .claim(RENDERER, 1)
                    .timeout(Duration::from_secs(20)),
            )?,

            // Somebody is looking at a page: a small card now, or a grey box now. Never a queue.
            preview_card: runtime
                .contract("preview-card", Policy::pure().claim(RENDERER, 1).reject())?,

            // Recorded by event id, so that once and twice are the same.
            record_event: runtime.contract(
                "record-event",
                Policy::idempotent()
                    .claim(DB_WRITE, 1)
                    .timeout(Duration::from_secs(20))
                    .retry(Retry::up_to(3).on_transient().on_uncertain()),
            )?,

            // Several transactions: two of one brand would mix. Two budgets, since each replacement is a writer too.
            replace_catalogue: runtime.contract(
                "replace-catalogue",
                Policy::idempotent()
                    .claim(CATALOGUE, 1)
                    .claim(DB_WRITE, 1)
                    .timeout(Duration::from_secs(40))
                    .retry(Retry::up_to(3).on_transient().on_uncertain())
                    .require_key(),
            )?,

            // Units that leave the shelf leave it once: again only if it is known that they did not. `.on_uncertain()` would
            // not compile here.
            move_stock: runtime.contract(
                "move-stock",
                Policy::non_idempotent()
                    .claim(DB_WRITE, 1)
                    .timeout(Duration::from_secs(20))
                    .retry(Retry::up_to(3).on_transient()),
            )?,

            // A parcel for each that arrives: sent again only if it never left.
            notify: runtime.operation(
                "webhook-notify",
                Policy::non_idempotent()
                    .claim(WEBHOOK, 1)
                    .timeout(WEBHOOK_TIMEOUT)
                    .retry(Retry::up_to(3).on_transient().backoff(soon()))
                    .retry_group(PARTNERS),
                notify,
            )?,

            // The receiver knows an event again by its id. One product's news go one after the other.
            sync: runtime
                .operation(
                    "webhook-sync",
                    Policy::idempotent()
                        .claim(WEBHOOK, 1)
                        .timeout(WEBHOOK_TIMEOUT)
                        .retry(
                            Retry::up_to(4)
                                .on_transient()
                                .on_uncertain()
                                .backoff(soon()),
                        )
                        .retry_group(PARTNERS),
                    sync,
                )?
                .serialize_by(|delivery: &Delivery| delivery.sku.as_str()),

            // The service takes two at once, from all its callers together. A refusal is asked again after a pause, in
            // which the slot is somebody else's.
            score_review: runtime.contract(
                "score-review",
                Policy::pure()
                    .claim(MODEL_CALL, 1)
                    .timeout(Duration::from_secs(10))
                    .retry(
                        Retry::up_to(4)
                            .on_transient()
                            .on_uncertain()
                            .on_throttled()
                            .backoff(soon()),
                    ),
            )?,
        })
    }
}
