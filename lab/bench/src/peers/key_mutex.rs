//! A mutex a key, as it is written by hand: a map of shared mutexes, each forgotten by whoever was the last to use it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Map = HashMap<String, Arc<tokio::sync::Mutex<()>>>;

/// The map.
#[derive(Debug, Default)]
pub struct KeyMutexes {
    map: Mutex<Map>,
}

impl KeyMutexes {
    /// Waits until nobody else holds `key`.
    pub async fn lock<'k>(&'k self, key: &'k str) -> KeyGuard<'k> {
        // Before the first await: a caller that leaves while it waits must not leave an entry behind.
        let mut guard = KeyGuard {
            of: self,
            key,
            mutex: self.mutex(key),
            held: None,
        };
        guard.held = Some(Arc::clone(&guard.mutex).lock_owned().await);
        guard
    }

    fn mutex(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mutex) = map.get(key) {
            return Arc::clone(mutex);
        }
        let mutex = Arc::new(tokio::sync::Mutex::new(()));
        map.insert(key.to_owned(), Arc::clone(&mutex));
        mutex
    }

    /// How many keys the map knows.
    #[must_use]
    pub fn len(&self) -> usize {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.len()
    }

    /// Whether the map knows no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Holds a key, or waits for it.
#[derive(Debug)]
pub struct KeyGuard<'k> {
    of: &'k KeyMutexes,
    key: &'k str,
    mutex: Arc<tokio::sync::Mutex<()>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Drop for KeyGuard<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut map = self.of.map.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's and this one: nobody else holds or awaits the key.
        if Arc::strong_count(&self.mutex) == 2 {
            map.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_held_by_one_and_then_forgotten() {
        let keys = KeyMutexes::default();
        let first = keys.lock("a").await;
        let mut second = std::pin::pin!(keys.lock("a"));
        assert!(futures_pending(second.as_mut()).await);
        drop(keys.lock("b").await);
        drop(first);
        drop(second.await);
        assert!(keys.is_empty());
    }

    #[tokio::test]
    async fn who_leaves_while_waiting_leaves_nothing_behind() {
        let keys = KeyMutexes::default();
        let first = keys.lock("a").await;
        {
            let mut second = std::pin::pin!(keys.lock("a"));
            assert!(futures_pending(second.as_mut()).await);
        }
        drop(first);
        assert!(keys.is_empty());
    }

    async fn futures_pending<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending()))
            .await
    }
}
