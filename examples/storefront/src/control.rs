//! The control: catalogue replacements once more, on a database of their own, without the key.
//!
//! A check that could not fail proves nothing. Here the same replacements run under the same budgets and claim the same
//! units; the one thing missing is the key, and the same question to the database must now find overlaps.

use std::sync::Arc;

use bursar::{Attempt, Contract, Policy};
use tokio::task::JoinSet;

use crate::catalogue::{self, Overlaps};
use crate::contracts::{CATALOGUE, DB_WRITE, runtime};
use crate::input::Shop;
use crate::store::{Store, StoreError};

/// How many replacements of one brand, all at once.
const AT_ONCE: u32 = 6;
/// How many brands, one after the other.
const BRANDS: usize = 4;
/// How often all of it is tried, should a machine run threads so strictly one by one that nothing overlaps.
const ROUNDS: usize = 5;

/// Runs the control and reads its log.
///
/// # Errors
///
/// In words, if it could not be carried out.
pub async fn run(shop: &Arc<Shop>, store: &Store) -> Result<Overlaps, String> {
    let runtime = runtime(true).map_err(|e| e.to_string())?;
    let policy = Policy::idempotent().claim(CATALOGUE, 1).claim(DB_WRITE, 1);
    let keyless = runtime
        .contract("replace-catalogue-without-a-key", policy)
        .map_err(|e| e.to_string())?;
    let mut overlaps = catalogue::overlaps(store)
        .await
        .map_err(|e| e.to_string())?;
    for round in 0..ROUNDS {
        for brand in 0..BRANDS.min(shop.brands.len()) {
            let first = (round * BRANDS + brand) as u32 * AT_ONCE;
            all_at_once(&keyless, store, shop, brand, first..first + AT_ONCE).await?;
        }
        overlaps = catalogue::overlaps(store)
            .await
            .map_err(|e| e.to_string())?;
        if overlaps.same_brand > 0 {
            break;
        }
    }
    runtime.shutdown().await.map_err(|e| e.to_string())?;
    Ok(overlaps)
}

async fn all_at_once(
    keyless: &Contract,
    store: &Store,
    shop: &Arc<Shop>,
    brand: usize,
    editions: std::ops::Range<u32>,
) -> Result<(), String> {
    let mut calls = JoinSet::new();
    for edition in editions {
        let (keyless, store, shop) = (keyless.clone(), store.clone(), Arc::clone(shop));
        calls.spawn(async move {
            match store {
                Store::Embedded(store) => {
                    let work = move |_: &Attempt| {
                        catalogue::replace(&store, &shop, brand, edition)
                            .map_err(StoreError::classified)
                    };
                    keyless.run_blocking(work).await
                }
                Store::Postgres(store) => {
                    let work = || async {
                        let replaced =
                            catalogue::postgres::replace(&store, &shop, brand, edition).await;
                        replaced.map_err(StoreError::classified)
                    };
                    keyless.run(work).await
                }
            }
        });
    }
    while let Some(call) = calls.join_next().await {
        call.map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}
