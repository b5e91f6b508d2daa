//! Servers of a few bytes: they answer what they are told to, and say nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

/// What a server does with one connection.
pub enum Then {
    /// Closes it before it reads.
    Close,
    /// Reads a request and closes.
    Read,
    /// Reads a request, answers, and closes.
    Answer(&'static str),
}

/// Serves one connection after the other, each as it is told.
pub fn server(connections: Vec<Then>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        for then in connections {
            let (mut stream, _) = listener.accept().unwrap();
            match then {
                Then::Close => {}
                Then::Read => drop(head(&mut stream)),
                Then::Answer(answer) => {
                    head(&mut stream);
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        }
    });
    (address, served)
}

/// Reads the head of a request, and what of its body came with it.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    let mut buffer = [0; 1024];
    while !read.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(n) => read.extend_from_slice(&buffer[..n]),
        }
    }
    read
}

/// A port on which nobody listens. Bound and never listening, so that nobody else takes it.
pub fn closed() -> (SocketAddr, impl Sized) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// A blocking connection of the redis client to a server that answers its first request with `answers`.
pub fn redis_connection(answers: &str) -> (redis::Connection, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answers = answers.to_owned();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        // Told by its words: the client may introduce itself first, which is waved through.
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(read) => read,
            };
            let text = String::from_utf8_lossy(&buffer[..read]);
            if text.contains("LPUSH") {
                stream.write_all(answers.as_bytes()).unwrap();
            } else {
                let commands = text.matches('*').count();
                stream
                    .write_all("+OK\r\n".repeat(commands).as_bytes())
                    .unwrap();
            }
        }
    });
    let client = redis::Client::open(format!("redis://{address}")).unwrap();
    (client.get_connection().unwrap(), served)
}
