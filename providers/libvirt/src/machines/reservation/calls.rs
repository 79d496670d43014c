//! The calls about networks.

use virt::{error::ErrorNumber, network::Network};

use crate::{
    calls::{Failure, Operation},
    machines::caller::Caller,
};

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
    /// Puts it in the place of the one with the same MAC address.
    Modify,
    /// Deletes it.
    Delete,
}

/// The calls about networks of one hypervisor, with a fake of them for tests.
pub(crate) trait NetworkCalls {
    /// The XML of a network. `None` if there is no such network, or if it does not have this definition.
    fn definition(&mut self, network: &str, scope: Scope) -> Result<Option<String>, Failure>;

    /// Changes a host entry in a definition of a network, in the subnet with this place.
    fn update(
        &mut self,
        network: &str,
        scope: Scope,
        update: Update,
        subnet: i32,
        host: &str,
    ) -> Result<(), Failure>;
}

/// The calls, as libvirt takes them.
pub(crate) struct OnConnection<'a, C>(pub(crate) &'a mut C);

impl<C: Caller> OnConnection<'_, C> {
    fn find(&mut self, network: &str) -> Result<Option<Network>, Failure> {
        let found = self.0.call(Operation::LookupNetwork, |connect| connect.lookup_network_by_name(network));
        match found {
            Ok(network) => Ok(Some(network)),
            Err(failure) if failure.code == Some(ErrorNumber::NoNetwork) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

impl<C: Caller> NetworkCalls for OnConnection<'_, C> {
    fn definition(&mut self, name: &str, scope: Scope) -> Result<Option<String>, Failure> {
        let Some(network) = self.find(name)? else { return Ok(None) };
        let has_it = self.0.call(Operation::NetworkState, |_| match scope {
            Scope::Kept => network.is_persistent(),
            Scope::Running => network.is_active(),
        })?;
        if !has_it {
            return Ok(None);
        }
        let mut xml = |flags| self.0.call(Operation::NetworkXml, |_| network.xml_desc(flags));
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

    fn update(
        &mut self,
        name: &str,
        scope: Scope,
        update: Update,
        subnet: i32,
        host: &str,
    ) -> Result<(), Failure> {
        let command = match update {
            Update::Add => virt_sys::VIR_NETWORK_UPDATE_COMMAND_ADD_LAST,
            Update::Modify => virt_sys::VIR_NETWORK_UPDATE_COMMAND_MODIFY,
            Update::Delete => virt_sys::VIR_NETWORK_UPDATE_COMMAND_DELETE,
        };
        let section = virt_sys::VIR_NETWORK_SECTION_IP_DHCP_HOST;
        self.0.call(Operation::UpdateNetwork, |connect| {
            connect.lookup_network_by_name(name)?.update(command, section, subnet, host, scope.flag())
        })
    }
}
