//! The shop's database, embedded or a Postgres somewhere, and how a database error is classified.
//!
//! Both make the same promises, which are checked by the same questions in SQL. What differs is how they fail: SQLite is busy,
//! Postgres loses connections.

use std::fmt;
use std::sync::Arc;

use bursar::{Failure, Outcome};
use bursar_classify::{Phase, rusqlite, sqlx_postgres};

use crate::gauge::Gauge;
use crate::input::Shop;

pub mod postgres;
pub mod sqlite;

pub use postgres::Postgres;
pub use sqlite::Sqlite;

/// Whoever is in the database, counted there.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Whoever writes, for one transaction or a series of them.
    pub writers: Gauge,
    /// Whoever replaces a brand's products.
    pub replacing: Gauge,
}

/// Units that an event moves: out if negative.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    pub event: &'a str,
    pub sku: &'a str,
    pub units: i64,
}

/// One of the two.
#[derive(Debug, Clone)]
pub enum Store {
    /// Blocks the thread that it is called on.
    Embedded(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

impl Store {
    pub fn gauges(&self) -> &Gauges {
        match self {
            Self::Embedded(store) => &store.gauges,
            Self::Postgres(store) => &store.gauges,
        }
    }

    /// Fills the shelves, before the day begins.
    ///
    /// # Errors
    ///
    /// If the database refuses.
    pub async fn stock_up(&self, shop: &Shop) -> Result<(), StoreError> {
        match self {
            Self::Embedded(store) => store.stock_up(shop),
            Self::Postgres(store) => store.stock_up(shop).await,
        }
    }

    /// Asks one question whose answer is a row of numbers, in SQL that both understand.
    ///
    /// # Errors
    ///
    /// If the database cannot answer it.
    pub async fn ask<const N: usize>(&self, sql: &str) -> Result<[i64; N], StoreError> {
        match self {
            Self::Embedded(store) => store.ask(sql),
            Self::Postgres(store) => store.ask(sql).await,
        }
    }

    /// Asks for rows of a name and a number.
    ///
    /// # Errors
    ///
    /// If the database cannot answer.
    pub async fn list(&self, sql: &str) -> Result<Vec<(String, i64)>, StoreError> {
        match self {
            Self::Embedded(store) => store.list(sql),
            Self::Postgres(store) => store.list(sql).await,
        }
    }
}

/// The database's refusal, and how far the work had come.
#[derive(Debug)]
pub struct StoreError {
    phase: Phase,
    /// Whether earlier steps of the same work have been committed.
    partly: bool,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Sqlite(::rusqlite::Error),
    Postgres(sqlx::Error),
}

impl StoreError {
    pub const fn sqlite(phase: Phase, source: ::rusqlite::Error) -> Self {
        Self {
            phase,
            partly: false,
            source: Source::Sqlite(source),
        }
    }

    pub const fn postgres(phase: Phase, source: sqlx::Error) -> Self {
        Self {
            phase,
            partly: false,
            source: Source::Postgres(source),
        }
    }

    /// The same in work of several steps, of which some are committed.
    #[must_use]
    pub const fn after_others(mut self) -> Self {
        self.partly = true;
        self
    }

    /// What the failure says about the effect of the work that met it.
    pub fn classified(self) -> Failure<Self> {
        let outcome = match &self.source {
            _ if self.partly => Outcome::Uncertain,
            Source::Sqlite(error) => rusqlite::outcome(error, self.phase),
            Source::Postgres(error) => sqlx_postgres::outcome(error, self.phase),
        };
        Failure::classified(self, outcome)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match self.phase {
            Phase::Acquire => "begin a transaction",
            Phase::InTransaction => "carry out a statement",
            Phase::Autocommit => "carry out and commit a statement",
            Phase::Commit => "commit",
        };
        write!(f, "the database cannot {doing}: ")?;
        match &self.source {
            Source::Sqlite(error) => error.fmt(f),
            Source::Postgres(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.source {
            Source::Sqlite(error) => Some(error),
            Source::Postgres(error) => Some(error),
        }
    }
}
