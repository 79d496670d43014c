//! Permits for work that only a few may do at the same time. Clients that wait get them in rotation, so that a
//! client with much work delays only itself.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::source::Source;

/// Gives permits. Clones share them.
///
/// A client first takes one of its own permits, and queues for a common one only then. So the common queue has few places for each
/// client, however many of its requests wait.
#[derive(Clone, Debug)]
pub(super) struct FairPermits {
    common: Arc<Semaphore>,
    of_one_client: usize,
    /// The permits of each client that has or awaits one.
    clients: Arc<Mutex<HashMap<Source, Arc<Semaphore>>>>,
}

/// The permit for one piece of work. It ends when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _common: OwnedSemaphorePermit,
    _of_client: OwnedSemaphorePermit,
}

impl FairPermits {
    /// `all` permits at the same time, and `of_one_client` for each client.
    pub(super) fn new(all: usize, of_one_client: usize) -> Self {
        Self { common: Arc::new(Semaphore::new(all)), of_one_client, clients: Arc::default() }
    }

    /// Waits for a permit. Callers must limit how many of them wait. `None`: never happens.
    pub(super) async fn acquire(&self, source: Source) -> Option<Permit> {
        let of_client = self.of_client(source).acquire_owned().await.ok()?;
        let common = self.common.clone().acquire_owned().await.ok()?;
        Some(Permit { _common: common, _of_client: of_client })
    }

    fn of_client(&self, source: Source) -> Arc<Semaphore> {
        let mut clients = self.clients.lock();
        // Permits and those who wait for them share the semaphore.
        clients.retain(|_, permits| Arc::strong_count(permits) > 1);
        let new = || Arc::new(Semaphore::new(self.of_one_client));
        clients.entry(source).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;

    use super::*;

    fn client(last: u8) -> Source {
        Source::Address(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test]
    async fn clients_get_permits_in_rotation() {
        let permits = FairPermits::new(1, 1);
        let first = permits.acquire(client(1)).await.expect("a permit");
        let order = Mutex::new(Vec::new());
        let work = async |last: u8| {
            let permit = permits.acquire(client(last)).await.expect("a permit");
            order.lock().push(last);
            tokio::task::yield_now().await;
            drop(permit);
        };
        let all = futures::future::join_all([1, 1, 1, 1, 2, 2, 3].map(work));
        let end = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        tokio::join!(all, end);
        assert_eq!(*order.lock(), [2, 3, 1, 2, 1, 1, 1]);
    }

    #[tokio::test]
    async fn one_client_has_a_share() {
        let permits = FairPermits::new(3, 2);
        let acquire = |last: u8| permits.acquire(client(last)).now_or_never().flatten();
        let held = [acquire(1), acquire(1)];
        assert!(held.iter().all(Option::is_some));
        assert!(acquire(1).is_none(), "it has its share");
        let other = acquire(2);
        assert!(other.is_some());
        assert!(acquire(3).is_none(), "there are no more");
        drop(held);
        assert!(acquire(3).is_some() && acquire(1).is_some());
        drop(other);
        assert_eq!(permits.common.available_permits(), 3);
    }

    #[tokio::test]
    async fn a_request_that_waits_no_more_leaves_nothing() {
        let permits = FairPermits::new(1, 1);
        let first = permits.acquire(client(1)).await;
        let mut waiting = [1, 2, 2].map(|last| Box::pin(permits.acquire(client(last))));
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        drop(waiting);
        // A request that got its permit but was never polled again.
        let mut given = Box::pin(permits.acquire(client(2)));
        assert!(futures::poll!(&mut given).is_pending());
        drop(first);
        drop(given);
        assert!(permits.acquire(client(3)).now_or_never().flatten().is_some());
        assert_eq!(permits.common.available_permits(), 1);
        assert_eq!(permits.clients.lock().len(), 1, "only the last client, until the next one comes");
    }
}
