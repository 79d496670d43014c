//! Locks by name.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// A lock for each name, which one holds alone or many share. A name that nobody holds or waits for takes no memory for
/// long.
#[derive(Debug, Default)]
pub(super) struct NameLocks(Mutex<HashMap<String, Weak<RwLock<()>>>>);

/// Holds a lock together with others until it is dropped.
pub(super) type Shared = OwnedRwLockReadGuard<()>;

/// Holds a lock alone until it is dropped.
pub(super) type Alone = OwnedRwLockWriteGuard<()>;

impl NameLocks {
    /// Waits until nobody else holds the lock of this name.
    pub(super) async fn lock(&self, name: &str) -> Alone {
        self.of(name).write_owned().await
    }

    /// Waits until nobody holds the lock of this name alone.
    pub(super) async fn share(&self, name: &str) -> Shared {
        self.of(name).read_owned().await
    }

    /// Locks this name if nobody else holds it.
    pub(super) fn try_lock(&self, name: &str) -> Option<Alone> {
        self.of(name).try_write_owned().ok()
    }

    fn of(&self, name: &str) -> Arc<RwLock<()>> {
        let mut locks = self.0.lock();
        if let Some(lock) = locks.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        // Seldom, so that many names do not take quadratic time.
        if locks.len() == locks.capacity() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(name.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn only_the_same_name_waits() {
        let locks = NameLocks::default();
        let a = locks.lock("a").await;
        let b = locks.share("b").now_or_never().expect("nobody holds it");
        assert!(locks.lock("a").now_or_never().is_none(), "somebody holds it");
        assert!(locks.share("a").now_or_never().is_none() && locks.try_lock("a").is_none());
        let c = locks.share("b").now_or_never().expect("it is shared");
        assert!(locks.try_lock("b").is_none(), "it is shared");
        drop((a, b, c));
        assert!(locks.try_lock("a").is_some() && locks.try_lock("b").is_some());
        for n in 0..1000 {
            drop(locks.lock(&n.to_string()).await);
        }
        assert!(locks.0.lock().len() < 100, "names are forgotten");
    }
}
