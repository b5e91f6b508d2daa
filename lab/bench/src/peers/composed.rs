//! The hand composition: what a service grows when each subsystem bounds, retries and drains by itself.
//!
//! A tokio semaphore for each budget, a `TaskTracker` and a `CancellationToken` for shutdown, a retry loop, tokio's
//! timeout, and a mutex a key. No counters, no order of acquisition but the caller's care.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::KeyMutexes;

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// May be tried again.
    Transient,
    /// May not.
    Permanent,
    /// Took too long.
    TimedOut,
}

/// Why a call has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Shutdown has begun.
    Stopping,
    /// No unit is free, and the call does not wait.
    Overloaded,
    /// The last attempt's fault.
    Failed(Fault),
}

/// Two semaphores, a mutex a key, and what shutdown needs.
#[derive(Debug)]
pub struct Composed {
    first: Semaphore,
    second: Semaphore,
    keys: KeyMutexes,
    stop: CancellationToken,
    tracker: TaskTracker,
    attempts: u32,
    timeout: Duration,
}

impl Composed {
    /// Two budgets of these capacities.
    #[must_use]
    pub fn new(first: usize, second: usize) -> Self {
        Self {
            first: Semaphore::new(first),
            second: Semaphore::new(second),
            keys: KeyMutexes::default(),
            stop: CancellationToken::new(),
            tracker: TaskTracker::new(),
            attempts: 3,
            timeout: Duration::from_secs(2),
        }
    }

    /// The first budget, for tests and for holding it full.
    #[must_use]
    pub fn first(&self) -> &Semaphore {
        &self.first
    }

    async fn acquire<'s>(&self, budget: &'s Semaphore) -> Result<SemaphorePermit<'s>, Refused> {
        // A permit first: it is there, nearly always. A call that finds one free after the token fired is refused by
        // the closed semaphore.
        tokio::select! {
            biased;
            permit = budget.acquire() => permit.map_err(|_| Refused::Stopping),
            () = self.stop.cancelled() => Err(Refused::Stopping),
        }
    }

    async fn attempts<T, Fut>(&self, mut handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let mut attempt = 1;
        loop {
            match handler().await {
                Ok(value) => return Ok(value),
                Err(Fault::Transient) if attempt < self.attempts => attempt += 1,
                Err(fault) => return Err(Refused::Failed(fault)),
            }
        }
    }

    async fn attempts_in_time<T, Fut>(&self, mut handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        self.attempts(|| {
            let attempt = timeout(self.timeout, handler());
            async { attempt.await.unwrap_or(Err(Fault::TimedOut)) }
        })
        .await
    }

    /// Under the first budget.
    ///
    /// # Errors
    /// Shutdown, or the last attempt's fault.
    pub async fn one<T, Fut>(&self, handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        let _permit = self.acquire(&self.first).await?;
        self.attempts(handler).await
    }

    /// Under both budgets.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub async fn two<T, Fut>(&self, handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        let _first = self.acquire(&self.first).await?;
        let _second = self.acquire(&self.second).await?;
        self.attempts(handler).await
    }

    /// Under the first budget, each attempt in time.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub async fn one_in_time<T, Fut>(&self, handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        let _permit = self.acquire(&self.first).await?;
        self.attempts_in_time(handler).await
    }

    /// Alone with its key, under the first budget.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub async fn keyed<T, Fut>(&self, key: &str, handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        let _alone = self.lock(key).await?;
        let _permit = self.acquire(&self.first).await?;
        self.attempts(handler).await
    }

    /// Alone with its key, under the first budget, each attempt in time.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub async fn keyed_in_time<T, Fut>(
        &self,
        key: &str,
        handler: impl FnMut() -> Fut,
    ) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        let _alone = self.lock(key).await?;
        let _permit = self.acquire(&self.first).await?;
        self.attempts_in_time(handler).await
    }

    async fn lock<'k>(&'k self, key: &'k str) -> Result<super::KeyGuard<'k>, Refused> {
        tokio::select! {
            biased;
            guard = self.keys.lock(key) => Ok(guard),
            () = self.stop.cancelled() => Err(Refused::Stopping),
        }
    }

    /// Under the first budget if a unit is free. The refusal does not yield; its caller must, or a tight loop of
    /// refusals starves the holders.
    ///
    /// # Errors
    /// As [`one`](Self::one), and `Overloaded`.
    pub async fn one_or_nothing<T, Fut>(&self, handler: impl FnMut() -> Fut) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        if self.stop.is_cancelled() {
            return Err(Refused::Stopping);
        }
        let _permit = self.first.try_acquire().map_err(|_| Refused::Overloaded)?;
        self.attempts(handler).await
    }
}
