//! Where exchanges run and where callbacks resume.
//!
//! The default runs an exchange in its caller's poll and a callback in a task on the caller's runtime; it serializes
//! nothing. With an execute scheduler the exchange is work of that one, and the caller waits for what it sends back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

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
                work.as_mut().poll(cx).map(Some)
            })
            .await;
            if let Some(result) = result {
                // Whoever asked may have left in this very moment, and then wants nothing.
                drop(answer.send(result));
            }
        }));
        answered.await.unwrap_or_else(|_| {
            let what = "the execute scheduler dropped the exchange";
            Err(Error::new(
                ErrorKind::ShuttingDown,
                Outcome::Uncertain,
                what,
            ))
        })
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

impl fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedulers")
            .field("execute", &self.execute.is_some())
            .field("resume", &self.resume.is_some())
            .finish()
    }
}
