//! A server of raw sockets: each connection runs a script, and the test asks what it read.

#![allow(dead_code, reason = "each test crate uses its own part")]
#![allow(clippy::disallowed_methods, reason = "the server runs in tasks")]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bursar_http::{Client, ClientBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A listening server; dropping it closes the listener, not the connections.
pub struct Server {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    /// Runs `script` for each connection, with its number from 1.
    pub async fn start<F, W>(script: F) -> Self
    where
        F: Fn(Peer, usize) -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(script(Peer::new(stream), number));
            }
        });
        Self {
            address,
            accepted,
            task,
        }
    }

    /// Answers every request of every connection with what `answer` makes of it.
    pub async fn answering<F>(answer: F) -> Self
    where
        F: Fn(&Heard) -> String + Send + Sync + 'static,
    {
        let answer = Arc::new(answer);
        Self::start(move |mut peer, _| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(heard) = peer.hear().await {
                    let text = answer(&heard);
                    peer.say(&text).await;
                }
            }
        })
        .await
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client's options with this server as its base.
    pub fn client(&self) -> ClientBuilder {
        Client::builder().base_url(self.url())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request as it was read.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The request line and the headers, in lower case names as sent.
    pub head: String,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    /// The value of a header; several are joined by `|`.
    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect();
        (!values.is_empty()).then(|| values.join("|"))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// The server's end of a connection.
pub struct Peer {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }

    async fn more(&mut self) -> bool {
        self.stream
            .read_buf(&mut self.read)
            .await
            .is_ok_and(|read| read > 0)
    }

    /// The next request, whole. `None` once the client has closed.
    pub async fn hear(&mut self) -> Option<Heard> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let mut heard = Heard {
            head,
            body: Vec::new(),
        };
        if let Some(length) = heard.header("content-length") {
            let length: usize = length.parse().unwrap();
            while self.read.len() < length {
                if !self.more().await {
                    return None;
                }
            }
            heard.body = self.read.drain(..length).collect();
        } else if heard.header("transfer-encoding").is_some() {
            loop {
                let line = loop {
                    if let Some(at) = self.read.windows(2).position(|w| w == b"\r\n") {
                        break at;
                    }
                    if !self.more().await {
                        return None;
                    }
                };
                let size = std::str::from_utf8(&self.read[..line]).unwrap().to_owned();
                let size = usize::from_str_radix(&size, 16).unwrap();
                self.read.drain(..line + 2);
                while self.read.len() < size + 2 {
                    if !self.more().await {
                        return None;
                    }
                }
                heard.body.extend(self.read.drain(..size));
                self.read.drain(..2);
                if size == 0 {
                    break;
                }
            }
        }
        Some(heard)
    }

    /// One response with a length, as it was read.
    pub async fn answer(&mut self) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.read).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .filter_map(|line| line.split_once(':'))
                    .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                    .map_or(0, |(_, value)| value.trim().parse().unwrap());
                if body.len() >= length {
                    return text;
                }
            }
            if !self.more().await {
                return text;
            }
        }
    }

    /// Writes text as it is. The client may have gone.
    pub async fn say(&mut self, text: &str) {
        let _gone = self.stream.write_all(text.as_bytes()).await;
    }

    /// Completes once the client has closed its end.
    pub async fn closed(&mut self) {
        while self.more().await {}
    }
}

/// A response of that status line's rest, headers and body.
pub fn response(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

pub fn ok(body: &str) -> String {
    response("200 OK", "", body)
}
