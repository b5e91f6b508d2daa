//! A response's body into a file, which appears whole or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Attempt, Outcome};
use http::Response;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

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
        let file = File::create_new(&path).await?;
        Ok(Self {
            path,
            file: Some(file),
        })
    }

    async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(chunk).await,
            None => Ok(()),
        }
    }

    async fn put(mut self, place: &Path) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.flush().await?;
        }
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
    let unwritten = |error: io::Error| {
        let what = "the answer arrived and its file cannot be written";
        Error::new(ErrorKind::InternalFailure, Outcome::Permanent, what)
            .because(error)
            .to(&run.ready.plan.method, &run.ready.plan.uri)
    };
    let (parts, mut payload) = run.exchange(attempt).await?;
    let mut file = Partial::create(place).await.map_err(unwritten)?;
    let mut length = 0;
    while let Some(chunk) = payload.next(Some(attempt)).await {
        let chunk = chunk?;
        file.write(&chunk).await.map_err(unwritten)?;
        length += chunk.len() as u64;
    }
    file.put(place).await.map_err(unwritten)?;
    Ok(Response::from_parts(parts, length))
}
