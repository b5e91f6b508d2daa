//! Forms of several parts (RFC 7578): text, bytes and files.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

use crate::error::BoxError;

/// A form of several parts. Files are opened anew for each attempt, so that such a request can be sent again.
///
/// ```
/// use bursar_http::Multipart;
///
/// let form = Multipart::new()
///     .text("title", "Spring catalogue")
///     .bytes("cover", "cover.png", "image/png", vec![0x89, 0x50])
///     .file("pages", "/srv/catalogue/pages.pdf", "application/pdf");
/// # let _ = form;
/// ```
#[must_use = "give it to a request"]
pub struct Multipart {
    boundary: String,
    parts: Vec<(Bytes, Content)>,
}

enum Content {
    Bytes(Bytes),
    File(PathBuf),
}

impl Multipart {
    /// A form without parts.
    pub fn new() -> Self {
        // Seeded anew each time, so that no content can be made to hold it.
        let random = || RandomState::new().build_hasher().finish();
        Self {
            boundary: format!("bursar-{:016x}{:016x}", random(), random()),
            parts: Vec::new(),
        }
    }

    /// Adds a field of text.
    pub fn text(self, name: &str, value: impl Into<String>) -> Self {
        let head = format!("name=\"{}\"\r\n", escaped(name));
        self.part(head, Content::Bytes(Bytes::from(value.into())))
    }

    /// Adds bytes as a file of that name and type.
    pub fn bytes(
        self,
        name: &str,
        file_name: &str,
        content_type: &str,
        content: impl Into<Bytes>,
    ) -> Self {
        let head = file_head(name, file_name, content_type);
        self.part(head, Content::Bytes(content.into()))
    }

    /// Adds a file, which is read while it is sent. Its name, without directories, goes along.
    pub fn file(self, name: &str, path: impl Into<PathBuf>, content_type: &str) -> Self {
        let path = path.into();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let head = file_head(name, &file_name, content_type);
        self.part(head, Content::File(path))
    }

    fn part(mut self, head: String, content: Content) -> Self {
        let head = format!(
            "--{}\r\ncontent-disposition: form-data; {head}\r\n",
            self.boundary
        );
        self.parts.push((Bytes::from(head), content));
        self
    }

    pub(crate) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// Opens the files and lays everything out in order.
    pub(crate) async fn pieces(&self) -> io::Result<Pieces> {
        let mut pieces = Pieces::default();
        for (head, content) in &self.parts {
            pieces.push(head.clone());
            match content {
                Content::Bytes(bytes) => pieces.push(bytes.clone()),
                Content::File(path) => {
                    let file = File::open(path).await?;
                    let left = file.metadata().await?.len();
                    pieces.length += left;
                    pieces.queue.push_back(Piece::File { file, left });
                }
            }
            pieces.push(Bytes::from_static(b"\r\n"));
        }
        pieces.push(Bytes::from(format!("--{}--\r\n", self.boundary)));
        Ok(pieces)
    }
}

impl Default for Multipart {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart")
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

fn file_head(name: &str, file_name: &str, content_type: &str) -> String {
    let (name, file_name) = (escaped(name), escaped(file_name));
    // A line break here would begin a header of its own.
    let content_type = content_type.replace(['\r', '\n'], " ");
    format!("name=\"{name}\"; filename=\"{file_name}\"\r\ncontent-type: {content_type}\r\n")
}

/// As browsers write names: what would end the string or the line is escaped.
fn escaped(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A form on its way out.
#[derive(Default)]
pub(crate) struct Pieces {
    queue: VecDeque<Piece>,
    length: u64,
}

enum Piece {
    Bytes(Bytes),
    File { file: File, left: u64 },
}

/// How much of a file is read at a time.
const CHUNK: usize = 32 << 10;

impl Pieces {
    fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len() as u64;
        self.queue.push_back(Piece::Bytes(bytes));
    }

    /// What is still to come.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            let chunk = match self.queue.front_mut() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) => std::mem::take(bytes),
                Some(Piece::File { left: 0, .. }) => Bytes::new(),
                Some(Piece::File { file, left }) => {
                    let chunk = ready!(poll_chunk(file, *left, cx))?;
                    *left -= chunk.len() as u64;
                    self.length -= chunk.len() as u64;
                    return Poll::Ready(Some(Ok(chunk)));
                }
            };
            self.queue.pop_front();
            self.length -= chunk.len() as u64;
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(chunk)));
            }
        }
    }
}

fn poll_chunk(file: &mut File, left: u64, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
    let mut chunk = BytesMut::zeroed(most);
    let mut buf = ReadBuf::new(&mut chunk);
    ready!(Pin::new(file).poll_read(cx, &mut buf))?;
    let read = buf.filled().len();
    if read == 0 {
        let short = "a file of the form became shorter while it was sent";
        return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, short)));
    }
    chunk.truncate(read);
    Poll::Ready(Ok(chunk.freeze()))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn g1_a_form_is_laid_out_in_order_and_its_length_is_known() {
        let path = std::env::temp_dir().join(format!("bursar-http-{}.txt", std::process::id()));
        std::fs::write(&path, vec![b'x'; CHUNK + 1]).unwrap();
        let form = Multipart::new()
            .text("a\"\r\nb", "1")
            .bytes("c", "c.bin", "x/y\r\nz: 1", "2")
            .file("d", &path, "text/plain");
        let mut pieces = form.pieces().await.unwrap();
        let length = pieces.length();
        let mut sent = Vec::new();
        while let Some(chunk) = poll_fn(|cx| pieces.poll_next(cx)).await {
            sent.extend_from_slice(&chunk.unwrap());
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sent.len() as u64, length);
        assert_eq!(pieces.length(), 0);
        let sent = String::from_utf8(sent).unwrap();
        let boundary = &form.boundary;
        let file = path.file_name().unwrap().to_str().unwrap();
        let right = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"a%22%0D%0Ab\"\r\n\r\n1\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"c\"; filename=\"c.bin\"\r\n\
             content-type: x/y  z: 1\r\n\r\n2\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"d\"; filename=\"{file}\"\r\n\
             content-type: text/plain\r\n\r\n{}\r\n--{boundary}--\r\n",
            "x".repeat(CHUNK + 1)
        );
        assert_eq!(sent, right);
        assert_ne!(boundary, &Multipart::new().boundary);
    }
}
