//! The announcer, as its users see it.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::{
    error::{Error, Result},
    interface::{InterfaceChoice, fault},
    limit::Limit,
    request::{Entries, Held, HoldRequest, HolderId, ReleaseRequest, Request},
};

/// Holds addresses on the host's interfaces. A clone is the same announcer.
///
/// It works in a task of the runtime that [`hold`](Self::hold) is called in first. If the last clone is dropped, all its addresses
/// are released.
#[derive(Clone, Debug, Default)]
pub struct Announcer(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    requests: Mutex<Option<mpsc::UnboundedSender<Request>>>,
    entries: Entries,
    limit: Limit,
}

/// An address that is held, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldAddress {
    /// The address.
    pub address: IpAddr,
    /// The name of the interface that has it.
    pub interface: String,
    /// Who holds it.
    pub holders: Vec<HolderId>,
    /// Why the interface may not have it at the moment.
    pub fault: Option<Error>,
}

impl Announcer {
    /// An announcer of its own, for tests. Two announcers on one host do not know of each other.
    pub fn new() -> Self {
        Self::default()
    }

    /// The announcer of this process. Providers that follow each other share it, so an address stays while the next
    /// provider takes it over.
    pub fn of_process() -> &'static Self {
        static ANNOUNCER: OnceLock<Announcer> = OnceLock::new();
        ANNOUNCER.get_or_init(Self::new)
    }

    /// From now on no address stays on this host for longer than `may_hold_for` says, even if the process is killed. It is
    /// asked each time that an address is set or renewed, and answers how long from then on this process may hold addresses:
    /// as long as no other one can lead. It must not block.
    ///
    /// The kernel needs some time, so an address is gone two seconds earlier or less.
    pub fn limit(&self, may_hold_for: impl Fn() -> Duration + Send + Sync + 'static) {
        self.0.limit.set(Arc::new(may_hold_for));
    }

    /// Holds `address` until it is released. Returns when the interface has it and the neighbours were told once. Holding it
    /// again is cheap and changes nothing; another `interface` moves it.
    ///
    /// # Errors
    /// See [`Error`]. The address is not held then, unless it was before.
    pub async fn hold(
        &self,
        holder: &HolderId,
        address: IpAddr,
        interface: &InterfaceChoice,
    ) -> Result<Held> {
        if let Some(why) = fault(address) {
            return Err(Error::NotUsable { address, why });
        }
        let (answer, answered) = oneshot::channel();
        let (holder, choice) = (holder.clone(), interface.clone());
        self.send(Request::Hold(HoldRequest { holder, address, choice, answer }))?;
        answered.await.map_err(|_| Error::Ended)?
    }

    /// Asks the network whether a host has `address`, which takes two seconds if none has. On an interface without neighbours or
    /// without a carrier nobody is asked, and neither for an address that is held already.
    ///
    /// # Errors
    /// [`Error::InUse`]: a host has it. [`Error::Foreign`]: this host has it. For others see [`Error`].
    pub async fn probe(&self, address: IpAddr, interface: &InterfaceChoice) -> Result<()> {
        if let Some(why) = fault(address) {
            return Err(Error::NotUsable { address, why });
        }
        if self.0.entries.lock().contains_key(&address) {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        return crate::probe::probe(address, interface).await;
        #[cfg(not(target_os = "linux"))]
        return Err(Error::Unsupported);
    }

    /// Releases `address`, which is deleted from its interface if nobody else holds it. Succeeds if it is not held.
    ///
    /// # Errors
    /// The kernel may still have the address. It is not renewed any more, so it is gone after [`LIFETIME`](crate::LIFETIME).
    pub async fn release(&self, holder: &HolderId, address: IpAddr) -> Result<()> {
        self.release_some(holder, Some(address)).await
    }

    /// Releases all addresses of this holder, as when it stops or may not lead any longer.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub async fn release_all(&self, holder: &HolderId) -> Result<()> {
        self.release_some(holder, None).await
    }

    /// All addresses, in their order.
    pub fn held(&self) -> Vec<HeldAddress> {
        let entries = self.0.entries.lock();
        let held = entries.iter().map(|(address, entry)| HeldAddress {
            address: *address,
            interface: entry.interface.name.clone(),
            holders: entry.holders.iter().cloned().collect(),
            fault: entry.fault.clone(),
        });
        held.collect()
    }

    async fn release_some(&self, holder: &HolderId, address: Option<IpAddr>) -> Result<()> {
        if !self.0.entries.lock().values().any(|entry| entry.holders.contains(holder)) && !self.is_working() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.send(Request::Release(ReleaseRequest { holder: holder.clone(), address, answer }))?;
        answered.await.map_err(|_| Error::Ended)?
    }

    fn is_working(&self) -> bool {
        let requests = self.0.requests.lock();
        requests.as_ref().is_some_and(|requests| !requests.is_closed())
    }

    /// Sends a request to the keeper. Starts one if there is none, or if its runtime has ended.
    fn send(&self, request: Request) -> Result<()> {
        let mut requests = self.0.requests.lock();
        let Some(sender) = requests.as_ref() else { return self.start(&mut requests, request) };
        match sender.send(request) {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendError(request)) => self.start(&mut requests, request),
        }
    }

    #[cfg(target_os = "linux")]
    fn start(&self, requests: &mut Option<mpsc::UnboundedSender<Request>>, first: Request) -> Result<()> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::Ended)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        runtime.spawn(crate::keeper::Keeper::new(self.0.entries.clone(), self.0.limit.clone()).run(receiver));
        sender.send(first).map_err(|_| Error::Ended)?;
        *requests = Some(sender);
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    #[allow(clippy::unused_self)]
    fn start(&self, _: &mut Option<mpsc::UnboundedSender<Request>>, _: Request) -> Result<()> {
        Err(Error::Unsupported)
    }
}
