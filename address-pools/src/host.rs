//! Announces addresses on the interfaces of this host, by netlink.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, OnceLock},
};

use announcing::{Announcer, HolderId, InterfaceChoice};
use cloudprovider::{Error, ErrorKind, Result, ServiceAccess, async_trait};
use parking_lot::{Mutex, MutexGuard};

use crate::announce::{Announce, Fault};

/// The announcer of this process, shared by all providers that follow each other.
#[derive(Debug)]
pub struct HostAnnouncer {
    announcer: Announcer,
    /// The announcer's names of holders, each with the addresses that it holds or may hold.
    holders: Mutex<HashMap<String, (HolderId, BTreeSet<IpAddr>)>>,
}

impl HostAnnouncer {
    /// The one of this process. It does nothing until something is held.
    pub fn of_process() -> Arc<Self> {
        static OF_PROCESS: OnceLock<Arc<HostAnnouncer>> = OnceLock::new();
        Arc::clone(OF_PROCESS.get_or_init(|| Arc::new(Self::new(Announcer::of_process().clone()))))
    }

    /// One over this announcer.
    pub fn new(announcer: Announcer) -> Self {
        Self { announcer, holders: Mutex::default() }
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<String, (HolderId, BTreeSet<IpAddr>)>> {
        self.holders.lock()
    }
}

#[async_trait]
impl Announce for HostAnnouncer {
    fn limit(&self, services: Arc<dyn ServiceAccess>) {
        self.announcer.limit(move || services.alone_for());
    }

    async fn hold(&self, holder: &str, address: IpAddr, interface: Option<&str>) -> Result<()> {
        let holder = {
            let mut holders = self.holders();
            let new = || (HolderId::new(holder), BTreeSet::new());
            let (id, addresses) = holders.entry(holder.to_owned()).or_insert_with(new);
            addresses.insert(address);
            id.clone()
        };
        let held = self.announcer.hold(&holder, address, &choice(interface)).await.map_err(error)?;
        tracing::debug!(%address, interface = held.interface, "address announced");
        Ok(())
    }

    async fn probe(&self, address: IpAddr, interface: Option<&str>) -> Result<()> {
        self.announcer.probe(address, &choice(interface)).await.map_err(error)
    }

    async fn release(&self, holder: &str, address: IpAddr) -> Result<()> {
        let Some((id, _)) = self.holders().get(holder).cloned() else { return Ok(()) };
        self.announcer.release(&id, address).await.map_err(error)?;
        let mut holders = self.holders();
        if let Some((_, addresses)) = holders.get_mut(holder) {
            addresses.remove(&address);
            if addresses.is_empty() {
                holders.remove(holder);
            }
        }
        Ok(())
    }

    fn faults(&self) -> Vec<Fault> {
        let held = self.announcer.held().into_iter();
        held.filter_map(|held| Some(Fault { address: held.address, why: held.fault?.to_string() })).collect()
    }
}

fn choice(interface: Option<&str>) -> InterfaceChoice {
    interface.map_or(InterfaceChoice::Automatic, |name| InterfaceChoice::Named(name.to_owned()))
}

fn error(error: announcing::Error) -> Error {
    use announcing::Error as Cause;
    let kind = match &error {
        Cause::Foreign { .. } | Cause::InUse { .. } => ErrorKind::Conflict,
        Cause::NotUsable { .. } | Cause::NoInterface { .. } | Cause::NoFittingInterface { .. } => {
            ErrorKind::InvalidConfiguration
        }
        Cause::Permission { .. } => ErrorKind::PermissionDenied,
        Cause::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "cannot announce an address").with_source(error)
}
