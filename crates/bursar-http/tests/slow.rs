//! What takes its time: connecting, the request's own body, whoever reads the answer (G7, G9).

mod common;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bursar::{ManualClock, Outcome, Retry};
use bursar_http::{Client, ErrorKind, Multipart};
use common::{Server, ok};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const SECOND: Duration = Duration::from_secs(1);

/// A listener whose queue is full, so that whoever connects is not answered: what fills it, and the address.
async fn black_hole() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    loop {
        // Loopback answers at once or not at all.
        let mut connect = pin!(TcpStream::connect(address));
        let mut turns = 0;
        let connected = poll_fn(|cx| match connect.as_mut().poll(cx) {
            Poll::Ready(stream) => Poll::Ready(Some(stream.unwrap())),
            Poll::Pending if turns == 1_000 => Poll::Ready(None),
            Poll::Pending => {
                turns += 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        match connected {
            Some(stream) => queued.push(stream),
            None => return (listener, queued, address),
        }
    }
}

/// Polls `work`, which must wait, until the clock has a timer for it, then turns the clock.
async fn wait_out<T>(work: &mut Pin<&mut impl Future<Output = T>>, clock: &ManualClock) {
    poll_fn(|cx| {
        assert!(work.as_mut().poll(cx).is_pending(), "it must wait");
        Poll::Ready(())
    })
    .await;
    clock.advance(SECOND);
}

#[tokio::test]
async fn g7_a_connect_that_is_never_answered_sent_nothing_and_is_retried() {
    let (_listener, _queued, address) = black_hole().await;
    let clock = ManualClock::new();
    let client = Client::builder()
        .base_url(format!("http://{address}"))
        .timeout(SECOND)
        .retry(Retry::up_to(3).on_transient())
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut request = pin!(client.post("/").json(&1).send_raw());
    // Each attempt waits for its own timeout; between two of them the executor has a turn.
    let error = loop {
        let polled = poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await;
        match polled {
            Poll::Ready(answer) => break answer.unwrap_err(),
            Poll::Pending => clock.advance(SECOND),
        }
    };
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Transient, 3));
}

#[tokio::test]
async fn g9_who_reads_a_stream_slowly_meets_its_timeout() {
    let long = "x".repeat(1 << 20);
    let server = Server::answering(move |_| ok(&long)).await;
    let clock = ManualClock::new();
    let client = server.client().clock(clock.clone()).build().unwrap();
    let mut answer = client.get("/").stream().await.unwrap();
    answer.body_mut().chunk().await.unwrap();
    clock.advance(4 * SECOND);
    let error = answer.body_mut().chunk().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::DeadlineExceeded, Outcome::Uncertain)
    );
    assert!(answer.body_mut().chunk().await.unwrap().is_none());
}

/// A named pipe in which nobody writes: opening it takes for ever.
#[cfg(unix)]
#[tokio::test]
async fn g9_opening_a_file_of_the_body_counts_against_the_timeout() {
    let path = std::env::temp_dir().join(format!("bursar-pipe-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let server = Server::answering(|_| ok("7")).await;
    let clock = ManualClock::new();
    let client = server.client().clock(clock.clone()).timeout(SECOND);
    let client = client.build().unwrap();
    let form = Multipart::new().file("a", &path, "x/y");
    let mut request = pin!(client.post("/").multipart(form).send_raw());
    wait_out(&mut request, &clock).await;
    let error = request.await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::DeadlineExceeded, Outcome::Transient)
    );
    assert_eq!(server.accepted(), 0);
    // Lets the thread go that opens it.
    drop(std::fs::OpenOptions::new().write(true).open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
}
