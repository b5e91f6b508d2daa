//! The shop's embedded database: connections, single-event records, and how a database error is classified.
//!
//! The store hands out as many connections as are asked for and counts its writers itself, so that nothing but the
//! contract's `db-write` budget keeps their number down.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar::Failure;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};

use crate::gauge::Gauge;
use crate::input::{Event, Shop};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS events (
        id TEXT PRIMARY KEY, ts TEXT NOT NULL, kind TEXT NOT NULL, sku TEXT NOT NULL,
        customer TEXT, quantity INTEGER
    ) WITHOUT ROWID;
    -- An edition is one replacement of a brand's products: two replacements that overlap leave two of them.
    CREATE TABLE IF NOT EXISTS products (
        sku TEXT NOT NULL, edition INTEGER NOT NULL, brand TEXT NOT NULL, name TEXT NOT NULL,
        price_cents INTEGER NOT NULL, stock INTEGER NOT NULL, description TEXT NOT NULL,
        PRIMARY KEY (sku, edition)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS products_by_brand ON products (brand);
    CREATE TABLE IF NOT EXISTS terms (
        term TEXT NOT NULL, sku TEXT NOT NULL, edition INTEGER NOT NULL, brand TEXT NOT NULL,
        PRIMARY KEY (term, sku, edition)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS terms_by_brand ON terms (brand);
    -- What replacements did, in the order in which the database committed it.
    CREATE TABLE IF NOT EXISTS replacement_log (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, edition INTEGER NOT NULL, brand TEXT NOT NULL, step TEXT NOT NULL
    );
";

/// One SQLite file.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Whoever writes, for one transaction or a series of them.
    pub writers: Gauge,
    /// Whoever replaces a brand's products.
    pub replacing: Gauge,
}

impl Store {
    /// Opens a database, and makes its tables if they are not there.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or is no database.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self {
            path: path.to_owned(),
            idle: Mutex::default(),
            writers: Gauge::default(),
            replacing: Gauge::default(),
        };
        let connection = store.connect()?;
        connection
            .execute_batch(SCHEMA)
            .map_err(|e| StoreError::new(Step::Work, e))?;
        store.put_back(connection);
        Ok(store)
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let open = || {
            let connection = Connection::open(&self.path)?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            connection.busy_handler(Some(wait_for_the_write_lock))?;
            Ok(connection)
        };
        open().map_err(|e| StoreError::new(Step::Begin, e))
    }

    fn put_back(&self, connection: Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(connection);
    }

    /// Runs `work` with a connection of its own, counted as a writer meanwhile.
    ///
    /// # Errors
    ///
    /// What `work` returns, or that no connection could be opened.
    pub fn write<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _writing = self.writers.enter();
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut connection = idle.map_or_else(|| self.connect(), Ok)?;
        let result = work(&mut connection);
        self.put_back(connection);
        result
    }

    /// Records one event. Recording it again changes nothing.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub fn record(&self, shop: &Shop, id: &str, event: &Event) -> Result<(), StoreError> {
        let sku = &shop.products[event.product].sku;
        self.write(|connection| {
            transaction(connection, |tx| {
                tx.prepare_cached(
                    "INSERT OR IGNORE INTO events (id, ts, kind, sku, customer, quantity) VALUES (?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![id, event.ts, event.kind.name(), sku, event.kind.customer(), event.kind.quantity()])
            })?;
            Ok(())
        })
    }

    /// Asks one question whose answer is a row of numbers. Readers are not counted: a write-ahead log lets them pass.
    ///
    /// # Errors
    ///
    /// If the database cannot answer it.
    pub fn ask<const N: usize>(&self, sql: &str) -> Result<[i64; N], StoreError> {
        let answer = |connection: &Connection| {
            connection.query_row(sql, [], |row| {
                let mut numbers = [0; N];
                for (i, number) in numbers.iter_mut().enumerate() {
                    *number = row.get::<_, Option<i64>>(i)?.unwrap_or(0);
                }
                Ok(numbers)
            })
        };
        let connection = self.connect()?;
        answer(&connection).map_err(|e| StoreError::new(Step::Work, e))
    }
}

/// SQLite has one writer at a time; the others come back here until it is their turn, or for five seconds.
///
/// Its own handler sleeps up to a tenth of a second, far longer than any transaction of this shop takes.
fn wait_for_the_write_lock(tries: i32) -> bool {
    std::thread::sleep(Duration::from_micros(100));
    tries < 50_000
}

/// Runs `work` inside one transaction that takes the write lock first, so that only its beginning can find it taken.
///
/// # Errors
///
/// Says whether it failed at its beginning, inside, or at its end.
pub fn transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|e| StoreError::new(Step::Begin, e))?;
    let value = work(&tx).map_err(|e| StoreError::new(Step::Work, e))?;
    tx.commit().map_err(|e| StoreError::new(Step::Commit, e))?;
    Ok(value)
}

/// How far a transaction came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Begin,
    Work,
    Commit,
}

/// The database's refusal, and how far the transaction had come.
#[derive(Debug)]
pub struct StoreError {
    step: Step,
    source: rusqlite::Error,
}

impl StoreError {
    pub const fn new(step: Step, source: rusqlite::Error) -> Self {
        Self { step, source }
    }

    /// What the failure says about the effect of the transaction that met it.
    ///
    /// What did not commit was rolled back. Only a commit that fails for another reason than the lock leaves open what is
    /// on the disk.
    pub fn classified(self) -> Failure<Self> {
        let busy = matches!(
            self.source.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        );
        match self.step {
            _ if busy => Failure::transient(self),
            Step::Begin | Step::Work => Failure::permanent(self),
            Step::Commit => Failure::uncertain(self),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Begin => "begin a transaction",
            Step::Work => "carry out a statement",
            Step::Commit => "commit",
        };
        write!(f, "the database cannot {step}: {}", self.source)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
