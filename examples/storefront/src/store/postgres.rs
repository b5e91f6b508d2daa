//! A Postgres: the same tables in a schema of the shop's own, which is made anew.
//!
//! The pool has far more connections than the contract lets in, and hands them out without asking whether they are still alive:
//! what a lost one means is for the contract to bear.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bursar_classify::Phase;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Executor as _, PgPool, Row as _, Transaction};
use tokio::sync::Semaphore;

use super::{Gauges, Move, StoreError};
use crate::input::{Event, Shop};

const SCHEMA: &str = "
    CREATE TABLE events (
        id TEXT PRIMARY KEY, ts TEXT NOT NULL, kind TEXT NOT NULL, sku TEXT NOT NULL,
        customer TEXT, quantity BIGINT
    );
    CREATE TABLE products (
        sku TEXT NOT NULL, edition INTEGER NOT NULL, brand TEXT NOT NULL, name TEXT NOT NULL,
        price_cents BIGINT NOT NULL, stock BIGINT NOT NULL, description TEXT NOT NULL,
        PRIMARY KEY (sku, edition)
    );
    CREATE INDEX products_by_brand ON products (brand);
    CREATE TABLE terms (
        term TEXT NOT NULL, sku TEXT NOT NULL, edition INTEGER NOT NULL, brand TEXT NOT NULL,
        PRIMARY KEY (term, sku, edition)
    );
    CREATE INDEX terms_by_brand ON terms (brand);
    -- Numbered in the order in which rows were written: of two replacements one after the other, the second has the higher ones.
    CREATE TABLE replacement_log (
        seq BIGSERIAL PRIMARY KEY, edition INTEGER NOT NULL, brand TEXT NOT NULL, step TEXT NOT NULL
    );
    CREATE TABLE stock (sku TEXT PRIMARY KEY, initial BIGINT NOT NULL, units BIGINT NOT NULL);
    CREATE TABLE stock_moves (event TEXT NOT NULL, sku TEXT NOT NULL, units BIGINT NOT NULL);
";

/// Where connections are killed, one in so many stock moves, and recorded events, asks for a standby to have it too. If the server has
/// one that never answers, it is committed and waits until it is killed: the commit that happened and was lost.
const DOUBTFUL: usize = 20;

pub type Tx = Transaction<'static, sqlx::Postgres>;

/// What it means that a statement inside a transaction failed.
pub const fn lost(error: sqlx::Error) -> StoreError {
    StoreError::postgres(Phase::InTransaction, error)
}

/// Commits what was done.
///
/// # Errors
///
/// If the database refuses, or is lost: nobody knows then.
pub async fn commit(tx: Tx) -> Result<(), StoreError> {
    let done = tx.commit().await;
    done.map_err(|e| StoreError::postgres(Phase::Commit, e))
}

async fn moved(tx: &mut Tx, of: &Move<'_>, doubtful: bool) -> sqlx::Result<bool> {
    if doubtful {
        tx.execute("SET LOCAL synchronous_commit = on").await?;
    }
    let update = "UPDATE stock SET units = units + $2 WHERE sku = $1 AND units + $2 >= 0";
    let updated = tx
        .execute(sqlx::query(update).bind(of.sku).bind(of.units))
        .await?;
    if updated.rows_affected() == 0 {
        return Ok(false);
    }
    let insert = sqlx::query("INSERT INTO stock_moves (event, sku, units) VALUES ($1, $2, $3)");
    tx.execute(insert.bind(of.event).bind(of.sku).bind(of.units))
        .await?;
    Ok(true)
}

/// A schema in a Postgres.
#[derive(Debug)]
pub struct Postgres {
    pool: PgPool,
    /// By what name its connections are known to the server.
    pub name: String,
    /// One connection is to be killed for so many uses; none if 0.
    kill_every: usize,
    uses: AtomicUsize,
    moves: AtomicUsize,
    records: AtomicUsize,
    /// A permit for each connection that is to be killed.
    pub kills: Semaphore,
    pub gauges: Gauges,
}

impl Postgres {
    /// Connects, and makes the schema anew.
    ///
    /// # Errors
    ///
    /// If the address is none, the server cannot be reached, or it refuses.
    pub async fn open(url: &str, schema: &str, kill_every: usize) -> Result<Self, StoreError> {
        let name = format!("{schema}-{}", std::process::id());
        let options = PgConnectOptions::from_str(url)
            .map_err(|e| StoreError::postgres(Phase::Acquire, e))?
            .application_name(&name)
            .options([("search_path", schema)]);
        let pool = PgPoolOptions::new()
            .max_connections(32)
            .acquire_timeout(Duration::from_secs(10))
            .test_before_acquire(false)
            .connect_with(options)
            .await
            .map_err(|e| StoreError::postgres(Phase::Acquire, e))?;
        let anew =
            format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; {SCHEMA}");
        pool.execute(AssertSqlSafe(anew))
            .await
            .map_err(|e| StoreError::postgres(Phase::Autocommit, e))?;
        Ok(Self {
            pool,
            name,
            kill_every,
            uses: AtomicUsize::new(0),
            moves: AtomicUsize::new(0),
            records: AtomicUsize::new(0),
            kills: Semaphore::new(0),
            gauges: Gauges::default(),
        })
    }

    /// Counts a use of a connection, and says when it is time to kill one.
    fn used(&self) {
        let uses = self.uses.fetch_add(1, Relaxed) + 1;
        if self.kill_every > 0 && uses.is_multiple_of(self.kill_every) {
            self.kills.add_permits(1);
        }
    }

    /// Whether the next of these is one that asks for a standby.
    fn doubtful(&self, of: &AtomicUsize) -> bool {
        let number = of.fetch_add(1, Relaxed);
        self.kill_every > 0 && number % DOUBTFUL == DOUBTFUL / 2
    }

    /// Begins a transaction. Dropped, it is rolled back.
    ///
    /// # Errors
    ///
    /// If there is no connection, or the one there was is lost.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        self.used();
        let begun = self.pool.begin().await;
        begun.map_err(|e| StoreError::postgres(Phase::Acquire, e))
    }

    /// Records one event, in a statement that commits by itself. Recording it again changes nothing.
    ///
    /// # Errors
    ///
    /// If the database refuses, or is lost.
    pub async fn record(&self, shop: &Shop, id: &str, event: &Event) -> Result<(), StoreError> {
        let _writing = self.gauges.writers.enter();
        self.used();
        let mut connection = self
            .pool
            .acquire()
            .await
            .map_err(|e| StoreError::postgres(Phase::Acquire, e))?;
        if self.doubtful(&self.records) {
            // For the whole session, which is over once it waits for a standby that never answers.
            let set = connection.execute("SET synchronous_commit = on").await;
            set.map_err(|e| StoreError::postgres(Phase::Acquire, e))?;
        }
        sqlx::query(
            "INSERT INTO events (id, ts, kind, sku, customer, quantity) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
        .bind(id)
        .bind(&event.ts)
        .bind(event.kind.name())
        .bind(&shop.products[event.product].sku)
        .bind(event.kind.customer())
        .bind(event.kind.quantity().map(i64::from))
        .execute(&mut *connection)
        .await
        .map_err(|e| StoreError::postgres(Phase::Autocommit, e))?;
        Ok(())
    }

    /// Fills the shelves, before the day begins.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub async fn stock_up(&self, shop: &Shop) -> Result<(), StoreError> {
        let skus: Vec<_> = shop
            .products
            .iter()
            .map(|product| product.sku.clone())
            .collect();
        let units: Vec<_> = shop
            .products
            .iter()
            .map(|product| i64::from(product.stock))
            .collect();
        sqlx::query("INSERT INTO stock SELECT sku, units, units FROM UNNEST($1::text[], $2::bigint[]) AS shelf (sku, units)")
            .bind(skus)
            .bind(units)
            .execute(&self.pool)
            .await
            .map_err(|e| StoreError::postgres(Phase::Autocommit, e))?;
        Ok(())
    }

    /// Moves stock in or out. False if there is less than is to go out: nothing has moved then.
    ///
    /// # Errors
    ///
    /// If the database refuses, or is lost.
    pub async fn move_stock(&self, of: &Move<'_>) -> Result<bool, StoreError> {
        let _writing = self.gauges.writers.enter();
        let doubtful = self.doubtful(&self.moves);
        let mut tx = self.begin().await?;
        let moved = moved(&mut tx, of, doubtful).await.map_err(lost)?;
        commit(tx).await?;
        Ok(moved)
    }

    /// Asks one question whose answer is a row of numbers.
    ///
    /// # Errors
    ///
    /// If the database cannot answer it.
    pub async fn ask<const N: usize>(&self, sql: &str) -> Result<[i64; N], StoreError> {
        let row = self.rows(sql).await?.pop().ok_or(sqlx::Error::RowNotFound);
        let numbers = row.and_then(|row| {
            let mut numbers = [0; N];
            for (i, number) in numbers.iter_mut().enumerate() {
                *number = row.try_get::<Option<i64>, _>(i)?.unwrap_or(0);
            }
            Ok(numbers)
        });
        numbers.map_err(|e| StoreError::postgres(Phase::InTransaction, e))
    }

    /// Asks for rows of a name and a number.
    ///
    /// # Errors
    ///
    /// If the database cannot answer.
    pub async fn list(&self, sql: &str) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = self.rows(sql).await?;
        let named = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let named: sqlx::Result<_> = rows.iter().map(named).collect();
        named.map_err(|e| StoreError::postgres(Phase::InTransaction, e))
    }

    /// Reads, on a connection that is known to live: what was killed last may still be in the pool.
    async fn rows(&self, sql: &str) -> Result<Vec<PgRow>, StoreError> {
        let mut connection = loop {
            let mut connection = self
                .pool
                .acquire()
                .await
                .map_err(|e| StoreError::postgres(Phase::Acquire, e))?;
            if connection.execute("SELECT").await.is_ok() {
                break connection;
            }
        };
        let rows = sqlx::query(AssertSqlSafe(sql))
            .fetch_all(&mut *connection)
            .await;
        rows.map_err(|e| StoreError::postgres(Phase::InTransaction, e))
    }
}
