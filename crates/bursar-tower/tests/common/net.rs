//! Servers and clients on loopback.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Aborts its task when dropped, so that a test leaves nothing behind.
#[derive(Debug)]
pub struct Task(pub JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves an axum router on a free port.
#[allow(clippy::disallowed_methods, reason = "a server is a task of the test")]
pub async fn serve(app: axum::Router) -> (SocketAddr, Task) {
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, Task(task))
}

pub async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Bounds what a broken build would wait for; no result depends on it.
#[allow(clippy::disallowed_methods, reason = "it decides nothing")]
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it comes, and at once")
}

/// Waits until something is so.
pub async fn until(mut so: impl FnMut() -> bool) {
    soon(async {
        while !so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The answer to a request that is cut off by its deadline while it runs. On a busy machine a short one may pass before the request
/// is begun; then it is given longer.
pub async fn cut_off(mut send: impl AsyncFnMut(u64) -> Reply) -> Reply {
    for millis in [5, 50, 500, 5_000] {
        let reply = send(millis).await;
        if reply.status != 503 || reply.json()["code"] != "not-in-time" {
            return reply;
        }
    }
    panic!("no request was begun within five seconds");
}

/// A connection whose bytes the test writes and reads itself.
#[derive(Debug)]
pub struct Connection(pub TcpStream);

/// A response as it came.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends a GET and keeps the connection.
    pub async fn get(&mut self, path: &str, headers: &str) -> Reply {
        self.send(path, headers).await;
        soon(self.reply()).await
    }

    pub async fn send(&mut self, path: &str, headers: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    /// Up to the empty line after the head.
    pub async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(
                self.0
                    .read_u8()
                    .await
                    .expect("the connection ended within a head"),
            );
        }
        String::from_utf8(head).unwrap()
    }

    pub async fn reply(&mut self) -> Reply {
        let head = self.head().await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply {
            status,
            head,
            body: Vec::new(),
        };
        let length = reply
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        reply.body = vec![0; length];
        self.0.read_exact(&mut reply.body).await.unwrap();
        reply
    }
}
