//! Answers of vCenter that many machines need at the same time, kept for a moment.

use std::{collections::HashMap, future::Future, hash::Hash, sync::Arc, time::Duration};

use cloudprovider::Result;
use parking_lot::Mutex;
use tokio::time::Instant;

type Entry<V> = Arc<tokio::sync::Mutex<Option<(Instant, Arc<V>)>>>;

/// Answers by what they are about. Each is read by one caller while the others wait for it.
#[derive(Debug)]
pub(crate) struct Cached<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
    lasts: Duration,
}

impl<K: Hash + Eq, V> Cached<K, V> {
    /// Answers that are kept for this long.
    pub(crate) fn new(lasts: Duration) -> Self {
        Self { entries: Mutex::default(), lasts }
    }

    /// The answer about `key`, which `read` reads unless it is known.
    ///
    /// # Errors
    /// Those of `read`, which are not kept.
    pub(crate) async fn get(&self, key: K, read: impl Future<Output = Result<V>>) -> Result<Arc<V>> {
        let entry = Arc::clone(self.entries().entry(key).or_default());
        let mut known = entry.lock().await;
        if let Some((since, value)) = &*known
            && since.elapsed() < self.lasts
        {
            return Ok(Arc::clone(value));
        }
        *known = None;
        let value = Arc::new(read.await?);
        *known = Some((Instant::now(), Arc::clone(&value)));
        drop(known);
        self.drop_old();
        Ok(value)
    }

    /// Drops what is known no longer. What somebody reads at the moment stays.
    fn drop_old(&self) {
        let lasts = self.lasts;
        let is_known = |known: &Option<(Instant, Arc<V>)>| {
            known.as_ref().is_some_and(|(since, _)| since.elapsed() < lasts)
        };
        self.entries().retain(|_, entry| entry.try_lock().map_or(true, |known| is_known(&known)));
    }

    /// Forgets everything: something was not as an answer said.
    pub(crate) fn clear(&self) {
        self.entries().clear();
    }

    fn entries(&self) -> parking_lot::MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.entries.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cloudprovider::{Error, ErrorKind};
    use futures::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_callers_read_once() {
        let (cached, reads) = (Cached::new(Duration::from_secs(30)), AtomicUsize::new(0));
        let get = || {
            cached.get("key", async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(reads.fetch_add(1, Ordering::Relaxed))
            })
        };
        let all = join_all((0..100).map(|_| get())).await;
        assert!(all.into_iter().all(|one| one.is_ok_and(|one| *one == 0)));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(get().await.ok().as_deref(), Some(&1), "read again when it is old");
        cached.clear();
        assert_eq!(get().await.ok().as_deref(), Some(&2), "and when it was forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_takes_no_room() {
        let cached = Cached::new(Duration::from_secs(30));
        for key in 0..10 {
            cached.get(key, async { Ok(key) }).await.expect("read");
        }
        assert_eq!(cached.entries().len(), 10);
        tokio::time::sleep(Duration::from_secs(30)).await;
        cached.get(10, async { Ok(10) }).await.expect("read");
        assert_eq!(cached.entries().len(), 1);
    }

    #[tokio::test]
    async fn an_error_is_not_kept() {
        let cached: Cached<&str, u32> = Cached::new(Duration::from_secs(30));
        let failed = cached.get("key", async { Err(Error::new(ErrorKind::Unavailable, "away")) }).await;
        assert!(failed.is_err());
        assert_eq!(cached.get("key", async { Ok(1) }).await.ok().as_deref(), Some(&1));
    }
}
