//! HTTP: what knowing what left the wire costs, beside the client it is built on and the one most services use.
//!
//! What is asked is always the same: a GET over loopback with HTTP/1.1, whose answer has a body of 42 bytes, read whole. The
//! server answers fixed bytes on a thread of its own; the clients run on the thread, or the two workers, that are measured.

use std::future::Future;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use bursar_http::Client;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio::task::unconstrained;

use super::fixtures::{forever, one_thread_with_io, two_workers};
use super::{Effort, Pace};
use crate::measure::{Batch, Contender, rotate};

pub(super) const BURSAR: &str = "bursar-http";
pub(super) const HYPER: &str = "hyper-util Client";
pub(super) const REQWEST: &str = "reqwest";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 42\r\n\r\n\
    forty-two bytes is what this answer holds.";

type Pool = legacy::Client<HttpConnector, Empty<bytes::Bytes>>;

/// The server's address. It lives until the program ends.
fn server() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let tokio = Builder::new_current_thread().enable_io().build();
        let tokio = tokio.expect("a tokio runtime for the server");
        let listener = tokio.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port of loopback");
        let address = listener.local_addr().expect("a bound address");
        thread::spawn(move || {
            tokio.block_on(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    drop(tokio::spawn(answer(stream)));
                }
            });
        });
        address
    })
}

/// Answers each head of a request, however it arrives, until the client closes.
async fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("a socket");
    let mut head = Vec::with_capacity(4096);
    while stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(ANSWER).await.is_err() {
                return;
            }
        }
    }
}

/// The clients, as they are built for a service that talks to one other: with a timeout where they have one.
struct Clients {
    ours: Client,
    hyper: Pool,
    reqwest: reqwest::Client,
    uri: Uri,
    url: reqwest::Url,
}

fn clients(tokio: &Tokio) -> &'static Clients {
    let _entered = tokio.enter();
    let url = format!("http://{}", server());
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    forever(Clients {
        ours: Client::builder()
            .base_url(&url)
            .build()
            .expect("right options"),
        hyper: legacy::Client::builder(TokioExecutor::new()).build(connector),
        reqwest: reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(3))
            .build()
            .expect("right options"),
        uri: url.parse().expect("a URL"),
        url: url.parse().expect("a URL"),
    })
}

impl Clients {
    async fn ours(&self) -> usize {
        let answer = self.ours.get("/").send_raw().await.expect("an answer");
        answer.body().len()
    }

    async fn hyper(&self) -> usize {
        let request = Request::get(self.uri.clone()).body(Empty::new());
        let answer = self.hyper.request(request.expect("a request")).await;
        let body = answer.expect("an answer").into_body().collect().await;
        body.expect("a body").to_bytes().len()
    }

    async fn reqwest(&self) -> usize {
        let answer = self.reqwest.get(self.url.clone()).send().await;
        let body = answer.expect("an answer").bytes().await;
        body.expect("a body").len()
    }
}

/// Requests that follow each other in one task of this thread's executor, where the connection's own task runs too.
fn following<F>(
    name: &'static str,
    tokio: &'static Tokio,
    request: impl Fn() -> F + Copy + Send + 'static,
) -> Contender<'static>
where
    F: Future<Output = usize> + Send + 'static,
{
    Contender::new(name, move |n| {
        let requests = unconstrained(async move {
            for _ in 0..n {
                black_box(request().await);
            }
        });
        tokio.block_on(tokio.spawn(requests)).expect("no panic");
    })
}

pub(super) fn sequential() -> Vec<Contender<'static>> {
    let tokio = one_thread_with_io();
    let clients = clients(tokio);
    vec![
        following(BURSAR, tokio, || clients.ours()),
        following(HYPER, tokio, || clients.hyper()),
        following(REQWEST, tokio, || clients.reqwest()),
    ]
}

/// So many tasks on two workers, each of which makes `n` requests, one after another.
fn at_once<F>(
    name: &'static str,
    tasks: u32,
    request: impl Fn() -> F + Copy + Send + 'static,
) -> Contender<'static>
where
    F: Future<Output = usize> + Send + 'static,
{
    let tokio = two_workers();
    Contender::timed(name, move |n| {
        let began = Instant::now();
        let task = || async move {
            for _ in 0..n {
                black_box(request().await);
            }
        };
        let running: Vec<_> = (0..tasks).map(|_| tokio.spawn(task())).collect();
        tokio.block_on(async {
            for task in running {
                task.await.expect("requests that do not panic");
            }
        });
        Batch::lasting(began.elapsed(), tasks * n)
    })
}

fn concurrent_tasks(tasks: u32) -> Vec<Contender<'static>> {
    let clients = clients(two_workers());
    vec![
        at_once(BURSAR, tasks, || clients.ours()),
        at_once(HYPER, tasks, || clients.hyper()),
        at_once(REQWEST, tasks, || clients.reqwest()),
    ]
}

pub(super) fn concurrent() -> Vec<Contender<'static>> {
    concurrent_tasks(64)
}

/// A point of the curve: nanoseconds a request while so many are under way.
pub(crate) fn under_way(tasks: u32, pace: Pace) -> Vec<(&'static str, f64)> {
    let effort = Effort {
        calls: Some(2_048_u32.div_ceil(tasks)),
        ..pace.tasks(1)
    };
    let mut contenders = concurrent_tasks(tasks);
    for contender in &mut contenders {
        // Its connections are made.
        contender.run(4);
    }
    let measured = rotate(effort, &mut contenders);
    let names = measured.names().iter();
    names
        .map(|name| (*name, measured.median(name, |batch| batch.mean)))
        .collect()
}
