//! What an HTTP/2 peer says of a stream it did not execute (G7, G8).

mod common;

use bursar::{Outcome, Retry};
use bursar_http::{Client, ErrorKind};
use common::{Peer, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Speaks just enough HTTP/2 to read requests and to answer them in frames.
struct Frames(Peer);

impl Frames {
    async fn open(mut peer: Peer) -> Self {
        let mut preface = [0; 24];
        // A client may have left before it said a word; then the next read finds that out.
        if peer.stream.read_exact(&mut preface).await.is_ok() {
            assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        }
        let mut frames = Self(peer);
        frames.send(frame(SETTINGS, 0, 0, &[])).await;
        frames
    }

    async fn send(&mut self, frame: Vec<u8>) {
        let _gone = self.0.stream.write_all(&frame).await;
    }

    /// The next frame: its kind, flags and stream.
    async fn next(&mut self) -> Option<(u8, u8, u32)> {
        let mut head = [0; 9];
        self.0.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.stream.read_exact(&mut payload).await.ok()?;
        let (kind, flags) = (head[3], head[4]);
        if kind == SETTINGS && flags & 1 == 0 {
            self.send(frame(SETTINGS, 1, 0, &[])).await;
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((kind, flags, stream))
    }

    /// The next request's stream, once it has been read whole.
    async fn request(&mut self) -> Option<u32> {
        loop {
            match self.next().await? {
                (HEADERS | DATA, flags, stream) if flags & 1 == 1 => return Some(stream),
                _ => {}
            }
        }
    }

    /// Returns once the client has reset that stream.
    async fn reset_by_client(&mut self, stream: u32) {
        loop {
            match self.next().await.unwrap() {
                (RST_STREAM, _, found) if found == stream => return,
                _ => {}
            }
        }
    }

    async fn reset(&mut self, stream: u32, code: u32) {
        self.send(frame(RST_STREAM, 0, stream, &code.to_be_bytes()))
            .await;
    }

    async fn go_away(&mut self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(frame(GOAWAY, 0, 0, &payload)).await;
    }

    /// 204, indexed in HPACK's static table.
    async fn answer(&mut self, stream: u32) {
        self.send(frame(HEADERS, 0x4 | 0x1, stream, &[0x80 | 9]))
            .await;
    }
}

fn client(server: &Server) -> Client {
    server.client().http2_only().build().unwrap()
}

fn retrying(server: &Server) -> Client {
    let retry = Retry::up_to(2).on_transient().on_uncertain();
    server.client().http2_only().retry(retry).build().unwrap()
}

#[tokio::test]
async fn g8_a_refused_stream_was_not_executed_and_a_post_is_sent_again() {
    let server = Server::start(|peer, _| async {
        let mut frames = Frames::open(peer).await;
        let first = frames.request().await.unwrap();
        frames.reset(first, REFUSED_STREAM).await;
        if let Some(second) = frames.request().await {
            frames.answer(second).await;
        }
        frames.request().await;
    })
    .await;
    let error = client(&server)
        .post("/")
        .json(&1)
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Transient)
    );
    let answer = retrying(&server)
        .post("/")
        .json(&1)
        .send_raw()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 204);
}

#[tokio::test]
async fn g7_another_reset_proves_nothing() {
    let server = Server::start(|peer, _| async {
        let mut frames = Frames::open(peer).await;
        while let Some(stream) = frames.request().await {
            frames.reset(stream, CANCEL).await;
        }
    })
    .await;
    let error = retrying(&server)
        .post("/")
        .json(&1)
        .send_raw()
        .await
        .unwrap_err();
    assert_eq!((error.outcome(), error.attempts()), (Outcome::Uncertain, 1));
}

#[tokio::test]
async fn g8_a_stream_above_the_last_of_a_goaway_was_not_executed() {
    for code in [NO_ERROR, INTERNAL_ERROR] {
        let server = Server::start(move |peer, number| async move {
            let mut frames = Frames::open(peer).await;
            let stream = frames.request().await.unwrap();
            if number == 1 {
                frames.go_away(0, code).await;
            } else {
                frames.answer(stream).await;
                frames.request().await;
            }
        })
        .await;
        let answer = retrying(&server)
            .post("/")
            .json(&1)
            .send_raw()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 204);
        assert_eq!(server.accepted(), 2);
    }
}

#[tokio::test]
async fn g7_a_stream_at_or_below_the_last_of_a_goaway_may_have_been_executed() {
    for (last, code) in [
        (1, NO_ERROR),
        (1, INTERNAL_ERROR),
        (7, NO_ERROR),
        (7, INTERNAL_ERROR),
    ] {
        let server = Server::start(move |peer, _| async move {
            let mut frames = Frames::open(peer).await;
            frames.request().await.unwrap();
            frames.go_away(last, code).await;
        })
        .await;
        let error = retrying(&server)
            .post("/")
            .json(&1)
            .send_raw()
            .await
            .unwrap_err();
        let found = (error.kind(), error.outcome(), error.attempts());
        let right = (ErrorKind::Unavailable, Outcome::Uncertain, 1);
        assert_eq!(found, right, "last {last}, code {code}: {error:?}");
    }
}

#[tokio::test]
async fn g10_one_caller_that_leaves_while_a_shared_connection_is_opened_fails_no_other() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    let server = Server::start(|peer, _| async {
        let mut frames = Frames::open(peer).await;
        while let Some(stream) = frames.request().await {
            frames.answer(stream).await;
        }
    })
    .await;
    let client = client(&server);
    let mut first = Box::pin(client.get("/1").send_raw());
    let mut second = pin!(client.get("/2").send_raw());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(
        first.as_mut().poll(&mut cx).is_pending(),
        "it opens the connection"
    );
    assert!(
        second.as_mut().poll(&mut cx).is_pending(),
        "it waits for that"
    );
    drop(first);
    assert_eq!(second.await.unwrap().status().as_u16(), 204);
}

#[tokio::test]
async fn g10_leaving_resets_one_stream_and_the_others_on_its_connection_go_on() {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::Arc;
    use tokio::sync::Notify;

    let both = Arc::new(Notify::new());
    let heard = Arc::clone(&both);
    let server = Server::start(move |peer, _| {
        let heard = Arc::clone(&heard);
        async move {
            let mut frames = Frames::open(peer).await;
            let first = frames.request().await.unwrap();
            let second = frames.request().await.unwrap();
            heard.notify_one();
            frames.reset_by_client(first).await;
            frames.answer(second).await;
            frames.request().await;
        }
    })
    .await;
    let client = client(&server);
    let mut first = Box::pin(client.post("/1").json(&1).send_raw());
    let mut second = pin!(client.post("/2").json(&2).send_raw());
    let mut both = pin!(both.notified());
    poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending());
        assert!(second.as_mut().poll(cx).is_pending());
        both.as_mut().poll(cx)
    })
    .await;
    drop(first);
    assert_eq!(second.await.unwrap().status().as_u16(), 204);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn g7_a_connection_that_does_not_answer_in_time_is_given_to_no_other_request() {
    use bursar::ManualClock;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::Notify;

    // The first connection is dead: what is sent is read and nothing comes back.
    let heard = Arc::new(Notify::new());
    let hears = Arc::clone(&heard);
    let server = Server::start(move |peer, number| {
        let heard = Arc::clone(&hears);
        async move {
            let mut frames = Frames::open(peer).await;
            while let Some(stream) = frames.request().await {
                heard.notify_one();
                if number > 1 {
                    frames.answer(stream).await;
                }
            }
        }
    })
    .await;
    let clock = ManualClock::new();
    let client = server.client().http2_only().clock(clock.clone());
    let client = client.build().unwrap();
    let mut first = pin!(client.get("/1").send_raw());
    let mut told = pin!(heard.notified());
    poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending());
        told.as_mut().poll(cx)
    })
    .await;
    clock.advance(Duration::from_secs(3));
    let error = first.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    let second = client.get("/2").send_raw().await.unwrap();
    assert_eq!((second.status().as_u16(), server.accepted()), (204, 2));
}

#[tokio::test]
async fn g10_an_upload_stops_once_its_early_answer_is_dropped() {
    use bytes::Bytes;

    // Answers at once, opens the windows wide, and reads what comes until the stream is reset.
    const LENGTH: usize = 256 << 20;
    let (tell, told) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let server = Server::start(move |peer, _| {
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            let mut frames = Frames::open(peer).await;
            let stream = loop {
                if let (HEADERS, _, stream) = frames.next().await.unwrap() {
                    break stream;
                }
            };
            // The head alone: 200, more to come.
            frames.send(frame(HEADERS, 0x4, stream, &[0x80 | 8])).await;
            let mut frames_read = 0;
            loop {
                match frames.next().await {
                    Some((RST_STREAM, _, found)) if found == stream => break,
                    Some((DATA, flags, _)) => {
                        assert_eq!(flags & 1, 0, "it was sent to its end");
                        frames_read += 1;
                        let more = (1_u32 << 20).to_be_bytes();
                        for stream in [0, stream] {
                            frames.send(frame(WINDOW_UPDATE, 0, stream, &more)).await;
                        }
                    }
                    Some(_) => {}
                    None => panic!("the connection was closed"),
                }
            }
            tell.send(frames_read).unwrap();
            frames.request().await;
        }
    })
    .await;
    let client = client(&server);
    let body = Bytes::from(vec![0; LENGTH]);
    let answer = client.put("/").raw("x/y", body).stream().await.unwrap();
    drop(answer);
    let frames_read: usize = told.await.unwrap();
    assert!(frames_read < LENGTH >> 14, "{frames_read} frames");
}
