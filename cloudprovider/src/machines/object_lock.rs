//! One step of one object at a time, also where the calls of a step go on after it.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::Mark;
use crate::{Error, ErrorKind, Result};

/// How long a step waits for the end of a call that an earlier step of the same object has left behind. The
/// rest of its minute is for its own calls.
const MAX_WAIT: Duration = Duration::from_secs(20);

tokio::task_local! {
    static CURRENT: ObjectLock;
}

/// The lock of one machine or cluster. The adapter takes it for each step, so no two steps of one object run
/// at the same time.
///
/// A step that the daemon gives up is dropped. A task that it has spawned goes on, and a call that was sent
/// cannot be taken back. So a task that changes the cloud takes the lock along, and the next step of the
/// object waits for its end. Long work that a later step finds again, such as a clone or an import, is a task
/// in the status and takes no lock along.
///
/// ```
/// # use cloudprovider::machines::ObjectLock;
/// # async fn send() {}
/// # async fn step() {
/// let lock = ObjectLock::current();
/// let sent = tokio::spawn(async move {
///     let _lock = lock;
///     send().await;
/// });
/// # sent.await.expect("no panic");
/// # }
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(step());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ObjectLock {
    _held: Option<Arc<OwnedMutexGuard<()>>>,
}

impl ObjectLock {
    /// The lock that the current step holds. Outside of a step it locks nothing.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Makes a step that holds this lock, which is [`current`](Self::current) for all that it does in its own
    /// task.
    pub async fn scope<T>(self, step: impl Future<Output = T>) -> T {
        CURRENT.scope(self, step).await
    }
}

/// Namespace and UID. Objects of several namespaces may claim one UID.
type Key = (String, String);

/// The locks of a provider's machines and clusters: see [`Machines::object_locks`](super::Machines::object_locks).
/// An object that has no step takes no memory for long.
#[derive(Debug, Default)]
pub struct ObjectLocks {
    locks: Mutex<HashMap<Key, Weak<AsyncMutex<()>>>>,
}

impl ObjectLocks {
    /// The lock of the object with this mark, once all that an earlier step has left behind has ended.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] after 20 s. The daemon backs off, since each try takes a place of its namespace meanwhile.
    pub async fn lock(&self, object: &Mark) -> Result<ObjectLock> {
        match tokio::time::timeout(MAX_WAIT, self.of(object).lock_owned()).await {
            Ok(held) => Ok(ObjectLock { _held: Some(Arc::new(held)) }),
            Err(_) => {
                let words = "an earlier call for this object is still under way";
                Err(Error::new(ErrorKind::Timeout, words))
            }
        }
    }

    fn of(&self, object: &Mark) -> Arc<AsyncMutex<()>> {
        let key = (object.namespace.clone(), object.uid.clone());
        let mut locks = self.locks.lock();
        if let Some(lock) = locks.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        // Seldom, so that many objects do not take quadratic time.
        if locks.len() == locks.capacity() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(key, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    fn mark(namespace: &str, uid: &str) -> Mark {
        Mark::machine(uid, namespace, "prod", "one")
    }

    #[tokio::test]
    async fn only_the_same_object_waits() {
        let locks = ObjectLocks::default();
        let lock =
            async |namespace: &str, uid: &str| locks.lock(&mark(namespace, uid)).await.expect("it is free");
        let held = lock("default", "u-1").await;
        for (namespace, uid) in [("default", "u-2"), ("other", "u-1")] {
            assert!(lock(namespace, uid).now_or_never().is_some(), "{namespace} {uid}");
        }
        let clone = held.clone();
        for one in [held, clone] {
            assert!(lock("default", "u-1").now_or_never().is_none(), "somebody holds it");
            drop(one);
        }
        assert!(lock("default", "u-1").now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_an_error_after_which_the_daemon_backs_off() {
        let locks = ObjectLocks::default();
        let _held = locks.lock(&mark("default", "u-1")).await.expect("it is free");
        let began = Instant::now();
        let error = locks.lock(&mark("default", "u-1")).await.expect_err("somebody holds it");
        assert_eq!((error.kind(), error.retry_after()), (ErrorKind::Timeout, None));
        assert_eq!(began.elapsed(), MAX_WAIT);
    }

    #[tokio::test]
    async fn objects_without_a_step_are_forgotten() {
        let locks = ObjectLocks::default();
        let held = locks.lock(&mark("default", "held")).await.expect("it is free");
        for n in 0..1000 {
            drop(locks.lock(&mark("default", &n.to_string())).await);
        }
        assert!(locks.locks.lock().len() < 100, "{:?}", locks.locks.lock().len());
        assert!(locks.lock(&mark("default", "held")).now_or_never().is_none(), "somebody holds it");
        drop(held);
    }
}
