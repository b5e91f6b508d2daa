//! A server on loopback that answers with given bytes, and work done against it. Nothing leaves this machine.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// One runtime, and one input at a time.
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

/// Gives `work` the port of a server, each of whose connections reads one head, answers with the next piece and is closed.
/// What it has read comes back with the work's result.
pub(crate) fn against<T>(pieces: &[&[u8]], work: impl AsyncFnOnce(u16) -> T) -> (T, Vec<String>) {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime.get_or_insert_with(|| {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    });
    let mut seen = Vec::new();
    let result = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let port = listener.local_addr().expect("it is bound").port();
        let mut work = pin!(work(port));
        let mut server = pin!(serve(&listener, pieces, &mut seen));
        poll_fn(|cx| {
            let Poll::Pending = server.as_mut().poll(cx);
            work.as_mut().poll(cx)
        })
        .await
    });
    (result, seen)
}

async fn serve(listener: &TcpListener, pieces: &[&[u8]], seen: &mut Vec<String>) -> Infallible {
    let mut pieces = pieces.iter();
    loop {
        let Ok((mut connection, _)) = listener.accept().await else {
            continue;
        };
        let head = head(&mut connection).await;
        let prior = head.starts_with(b"PRI * HTTP/2.0");
        seen.push(String::from_utf8_lossy(&head).into_owned());
        // Who has left does not hear it.
        let piece = pieces.next().copied().unwrap_or_default();
        let _left = connection.write_all(piece).await;
        let _left = connection.shutdown().await;
        if prior {
            // What lies unread would reset the connection, and take the answer away.
            let mut rest = [0; 4_096];
            while matches!(connection.read(&mut rest).await, Ok(1..)) {}
        }
    }
}

async fn head(connection: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match connection.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    head
}
