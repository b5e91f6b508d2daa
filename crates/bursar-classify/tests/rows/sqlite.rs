//! SQLite itself, through both its clients: what they really answer, and what is in the table afterwards.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ::rusqlite::{Connection, Error, OpenFlags, TransactionBehavior};
use bursar::Outcome::{Permanent, Throttled, Transient, Uncertain};
use bursar_classify::{Phase, rusqlite, sqlite, sqlx_sqlite};

/// A database file of one's own, removed at the end.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let dir =
            std::env::temp_dir().join(format!("bursar-classify-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = Self(dir);
        file.open()
            .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
            .unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.0.join("t.db")
    }

    fn open(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        connection
    }

    fn rows(&self) -> i64 {
        self.open()
            .query_row("SELECT COUNT(*) FROM t", [], |row| row.get(0))
            .unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The name of the row that decided, and what it means in a transaction and at its commit.
fn told(error: &Error) -> (&'static str, bursar::Outcome, bursar::Outcome) {
    let name = error
        .sqlite_error()
        .map_or("", |e| sqlite::row(e.extended_code).name);
    let [within, at_commit] =
        [Phase::InTransaction, Phase::Commit].map(|phase| rusqlite::outcome(error, phase));
    (name, within, at_commit)
}

#[test]
fn a_busy_database_did_nothing() {
    let file = File::new();
    let (mut first, mut second) = (file.open(), file.open());
    let begun = first
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let refused = second
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap_err();
    assert_eq!(told(&refused), ("SQLITE_BUSY", Transient, Transient));
    drop(begun);
}

#[test]
fn a_commit_that_finds_the_file_busy_did_not_commit() {
    let file = File::new();
    let (mut writer, reader) = (file.open(), file.open());
    file.open()
        .execute_batch("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        .unwrap();
    let tx = writer.transaction().unwrap();
    tx.execute("INSERT INTO t VALUES (3, 'three')", []).unwrap();
    let mut statement = reader.prepare("SELECT id FROM t").unwrap();
    let mut reading = statement.query([]).unwrap();
    assert!(reading.next().unwrap().is_some());

    let refused = tx.commit().unwrap_err();
    assert_eq!(told(&refused), ("SQLITE_BUSY", Transient, Transient));
    drop(reading);
    assert_eq!(file.rows(), 2);
}

#[test]
fn a_snapshot_that_was_overtaken_is_busy() {
    let file = File::new();
    let (mut first, second) = (file.open(), file.open());
    first.pragma_update(None, "journal_mode", "wal").unwrap();
    let tx = first.transaction().unwrap();
    let _: i64 = tx
        .query_row("SELECT COUNT(*) FROM t", [], |row| row.get(0))
        .unwrap();
    second
        .execute("INSERT INTO t VALUES (1, 'one')", [])
        .unwrap();
    let refused = tx
        .execute("INSERT INTO t VALUES (2, 'two')", [])
        .unwrap_err();
    assert_eq!(refused.sqlite_error().map(|e| e.extended_code), Some(517));
    assert_eq!(told(&refused), ("SQLITE_BUSY", Transient, Transient));
}

#[test]
fn a_constraint_refuses_the_same_row_again() {
    let file = File::new();
    let mut connection = file.open();
    connection
        .execute("INSERT INTO t VALUES (1, 'one')", [])
        .unwrap();
    let refused = connection
        .execute("INSERT INTO t VALUES (1, 'one')", [])
        .unwrap_err();
    assert_eq!(told(&refused), ("SQLITE_CONSTRAINT", Permanent, Permanent));

    // A deferred one refuses the commit.
    connection
        .execute_batch(
            "PRAGMA foreign_keys = on;
             CREATE TABLE child (id INTEGER REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    let tx = connection.transaction().unwrap();
    tx.execute("INSERT INTO child VALUES (7)", []).unwrap();
    assert_eq!(
        told(&tx.commit().unwrap_err()),
        ("SQLITE_CONSTRAINT", Permanent, Permanent)
    );
    let children: i64 = connection
        .query_row("SELECT COUNT(*) FROM child", [], |row| row.get(0))
        .unwrap();
    assert_eq!(children, 0);
}

#[test]
fn a_full_database_is_no_capacity() {
    let file = File::new();
    let connection = file.open();
    connection.pragma_update(None, "max_page_count", 3).unwrap();
    let refused = connection
        .execute("INSERT INTO t VALUES (1, hex(zeroblob(100000)))", [])
        .unwrap_err();
    assert_eq!(told(&refused), ("SQLITE_FULL", Throttled, Throttled));
    assert_eq!(file.rows(), 0);
}

#[test]
fn an_interrupted_statement_is_undone() {
    let file = File::new();
    let connection = file.open();
    connection.get_interrupt_handle().interrupt();
    // An interrupt ends what runs: so it is sent while the statement does.
    let handle = connection.get_interrupt_handle();
    let interrupter = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let going = std::sync::Arc::clone(&interrupter);
    let thread = std::thread::spawn(move || {
        while going.load(Relaxed) {
            handle.interrupt();
            std::thread::yield_now();
        }
    });
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO t SELECT i, 'n' FROM n";
    let refused = connection.execute(endless, []).unwrap_err();
    interrupter.store(false, Relaxed);
    thread.join().unwrap();
    assert_eq!(told(&refused), ("SQLITE_INTERRUPT", Transient, Transient));
    assert_eq!(file.rows(), 0);
}

#[test]
fn a_table_in_use_by_the_same_connection_is_locked() {
    let file = File::new();
    let connection = file.open();
    connection
        .execute_batch("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        .unwrap();
    let mut statement = connection.prepare("SELECT id FROM t").unwrap();
    let mut reading = statement.query([]).unwrap();
    assert!(reading.next().unwrap().is_some());
    let refused = connection.execute("DROP TABLE t", []).unwrap_err();
    assert_eq!(told(&refused), ("SQLITE_LOCKED", Transient, Transient));
}

#[test]
fn what_cannot_be_opened_or_written_or_read_is_permanent() {
    let file = File::new();
    let missing = Connection::open(file.0.join("no/such/place.db")).unwrap_err();
    assert_eq!(told(&missing), ("SQLITE_CANTOPEN", Permanent, Permanent));

    let read_only =
        Connection::open_with_flags(file.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let refused = read_only
        .execute("INSERT INTO t VALUES (1, 'one')", [])
        .unwrap_err();
    assert_eq!(told(&refused), ("SQLITE_READONLY", Permanent, Permanent));

    let none = file.0.join("prose.db");
    std::fs::write(&none, "no database, but a text that is long enough to be read as the head of one, which takes a hundred bytes").unwrap();
    let refused = Connection::open(none)
        .and_then(|c| c.execute_batch("CREATE TABLE u (id)"))
        .unwrap_err();
    assert_eq!(
        told(&refused),
        ("SQLITE_CORRUPT, SQLITE_NOTADB", Permanent, Uncertain)
    );

    let wrong = file
        .open()
        .execute("INSERT INTO nowhere VALUES (1)", [])
        .unwrap_err();
    assert_eq!(told(&wrong).1, Permanent);
    assert_eq!(told(&wrong).2, Permanent);
}

#[test]
fn what_cannot_be_read_of_the_answer_was_written() {
    let file = File::new();
    let connection = file.open();
    let insert = "INSERT INTO t VALUES (?, 'no number') RETURNING name";
    let unread = connection
        .query_row(insert, [1], |row| row.get::<_, i64>(0))
        .unwrap_err();
    assert!(matches!(unread, Error::InvalidColumnType(..)), "{unread:?}");
    assert_eq!(rusqlite::outcome(&unread, Phase::Autocommit), Uncertain);
    assert_eq!(file.rows(), 1);

    let unexpected = connection.execute(insert, [2]).unwrap_err();
    assert!(
        matches!(unexpected, Error::ExecuteReturnedResults),
        "{unexpected:?}"
    );
    assert_eq!(
        rusqlite::failure(unexpected, Phase::Autocommit).outcome(),
        Uncertain
    );
    assert_eq!(file.rows(), 2);
}

#[tokio::test]
async fn sqlx_is_told_the_same() {
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
    let file = File::new();
    let options = SqliteConnectOptions::new()
        .filename(file.path())
        .busy_timeout(std::time::Duration::ZERO);
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(std::time::Duration::from_millis(1))
        .connect_lazy_with(options);
    // Opened without the pool's patience, so that a slow machine opens it too.
    let mut connection = loop {
        if let Ok(connection) = pool.acquire().await {
            break connection;
        }
    };
    let late = pool.acquire().await.unwrap_err();
    assert!(matches!(late, sqlx::Error::PoolTimedOut), "{late:?}");
    assert_eq!(sqlx_sqlite::outcome(&late, Phase::Acquire), Throttled);

    let insert = "INSERT INTO t VALUES (1, 'no number') RETURNING name";
    let unread = sqlx::query_scalar::<_, i64>(insert)
        .fetch_one(&mut *connection)
        .await
        .unwrap_err();
    assert!(
        matches!(unread, sqlx::Error::ColumnDecode { .. }),
        "{unread:?}"
    );
    assert_eq!(sqlx_sqlite::outcome(&unread, Phase::Autocommit), Uncertain);
    assert_eq!(file.rows(), 1);

    let again = sqlx::query(insert)
        .execute(&mut *connection)
        .await
        .unwrap_err();
    assert_eq!(
        again.as_database_error().and_then(|e| e.code()).as_deref(),
        Some("1555")
    );
    assert_eq!(
        sqlx_sqlite::failure(again, Phase::Commit).outcome(),
        Permanent
    );

    let other = file.open();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await
        .unwrap_err();
    assert_eq!(sqlx_sqlite::outcome(&busy, Phase::Acquire), Transient);

    drop(connection);
    pool.close().await;
    let closed = pool.acquire().await.unwrap_err();
    assert_eq!(sqlx_sqlite::outcome(&closed, Phase::Acquire), Permanent);
}
