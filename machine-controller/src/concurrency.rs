//! How many pieces of work there are at once.
//!
//! Each piece of work holds its object in several forms, about 0.1 MB. When many objects are due at once,
//! most would wait for their turn to make a request to the API server. So there are permits for as much work
//! as keeps those requests busy. Work whose call to the cloud takes long leaves its permit, and goes on
//! without one. So calls that hang hold up other objects for a moment only, and not until the calls are given
//! up.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::writer::MAX_REQUESTS;

/// How many pieces of work there are at a time, besides those that have left their permits.
const PERMITS: usize = 2 * MAX_REQUESTS;

/// After this time a call takes long.
const LONG: Duration = Duration::from_millis(200);

/// How many objects are worked on at the same time, those included that wait long for their cloud. A
/// namespace gets no more of these places than it leaves free for the others: half of them if it is alone.
const MAX_AT_ONCE: usize = 2_000;

/// The permits that are left.
#[derive(Debug)]
pub(super) struct Concurrency(Arc<Semaphore>);

/// The permit of one piece of work, which ends with it.
#[derive(Debug)]
pub(super) struct Permit(Mutex<Option<OwnedSemaphorePermit>>);

/// Whether a namespace with so many objects at work may have another one, of all that are at work.
pub(super) fn has_place(at_work: usize) -> impl Fn(usize) -> bool {
    let free = MAX_AT_ONCE.saturating_sub(at_work);
    move |of_namespace| of_namespace < free
}

impl Default for Concurrency {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PERMITS)))
    }
}

impl Concurrency {
    /// A permit, if there is one.
    pub(super) fn take(&self) -> Option<Permit> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Permit::new)
    }

    /// Waits until there is a permit. It takes none.
    pub(super) async fn free(&self) {
        // It is never closed.
        drop(self.0.acquire().await);
    }
}

impl Permit {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Mutex::new(Some(permit)))
    }

    /// Makes a call to the cloud, and leaves the permit if that takes long.
    pub(super) async fn call<T>(&self, mut call: impl Future<Output = T> + Unpin) -> T {
        match timeout(LONG, &mut call).await {
            Ok(answer) => answer,
            Err(_) => {
                drop(self.0.lock().take());
                call.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures::FutureExt as _;
    use tokio::time::sleep;

    use super::*;

    fn all_of(concurrency: &Concurrency) -> Vec<Permit> {
        std::iter::from_fn(|| concurrency.take()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_is_left_at_the_end_of_the_work() {
        let concurrency = Concurrency::default();
        let mut permits = all_of(&concurrency);
        assert_eq!(permits.len(), PERMITS);
        assert!(concurrency.free().now_or_never().is_none());
        let permit = permits.pop().expect("a seat");
        assert_eq!(permit.call(ready(7)).await, 7);
        assert!(concurrency.take().is_none(), "the work goes on after the call");
        drop(permit);
        concurrency.free().await;
        assert_eq!(all_of(&concurrency).len(), 1, "waiting takes none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_is_left_during_a_call_that_takes_long() {
        let concurrency = Concurrency::default();
        let slow = |permit: Permit| async move {
            let call = async {
                sleep(LONG * 3).await;
                7
            };
            permit.call(Box::pin(call)).await
        };
        let calls: Vec<_> =
            all_of(&concurrency).into_iter().map(|permit| tokio::spawn(slow(permit))).collect();
        sleep(Duration::from_millis(199)).await;
        assert!(concurrency.take().is_none());
        concurrency.free().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(all_of(&concurrency).len(), PERMITS);
        for call in calls {
            assert_eq!(call.await.expect("it ends"), 7);
        }
        assert_eq!(all_of(&concurrency).len(), PERMITS, "no seat is left twice");
    }
}
