//! A server that stops, starts and crashes.

use bursar::Outcome::{Transient, Uncertain};
use bursar_classify::Phase;
use bursar_classify::sqlx_postgres::outcome;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _};

use super::servers::Own;

fn meanings(error: &Error) -> [bursar::Outcome; 3] {
    [Phase::Acquire, Phase::InTransaction, Phase::Commit].map(|phase| outcome(error, phase))
}

fn code(error: &Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

#[tokio::test]
async fn a_restart_ends_sessions_and_says_so() {
    let mut server = Own::start("postgres", &[]);
    let mut db = server.postgres().connect().await.unwrap();
    db.execute("CREATE TABLE t (id int)").await.unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1)").await.unwrap();
    server.stop(&["fast"]);

    let ended = tx.commit().await.unwrap_err();
    assert_eq!(code(&ended).as_deref(), Some("57P01"));
    assert_eq!(meanings(&ended), [Transient, Transient, Uncertain]);

    let refused = server.postgres().connect().await.unwrap_err();
    assert!(matches!(refused, Error::Io(_)), "{refused:?}");
    // Nobody listens: that is known in every phase.
    assert_eq!(meanings(&refused), [Transient, Transient, Transient]);

    server.start_again(&[]);
    let mut db = server.postgres().connect().await.unwrap();
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM t")
        .fetch_one(&mut db)
        .await
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_server_that_stops_takes_no_new_sessions() {
    let server = Own::start("postgres", &[]);
    let mut db = server.postgres().connect().await.unwrap();
    // It waits for the session that is there, and refuses others.
    server.stop(&["smart", "--no-wait"]);
    let refused = loop {
        match server.postgres().connect().await {
            // The signal has not arrived yet.
            Ok(connection) => connection.close().await.unwrap(),
            Err(error) => break error,
        }
    };
    assert_eq!(code(&refused).as_deref(), Some("57P03"), "{refused:?}");
    assert_eq!(meanings(&refused), [Transient, Transient, Transient]);
    db.execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_crash_leaves_a_commit_open() {
    let server = Own::start("postgres", &[]);
    let mut db = server.postgres().connect().await.unwrap();
    server.stop(&["immediate"]);
    let lost = db.execute("COMMIT").await.unwrap_err();
    assert_eq!(
        meanings(&lost),
        [Transient, Transient, Uncertain],
        "{lost:?}"
    );
}
