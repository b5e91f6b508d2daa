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

use super::{KeyGuard, KeyMutexes};

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

    /// The first budget, for whoever wants it full.
    #[must_use]
    pub fn first(&self) -> &Semaphore {
        &self.first
    }

    /// Waits for a key and holds it, without a handler.
    pub async fn hold<'k>(&'k self, key: &'k str) -> KeyGuard<'k> {
        self.keys.lock(key).await
    }

    /// Refuses new calls and waits for those under way.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.first.close();
        self.second.close();
        self.tracker.close();
        self.tracker.wait().await;
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

    /// Alone with its key, under both budgets.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub async fn keyed_two<T, Fut>(
        &self,
        key: &str,
        handler: impl FnMut() -> Fut,
    ) -> Result<T, Refused>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let _tracked = self.tracker.token();
        let _alone = self.lock(key).await?;
        let _first = self.acquire(&self.first).await?;
        let _second = self.acquire(&self.second).await?;
        self.attempts(handler).await
    }

    async fn lock<'k>(&'k self, key: &'k str) -> Result<KeyGuard<'k>, Refused> {
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    async fn done() -> Result<u32, Fault> {
        Ok(7)
    }

    #[tokio::test]
    async fn every_form_answers() {
        let composed = Composed::new(1, 1);
        assert_eq!(composed.one(done).await, Ok(7));
        assert_eq!(composed.two(done).await, Ok(7));
        assert_eq!(composed.one_in_time(done).await, Ok(7));
        assert_eq!(composed.keyed("a", done).await, Ok(7));
        assert_eq!(composed.keyed_in_time("a", done).await, Ok(7));
        assert_eq!(composed.keyed_two("a", done).await, Ok(7));
        assert_eq!(composed.one_or_nothing(done).await, Ok(7));
        assert_eq!(composed.first().available_permits(), 1);
    }

    #[tokio::test]
    async fn a_transient_fault_is_tried_again_and_others_are_not() {
        let composed = Composed::new(1, 1);
        for (fault, attempts) in [(Fault::Transient, 3), (Fault::Permanent, 1)] {
            let mut made = 0;
            let failed = composed
                .one(|| {
                    made += 1;
                    async move { Err::<u32, _>(fault) }
                })
                .await;
            assert_eq!((failed, made), (Err(Refused::Failed(fault)), attempts));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_ends_in_time() {
        let composed = Composed::new(1, 1);
        let late = composed.one_in_time(pending::<Result<u32, Fault>>).await;
        assert_eq!(late, Err(Refused::Failed(Fault::TimedOut)));
    }

    #[tokio::test]
    async fn after_shutdown_nothing_starts() {
        let composed = Composed::new(1, 1);
        composed.shutdown().await;
        assert_eq!(composed.one(done).await, Err(Refused::Stopping));
        assert_eq!(composed.one_or_nothing(done).await, Err(Refused::Stopping));
    }
}
