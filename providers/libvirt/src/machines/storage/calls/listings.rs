//! Listings and refreshes of pools that several steps share.
//!
//! Each of them goes through all volumes of a pool. With one for each machine, many machines at once would
//! cost the square of their number. So all who ask while a listing is on its way wait for the next one, and
//! share it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync;

use super::CallResult;

/// The names of all volumes of a pool at one moment.
pub(crate) type Names = Arc<[String]>;

/// The listings of the pools of one hypervisor, or their refreshes, with answers of the type `T`.
#[derive(Debug)]
pub(super) struct Listings<T> {
    pools: Mutex<HashMap<String, Arc<OfPool<T>>>>,
    /// Counts questions and listings, in the order in which they begin.
    clock: AtomicU64,
}

#[derive(Debug)]
struct OfPool<T> {
    /// The holder of the lock may list. The last listing is kept while a caller waits that may use it.
    turn: sync::Mutex<Option<Listing<T>>>,
    asking: AtomicUsize,
}

#[derive(Debug)]
struct Listing<T> {
    began: u64,
    answer: CallResult<T>,
}

impl<T> Default for Listings<T> {
    fn default() -> Self {
        Self { pools: Mutex::default(), clock: AtomicU64::default() }
    }
}

impl<T> Default for OfPool<T> {
    fn default() -> Self {
        Self { turn: sync::Mutex::new(None), asking: AtomicUsize::default() }
    }
}

/// Counts a caller that waits, until it has its answer or is dropped.
struct Asking<'a>(&'a AtomicUsize);

impl<'a> Asking<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    fn is_last(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Clone> Listings<T> {
    /// The answer of a listing of the pool that began after this call: one that others wait for too, or that
    /// of `list`.
    pub(super) async fn share(&self, pool: &str, list: impl Future<Output = CallResult<T>>) -> CallResult<T> {
        let asked = self.tick();
        let of_pool = {
            let mut pools = self.pools.lock();
            Arc::clone(pools.entry(pool.to_owned()).or_default())
        };
        let asking = Asking::new(&of_pool.asking);
        let mut last = of_pool.turn.lock().await;
        let answer = match last.as_ref().filter(|listing| listing.began > asked) {
            Some(listing) => listing.answer.clone(),
            None => {
                let began = self.tick();
                let answer = list.await;
                *last = Some(Listing { began, answer: answer.clone() });
                answer
            }
        };
        if asking.is_last() {
            *last = None;
        }
        answer
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use futures::future::join_all;
    use tokio::time::sleep;

    use super::*;
    use crate::machines::storage::calls::CallError;

    const TIME: Duration = Duration::from_secs(1);

    /// Lists with an answer that has the number of the listing.
    async fn list(count: &Cell<usize>) -> CallResult<Names> {
        count.set(count.get() + 1);
        let number = count.get();
        sleep(TIME).await;
        if number == 4 { Err(CallError::NoPool) } else { Ok([number.to_string()].into()) }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_meanwhile_gets_the_next_one() {
        let (listings, count) = (Listings::default(), Cell::new(0));
        let ask = async |after: Duration| {
            sleep(after).await;
            let names = listings.share("a", list(&count)).await;
            names.map(|names| names[0].clone())
        };
        let answers = join_all([0, 1, 2, 3].map(|n| ask(TIME * n / 4))).await;
        assert_eq!(answers, ["1", "2", "2", "2"].map(|number| Ok(number.to_owned())));
        assert_eq!(ask(TIME).await.as_deref(), Ok("3"), "nothing is kept");
        let pool = Arc::clone(&listings.pools.lock()["a"]);
        assert!(pool.turn.lock().await.is_none());
        let errors = join_all([ask(TIME), ask(TIME * 3 / 2)]).await;
        assert_eq!(errors, [Err(CallError::NoPool), Ok("5".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_given_up_does_not_hold_up_others() {
        let (listings, count) = (Listings::default(), Cell::new(0));
        let given_up = tokio::time::timeout(TIME / 2, listings.share("a", list(&count)));
        let (given_up, other, of_other_pool) = tokio::join!(
            given_up,
            async {
                sleep(TIME / 4).await;
                listings.share("a", list(&count)).await
            },
            listings.share("b", list(&count)),
        );
        assert!(given_up.is_err());
        assert_eq!(other.as_deref(), Ok(&["3".to_owned()][..]));
        assert_eq!(of_other_pool.as_deref(), Ok(&["2".to_owned()][..]));
    }
}
