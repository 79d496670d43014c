//! What the controllers of a part get for one term.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use cloudprovider::Term;
use component::{
    api_client::ControllerClients,
    events::EventRecorder,
    leader_election::{Fence, NotLeading},
};
use controller_kit::clients::TermFence;
use jiff::Timestamp;
use kube::Client;

use super::{Part, Writers};

/// Until when a part may write: while the daemon leads, and the part holds its Leases. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PartFence {
    daemon: TermFence,
    leases: Vec<Fence>,
}

impl From<Fence> for PartFence {
    /// Without Leases of other managers.
    fn from(fence: Fence) -> Self {
        Self { daemon: fence.into(), leases: Vec::new() }
    }
}

impl PartFence {
    pub(super) fn new(daemon: TermFence, leases: Vec<Fence>) -> Self {
        Self { daemon, leases }
    }

    /// The same client, but its writes fail once the term is over. Reads still work. For clients of other API servers, such
    /// as those of workload clusters, as well.
    pub fn guard(&self, client: Client) -> Client {
        self.leases.iter().fold(self.daemon.guard(client), |client, fence| fence.guard(client))
    }

    /// How long from now nobody else works on the part's objects, whatever becomes of this process. Zero after the term.
    pub fn alone_for(&self) -> Duration {
        let leases = self.leases.iter().map(Fence::alone_for);
        leases.chain([self.daemon.alone_for()]).min().unwrap_or_default()
    }

    /// Makes a call that changes something outside of the cluster. It is checked at each poll, so the call does not go on
    /// after the term.
    ///
    /// # Errors
    /// The term is over. The call was dropped, wherever it was.
    pub async fn pass<T>(&self, call: impl Future<Output = T>) -> Result<T, NotLeading> {
        let own = self.clone();
        let mut call = pin!(Term::new(move || !own.alone_for().is_zero()).scope(call));
        let poll = |cx: &mut Context<'_>| {
            if self.alone_for().is_zero() {
                return Poll::Ready(Err(NotLeading));
            }
            call.as_mut().poll(cx).map(Ok)
        };
        poll_fn(poll).await
    }
}

/// One term of a part.
#[derive(Clone, Debug)]
pub struct PartTerm {
    /// The part.
    pub part: &'static Part,
    /// Until when it may write.
    pub fence: PartFence,
    /// The part's clients. Their writes pass the fence.
    pub clients: ControllerClients,
    /// Records events. They are written through the fence.
    pub events: EventRecorder,
    /// When the part began, by the API server's clock.
    pub since: Timestamp,
    /// What the caches show of other managers' writes.
    pub writers: Writers,
}
