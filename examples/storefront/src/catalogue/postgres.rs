//! The same replacement in Postgres: the same steps, each a transaction, a chunk of rows in one statement.

use sqlx::Executor as _;

use super::{CHUNK, terms};
use crate::input::{Product, Shop};
use crate::store::postgres::{Tx, commit, lost};
use crate::store::{Postgres, StoreError};

/// Replaces the products of a brand. Doing it again, under the same edition or another, is no different from doing it once.
///
/// # Errors
///
/// If the database refuses a step, or is lost; those before it are kept, and a further replacement clears them away.
pub async fn replace(
    store: &Postgres,
    shop: &Shop,
    brand: usize,
    edition: u32,
) -> Result<(), StoreError> {
    let _replacing = store.gauges.replacing.enter();
    let _writing = store.gauges.writers.enter();
    let steps = Steps {
        store,
        brand: &shop.brands[brand],
        edition: edition.cast_signed(),
    };
    let products: Vec<&Product> = shop.products.iter().filter(|p| p.brand == brand).collect();
    let tx = store.begin().await?;
    steps.end(tx, "begin").await?;
    steps
        .after_the_first(&products)
        .await
        .map_err(StoreError::after_others)
}

struct Steps<'a> {
    store: &'a Postgres,
    brand: &'a str,
    edition: i32,
}

impl Steps<'_> {
    async fn after_the_first(&self, products: &[&Product]) -> Result<(), StoreError> {
        let mut tx = self.store.begin().await?;
        for clear in [
            "DELETE FROM products WHERE brand = $1",
            "DELETE FROM terms WHERE brand = $1",
        ] {
            tx.execute(sqlx::query(clear).bind(self.brand))
                .await
                .map_err(lost)?;
        }
        self.end(tx, "clear").await?;
        for chunk in products.chunks(CHUNK) {
            let mut tx = self.store.begin().await?;
            insert(&mut tx, self.brand, chunk, self.edition)
                .await
                .map_err(lost)?;
            self.end(tx, "insert").await?;
        }
        let tx = self.store.begin().await?;
        self.end(tx, "end").await
    }

    /// Leaves a row in the log, and commits.
    async fn end(&self, mut tx: Tx, step: &str) -> Result<(), StoreError> {
        let insert =
            sqlx::query("INSERT INTO replacement_log (edition, brand, step) VALUES ($1, $2, $3)");
        tx.execute(insert.bind(self.edition).bind(self.brand).bind(step))
            .await
            .map_err(lost)?;
        commit(tx).await
    }
}

async fn insert(tx: &mut Tx, brand: &str, products: &[&Product], edition: i32) -> sqlx::Result<()> {
    let texts = |of: fn(&Product) -> &str| {
        products
            .iter()
            .map(|p| of(p).to_owned())
            .collect::<Vec<_>>()
    };
    let numbers = |of: fn(&Product) -> i64| products.iter().map(|p| of(p)).collect::<Vec<_>>();
    let rows = sqlx::query(
        "INSERT INTO products (sku, edition, brand, name, price_cents, stock, description)
         SELECT sku, $1, $2, name, price_cents, stock, description
         FROM UNNEST($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[]) AS row (sku, name, price_cents, stock, description)",
    );
    tx.execute(
        rows.bind(edition)
            .bind(brand)
            .bind(texts(|p| &p.sku))
            .bind(texts(|p| &p.name))
            .bind(numbers(|p| i64::from(p.price_cents)))
            .bind(numbers(|p| i64::from(p.stock)))
            .bind(texts(|p| &p.description)),
    )
    .await?;
    let (words, skus): (Vec<_>, Vec<_>) = products
        .iter()
        .flat_map(|product| {
            terms(product)
                .into_iter()
                .map(|term| (term, product.sku.clone()))
        })
        .unzip();
    let rows = sqlx::query(
        "INSERT INTO terms (term, sku, edition, brand) SELECT term, sku, $1, $2 FROM UNNEST($3::text[], $4::text[]) AS row (term, sku)",
    );
    tx.execute(rows.bind(edition).bind(brand).bind(words).bind(skus))
        .await?;
    Ok(())
}
