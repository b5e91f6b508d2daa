//! What the shelves, the list of moves and the table of events say, asked in SQL.

use crate::receiver::{Book, Entry};
use crate::store::{Store, StoreError};

/// How often each event moved stock, by the list of moves.
///
/// # Errors
///
/// If the database cannot answer.
pub async fn book(store: &Store) -> Result<Book, StoreError> {
    counted(
        store,
        "SELECT event, COUNT(*) FROM stock_moves GROUP BY event",
    )
    .await
}

/// How often each event was recorded.
///
/// # Errors
///
/// If the database cannot answer.
pub async fn recorded(store: &Store) -> Result<Book, StoreError> {
    counted(store, "SELECT id, COUNT(*) FROM events GROUP BY id").await
}

async fn counted(store: &Store, sql: &str) -> Result<Book, StoreError> {
    let entry = |(event, count): (String, i64)| {
        let times = u32::try_from(count).unwrap_or(u32::MAX);
        (
            event,
            Entry {
                arrived: times,
                applied: times,
            },
        )
    };
    Ok(store.list(sql).await?.into_iter().map(entry).collect())
}

/// What the shelves hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shelves {
    /// Units moved in and out, by the list.
    pub moved_in: i64,
    pub moved_out: i64,
    /// Products of which the shelf holds something else than what the list leaves of the beginning, or less than nothing.
    pub wrong: i64,
}

/// Compares the shelves with the list.
///
/// # Errors
///
/// If the database cannot answer.
pub async fn shelves(store: &Store) -> Result<Shelves, StoreError> {
    // A sum of integers is a wider number in one of the two databases, and has to be brought back.
    let [moved_in, moved_out] = store
        .ask(
            "SELECT CAST(SUM(CASE WHEN units > 0 THEN units ELSE 0 END) AS BIGINT),
                    CAST(SUM(CASE WHEN units < 0 THEN -units ELSE 0 END) AS BIGINT) FROM stock_moves",
        )
        .await?;
    let [wrong] = store
        .ask(
            "SELECT COUNT(*) FROM stock s LEFT JOIN (SELECT sku, SUM(units) AS units FROM stock_moves GROUP BY sku) m ON m.sku = s.sku
             WHERE s.units < 0 OR s.units <> s.initial + COALESCE(m.units, 0)",
        )
        .await?;
    Ok(Shelves {
        moved_in,
        moved_out,
        wrong,
    })
}
