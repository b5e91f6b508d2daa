//! A service that sells products: axum in front, SQLite behind, one Bursar runtime between.
//!
//! `docs/axum.md` shows how it came to be, from the same service without Bursar; the code it shows is this code.

use std::error::Error;
use std::time::Duration;

use axum::extract::{FromRef, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bursar::{
    Backoff, CallError, Classify, Contract, ContractError, DrainReport, Failure, Policy, Retry,
    Runtime,
};
use bursar_classify::{Phase, sqlx_sqlite};
use bursar_tower::{ContractLayer, Deadline, DeadlineLayer, Graceful, Problem, header_millis};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::net::TcpListener;

/// How many connections the pool has, and so how many units the budget "db".
const CONNECTIONS: u32 = 8;

/// What every handler has.
#[derive(Clone, Debug)]
pub struct App {
    pool: SqlitePool,
    runtime: Runtime,
    read: Contract,
    place: Contract,
}

impl FromRef<App> for SqlitePool {
    fn from_ref(app: &App) -> Self {
        app.pool.clone()
    }
}

impl App {
    fn new(pool: SqlitePool) -> Result<Self, ContractError> {
        let runtime = Runtime::builder().resource("db", CONNECTIONS).build()?;
        let read = Policy::pure().claim("db", 1).max_waiting(100);
        let place = Policy::non_idempotent()
            .claim("db", 1)
            .max_wait(Duration::from_secs(1))
            .retry(
                Retry::up_to(5)
                    .on_transient()
                    .backoff(Backoff::exponential(Duration::from_millis(5))),
            );
        Ok(Self {
            pool,
            read: runtime.contract("read", read)?,
            place: runtime.contract("place", place)?,
            runtime,
        })
    }
}

#[derive(Debug, Serialize)]
struct Product {
    id: i64,
    name: String,
    stock: i64,
}

#[derive(Debug, Deserialize)]
struct NewOrder {
    product: i64,
    customer: String,
}

#[derive(Debug, Serialize)]
struct Placed {
    order: i64,
}

/// Why a request has no answer.
#[derive(Debug)]
enum AppError {
    NotFound,
    OutOfStock,
    Database(sqlx::Error),
    Call(Problem),
}

impl From<sqlx::Error> for AppError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<CallError<AppError>> for AppError {
    fn from(error: CallError<AppError>) -> Self {
        Problem::or_own(error).unwrap_or_else(AppError::Call)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND.into_response(),
            Self::OutOfStock => (StatusCode::CONFLICT, "out of stock").into_response(),
            Self::Database(error) => {
                eprintln!("the database failed: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Call(problem) => {
                eprintln!("{problem}");
                problem.into_response()
            }
        }
    }
}

async fn product(
    State(pool): State<SqlitePool>,
    Path(id): Path<i64>,
) -> Result<Json<Product>, AppError> {
    let row: Option<(String, i64)> =
        sqlx::query_as("SELECT name, stock FROM products WHERE id = ?")
            .bind(id)
            .fetch_optional(&pool)
            .await?;
    let (name, stock) = row.ok_or(AppError::NotFound)?;
    Ok(Json(Product { id, name, stock }))
}

async fn order(
    State(app): State<App>,
    deadline: Deadline,
    Json(order): Json<NewOrder>,
) -> Result<Json<Placed>, AppError> {
    let mut call = app.place.with().key(&order.customer).deadline(deadline);
    let order = call.run(|_| insert(&app.pool, &order)).await?;
    Ok(Json(Placed { order }))
}

async fn insert(pool: &SqlitePool, order: &NewOrder) -> Result<i64, Failure<AppError>> {
    let mut tx = pool.begin().await.map_err(db(Phase::Acquire))?;
    let taken = sqlx::query("UPDATE products SET stock = stock - 1 WHERE id = ? AND stock > 0")
        .bind(order.product)
        .execute(&mut *tx)
        .await
        .map_err(db(Phase::InTransaction))?;
    if taken.rows_affected() == 0 {
        return Err(AppError::OutOfStock).permanent();
    }
    let placed = sqlx::query("INSERT INTO orders (product, customer) VALUES (?, ?)")
        .bind(order.product)
        .bind(&order.customer)
        .execute(&mut *tx)
        .await
        .map_err(db(Phase::InTransaction))?;
    tx.commit().await.map_err(db(Phase::Commit))?;
    Ok(placed.last_insert_rowid())
}

/// What an error of the database means at this point of the work.
fn db(phase: Phase) -> impl FnOnce(sqlx::Error) -> Failure<AppError> {
    move |error| sqlx_sqlite::failure(error, phase).map(AppError::from)
}

fn router(app: App) -> Router {
    Router::new()
        .route("/products/{id}", get(product))
        .route_layer(ContractLayer::http_server(&app.read))
        .route("/orders", post(order))
        .route(
            "/stats",
            get(|State(app): State<App>| async move { app.runtime.stats().to_string() }),
        )
        .layer(DeadlineLayer::within(Duration::from_secs(5)).or_less(header_millis("x-timeout-ms")))
        .with_state(app)
}

/// Serves until `signal` completes, then lets everything end.
///
/// # Errors
/// The contracts are wrong, the server failed, or something still ran after ten seconds.
pub async fn serve(
    listener: TcpListener,
    pool: SqlitePool,
    signal: impl Future,
) -> Result<DrainReport, Box<dyn Error + Send + Sync>> {
    let app = App::new(pool)?;
    let graceful = Graceful::new(&app.runtime, signal).within(Duration::from_secs(10));
    let router = router(app);
    let report = graceful
        .serve(|stop| axum::serve(listener, router).with_graceful_shutdown(stop))
        .await?;
    Ok(report)
}

/// Opens the database at this path, with one product in it.
///
/// # Errors
/// It cannot be opened or written.
pub async fn open(path: &std::path::Path) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect_with(options)
        .await?;
    for statement in [
        "CREATE TABLE IF NOT EXISTS products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, stock INTEGER NOT NULL)",
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, product INTEGER NOT NULL, customer TEXT NOT NULL)",
        "INSERT OR REPLACE INTO products VALUES (1, 'desk lamp', 100)",
    ] {
        sqlx::query(statement).execute(&pool).await?;
    }
    Ok(pool)
}
