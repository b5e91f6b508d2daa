//! Postgres, statement by statement: each code out of the real server.

use bursar::Outcome::{self, Permanent, Throttled, Transient, Uncertain};
use bursar_classify::sqlx_postgres::outcome;
use bursar_classify::{Phase, postgres};
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _};

use super::servers::{self, Own, connection};

fn code(error: &Error) -> String {
    error
        .as_database_error()
        .and_then(|e| e.code())
        .unwrap_or_default()
        .into_owned()
}

/// An error's code, and what it means in a transaction and at its commit.
fn told(error: &Error) -> (String, Outcome, Outcome) {
    let [within, at_commit] =
        [Phase::InTransaction, Phase::Commit].map(|phase| outcome(error, phase));
    (code(error), within, at_commit)
}

fn is(code: &str, outcome: Outcome) -> (String, Outcome, Outcome) {
    (code.to_owned(), outcome, outcome)
}

/// A table of one's own, with the numbers 1 and 2 in it.
async fn table(name: &str) -> PgConnection {
    let mut db = connection().await;
    let sql = format!(
        "DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (id int PRIMARY KEY, n int NOT NULL); INSERT INTO {name} VALUES (1, 0), (2, 0)"
    );
    db.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    db
}

async fn rows(db: &mut PgConnection, name: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {name}")))
        .fetch_one(db)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_serialization_failure_is_transient_in_a_statement_and_at_commit() {
    let (mut a, mut b) = (table("skew").await, connection().await);
    for db in [&mut a, &mut b] {
        db.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            .await
            .unwrap();
        db.execute("SELECT SUM(n) FROM skew").await.unwrap();
    }
    a.execute("UPDATE skew SET n = 1 WHERE id = 1")
        .await
        .unwrap();
    b.execute("UPDATE skew SET n = 1 WHERE id = 2")
        .await
        .unwrap();
    a.execute("COMMIT").await.unwrap();
    assert_eq!(
        told(&b.execute("COMMIT").await.unwrap_err()),
        is("40001", Transient)
    );

    for db in [&mut a, &mut b] {
        db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            .await
            .unwrap();
        db.execute("SELECT SUM(n) FROM skew").await.unwrap();
    }
    a.execute("UPDATE skew SET n = 2 WHERE id = 1")
        .await
        .unwrap();
    a.execute("COMMIT").await.unwrap();
    let overtaken = b
        .execute("UPDATE skew SET n = 3 WHERE id = 1")
        .await
        .unwrap_err();
    assert_eq!(told(&overtaken), is("40001", Transient));
}

#[tokio::test]
async fn a_deadlocks_victim_is_transient() {
    let (mut a, mut b) = (table("deadlock").await, connection().await);
    for (db, id) in [(&mut a, 1), (&mut b, 2)] {
        db.execute("BEGIN").await.unwrap();
        sqlx::query("UPDATE deadlock SET n = 1 WHERE id = $1")
            .bind(id)
            .execute(db)
            .await
            .unwrap();
    }
    let (first, second) = tokio::join!(
        async {
            a.execute("UPDATE deadlock SET n = 1 WHERE id = 2; COMMIT")
                .await
        },
        async {
            b.execute("UPDATE deadlock SET n = 1 WHERE id = 1; COMMIT")
                .await
        },
    );
    let victims: Vec<_> = [first, second]
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert_eq!(
        victims.iter().map(told).collect::<Vec<_>>(),
        [is("40P01", Transient)]
    );
}

#[tokio::test]
async fn a_unique_violation_is_permanent_in_a_statement_and_at_commit() {
    let mut db = table("uniquely").await;
    let again = db
        .execute("INSERT INTO uniquely VALUES (1, 0)")
        .await
        .unwrap_err();
    assert_eq!(told(&again), is("23505", Permanent));

    db.execute("ALTER TABLE uniquely ADD UNIQUE (n, id) DEFERRABLE, ADD CONSTRAINT later UNIQUE (n) DEFERRABLE INITIALLY DEFERRED").await.unwrap_err();
    db.execute("UPDATE uniquely SET n = id; ALTER TABLE uniquely ADD CONSTRAINT later UNIQUE (n) DEFERRABLE INITIALLY DEFERRED").await.unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.execute("INSERT INTO uniquely VALUES (3, 1)")
        .await
        .unwrap();
    assert_eq!(
        told(&tx.commit().await.unwrap_err()),
        is("23505", Permanent)
    );
    assert_eq!(rows(&mut db, "uniquely").await, 2);
}

#[tokio::test]
async fn timeouts_undo_the_statement_and_are_transient() {
    let (mut db, mut holder) = (table("late").await, connection().await);
    db.execute("SET statement_timeout = '20ms'").await.unwrap();
    let late = db
        .execute("INSERT INTO late SELECT 3, 0 FROM pg_sleep(60)")
        .await
        .unwrap_err();
    assert_eq!(told(&late), is("57014", Transient));

    holder.execute("BEGIN; LOCK TABLE late").await.unwrap();
    db.execute("SET statement_timeout = 0; SET lock_timeout = '20ms'")
        .await
        .unwrap();
    let late = db
        .execute("INSERT INTO late VALUES (3, 0)")
        .await
        .unwrap_err();
    assert_eq!(told(&late), is("55P03", Transient));
    let held = db.execute("LOCK TABLE late NOWAIT").await.unwrap_err();
    // Outside a transaction LOCK is refused before it looks.
    assert_eq!(told(&held), is("25P01", Permanent));
    let held = db
        .execute("BEGIN; LOCK TABLE late NOWAIT")
        .await
        .unwrap_err();
    assert_eq!(told(&held), is("55P03", Transient));
    db.execute("ROLLBACK").await.unwrap();

    holder.execute("ROLLBACK").await.unwrap();
    assert_eq!(rows(&mut db, "late").await, 2);
}

#[tokio::test]
async fn too_many_connections_is_throttled() {
    let server = Own::start(
        "postgres",
        &[
            "max_connections=4",
            "superuser_reserved_connections=0",
            "max_wal_senders=0",
        ],
    );
    let mut held = Vec::new();
    let refused = loop {
        match server.postgres().connect().await {
            Ok(connection) => held.push(connection),
            Err(error) => break error,
        }
        assert!(held.len() <= 4, "the server has no limit");
    };
    // Also where the pool connects for a statement that commits by itself: it never ran.
    assert_eq!(told(&refused), is("53300", Throttled));
    assert_eq!(outcome(&refused, Phase::Acquire), Throttled);
    // A pool asks again until its own time is up, and says that.
    let pool = sqlx::postgres::PgPoolOptions::new()
        .acquire_timeout(std::time::Duration::from_secs(1))
        .connect_lazy_with(server.postgres());
    let late = pool.begin().await.unwrap_err();
    assert!(matches!(late, Error::PoolTimedOut), "{late:?}");
    assert_eq!(told(&late), is("", Throttled));
    held.pop();
    let mut freed = loop {
        match pool.begin().await {
            Ok(freed) => break freed,
            // A session takes a moment to end.
            Err(late) => assert_eq!(outcome(&late, Phase::Acquire), Throttled),
        }
    };
    freed.execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn capacity_that_is_used_up_is_throttled_and_a_limit_for_each_statement_is_not() {
    // A server of one's own, since everybody's locks are used up.
    let server = Own::start("postgres", &["max_connections=4", "max_wal_senders=0"]);
    let mut db = server.postgres().connect().await.unwrap();
    let locks = db
        .execute("SELECT pg_advisory_lock(g) FROM generate_series(1, 1000000) g")
        .await
        .unwrap_err();
    assert_eq!(told(&locks), is("53200", Throttled));

    let mut db = connection().await;
    db.execute("SET temp_file_limit = '64kB'; SET work_mem = '64kB'")
        .await
        .unwrap();
    let limit = db
        .execute("SELECT g FROM generate_series(1, 100000) g ORDER BY -g")
        .await
        .unwrap_err();
    assert_eq!(told(&limit), is("53400", Permanent));
}

/// What the same statement would meet again, each from the server itself.
#[tokio::test]
async fn what_a_statement_is_refused_for_is_permanent() {
    let mut db = table("refused").await;
    for (sql, expected) in [
        ("SELECT 1 / 0", "22012"),
        ("SELECT 'x'::int", "22P02"),
        ("INSERT INTO refused VALUES (3, NULL)", "23502"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELEC 1", "42601"),
        ("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$", "P0001"),
        (
            "DO $$ BEGIN RAISE EXCEPTION 'busy' USING ERRCODE = '40002'; END $$",
            "40002",
        ),
        ("SAVEPOINT s", "25P01"),
        ("EXECUTE nothing", "26000"),
        ("FETCH ALL FROM nothing", "34000"),
        ("CREATE TABLE nowhere.t ()", "3F000"),
        ("ALTER SYSTEM SET shared_buffers = 'x'", "22023"),
        (
            "SELECT COUNT(*) FROM refused a, refused b FOR UPDATE",
            "0A000",
        ),
        ("DROP ROLE bursar", "55006"),
    ] {
        let error = db.execute(sql).await.unwrap_err();
        let expected = match expected {
            // Somebody uses it, here oneself.
            "55006" => is(expected, Transient),
            _ => is(expected, Permanent),
        };
        assert_eq!(told(&error), expected, "{sql}");
    }

    db.execute("BEGIN; SELECT 1").await.unwrap();
    db.execute("SELECT 1 / 0").await.unwrap_err();
    assert_eq!(
        told(&db.execute("SELECT 1").await.unwrap_err()),
        is("25P02", Permanent)
    );
    db.execute("ROLLBACK").await.unwrap();

    db.execute("BEGIN READ ONLY").await.unwrap();
    let standby = db
        .execute("INSERT INTO refused VALUES (3, 0)")
        .await
        .unwrap_err();
    assert_eq!(told(&standby), is("25006", Transient));
}

#[tokio::test]
async fn who_is_not_let_in_is_not_let_in_the_next_time() {
    let options = servers::postgres();
    let nobody = options
        .clone()
        .username("stranger")
        .connect()
        .await
        .unwrap_err();
    assert_eq!(told(&nobody), is("28000", Permanent));
    let nowhere = options.database("nowhere").connect().await.unwrap_err();
    assert_eq!(told(&nowhere), is("3D000", Permanent));
}

#[tokio::test]
async fn what_was_not_read_of_the_answer_was_written() {
    let mut db = table("unread").await;
    let insert = "INSERT INTO unread VALUES (3, 0) RETURNING id";
    let unread = sqlx::query_scalar::<_, String>(insert)
        .fetch_one(&mut db)
        .await
        .unwrap_err();
    assert_eq!(outcome(&unread, Phase::Autocommit), Uncertain, "{unread:?}");
    assert_eq!(rows(&mut db, "unread").await, 3);

    let none = sqlx::query("SELECT 1 FROM unread WHERE id = 9")
        .fetch_one(&mut db)
        .await
        .unwrap_err();
    assert_eq!(outcome(&none, Phase::Autocommit), Permanent);
}

/// No classifier can help whoever goes on after an error.
#[tokio::test]
async fn the_commit_of_a_failed_transaction_is_no_error_and_does_nothing() {
    let mut db = table("ignored").await;
    let mut tx = db.begin().await.unwrap();
    tx.execute("INSERT INTO ignored VALUES (3, 0)")
        .await
        .unwrap();
    let ignored = tx
        .execute("INSERT INTO ignored VALUES (3, 0)")
        .await
        .unwrap_err();
    assert_eq!(postgres::row(&code(&ignored)).before, Permanent);
    tx.commit().await.unwrap();
    assert_eq!(rows(&mut db, "ignored").await, 2);
}
