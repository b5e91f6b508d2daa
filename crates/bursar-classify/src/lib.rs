//! What a provider's error means to an execution contract.
//!
//! A handler's word decides what is retried: `Transient` says that nothing took effect, and the runtime trusts it. The
//! functions here say that word for the errors of databases, Redis, HTTP, gRPC and plain I/O. They look at codes, kinds and
//! types, never at an error's text, and at the [`Phase`] in which the error came, for what a lost connection means depends on it.
//!
//! ```
//! # #[cfg(feature = "sqlx-postgres")]
//! # mod example {
//! use bursar::Failure;
//! use bursar_classify::{Phase, sqlx_postgres::failure};
//! use sqlx::PgPool;
//!
//! async fn pay(pool: &PgPool, order: i64) -> Result<(), Failure<sqlx::Error>> {
//!     let mut tx = pool.begin().await.map_err(|e| failure(e, Phase::Acquire))?;
//!     sqlx::query("INSERT INTO payments (order_id) VALUES ($1)")
//!         .bind(order)
//!         .execute(&mut *tx)
//!         .await
//!         .map_err(|e| failure(e, Phase::InTransaction))?;
//!     tx.commit().await.map_err(|e| failure(e, Phase::Commit))
//! }
//! # }
//! ```
//!
//! Every provider has a table, whose rows state their reasons. Tables of codes need no dependency: they serve any client that
//! shows the code.
//!
//! | module | feature | for |
//! |---|---|---|
//! | [`postgres`] | | an SQLSTATE, from any client of Postgres |
//! | `sqlx_postgres` | `sqlx-postgres` | `sqlx::Error` from Postgres |
//! | [`sqlite`] | | a result code of SQLite |
//! | `sqlx_sqlite` | `sqlx-sqlite` | `sqlx::Error` from SQLite |
//! | `rusqlite` | `rusqlite` | `rusqlite::Error` |
//! | `redis` | `redis` | `redis::RedisError` |
//! | [`http`] | | a status of HTTP |
//! | `hyper` | `hyper` | `hyper::Error`, and the pooled client of hyper-util |
//! | `reqwest` | `reqwest` | `reqwest::Error` and responses |
//! | `tonic` | `tonic` | `tonic::Status` |
//! | [`io`] | | `std::io::Error` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod phase;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod sqlx;
mod table;

pub mod http;
#[cfg(feature = "hyper")]
pub mod hyper;
pub mod io;
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "reqwest")]
pub mod reqwest;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
pub mod sqlite;
#[cfg(feature = "sqlx-postgres")]
pub mod sqlx_postgres;
#[cfg(feature = "sqlx-sqlite")]
pub mod sqlx_sqlite;
#[cfg(feature = "tonic")]
pub mod tonic;

pub use phase::Phase;
pub use table::{Answer, Row};
