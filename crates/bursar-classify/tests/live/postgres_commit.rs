//! The same answer, or the same silence, with the row there and with the row not there: why a lost commit is `Uncertain`.

use bursar::Outcome::{Transient, Uncertain};
use bursar::{Classify as _, Failure, Policy, Retry, Runtime};
use bursar_classify::Phase;
use bursar_classify::sqlx_postgres::{failure, outcome};
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Error, Executor as _};

use super::servers::{self, connection};

async fn table(name: &str) -> PgConnection {
    let mut db = connection().await;
    let sql = format!("DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (id int PRIMARY KEY)");
    db.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    db
}

async fn rows(db: &mut PgConnection, name: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {name}")))
        .fetch_one(db)
        .await
        .unwrap()
}

async fn pid(db: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(db)
        .await
        .unwrap()
}

/// Waits until a session waits for this, by asking the server again and again.
async fn waits_for(admin: &mut PgConnection, pid: i32, event: &str) {
    let waiting = "SELECT wait_event IS NOT DISTINCT FROM $2 FROM pg_stat_activity WHERE pid = $1";
    while sqlx::query_scalar::<_, bool>(waiting)
        .bind(pid)
        .bind(event)
        .fetch_optional(&mut *admin)
        .await
        .unwrap()
        != Some(true)
    {}
}

async fn gone(admin: &mut PgConnection, pid: i32) {
    let there = "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = $1";
    while sqlx::query_scalar::<_, i64>(there)
        .bind(pid)
        .fetch_one(&mut *admin)
        .await
        .unwrap()
        > 0
    {}
}

async fn kill(admin: &mut PgConnection, pid: i32) {
    let killed: bool = sqlx::query_scalar("SELECT pg_terminate_backend($1)")
        .bind(pid)
        .fetch_one(&mut *admin)
        .await
        .unwrap();
    assert!(killed);
    gone(admin, pid).await;
}

fn code(error: &Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

#[tokio::test]
async fn killed_while_idle_nothing_was_done() {
    let mut admin = table("idle").await;
    let pool = servers::pool(servers::postgres());
    let mut held = pool.acquire().await.unwrap();
    let victim = pid(&mut held).await;
    drop(held);
    // A connection that is let go of comes back by way of a task.
    while pool.num_idle() == 0 {
        tokio::task::yield_now().await;
    }
    kill(&mut admin, victim).await;

    let lost = pool.begin().await.unwrap_err();
    assert_eq!(code(&lost).as_deref(), Some("57P01"));
    assert_eq!(outcome(&lost, Phase::Acquire), Transient);
    // Who does not say that nothing was sent yet is told what is known without it.
    assert_eq!(outcome(&lost, Phase::default()), Uncertain);
    // The pool has thrown the connection away: the next one is new.
    pool.begin().await.unwrap().rollback().await.unwrap();
}

#[tokio::test]
async fn killed_before_the_commit_was_asked_for_nothing_was_done() {
    let (mut admin, mut db) = (table("within").await, connection().await);
    let victim = pid(&mut db).await;
    let mut tx = db.begin().await.unwrap();
    tx.execute("INSERT INTO within VALUES (1)").await.unwrap();
    kill(&mut admin, victim).await;
    let lost = tx
        .execute("INSERT INTO within VALUES (2)")
        .await
        .unwrap_err();
    assert_eq!(code(&lost).as_deref(), Some("57P01"));
    assert_eq!(outcome(&lost, Phase::InTransaction), Transient);
    assert_eq!(rows(&mut admin, "within").await, 0);
}

/// Kills the session in the middle of a commit that would have been refused the moment after, or is waiting at its very end.
async fn killed_during_commit(name: &str, prepare: &str, event: &str) -> (Error, i64) {
    let (mut admin, mut db) = (table(name).await, connection().await);
    let victim = pid(&mut db).await;
    db.execute(sqlx::AssertSqlSafe(prepare.to_owned()))
        .await
        .unwrap();
    let insert = sqlx::AssertSqlSafe(format!("INSERT INTO {name} VALUES (1)"));
    let committing = tokio::spawn(async move {
        let mut tx = db.begin().await.unwrap();
        tx.execute(insert).await.unwrap();
        tx.commit().await.unwrap_err()
    });
    waits_for(&mut admin, victim, event).await;
    kill(&mut admin, victim).await;
    let lost = committing.await.unwrap();
    (lost, rows(&mut admin, name).await)
}

#[tokio::test]
async fn killed_during_commit_the_row_is_not_there() {
    // A deferred trigger runs inside COMMIT; this one waits for a lock that somebody else has.
    let mut holder = connection().await;
    holder
        .execute("SELECT pg_advisory_lock(4711)")
        .await
        .unwrap();
    let prepare = "CREATE OR REPLACE FUNCTION wait_for_4711() RETURNS trigger LANGUAGE plpgsql AS
                       $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$;
                   CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON undone DEFERRABLE INITIALLY DEFERRED
                       FOR EACH ROW EXECUTE FUNCTION wait_for_4711()";
    let (lost, rows) = killed_during_commit("undone", prepare, "advisory").await;
    assert_eq!(code(&lost).as_deref(), Some("57P01"), "{lost:?}");
    assert_eq!(outcome(&lost, Phase::Commit), Uncertain);
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn killed_during_commit_the_row_is_there() {
    // Committed here, and waiting for a standby to have it too.
    let (lost, rows) = killed_during_commit("done", "SET synchronous_commit = on", "SyncRep").await;
    assert_eq!(outcome(&lost, Phase::Commit), Uncertain, "{lost:?}");
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn ended_while_idle_even_a_commit_was_never_read() {
    let (mut admin, mut db) = (table("slept").await, connection().await);
    let victim = pid(&mut db).await;
    db.execute("SET idle_in_transaction_session_timeout = '20ms'")
        .await
        .unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.execute("INSERT INTO slept VALUES (1)").await.unwrap();
    gone(&mut admin, victim).await;
    let ended = tx.commit().await.unwrap_err();
    assert_eq!(code(&ended).as_deref(), Some("25P03"));
    assert_eq!(outcome(&ended, Phase::Commit), Transient);
    assert_eq!(rows(&mut admin, "slept").await, 0);

    let mut db = connection().await;
    let victim = pid(&mut db).await;
    db.execute("SET idle_session_timeout = '20ms'")
        .await
        .unwrap();
    gone(&mut admin, victim).await;
    let ended = db
        .execute("INSERT INTO slept VALUES (1)")
        .await
        .unwrap_err();
    assert_eq!(code(&ended).as_deref(), Some("57P05"));
    assert_eq!(outcome(&ended, Phase::Autocommit), Transient);
    assert_eq!(rows(&mut admin, "slept").await, 0);
}

/// One purchase under a contract: the connection of its first attempt is killed in the middle of the commit.
async fn purchase(
    name: &'static str,
    run: impl AsyncFnOnce(&Runtime, sqlx::PgPool) -> Result<(), bursar::CallError<Error>>,
) -> (Result<(), bursar::CallError<Error>>, i64) {
    let mut admin = table(name).await;
    let pool = servers::pool(servers::postgres());
    let runtime = Runtime::builder().resource("db", 2).build().unwrap();
    let killer = async {
        let mut db = connection().await;
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = $1";
        loop {
            if let Some(pid) = sqlx::query_scalar::<_, i32>(waiting)
                .bind(name)
                .fetch_optional(&mut db)
                .await
                .unwrap()
            {
                break kill(&mut db, pid).await;
            }
        }
    };
    let (result, ()) = tokio::join!(run(&runtime, pool), killer);
    (result, rows(&mut admin, name).await)
}

async fn buy(
    pool: &sqlx::PgPool,
    name: &str,
    attempt: u32,
    insert: &str,
) -> Result<(), Failure<Error>> {
    let mut tx = pool.begin().await.map_err(|e| failure(e, Phase::Acquire))?;
    // Only the first attempt's commit waits, to be killed.
    let wait = if attempt == 1 {
        "SET LOCAL synchronous_commit = on"
    } else {
        "SELECT"
    };
    let prepare = format!("SET LOCAL application_name = '{name}'; {wait}; {insert}");
    tx.execute(sqlx::AssertSqlSafe(prepare))
        .await
        .map_err(|e| failure(e, Phase::InTransaction))?;
    tx.commit().await.map_err(|e| failure(e, Phase::Commit))
}

#[tokio::test]
async fn a_contract_repeats_a_lost_commit_only_where_that_does_no_harm() {
    let (result, rows) = purchase("bought", async |runtime, pool| {
        let policy = Policy::non_idempotent()
            .claim("db", 1)
            .retry(Retry::up_to(3).on_transient());
        let buy_it = runtime.contract("buy", policy).unwrap();
        let mut call = buy_it.with();
        call.run(|attempt| {
            let (pool, number) = (pool.clone(), attempt.number());
            async move {
                buy(
                    &pool,
                    "bought",
                    number,
                    "INSERT INTO bought SELECT COUNT(*) FROM bought",
                )
                .await
            }
        })
        .await
    })
    .await;
    let error = result.unwrap_err();
    assert_eq!(error.outcome(), Uncertain);
    // Once: it was there, and nobody bought it again.
    assert_eq!(rows, 1);

    let (result, rows) = purchase("recorded", async |runtime, pool| {
        let policy = Policy::idempotent()
            .claim("db", 1)
            .retry(Retry::up_to(3).on_transient().on_uncertain());
        let record = runtime.contract("record", policy).unwrap();
        let mut call = record.with();
        call.run(|attempt| {
            let (pool, number) = (pool.clone(), attempt.number());
            async move {
                buy(
                    &pool,
                    "recorded",
                    number,
                    "INSERT INTO recorded VALUES (7) ON CONFLICT DO NOTHING",
                )
                .await
            }
        })
        .await
    })
    .await;
    result.classify(None).unwrap();
    assert_eq!(rows, 1);
}
