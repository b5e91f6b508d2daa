//! What takes its time: connecting, the request's own body, whoever reads the answer (G7, G9).

mod common;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bursar::{ManualClock, Outcome, Retry};
use bursar_http::{Client, ErrorKind, Multipart};
use common::{Server, ok};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

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
    assert_eq!(error.attempts(), 1, "the one whose answer it is");
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

/// Sends the pieces one by one, each when it is asked for; then says that the client has closed.
async fn dripping(pieces: &'static [&'static str]) -> (Server, Arc<Notify>, Arc<Notify>) {
    let (more, closed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (mores, closes) = (Arc::clone(&more), Arc::clone(&closed));
    let server = Server::start(move |mut peer, _| {
        let (more, closed) = (Arc::clone(&mores), Arc::clone(&closes));
        async move {
            peer.hear().await.unwrap();
            for piece in pieces {
                peer.say(piece).await;
                tokio::select! {
                    () = more.notified() => {}
                    () = peer.closed() => break,
                }
            }
            peer.closed().await;
            closed.notify_one();
        }
    })
    .await;
    (server, more, closed)
}

#[tokio::test]
async fn g9_a_body_that_drips_does_not_stretch_its_timeout() {
    const PIECES: &[&str] = &[
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1",
        "2",
        "3",
        "4",
        "5",
    ];
    let (server, more, closed) = dripping(PIECES).await;
    let clock = ManualClock::new();
    let client = server.client().clock(clock.clone()).build().unwrap();
    let mut answer = client.get("/").stream().await.unwrap();
    for piece in ["1", "2", "3"] {
        let bytes = answer.body_mut().chunk().await.unwrap().unwrap();
        assert_eq!(&bytes[..], piece.as_bytes());
        clock.advance(SECOND);
        more.notify_one();
    }
    let error = answer.body_mut().chunk().await.unwrap_err();
    let found = (error.kind(), error.outcome());
    assert_eq!(found, (ErrorKind::DeadlineExceeded, Outcome::Uncertain));
    assert!(error.to_string().starts_with("GET http://"), "{error}");
    closed.notified().await;
}

#[tokio::test]
async fn g9_a_head_that_drips_does_not_stretch_its_timeout() {
    const PIECES: &[&str] = &["HTTP/1.1 200 OK\r\n", "x: 1\r\n", "y: 2\r\n", "z: 3\r\n"];
    let (server, more, closed) = dripping(PIECES).await;
    let clock = ManualClock::new();
    let client = server.client().clock(clock.clone()).build().unwrap();
    let mut request = pin!(client.post("/").json(&1).send_raw());
    for _ in 0..3 {
        // Until the attempt's timer is armed: the request is on its way.
        while clock.timers() == 0 {
            wait_a_turn(&mut request).await;
        }
        clock.advance(SECOND - Duration::from_millis(1));
        more.notify_one();
        wait_a_turn(&mut request).await;
    }
    clock.advance(Duration::from_millis(3));
    let error = request.await.unwrap_err();
    let found = (error.kind(), error.outcome());
    assert_eq!(found, (ErrorKind::DeadlineExceeded, Outcome::Uncertain));
    closed.notified().await;
}

/// Polls `work`, which must wait, and lets the others run.
async fn wait_a_turn<T>(work: &mut Pin<&mut impl Future<Output = T>>) {
    poll_fn(|cx| {
        assert!(work.as_mut().poll(cx).is_pending(), "it must wait");
        Poll::Ready(())
    })
    .await;
    tokio::task::yield_now().await;
}
