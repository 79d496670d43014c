//! One step of one object at a time, also where the calls of a step go on after it.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// How long a step waits for the end of a call that an earlier step of the same object has left behind.
const MAX_WAIT_FOR_CALL: Duration = Duration::from_secs(20);

tokio::task_local! {
    static CURRENT: ObjectLock;
}

/// The lock of an object. Its step holds it, and so does each call that the step leaves behind: a call that was sent cannot be taken back.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectLock {
    _held: Option<Arc<OwnedMutexGuard<()>>>,
}

impl ObjectLock {
    /// The lock of the step that is made here. A task that the step spawns takes it along.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }
}

/// The locks of all objects that are in work, by namespace and UID.
#[derive(Debug)]
pub(crate) struct ObjectLocks {
    /// The error of a step that waits for too long.
    busy: &'static str,
    locks: Mutex<HashMap<(String, String), Arc<AsyncMutex<()>>>>,
}

impl ObjectLocks {
    /// `busy` is the error of a step that waits for too long.
    pub(crate) fn new(busy: &'static str) -> Self {
        Self { busy, locks: Mutex::default() }
    }

    /// Makes a step of an object, after the last call of an earlier step has ended.
    ///
    /// # Errors
    /// Those of the step, and [`ErrorKind::Timeout`] if an earlier call does not end.
    pub(crate) async fn step<T>(&self, object: &Mark, step: impl Future<Output = Result<T>>) -> Result<T> {
        let owner = (object.namespace.clone(), object.uid.clone());
        let lock = Arc::clone(self.locks.lock().entry(owner).or_default());
        let Ok(held) = tokio::time::timeout(MAX_WAIT_FOR_CALL, lock.lock_owned()).await else {
            return Err(Error::new(ErrorKind::Timeout, self.busy));
        };
        let answer = CURRENT.scope(ObjectLock { _held: Some(Arc::new(held)) }, step).await;
        // A step that waits, and a call that goes on, have a clone.
        self.locks.lock().retain(|_, lock| Arc::strong_count(lock) > 1);
        answer
    }
}
