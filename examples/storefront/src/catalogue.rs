//! Replacing all products of one brand, in several transactions, and finding out afterwards which replacements overlapped.
//!
//! A replacement is what a supplier's feed brings: a marker, a deletion, the new products with their search terms in small
//! chunks, a marker. Every step commits by itself and leaves a row in `replacement_log`, whose numbers the database gives out
//! in the order of its commits. So the database itself shows whether two replacements of a brand ever mixed.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Transaction, params};

use crate::input::{Product, Shop};
use crate::store::sqlite::{Sqlite, transaction};
use crate::store::{Store, StoreError};

pub mod postgres;

/// How many products one transaction inserts.
const CHUNK: usize = 6;

/// Replaces the products of a brand. Doing it again, under the same edition or another, is no different from doing it once.
///
/// # Errors
///
/// If the database refuses a step; those before it are kept, and a further replacement clears them away.
pub fn replace(store: &Sqlite, shop: &Shop, brand: usize, edition: u32) -> Result<(), StoreError> {
    let _replacing = store.gauges.replacing.enter();
    let name = shop.brands[brand].as_str();
    let products: Vec<&Product> = shop.products.iter().filter(|p| p.brand == brand).collect();
    store.write(|connection| {
        let log = |tx: &Transaction<'_>, step: &str| {
            tx.prepare_cached(
                "INSERT INTO replacement_log (edition, brand, step) VALUES (?, ?, ?)",
            )?
            .execute(params![edition, name, step])
        };
        transaction(connection, |tx| log(tx, "begin"))?;
        // From here on a step that fails leaves those before it.
        transaction(connection, |tx| {
            tx.prepare_cached("DELETE FROM products WHERE brand = ?")?
                .execute([name])?;
            tx.prepare_cached("DELETE FROM terms WHERE brand = ?")?
                .execute([name])?;
            log(tx, "clear")
        })
        .map_err(StoreError::after_others)?;
        for chunk in products.chunks(CHUNK) {
            // The text is taken apart before the write lock is taken, so that it is held for short.
            let rows: Vec<_> = chunk
                .iter()
                .map(|product| (*product, terms(product)))
                .collect();
            transaction(connection, |tx| {
                for (product, terms) in &rows {
                    insert(tx, name, product, terms, edition)?;
                }
                log(tx, "insert")
            })
            .map_err(StoreError::after_others)?;
        }
        transaction(connection, |tx| log(tx, "end")).map_err(StoreError::after_others)?;
        Ok(())
    })
}

/// The words by which a product is found.
fn terms(product: &Product) -> BTreeSet<String> {
    let text = format!(
        "{} {} {}",
        product.name, product.description, product.colour
    )
    .to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| word.chars().count() > 2)
        .map(str::to_owned)
        .collect()
}

fn insert(
    tx: &Transaction<'_>,
    brand: &str,
    product: &Product,
    terms: &BTreeSet<String>,
    edition: u32,
) -> rusqlite::Result<()> {
    let Product {
        sku,
        name,
        price_cents,
        stock,
        description,
        ..
    } = product;
    tx.prepare_cached(
        "INSERT OR REPLACE INTO products (sku, edition, brand, name, price_cents, stock, description)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![sku, edition, brand, name, price_cents, stock, description])?;
    let mut add = tx.prepare_cached(
        "INSERT OR REPLACE INTO terms (term, sku, edition, brand) VALUES (?, ?, ?, ?)",
    )?;
    for term in terms {
        add.execute(params![term, sku, edition, brand])?;
    }
    Ok(())
}

/// What the log says about replacements in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlaps {
    pub replacements: i64,
    /// Pairs of replacements of one brand that overlapped.
    pub same_brand: i64,
    /// Pairs of replacements of different brands that overlapped.
    pub different_brands: i64,
    /// The most replacements under way at once.
    pub at_once: i64,
    /// Brands of which the tables now hold more than one edition.
    pub mixed: i64,
}

/// Reads the log.
///
/// # Errors
///
/// If the database cannot answer.
pub async fn overlaps(store: &Store) -> Result<Overlaps, StoreError> {
    const SPANS: &str = "WITH span AS (
        SELECT edition, brand, MIN(seq) AS first, MAX(seq) AS last FROM replacement_log GROUP BY edition, brand
    )";
    let [same_brand, different_brands] = store.ask(&format!(
        "{SPANS} SELECT COUNT(*) FILTER (WHERE a.brand = b.brand), COUNT(*) FILTER (WHERE a.brand <> b.brand)
         FROM span a JOIN span b ON a.edition < b.edition AND a.first < b.last AND b.first < a.last"
    )).await?;
    // Where the most are under way, one of them has just begun.
    let [replacements, at_once] = store.ask(&format!(
        "{SPANS} SELECT COUNT(*), MAX((SELECT COUNT(*) FROM span b WHERE b.first <= a.first AND a.first <= b.last)) FROM span a"
    )).await?;
    let [mixed] = store.ask(
        "SELECT COUNT(*) FROM (SELECT brand FROM products GROUP BY brand HAVING COUNT(DISTINCT edition) > 1) AS mixed",
    ).await?;
    Ok(Overlaps {
        replacements,
        same_brand,
        different_brands,
        at_once,
        mixed,
    })
}

/// Brands whose products, by their number, are not those of the feed: torn, or gone.
///
/// # Errors
///
/// If the database cannot answer.
pub async fn torn(store: &Store, shop: &Shop) -> Result<BTreeSet<String>, StoreError> {
    let found: BTreeMap<String, i64> = store
        .list("SELECT brand, COUNT(*) FROM products GROUP BY brand")
        .await?
        .into_iter()
        .collect();
    let mut expected = vec![0; shop.brands.len()];
    for product in &shop.products {
        expected[product.brand] += 1;
    }
    let brands = shop.brands.iter().zip(expected);
    Ok(brands
        .filter(|(brand, rows)| found.get(*brand).copied().unwrap_or(0) != *rows)
        .map(|(brand, _)| brand.clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(log: &[(u32, &str)]) -> (Sqlite, std::path::PathBuf) {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!(
            "storefront-overlaps-{}-{number}",
            std::process::id()
        ));
        std::fs::create_dir_all(&dir).unwrap();
        let store = Sqlite::open(&dir.join("shop.db")).unwrap();
        for (edition, brand) in log {
            let row = params![edition, brand, "step"];
            store
                .write(|connection| {
                    transaction(connection, |tx| {
                        tx.execute(
                            "INSERT INTO replacement_log (edition, brand, step) VALUES (?, ?, ?)",
                            row,
                        )
                    })
                })
                .unwrap();
        }
        (store, dir)
    }

    async fn found(log: &[(u32, &str)]) -> (i64, i64, i64) {
        let (store, dir) = store(log);
        let store = Store::Embedded(store.into());
        let overlaps = overlaps(&store).await.unwrap();
        drop(store);
        std::fs::remove_dir_all(dir).unwrap();
        (
            overlaps.same_brand,
            overlaps.different_brands,
            overlaps.at_once,
        )
    }

    #[tokio::test]
    async fn replacements_one_after_the_other_do_not_overlap() {
        assert_eq!(
            found(&[(1, "a"), (1, "a"), (2, "a"), (2, "a"), (3, "b"), (3, "b")]).await,
            (0, 0, 1)
        );
    }

    #[tokio::test]
    async fn interleaved_and_nested_replacements_overlap() {
        assert_eq!(
            found(&[(1, "a"), (2, "a"), (1, "a"), (2, "a")]).await,
            (1, 0, 2)
        );
        assert_eq!(
            found(&[(1, "a"), (2, "b"), (2, "b"), (1, "a")]).await,
            (0, 1, 2)
        );
        assert_eq!(
            found(&[(1, "a"), (2, "b"), (3, "a"), (3, "a"), (2, "b"), (1, "a")]).await,
            (1, 2, 3)
        );
    }

    #[tokio::test]
    async fn an_empty_log_has_none() {
        assert_eq!(found(&[]).await, (0, 0, 0));
    }
}
