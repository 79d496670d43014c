//! A virtual machine as this provider sees it.

use std::{net::IpAddr, sync::Arc};

use cloudprovider::{PowerState, machines::Mark};
use uuid::Uuid;

use crate::moref::MoRef;

/// The properties of a virtual machine that are kept: about 750 bytes each, including the indexes.
///
/// vCenter leaves out a property that it does not know, so nearly all are optional: `config` is missing on an
/// inaccessible machine, and `guest` where VMware Tools never ran or the machine is powered off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VirtualMachine {
    /// Its reference in the vCenter that it was read from.
    pub(crate) moref: MoRef,
    /// `name`, unique within a folder only.
    pub(crate) name: Box<str>,
    /// `config.uuid`, else `summary.config.uuid`: the BIOS UUID, which the guest's firmware shows and the provider ID
    /// holds. Copies of a machine may share it.
    pub(crate) bios_uuid: Option<Uuid>,
    /// `config.instanceUuid`: unique within a vCenter.
    pub(crate) instance_uuid: Option<Uuid>,
    /// `config.template`: a template never runs and is never a Node.
    pub(crate) is_template: bool,
    /// `runtime.powerState`.
    pub(crate) power: VmPower,
    /// `runtime.connectionState`.
    pub(crate) connection: Connection,
    /// `guest.toolsRunningStatus` and `guest.toolsVersionStatus2`.
    pub(crate) tools: Tools,
    /// `config.hardware.numCPU`, else `summary.config.numCpu`.
    pub(crate) cpus: Option<u32>,
    /// `config.hardware.memoryMB`, else `summary.config.memorySizeMB`: in MiB.
    pub(crate) memory_mib: Option<u32>,
    /// `config.guestId`, else `summary.config.guestId`: the operating system that it was created for, such as
    /// `ubuntu64Guest`.
    pub(crate) guest_id: Option<Arc<str>>,
    /// `guest.hostName`, in the guest's own letter case.
    pub(crate) guest_host_name: Option<Box<str>>,
    /// Whether `guest.net` has any interface at all.
    pub(crate) has_guest_nics: bool,
    /// `guest.net`, in vCenter's order, without interfaces that the guest made itself, such as `docker0` and
    /// those of pods: no rule uses them, there may be very many, and they change often. One that has the MAC address and the
    /// addresses of a device counts as the device.
    pub(crate) guest_nics: Box<[GuestNic]>,
    /// The addresses that `guestinfo.metadata` configures, in its order: see
    /// `guestinfo::static_addresses`. The text itself is not kept.
    pub(crate) static_addresses: Box<[IpAddr]>,
    /// `guest.guestStateChangeSupported`: whether the guest can be asked to shut down. False where vCenter does not tell.
    pub(crate) can_shut_down: bool,
    /// Whose machine it is, if a step of this program made it.
    pub(crate) mark: Option<Box<Mark>>,
    /// `runtime.host`: the host that it runs on, or ran on last.
    pub(crate) host: Option<MoRef>,
    /// `parent`: its folder. `None` inside of a vApp.
    pub(crate) folder: Option<MoRef>,
    /// `parentVApp`.
    pub(crate) vapp: Option<MoRef>,
    /// `resourcePool`. A template has none.
    pub(crate) resource_pool: Option<MoRef>,
}

/// One element of `guest.net`: an interface of a virtual device, as VMware Tools report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuestNic {
    /// `network`: the name of the port group or network that it is on.
    pub(crate) network: Arc<str>,
    /// `macAddress`.
    pub(crate) mac: Option<[u8; 6]>,
    /// `connected`.
    pub(crate) connected: bool,
    /// `ipAddress`, in its order, each with its details from `ipConfig`.
    pub(crate) addresses: Box<[GuestAddress]>,
}

/// An address of a guest's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestAddress {
    pub(crate) ip: IpAddr,
    /// Length of the prefix in bits, if the guest reports it.
    pub(crate) prefix_length: Option<u8>,
    /// How the address was assigned.
    pub(crate) origin: AddressOrigin,
    /// Whether it can be used.
    pub(crate) state: AddressState,
}

impl GuestAddress {
    /// An address without further details.
    pub(crate) fn new(ip: IpAddr) -> Self {
        Self { ip, prefix_length: None, origin: AddressOrigin::Unknown, state: AddressState::Unknown }
    }
}

/// `NetIpConfigInfoIpAddress.origin`, in the words of RFC 4293.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AddressOrigin {
    /// Configured by hand.
    Manual,
    /// Given by a DHCP server.
    Dhcp,
    /// Made from the interface's own identifier (SLAAC).
    LinkLayer,
    /// Made from a random number: a temporary address (RFC 8981).
    Random,
    /// Another origin, or none reported.
    #[default]
    Unknown,
}

impl AddressOrigin {
    /// Parses vCenter's word.
    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "manual" => Self::Manual,
            "dhcp" => Self::Dhcp,
            "linklayer" => Self::LinkLayer,
            "random" => Self::Random,
            _ => Self::Unknown,
        }
    }
}

/// `NetIpConfigInfoIpAddress.state`, in the words of RFC 4293.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AddressState {
    /// In use.
    Preferred,
    /// Past its preferred lifetime: no new connections should use it.
    Deprecated,
    /// Not usable: invalid, inaccessible, still being checked for duplicates, or a duplicate.
    Unusable,
    /// Another state, or none reported.
    #[default]
    Unknown,
}

impl AddressState {
    /// Parses vCenter's word.
    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "preferred" => Self::Preferred,
            "deprecated" => Self::Deprecated,
            "invalid" | "inaccessible" | "tentative" | "duplicate" => Self::Unusable,
            _ => Self::Unknown,
        }
    }
}

/// `VirtualMachinePowerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VmPower {
    On,
    Off,
    Suspended,
}

impl VmPower {
    /// Parses vCenter's word; `None` for a word that the API does not define.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "poweredOn" => Some(Self::On),
            "poweredOff" => Some(Self::Off),
            "suspended" => Some(Self::Suspended),
            _ => None,
        }
    }
}

/// `VirtualMachineConnectionState`: whether vCenter can reach the machine through its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Connected,
    /// The host does not respond; the known state is the last one that it reported.
    Disconnected,
    /// The machine is no longer registered on the host.
    Orphaned,
    /// Its files cannot be read.
    Inaccessible,
    /// Its files cannot be understood.
    Invalid,
}

impl Connection {
    /// Parses vCenter's word; `None` for a word that the API does not define.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "connected" => Some(Self::Connected),
            "disconnected" => Some(Self::Disconnected),
            "orphaned" => Some(Self::Orphaned),
            "inaccessible" => Some(Self::Inaccessible),
            "invalid" => Some(Self::Invalid),
            _ => None,
        }
    }
}

/// Whether VMware Tools run in the guest. Only they report the guest's name and addresses to vCenter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tools {
    Running,
    NotRunning,
    NotInstalled,
    /// vCenter does not tell.
    #[default]
    Unknown,
}

impl Tools {
    /// From `guest.toolsRunningStatus` and `guest.toolsVersionStatus2`. A guest on which the Tools ran once
    /// keeps their version, so the running status decides first.
    pub(crate) fn from_words(running: Option<&str>, version: Option<&str>) -> Self {
        match (running, version) {
            (Some("guestToolsRunning" | "guestToolsExecutingScripts"), _) => Self::Running,
            (_, Some("guestToolsNotInstalled")) => Self::NotInstalled,
            (Some("guestToolsNotRunning"), _) => Self::NotRunning,
            _ => Self::Unknown,
        }
    }
}

impl VirtualMachine {
    /// A machine of which only the reference and the name are known.
    pub(crate) fn new(moref: MoRef, name: impl Into<Box<str>>) -> Self {
        Self {
            moref,
            name: name.into(),
            bios_uuid: None,
            instance_uuid: None,
            is_template: false,
            power: VmPower::Off,
            connection: Connection::Connected,
            tools: Tools::Unknown,
            cpus: None,
            memory_mib: None,
            guest_id: None,
            guest_host_name: None,
            has_guest_nics: false,
            guest_nics: Box::default(),
            static_addresses: Box::default(),
            can_shut_down: false,
            mark: None,
            host: None,
            folder: None,
            vapp: None,
            resource_pool: None,
        }
    }

    /// The texts that it has in common with many machines: references to the objects above it and its host,
    /// networks, the guest's type.
    pub(crate) fn shared_texts(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        [&mut self.host, &mut self.folder, &mut self.vapp, &mut self.resource_pool]
            .into_iter()
            .flatten()
            .map(MoRef::text_mut)
            .chain(&mut self.guest_id)
            .chain(self.guest_nics.iter_mut().map(|nic| &mut nic.network))
    }

    /// The power state in the terms of the contract.
    ///
    /// A suspended machine is off, as in CPI: its memory is a file. If vCenter cannot read the machine, its
    /// report that the machine is off is not used: the machine may still run on a host or storage that is cut
    /// off, and its Node must not be marked as shut down.
    pub(crate) fn power_state(&self) -> PowerState {
        if self.is_connected() && self.power != VmPower::On { PowerState::Off } else { PowerState::Running }
    }

    /// Whether what vCenter says of it is true, or was when its host was last heard.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Connected | Connection::Disconnected)
    }

    /// The addresses that its guest reports.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &GuestAddress> {
        self.guest_nics.iter().flat_map(|nic| &nic.addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        let mut vm = VirtualMachine::new(MoRef::new("VirtualMachine", "vm-1"), "a");
        for (power, connection, expected) in [
            (VmPower::On, Connection::Connected, PowerState::Running),
            (VmPower::Off, Connection::Connected, PowerState::Off),
            (VmPower::Suspended, Connection::Connected, PowerState::Off),
            (VmPower::On, Connection::Disconnected, PowerState::Running),
            (VmPower::Off, Connection::Disconnected, PowerState::Off),
            (VmPower::Off, Connection::Inaccessible, PowerState::Running),
            (VmPower::Off, Connection::Orphaned, PowerState::Running),
            (VmPower::On, Connection::Invalid, PowerState::Running),
        ] {
            (vm.power, vm.connection) = (power, connection);
            assert_eq!(vm.power_state(), expected, "{power:?} {connection:?}");
        }
    }

    #[test]
    fn words_of_the_api() {
        assert_eq!(VmPower::from_word("poweredOn"), Some(VmPower::On));
        assert_eq!(VmPower::from_word("suspended"), Some(VmPower::Suspended));
        assert_eq!(VmPower::from_word("on"), None);
        assert_eq!(Connection::from_word("orphaned"), Some(Connection::Orphaned));
        assert_eq!(Connection::from_word("gone"), None);
        assert_eq!(
            Tools::from_words(Some("guestToolsRunning"), Some("guestToolsNotInstalled")),
            Tools::Running
        );
        assert_eq!(
            Tools::from_words(Some("guestToolsNotRunning"), Some("guestToolsNotInstalled")),
            Tools::NotInstalled
        );
        assert_eq!(Tools::from_words(Some("guestToolsNotRunning"), None), Tools::NotRunning);
        assert_eq!(Tools::from_words(None, None), Tools::Unknown);
        assert_eq!(AddressState::from_word("duplicate"), AddressState::Unusable);
        assert_eq!(AddressOrigin::from_word("linklayer"), AddressOrigin::LinkLayer);
    }

    #[test]
    fn a_machine_is_small() {
        assert!(size_of::<VirtualMachine>() <= 256, "{}", size_of::<VirtualMachine>());
        assert!(size_of::<GuestAddress>() <= 24, "{}", size_of::<GuestAddress>());
    }
}
