//! A semaphore whose permits go to keys in turns.

use std::{fmt, hash::Hash, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::fair_queue::FairQueue;

/// A semaphore whose permits go round robin over keys, such as namespaces: however many requests of one key wait, a request of
/// another key waits for one permit of each key at most. Within a key, requests are served in their order. The order is that
/// of [`FairQueue`].
///
/// Clones share the permits. A request whose future is dropped leaves its queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let permits = cloudprovider::FairPermits::new(2);
/// let permit = permits.acquire("team-a").await?;
/// drop(permit); // the next in turn gets it
/// # Ok::<(), cloudprovider::PermitsClosed>(())
/// # }).unwrap();
/// ```
pub struct FairPermits<K: Clone + Eq + Hash>(Arc<Mutex<State<K>>>);

/// A permit of [`FairPermits`]. When it is dropped, the next in turn gets it.
#[must_use = "a permit that is dropped goes to the next in turn"]
pub struct FairPermit<K: Clone + Eq + Hash> {
    /// The semaphore and the key. `None` if the permit was taken back.
    given_by: Option<(FairPermits<K>, K)>,
}

/// The permits are [closed](FairPermits::close).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are no permits any more")]
pub struct PermitsClosed;

struct State<K: Clone + Eq + Hash> {
    is_closed: bool,
    /// The number of the next request.
    next: u64,
    queue: FairQueue<K, Request<K>>,
}

struct Request<K: Clone + Eq + Hash> {
    number: u64,
    grant: oneshot::Sender<FairPermit<K>>,
}

impl<K: Clone + Eq + Hash> FairPermits<K> {
    /// So many permits.
    pub fn new(permits: usize) -> Self {
        Self(Arc::new(Mutex::new(State { is_closed: false, next: 0, queue: FairQueue::new(permits) })))
    }

    /// Waits for a permit, in the turn of `key`.
    ///
    /// # Errors
    /// The permits are closed.
    pub async fn acquire(&self, key: K) -> Result<FairPermit<K>, PermitsClosed> {
        let (grant, granted) = oneshot::channel();
        let number = {
            let mut state = self.lock();
            if state.is_closed {
                return Err(PermitsClosed);
            }
            let number = state.next;
            state.next += 1;
            // The queue has no limit, so it gives no request back.
            let _ = state.queue.add(key.clone(), Request { number, grant });
            number
        };
        let mut place = Place { permits: self, key, number, is_left: false };
        self.serve();
        let permit = granted.await.map_err(|_| PermitsClosed);
        place.is_left = true;
        permit
    }

    /// Ends all requests that wait, and refuses further ones. Permits that were given stay valid.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let queue = std::mem::replace(&mut state.queue, FairQueue::new(0));
        drop(state);
        drop(queue);
    }

    /// Whether the permits are closed.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Gives the free permits to the requests that are next.
    fn serve(&self) {
        loop {
            let Some((key, request)) = self.lock().queue.start_next() else { return };
            let permit = FairPermit { given_by: Some((self.clone(), key)) };
            // An error: the request has just been given up.
            if let Err(mut permit) = request.grant.send(permit)
                && let Some((_, key)) = permit.given_by.take()
            {
                self.lock().queue.end(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.0.lock()
    }
}

impl<K: Clone + Eq + Hash> Clone for FairPermits<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for FairPermits<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("FairPermits")
            .field("free", &state.queue.free())
            .field("waiting", &state.queue.waiting())
            .finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> Drop for FairPermit<K> {
    fn drop(&mut self) {
        if let Some((permits, key)) = self.given_by.take() {
            permits.lock().queue.end(&key);
            permits.serve();
        }
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for FairPermit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FairPermit")
    }
}

/// The place of a request in its queue, until it is served or given up.
struct Place<'a, K: Clone + Eq + Hash> {
    permits: &'a FairPermits<K>,
    key: K,
    number: u64,
    is_left: bool,
}

impl<K: Clone + Eq + Hash> Drop for Place<'_, K> {
    fn drop(&mut self) {
        if !self.is_left {
            self.permits.lock().queue.withdraw(&self.key, |request| request.number == self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<FairPermit<&'static str>, PermitsClosed>> + 'a>>;

    /// The answer, if there is one already.
    fn now(future: &mut Waiting<'_>) -> Option<Result<FairPermit<&'static str>, PermitsClosed>> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// A request that waits.
    fn waiting<'a>(permits: &'a FairPermits<&'static str>, key: &'static str) -> Waiting<'a> {
        let mut request: Waiting<'a> = Box::pin(permits.acquire(key));
        assert!(now(&mut request).is_none(), "{key} has to wait");
        request
    }

    /// A request that is served at once.
    fn taken(permits: &FairPermits<&'static str>, key: &'static str) -> FairPermit<&'static str> {
        let mut request: Waiting<'_> = Box::pin(permits.acquire(key));
        now(&mut request).expect("a permit is free").expect("it is not closed")
    }

    /// Who gets a permit that comes back again and again.
    fn served(first: FairPermit<&'static str>, mut requests: Vec<(&'static str, Waiting<'_>)>) -> String {
        let mut order = Vec::new();
        let mut held = Some(first);
        while held.take().is_some() {
            let next = requests.iter_mut().enumerate().find_map(|(i, (_, one))| Some((i, now(one)?)));
            if let Some((i, permit)) = next {
                held = Some(permit.expect("it is not closed"));
                order.push(requests.remove(i).0);
            }
        }
        order.join(" ")
    }

    #[test]
    fn a_key_with_many_requests_does_not_delay_another_one() {
        let permits = FairPermits::new(1);
        let first = taken(&permits, "a");
        let mut requests: Vec<_> = (0..1000).map(|_| ("a", waiting(&permits, "a"))).collect();
        requests.push(("b", waiting(&permits, "b")));
        requests.push(("b", waiting(&permits, "b")));
        requests.push(("c", waiting(&permits, "c")));
        let order = served(first, requests);
        assert!(order.starts_with("b c a b a a a"), "{}", &order[..40]);
        assert_eq!(order.split(' ').count(), 1003, "everybody is served");
        assert_eq!(format!("{permits:?}"), "FairPermits { free: 1, waiting: 0, .. }");
    }

    #[test]
    fn a_key_that_comes_again_at_once_does_not_overtake() {
        let permits = FairPermits::new(1);
        let first = taken(&permits, "a");
        let mut b = waiting(&permits, "b");
        let mut a = waiting(&permits, "a");
        drop(first);
        let b = now(&mut b).expect("its turn").expect("open");
        let again = waiting(&permits, "b");
        drop(b);
        assert!(now(&mut a).is_some_and(|answer| answer.is_ok()));
        drop(again);
    }

    #[test]
    fn a_request_that_is_given_up_leaves_its_queue_and_loses_no_permit() {
        let permits = FairPermits::new(1);
        let first = taken(&permits, "a");
        let (given_up, mut stays) = (waiting(&permits, "a"), waiting(&permits, "a"));
        let alone = waiting(&permits, "b");
        drop((given_up, alone));
        assert_eq!(format!("{permits:?}"), "FairPermits { free: 0, waiting: 1, .. }");
        drop(first);
        // It has the permit and is dropped before it takes it out.
        let granted = now(&mut stays).expect("its turn");
        let unseen = waiting(&permits, "a");
        drop(granted);
        drop(unseen);
        assert_eq!(format!("{permits:?}"), "FairPermits { free: 1, waiting: 0, .. }");
    }

    #[test]
    fn closed_permits_refuse_those_who_wait_and_those_who_come() {
        let permits = FairPermits::new(1);
        let first = taken(&permits, "a");
        let mut request = waiting(&permits, "b");
        permits.close();
        assert_eq!(now(&mut request).map(Result::err), Some(Some(PermitsClosed)));
        let mut late: Waiting<'_> = Box::pin(permits.acquire("c"));
        assert_eq!(now(&mut late).map(Result::err), Some(Some(PermitsClosed)));
        assert!(permits.is_closed());
        drop(first);
    }

    #[tokio::test]
    async fn no_more_than_the_permits_are_held_at_once() {
        let permits = FairPermits::new(3);
        let held = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let tasks: Vec<_> = (0..200)
            .map(|n| {
                let (permits, held) = (permits.clone(), Arc::clone(&held));
                tokio::spawn(async move {
                    let permit = permits.acquire(n % 7).await.expect("open");
                    let now = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                    tokio::task::yield_now().await;
                    held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(permit);
                    now
                })
            })
            .collect();
        let mut most = 0;
        for task in tasks {
            most = most.max(task.await.expect("no panic"));
        }
        assert_eq!(most, 3);
    }
}
