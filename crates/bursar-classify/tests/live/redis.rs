//! Redis, command by command: each code out of the real server.

use bursar::Outcome::{self, Permanent, Throttled, Transient, Uncertain};
use bursar_classify::Phase;
use bursar_classify::redis::outcome;
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, cmd, pipe};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::servers::Own;

pub async fn connect(url: &str) -> Result<MultiplexedConnection, RedisError> {
    // Without a limit of its own: a slow machine is no answer of the server.
    let config = redis::AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Sends a command, its words apart.
pub async fn send(db: &mut MultiplexedConnection, words: &str) -> Result<redis::Value, RedisError> {
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap_or_default());
    for word in words {
        command.arg(word);
    }
    command.query_async(db).await
}

/// An error's code, and what it means for a command by itself.
pub fn told(error: &RedisError) -> (String, Outcome) {
    (
        error.code().unwrap_or_default().to_owned(),
        outcome(error, Phase::Autocommit),
    )
}

fn is(code: &str, outcome: Outcome) -> (String, Outcome) {
    (code.to_owned(), outcome)
}

#[tokio::test]
async fn while_it_loads_nothing_is_carried_out() {
    let server = Own::start(
        "redis",
        &["--loading-process-events-interval-bytes", "1024"],
    );
    let (mut db, mut other) = (
        connect(&server.url).await.unwrap(),
        connect(&server.url).await.unwrap(),
    );
    send(&mut db, "DEBUG POPULATE 20000 key 100").await.unwrap();
    // Each key takes it this many microseconds to read back.
    send(&mut db, "CONFIG SET key-load-delay 500")
        .await
        .unwrap();
    let reload = tokio::spawn(async move { send(&mut db, "DEBUG RELOAD").await });
    let refused = loop {
        match send(&mut other, "INCR counter").await {
            Ok(_) => assert!(!reload.is_finished(), "it has loaded unnoticed"),
            Err(error) => break error,
        }
    };
    assert_eq!(told(&refused), is("LOADING", Transient));
    reload.abort();
}

#[tokio::test]
async fn a_replica_refuses_writes() {
    let server = Own::start(
        "redis",
        &["--replicaof", "127.0.0.1 1", "--replica-read-only", "yes"],
    );
    let mut db = connect(&server.url).await.unwrap();
    assert_eq!(
        told(&send(&mut db, "SET a 1").await.unwrap_err()),
        is("READONLY", Transient)
    );
    send(&mut db, "CONFIG SET replica-serve-stale-data no")
        .await
        .unwrap();
    assert_eq!(
        told(&send(&mut db, "GET a").await.unwrap_err()),
        is("MASTERDOWN", Transient)
    );
}

#[tokio::test]
async fn past_its_memory_it_refuses_writes() {
    let server = Own::start("redis", &[]);
    let mut db = connect(&server.url).await.unwrap();
    send(&mut db, "CONFIG SET maxmemory 1").await.unwrap();
    assert_eq!(
        told(&send(&mut db, "SET a 1").await.unwrap_err()),
        is("OOM", Throttled)
    );
    // In a transaction the queue refuses it, and the client tells why the whole was given up.
    let given_up = pipe()
        .atomic()
        .cmd("SET")
        .arg("a")
        .arg(1)
        .query_async::<()>(&mut db)
        .await
        .unwrap_err();
    assert_eq!(outcome(&given_up, Phase::Commit), Throttled, "{given_up:?}");
    // By hand the two come apart.
    send(&mut db, "MULTI").await.unwrap();
    assert_eq!(
        told(&send(&mut db, "SET a 1").await.unwrap_err()),
        is("OOM", Throttled)
    );
    let exec = send(&mut db, "EXEC").await.unwrap_err();
    assert_eq!(
        (exec.code(), outcome(&exec, Phase::Commit)),
        (Some("EXECABORT"), Permanent)
    );
    assert_eq!(
        send(&mut db, "EXISTS a").await.unwrap(),
        redis::Value::Int(0)
    );
}

#[tokio::test]
async fn what_it_refuses_for_now_is_transient() {
    let server = Own::start("redis", &["--busy-reply-threshold", "1"]);
    let mut db = connect(&server.url).await.unwrap();
    send(&mut db, "CONFIG SET min-replicas-to-write 1")
        .await
        .unwrap();
    assert_eq!(
        told(&send(&mut db, "SET a 1").await.unwrap_err()),
        is("NOREPLICAS", Transient)
    );
    send(&mut db, "CONFIG SET min-replicas-to-write 0")
        .await
        .unwrap();

    let mut scripting = connect(&server.url).await.unwrap();
    let script = tokio::spawn(async move {
        cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async::<()>(&mut scripting)
            .await
    });
    let busy = loop {
        if let Err(error) = send(&mut db, "INCR counter").await {
            break error;
        }
    };
    assert_eq!(told(&busy), is("BUSY", Transient));
    send(&mut db, "SCRIPT KILL").await.unwrap();
    // What ended it is an error of the script.
    assert_eq!(told(&script.await.unwrap().unwrap_err()).1, Permanent);

    let mut waiting = connect(&server.url).await.unwrap();
    let id = send(&mut waiting, "CLIENT ID").await.unwrap();
    let redis::Value::Int(id) = id else {
        panic!("{id:?} is no id")
    };
    let popped = tokio::spawn(async move { send(&mut waiting, "BLPOP list 0").await });
    while send(&mut db, &format!("CLIENT UNBLOCK {id} ERROR"))
        .await
        .unwrap()
        != redis::Value::Int(1)
    {}
    assert_eq!(
        told(&popped.await.unwrap().unwrap_err()),
        is("UNBLOCKED", Transient)
    );
}

#[tokio::test]
async fn what_the_same_command_would_meet_again_is_permanent() {
    let server = Own::start("redis", &[]);
    let mut db = connect(&server.url).await.unwrap();
    send(&mut db, "SET text word").await.unwrap();
    send(&mut db, "XADD stream * a 1").await.unwrap();
    send(&mut db, "XGROUP CREATE stream g 0").await.unwrap();
    for (command, code) in [
        ("NOSUCHCOMMAND", "ERR"),
        ("INCR text", "ERR"),
        ("LPUSH text a", "WRONGTYPE"),
        (
            "EVALSHA 0000000000000000000000000000000000000000 0",
            "NOSCRIPT",
        ),
        ("XGROUP CREATE stream g 0", "BUSYGROUP"),
        ("XREADGROUP GROUP none me STREAMS stream >", "NOGROUP"),
        ("SCRIPT KILL", "NOTBUSY"),
        ("AUTH nobody wrong", "WRONGPASS"),
    ] {
        assert_eq!(
            told(&send(&mut db, command).await.unwrap_err()),
            is(code, Permanent),
            "{command}"
        );
    }
    send(
        &mut db,
        "ACL SETUSER reader on >secret ~* +get +hello +client",
    )
    .await
    .unwrap();
    let address = server.url.trim_start_matches("redis://").to_owned();
    let mut reader = connect(&format!("redis://reader:secret@{address}"))
        .await
        .unwrap();
    assert_eq!(
        told(&send(&mut reader, "SET a 1").await.unwrap_err()),
        is("NOPERM", Permanent)
    );
    let wrong = connect(&format!("redis://reader:wrong@{address}"))
        .await
        .unwrap_err();
    assert_eq!(outcome(&wrong, Phase::Acquire), Permanent, "{wrong:?}");
    send(&mut db, "CONFIG SET requirepass secret")
        .await
        .unwrap();
    let mut stranger = connect(&format!("redis://{address}")).await;
    let refused = match &mut stranger {
        Ok(stranger) => send(stranger, "GET a").await.unwrap_err(),
        Err(_) => stranger.unwrap_err(),
    };
    assert_eq!(told(&refused), is("NOAUTH", Permanent));
}

#[tokio::test]
async fn writes_are_refused_until_a_snapshot_succeeds() {
    let server = Own::start("redis", &[]);
    let mut db = connect(&server.url).await.unwrap();
    // No file can be called like the directory that it lies in.
    send(&mut db, "CONFIG SET dbfilename .").await.unwrap();
    cmd("CONFIG")
        .arg("SET")
        .arg("save")
        .arg("1000000 1")
        .query_async::<()>(&mut db)
        .await
        .unwrap();
    send(&mut db, "BGSAVE").await.unwrap();
    let refused = loop {
        if let Err(error) = send(&mut db, "INCR counter").await {
            break error;
        }
    };
    assert_eq!(told(&refused), is("MISCONF", Permanent));
}

#[tokio::test]
async fn past_its_clients_it_refuses_connections_without_a_code() {
    let server = Own::start("redis", &["--maxclients", "1"]);
    let _held = connect(&server.url).await.unwrap();
    let refused = connect(&server.url).await.unwrap_err();
    assert_eq!(outcome(&refused, Phase::Acquire), Transient, "{refused:?}");
}

#[tokio::test]
async fn a_pipeline_that_failed_in_part_was_carried_out_in_part() {
    let server = Own::start("redis", &[]);
    let mut db = connect(&server.url).await.unwrap();
    for atomic in [false, true] {
        let mut pipeline = pipe();
        if atomic {
            pipeline.atomic();
        }
        let failed = pipeline
            .cmd("INCR")
            .arg("n")
            .cmd("LPUSH")
            .arg("n")
            .arg(1)
            .query_async::<()>(&mut db)
            .await
            .unwrap_err();
        assert_eq!(outcome(&failed, Phase::Commit), Uncertain, "{failed:?}");
    }
    assert_eq!(
        send(&mut db, "GET n").await.unwrap(),
        redis::Value::BulkString(b"2".to_vec())
    );
}

#[tokio::test]
async fn an_answer_of_another_type_comes_after_the_effect() {
    let server = Own::start("redis", &[]);
    let mut db = connect(&server.url).await.unwrap();
    let unread = cmd("INCR")
        .arg("n")
        .query_async::<Vec<String>>(&mut db)
        .await
        .unwrap_err();
    assert_eq!(outcome(&unread, Phase::Autocommit), Uncertain, "{unread:?}");
    assert_eq!(
        send(&mut db, "GET n").await.unwrap(),
        redis::Value::BulkString(b"1".to_vec())
    );
}

#[tokio::test]
async fn killed_in_the_middle_of_a_command_it_is_uncertain_and_was_not_done() {
    let server = Own::start("redis", &[]);
    let (mut db, mut victim) = (
        connect(&server.url).await.unwrap(),
        connect(&server.url).await.unwrap(),
    );
    let id = send(&mut victim, "CLIENT ID").await.unwrap();
    let redis::Value::Int(id) = id else {
        panic!("{id:?} is no id")
    };
    send(&mut db, "CLIENT PAUSE 600000 WRITE").await.unwrap();
    let counting = tokio::spawn(async move { send(&mut victim, "INCR n").await });
    // Paused clients count as blocked ones.
    loop {
        let info: String = cmd("INFO")
            .arg("clients")
            .query_async(&mut db)
            .await
            .unwrap();
        if info.contains("blocked_clients:1\r\n") {
            break;
        }
    }
    send(&mut db, &format!("CLIENT KILL ID {id}"))
        .await
        .unwrap();
    let lost = counting.await.unwrap().unwrap_err();
    assert_eq!(outcome(&lost, Phase::Autocommit), Uncertain, "{lost:?}");
    assert_eq!(outcome(&lost, Phase::InTransaction), Transient);
    send(&mut db, "CLIENT UNPAUSE").await.unwrap();
    assert_eq!(
        send(&mut db, "EXISTS n").await.unwrap(),
        redis::Value::Int(0)
    );
}

#[tokio::test]
async fn killed_in_the_middle_of_a_command_it_is_uncertain_and_was_done() {
    let server = Own::start("redis", &[]);
    let mut db = connect(&server.url).await.unwrap();
    let address = server
        .url
        .trim_start_matches("redis://")
        .trim_end_matches('/')
        .to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("redis://{}/", listener.local_addr().unwrap());
    // Passes everything on until the command has been answered, and keeps that answer to itself.
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(address).await.unwrap();
        let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
        loop {
            let read = client.read(&mut asked).await.unwrap();
            server.write_all(&asked[..read]).await.unwrap();
            let answer = server.read(&mut answered).await.unwrap();
            if asked[..read].windows(4).any(|w| w == b"INCR") {
                break;
            }
            client.write_all(&answered[..answer]).await.unwrap();
        }
    });
    let mut victim = connect(&proxy).await.unwrap();
    let lost = send(&mut victim, "INCR n").await.unwrap_err();
    assert_eq!(outcome(&lost, Phase::Autocommit), Uncertain, "{lost:?}");
    assert_eq!(
        send(&mut db, "GET n").await.unwrap(),
        redis::Value::BulkString(b"1".to_vec())
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_was_sent_nothing() {
    let server = Own::start("redis", &[]);
    let url = server.url.clone();
    drop(server);
    // A server takes a moment to die, in which it may still take a connection and drop it.
    let refused = loop {
        match connect(&url).await {
            Err(error) if error.is_connection_refusal() => break error,
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(told(&refused), is("", Transient));
}
