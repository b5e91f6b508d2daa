//! Handlers and bodies that stay until the test lets them go, under real servers.

#![allow(dead_code, reason = "each test file uses a part")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::routing::get;
use bursar::{Contract, Policy, Runtime};
use bursar_tower::{Answers, ContractLayer, HttpServer};
use futures_util::Stream;
use http_body_util::StreamBody;
use tokio::sync::{Semaphore, mpsc};

use crate::common::net::{Task, serve};

/// One budget, "a".
pub fn budget(capacity: u32) -> Runtime {
    Runtime::builder().resource("a", capacity).build().unwrap()
}

/// A contract that claims one unit of it.
pub fn contract(runtime: &Runtime, name: &str) -> Contract {
    runtime
        .contract(name, Policy::pure().claim("a", 1))
        .unwrap()
}

/// A handler's place where it stays until the test lets it go.
#[derive(Clone)]
pub struct Room {
    inside: Arc<AtomicU32>,
    pub most: Arc<AtomicU32>,
    leave: Arc<Semaphore>,
}

impl Room {
    pub fn new() -> Self {
        Self {
            inside: Arc::default(),
            most: Arc::default(),
            leave: Arc::new(Semaphore::new(0)),
        }
    }

    pub fn inside(&self) -> u32 {
        self.inside.load(Ordering::SeqCst)
    }

    /// Counted for as long as the future lives.
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> T {
        struct Inside<'r>(&'r Room);
        impl Drop for Inside<'_> {
            fn drop(&mut self) {
                self.0.inside.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let _inside = Inside(self);
        work.await
    }

    pub async fn stay(&self) {
        self.within(async { self.leave.acquire().await.unwrap().forget() })
            .await;
    }

    pub fn let_go(&self, many: usize) {
        self.leave.add_permits(many);
    }
}

/// Stays in the room, then answers.
pub fn staying(room: &Room) -> axum::routing::MethodRouter {
    let room = room.clone();
    get(move || {
        let room = room.clone();
        async move {
            room.stay().await;
            "done"
        }
    })
}

/// A body whose pieces the test sends.
pub struct Pieces(pub mpsc::UnboundedReceiver<Result<&'static str, &'static str>>);

impl Stream for Pieces {
    type Item = Result<http_body::Frame<Bytes>, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| {
            piece.map(|piece| {
                assert_ne!(piece, Ok("panic"), "within the body");
                piece
                    .map(|piece| http_body::Frame::data(piece.into()))
                    .map_err(std::io::Error::other)
            })
        })
    }
}

pub type Writer = mpsc::UnboundedSender<Result<&'static str, &'static str>>;

/// A server whose one route streams what the test writes; the writers come as the requests do.
pub async fn streaming(
    layer: impl Fn(&Contract) -> ContractLayer<Request, Answers, HttpServer>,
) -> (
    Runtime,
    std::net::SocketAddr,
    mpsc::UnboundedReceiver<Writer>,
    Task,
) {
    let runtime = budget(1);
    let (begun, writers) = mpsc::unbounded_channel();
    let handler = get(move || {
        let (writer, pieces) = mpsc::unbounded_channel();
        begun.send(writer).unwrap();
        async { Body::new(StreamBody::new(Pieces(pieces))) }
    });
    let layer = layer(&contract(&runtime, "stream"));
    let (address, server) = serve(Router::new().route("/", handler).layer(layer)).await;
    (runtime, address, writers, server)
}
