//! Whoever kills the shop's connections to Postgres while it serves: now an idle one, now one in the middle of a commit.
//!
//! How many follows how much the shop asks of the database, so that a slow machine meets no more of it than a fast one. A commit that
//! waits for a standby is ended as soon as it is seen: it has happened, and never returns.

use std::convert::Infallible;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};

use crate::store::Postgres;

/// What was killed, by what it was doing.
#[derive(Debug, Default)]
pub struct Unrest {
    idle: AtomicU64,
    working: AtomicU64,
    committing: AtomicU64,
}

/// The numbers of an [`Unrest`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Killed {
    pub idle: u64,
    /// In a statement, or between two of a transaction.
    pub working: u64,
    pub committing: u64,
}

impl Killed {
    pub const fn all(&self) -> u64 {
        self.idle + self.working + self.committing
    }
}

/// Somebody at work is met rather than somebody idle, of whom there are more.
const KILL_ONE: &str = "
    WITH victim AS (
        SELECT pid, state = 'idle' AS idle, state = 'active' AND query = 'COMMIT' AS committing
        FROM pg_stat_activity WHERE application_name = $1
        ORDER BY random() * CASE WHEN state = 'idle' THEN 4 ELSE 1 END LIMIT 1
    )
    SELECT pg_terminate_backend(pid), COALESCE(idle, false), COALESCE(committing, false) FROM victim";

const END_WAITS: &str = "
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = $1 AND wait_event = 'SyncRep' AND backend_type = 'client backend'";

/// How often commits that wait for a standby are looked for.
const LOOK: Duration = Duration::from_millis(20);

impl Unrest {
    /// Kills a store's connections when it says so, until it is dropped. It only returns if the server does not let it.
    pub async fn go_on(&self, url: &str, store: &Postgres) -> sqlx::Error {
        match self.kill(url, store).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn kill(&self, url: &str, store: &Postgres) -> sqlx::Result<Infallible> {
        let options = PgConnectOptions::from_str(url)?.application_name("storefront-unrest");
        let mut connection: PgConnection = options.connect().await?;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                // Never closed, so there is always one in the end.
                permit = store.kills.acquire() => {
                    if let Ok(permit) = permit {
                        permit.forget();
                    }
                    let victim = sqlx::query_as::<_, (bool, bool, bool)>(KILL_ONE).bind(&store.name);
                    if let Some((true, idle, committing)) = victim.fetch_optional(&mut connection).await? {
                        let of = match (idle, committing) {
                            (true, _) => &self.idle,
                            (_, true) => &self.committing,
                            _ => &self.working,
                        };
                        of.fetch_add(1, Relaxed);
                    }
                }
                _ = look.tick() => {
                    let waiting = sqlx::query_scalar::<_, bool>(END_WAITS).bind(&store.name);
                    let ended = waiting.fetch_all(&mut connection).await?;
                    self.committing.fetch_add(ended.len() as u64, Relaxed);
                }
            }
        }
    }

    pub fn killed(&self) -> Killed {
        Killed {
            idle: self.idle.load(Relaxed),
            working: self.working.load(Relaxed),
            committing: self.committing.load(Relaxed),
        }
    }
}
