//! A response's body into a file, which appears whole or not at all.
//!
//! The file is made before the request is sent, so that a place where none can be made costs no exchange.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Attempt, Outcome};
use http::Response;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

use crate::ambient::{self, Elapsed};
use crate::error::{Error, ErrorKind};
use crate::run::Run;

/// A file under a name of its own beside its place; removed when dropped before it was put there.
struct Partial {
    path: PathBuf,
    file: Option<File>,
}

impl Partial {
    async fn create(place: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}-{number}.part", std::process::id()));
        let path = place.with_file_name(name);
        // Whoever leaves meanwhile leaves no file: what the thread returns is dropped then.
        ambient::blocking(move || {
            let file = std::fs::File::create_new(&path)?;
            Ok(Self {
                path,
                file: Some(File::from_std(file)),
            })
        })
        .await
    }

    async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(chunk).await,
            None => Ok(()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.flush().await,
            None => Ok(()),
        }
    }

    async fn put(mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.path, place).await?;
        self.file = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Whoever asked for the file has left or has its error already; a file that is gone is what is wanted.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Runs until the file is in its place.
pub(crate) async fn download(run: Run<'_>, place: &Path) -> Result<Response<u64>, Error> {
    let plan = &run.ready.plan;
    if place.file_name().is_none() {
        let what = format!("the path {place:?} to download to names no file");
        return Err(Error::usage(what).to(&plan.method, &plan.uri));
    }
    run.call()
        .run(|attempt| async move {
            let arrived = attempt_download(run, attempt, place).await;
            arrived.map_err(|error| run.failure(attempt, error))
        })
        .await
        .map_err(|error| run.concluded(error))
}

async fn attempt_download(
    run: Run<'_>,
    attempt: &Attempt,
    place: &Path,
) -> Result<Response<u64>, Error> {
    const KIND: ErrorKind = ErrorKind::InternalFailure;
    let plan = &run.ready.plan;
    let mut file = Partial::create(place).await.map_err(|error| {
        let what = "the file to download to cannot be made; nothing was sent";
        Error::new(KIND, Outcome::Permanent, what)
            .because(error)
            .to(&plan.method, &plan.uri)
    })?;
    let (parts, mut payload) = run.exchange(attempt).await?;
    let mut length = 0;
    let put = loop {
        let next = payload.next(Some(attempt)).await;
        let chunk = payload.in_time(next).transpose()?;
        let written = match &chunk {
            Some(chunk) => {
                let write = file.write(chunk);
                payload.deadline.bound(Some(attempt), write).await
            }
            None => payload.deadline.bound(Some(attempt), file.flush()).await,
        };
        let written = match written {
            Ok(Ok(())) if chunk.is_none() => break file.put(place).await,
            Ok(written) => written,
            Err(Elapsed) => {
                let what = "the answer's file was not written in time";
                let kind = ErrorKind::DeadlineExceeded;
                return Err(payload.error(kind, Outcome::Uncertain, what));
            }
        };
        match (written, chunk) {
            (Ok(()), Some(chunk)) => length += chunk.len() as u64,
            (written, _) => break written,
        }
    };
    match put {
        Ok(()) => Ok(Response::from_parts(parts, length)),
        Err(error) => {
            let what = "the answer arrived and its file cannot be written";
            let unwritten = payload.error(KIND, Outcome::Permanent, what);
            Err(unwritten.because(error).hopeless())
        }
    }
}
