//! The calls about networks.

use std::{fmt, sync::Arc, time::Duration};

use cloudprovider::async_trait;
use virt::{error::ErrorNumber, network::Network};

use crate::{
    addresses::Lease,
    calls::{Failure, Operation},
    mac::Mac,
    sys,
    worker_pool::{Link, Work, WorkerPool},
};

/// Changing a network takes seconds where the hypervisor is busy.
const MIN_TIMEOUT: Duration = Duration::from_secs(30);

/// One of the two definitions of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The one that is kept. A transient network has none.
    Kept,
    /// The running one. A network that is not active has none.
    Running,
}

impl Scope {
    /// Both. The kept one first: it decides after a restart of libvirtd.
    pub(crate) const ALL: [Self; 2] = [Self::Kept, Self::Running];

    fn flag(self) -> virt_sys::virNetworkUpdateFlags {
        match self {
            Self::Kept => virt_sys::VIR_NETWORK_UPDATE_AFFECT_CONFIG,
            Self::Running => virt_sys::VIR_NETWORK_UPDATE_AFFECT_LIVE,
        }
    }
}

/// What is done with a host entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// Adds it.
    Add,
    /// Deletes it.
    Delete,
}

/// A change of a host entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// What is done.
    pub(crate) update: Update,
    /// The place of its subnet among those of the network.
    pub(crate) subnet: i32,
    /// The entry, as libvirt reads it.
    pub(crate) host: String,
}

/// The calls about networks of one hypervisor, with a fake of them for tests. None of them is repeated; the
/// callers decide.
#[async_trait]
pub(crate) trait NetworkCalls: fmt::Debug + Send + Sync {
    /// The hypervisor's name in the configuration.
    fn hypervisor(&self) -> &str;

    /// The XML of a network. `None` if there is no such network, or if it does not have this definition.
    async fn definition(&self, network: &str, scope: Scope) -> Result<Option<String>, Failure>;

    /// The leases that the DHCP server of a network has given. None if there is no such network, or no server
    /// that tells.
    async fn leases(&self, network: &str) -> Result<Vec<(Mac, Lease)>, Failure>;

    /// Changes a host entry in a definition of a network.
    async fn update(&self, network: &str, scope: Scope, change: &Change) -> Result<(), Failure>;
}

/// The calls, as libvirt takes them.
#[derive(Debug)]
pub(crate) struct LibvirtNetworks {
    workers: Arc<WorkerPool>,
}

impl LibvirtNetworks {
    /// The networks of the hypervisor of these threads.
    pub(crate) fn new(workers: Arc<WorkerPool>) -> Self {
        Self { workers }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Link) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let limit = self.workers.hypervisor().settings.call_timeout.max(MIN_TIMEOUT);
        self.workers.run(Work::Short(limit), work).await
    }
}

#[async_trait]
impl NetworkCalls for LibvirtNetworks {
    fn hypervisor(&self) -> &str {
        self.workers.hypervisor().name()
    }

    async fn definition(&self, network: &str, scope: Scope) -> Result<Option<String>, Failure> {
        let name = network.to_owned();
        self.run(move |link| definition(link, &name, scope)).await
    }

    async fn leases(&self, network: &str) -> Result<Vec<(Mac, Lease)>, Failure> {
        let name = network.to_owned();
        self.run(move |link| leases(link, &name)).await
    }

    async fn update(&self, network: &str, scope: Scope, change: &Change) -> Result<(), Failure> {
        let (name, change) = (network.to_owned(), change.clone());
        self.run(move |link| update(link, &name, scope, &change)).await
    }
}

fn find(link: &mut Link, name: &str) -> Result<Option<Network>, Failure> {
    match link.call(Operation::LookupNetwork, |connect| connect.lookup_network_by_name(name)) {
        Ok(network) => Ok(Some(network)),
        Err(failure) if failure.code == Some(ErrorNumber::NoNetwork) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn definition(link: &mut Link, name: &str, scope: Scope) -> Result<Option<String>, Failure> {
    let Some(network) = find(link, name)? else { return Ok(None) };
    let has_it = link.call(Operation::NetworkState, |_| match scope {
        Scope::Kept => network.is_persistent(),
        Scope::Running => network.is_active(),
    })?;
    if !has_it {
        return Ok(None);
    }
    let mut xml = |flags| link.call(Operation::NetworkXml, |_| network.xml_desc(flags));
    let definition = match scope {
        Scope::Running => xml(0),
        Scope::Kept => match xml(virt_sys::VIR_NETWORK_XML_INACTIVE) {
            // libvirt's test driver shows only one of the two
            Err(failure) if failure.code == Some(ErrorNumber::InvalidArg) => xml(0),
            definition => definition,
        },
    };
    definition.map(Some)
}

fn leases(link: &mut Link, name: &str) -> Result<Vec<(Mac, Lease)>, Failure> {
    let Some(network) = find(link, name)? else { return Ok(Vec::new()) };
    match link.call(Operation::DhcpLeases, |_| sys::dhcp_leases(&network)) {
        // libvirt's test driver has no DHCP server
        Err(failure) if failure.is_unsupported() => Ok(Vec::new()),
        leases => leases,
    }
}

fn update(link: &mut Link, name: &str, scope: Scope, change: &Change) -> Result<(), Failure> {
    let command = match change.update {
        Update::Add => virt_sys::VIR_NETWORK_UPDATE_COMMAND_ADD_LAST,
        Update::Delete => virt_sys::VIR_NETWORK_UPDATE_COMMAND_DELETE,
    };
    let section = virt_sys::VIR_NETWORK_SECTION_IP_DHCP_HOST;
    link.call(Operation::UpdateNetwork, |connect| {
        let network = connect.lookup_network_by_name(name)?;
        network.update(command, section, change.subnet, &change.host, scope.flag())
    })
}
