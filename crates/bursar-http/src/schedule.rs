//! Where exchanges run and where callbacks resume.
//!
//! The default runs an exchange in its caller's poll and a callback in a task on the caller's runtime; it serializes
//! nothing. With an execute scheduler the exchange is work of that one, and the caller waits for what it sends back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use bursar::seam::{Execute, Resume, Work};
use bursar::{Outcome, in_chain};
use tokio::sync::oneshot;

use crate::ambient;
use crate::error::{Error, ErrorKind};

/// The schedulers of one client.
#[derive(Clone, Default)]
pub struct Schedulers {
    pub(crate) execute: Option<Arc<dyn Execute>>,
    pub(crate) resume: Option<Arc<dyn Resume>>,
}

impl Schedulers {
    /// Runs an exchange that somebody awaits.
    ///
    /// # Cancel safety
    /// Dropping the future drops the exchange, wherever it runs.
    pub(crate) async fn exchange<T, W>(&self, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Some(execute) = &self.execute else {
            return work.await;
        };
        let (mut answer, answered) = oneshot::channel();
        // Under the calls that await it, wherever it runs.
        let work = in_chain(work);
        execute.execute(Box::pin(async move {
            let mut work = pin!(work);
            let result = poll_fn(|cx| {
                if answer.poll_closed(cx).is_ready() {
                    return Poll::Ready(None);
                }
                poll_caught(work.as_mut(), cx).map(Some)
            })
            .await;
            if let Some(result) = result {
                // Whoever asked may have left in this very moment, and then wants nothing.
                drop(answer.send(result));
            }
        }));
        match answered.await {
            Ok(Ok(result)) => result,
            // A decoder's, say: it is its caller's.
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => {
                let what = "the execute scheduler dropped the exchange";
                Err(Error::new(
                    ErrorKind::ShuttingDown,
                    Outcome::Uncertain,
                    what,
                ))
            }
        }
    }

    /// Starts work that nobody awaits.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        match &self.execute {
            Some(execute) => execute.execute(Box::pin(work)),
            None => ambient::spawn(work),
        }
    }

    /// Runs a callback where callbacks run.
    pub(crate) async fn resume(&self, callback: impl Future<Output = ()> + Send + 'static) {
        match &self.resume {
            Some(resume) => {
                let continuation: Work = Box::pin(callback);
                resume.resume(continuation);
            }
            None => callback.await,
        }
    }
}

/// Polls `work`; a panic in it is what it ends with.
fn poll_caught<F: Future>(
    work: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<thread::Result<F::Output>> {
    match catch_unwind(AssertUnwindSafe(|| work.poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    }
}

/// Runs an exchange whose caller awaits nothing and whose callback is owed an answer, after a panic too.
pub(crate) async fn told<T>(exchange: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut exchange = pin!(exchange);
    let ended = poll_fn(|cx| poll_caught(exchange.as_mut(), cx)).await;
    ended.unwrap_or_else(|_| {
        let what = "the answer's decoder panicked";
        Err(Error::new(
            ErrorKind::InternalFailure,
            Outcome::Uncertain,
            what,
        ))
    })
}

impl fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedulers")
            .field("execute", &self.execute.is_some())
            .field("resume", &self.resume.is_some())
            .finish()
    }
}
