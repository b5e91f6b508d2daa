//! The embedded database: connections, single-event records and stock moves.
//!
//! It hands out as many connections as are asked for and counts its writers itself, so that nothing but the contract's `db-write`
//! budget keeps their number down.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar_classify::Phase;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{Gauges, Move, StoreError};
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
    -- What is in stock, and every move of it. Nothing here keeps an event from moving twice: that is the contract's to keep.
    CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, initial INTEGER NOT NULL, units INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS stock_moves (event TEXT NOT NULL, sku TEXT NOT NULL, units INTEGER NOT NULL);
";

/// One SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    pub gauges: Gauges,
}

impl Sqlite {
    /// Opens a database, and makes its tables if they are not there.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or is no database.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self {
            path: path.to_owned(),
            idle: Mutex::default(),
            gauges: Gauges::default(),
        };
        let connection = store.connect()?;
        connection
            .execute_batch(SCHEMA)
            .map_err(|e| StoreError::sqlite(Phase::InTransaction, e))?;
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
        open().map_err(|e| StoreError::sqlite(Phase::Acquire, e))
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
        let _writing = self.gauges.writers.enter();
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

    /// Fills the shelves, before the day begins.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub fn stock_up(&self, shop: &Shop) -> Result<(), StoreError> {
        self.write(|connection| {
            transaction(connection, |tx| {
                let mut insert =
                    tx.prepare("INSERT INTO stock (sku, initial, units) VALUES (?1, ?2, ?2)")?;
                for product in &shop.products {
                    insert.execute(params![product.sku, product.stock])?;
                }
                Ok(())
            })
        })
    }

    /// Moves stock in or out. False if there is less than is to go out: nothing has moved then.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub fn move_stock(&self, of: &Move<'_>) -> Result<bool, StoreError> {
        self.write(|connection| {
            transaction(connection, |tx| {
                let moved = tx
                    .prepare_cached(
                        "UPDATE stock SET units = units + ?2 WHERE sku = ?1 AND units + ?2 >= 0",
                    )?
                    .execute(params![of.sku, of.units])?;
                if moved == 1 {
                    tx.prepare_cached(
                        "INSERT INTO stock_moves (event, sku, units) VALUES (?, ?, ?)",
                    )?
                    .execute(params![of.event, of.sku, of.units])?;
                }
                Ok(moved == 1)
            })
        })
    }

    /// Asks for rows of a name and a number.
    ///
    /// # Errors
    ///
    /// If the database cannot answer.
    pub fn list(&self, sql: &str) -> Result<Vec<(String, i64)>, StoreError> {
        let answer = |connection: &Connection| {
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        let connection = self.connect()?;
        answer(&connection).map_err(|e| StoreError::sqlite(Phase::InTransaction, e))
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
        answer(&connection).map_err(|e| StoreError::sqlite(Phase::InTransaction, e))
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
        .map_err(|e| StoreError::sqlite(Phase::Acquire, e))?;
    let value = work(&tx).map_err(|e| StoreError::sqlite(Phase::InTransaction, e))?;
    tx.commit()
        .map_err(|e| StoreError::sqlite(Phase::Commit, e))?;
    Ok(value)
}
