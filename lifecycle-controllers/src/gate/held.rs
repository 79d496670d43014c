//! Several Leases that are held together: all of them, or none.

use std::{collections::VecDeque, pin::pin, time::Duration};

use component::leader_election::{Elector, Fence, Leadership};
use futures::future::{join_all, select_all};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long the first Leases are held while another one is not to be had. A third of a Lease's usual duration.
const PATIENCE: Duration = Duration::from_secs(5);

/// Leases that this process holds.
#[derive(Debug, Default)]
pub(super) struct Held(Vec<Leadership>);

impl Held {
    /// One fence for each.
    pub(super) fn fences(&self) -> Vec<Fence> {
        self.0.iter().map(|leadership| leadership.fence().clone()).collect()
    }

    /// Renews all until one of them is lost. May be dropped at any time.
    pub(super) async fn renew(&mut self) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.iter_mut().map(|leadership| Box::pin(leadership.renew()))).await;
    }

    /// Releases all, so that others take them at once. Only after the work under them has ended.
    pub(super) async fn release(self) {
        join_all(self.0.into_iter().map(Leadership::release)).await;
    }

    /// Ends the terms without releasing the Leases. See [`Leadership::abandon`].
    pub(super) fn abandon(self) {
        self.0.into_iter().for_each(Leadership::abandon);
    }

    /// Holds all these Leases, however long that takes. `candidate` makes the candidate for the Lease in a namespace. `None`:
    /// `stop` was cancelled, and none is held.
    ///
    /// The candidate waits without limit for the first Lease only, while it holds none. Where a further one is not to be had
    /// soon, it releases what it has, and waits for that one first: the Go manager of the other namespace can work meanwhile.
    pub(super) async fn all(
        namespaces: impl IntoIterator<Item = &str>,
        candidate: impl Fn(&str) -> Elector,
        stop: &CancellationToken,
    ) -> Option<Self> {
        let mut order: VecDeque<&str> = namespaces.into_iter().collect();
        loop {
            let mut held = Self::default();
            let mut missing = None;
            for (index, namespace) in order.iter().enumerate() {
                match Box::pin(held.with(candidate(namespace), stop)).await {
                    Some(leadership) => held.0.push(leadership),
                    None => {
                        missing = Some(index);
                        break;
                    }
                }
            }
            let Some(missing) = missing else { return Some(held) };
            held.release().await;
            if stop.is_cancelled() {
                return None;
            }
            order.rotate_left(missing);
        }
    }

    /// Acquires one more while the others are renewed. `None`: it is not to be had soon, one of the others was lost, or `stop`
    /// was cancelled.
    async fn with(&mut self, elector: Elector, stop: &CancellationToken) -> Option<Leadership> {
        let is_first = self.0.is_empty();
        let limit = stop.child_token();
        let mut acquiring = pin!(elector.acquire(&limit));
        tokio::select! {
            got = &mut acquiring => return got,
            () = self.renew() => {}
            () = sleep(PATIENCE), if !is_first => {}
        }
        // The candidate gives back what it may have acquired meanwhile.
        limit.cancel();
        if let Some(late) = acquiring.await {
            late.release().await;
        }
        None
    }
}
