//! What a user says about the network interfaces of a machine.

use cloudprovider::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network interface of a machine. Give one of `network`, `bridge` and `macvtap`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "(has(self.network) ? 1 : 0) + (has(self.bridge) ? 1 : 0) + (has(self.macvtap) ? 1 : 0) == 1",
     "message": "give one of network, bridge and macvtap"},
    {"rule": "!has(self.reservation) || has(self.network)", "message": "reservation needs network"},
    {"rule": "!has(self.reservation) || !has(self.mac)", "message": "reservation is not possible together with mac"},
]))]
pub(crate) struct InterfaceSpec {
    /// A libvirt network: `default`, or one that the provider's configuration allows. Its DHCP server tells the machine's addresses.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^/]+$"))]
    pub(crate) network: Option<String>,
    /// A bridge of the hypervisor, which the provider's configuration has to allow. Only the guest agent tells the machine's addresses.
    #[serde(default)]
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[^/\s]+$"))]
    pub(crate) bridge: Option<String>,
    /// A device of the hypervisor, shared by macvtap, which the provider's configuration has to allow. Only the guest agent tells the machine's addresses.
    #[serde(default)]
    pub(crate) macvtap: Option<MacvtapSpec>,
    /// The device that the guest sees. Default: `virtio`.
    #[serde(default)]
    pub(crate) model: InterfaceModel,
    /// The MAC address, if the provider's configuration lets the namespace choose one. Not for templates, whose machines would
    /// all have the same one. Default: one made from the object's identity.
    #[serde(default)]
    #[schemars(length(min = 17, max = 17), regex(pattern = r"^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$"))]
    pub(crate) mac: Option<String>,
    /// Keeps an IPv4 address for this interface at the network's DHCP server until the machine is deleted. Not possible
    /// together with `mac`, since an entry with the provider's own MAC address shows whose it is.
    #[serde(default)]
    pub(crate) reservation: Option<ReservationSpec>,
}

/// A device shared by macvtap.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MacvtapSpec {
    /// The hypervisor's device, such as `eth0`.
    #[schemars(length(min = 1, max = 15), regex(pattern = r"^[^/\s]+$"))]
    pub(crate) device: String,
    /// How the guests reach each other. Default: `bridge`.
    #[serde(default)]
    pub(crate) mode: MacvtapMode,
}

/// A mode of macvtap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum MacvtapMode {
    /// Directly.
    #[default]
    Bridge,
    /// Through the switch, which sends the packets back.
    Vepa,
    /// Not at all.
    Private,
    /// The guest has the device for itself.
    Passthrough,
}

/// The device that a guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum InterfaceModel {
    /// A virtio network device.
    #[default]
    Virtio,
    /// An Intel e1000e, for guests without virtio.
    E1000e,
}

/// An address that a DHCP server keeps for an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReservationSpec {
    /// The address, in the network's subnet; best outside of its DHCP ranges, so that nobody else has it already. Not
    /// for templates, whose machines would all have the same one. Default: the first address that the server gives to
    /// the machine.
    #[serde(default)]
    #[schemars(length(min = 7, max = 15), regex(pattern = r"^[0-9]+(\.[0-9]+){3}$"))]
    pub(crate) address: Option<String>,
}

/// What an [`InterfaceSpec`] is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceSource<'a> {
    /// A libvirt network.
    Network(&'a str),
    /// A bridge of the hypervisor.
    Bridge(&'a str),
    /// A shared device of the hypervisor.
    Macvtap(&'a MacvtapSpec),
}

impl InterfaceSpec {
    /// An interface on a libvirt network.
    pub(crate) fn on_network(name: impl Into<String>) -> Self {
        Self { network: Some(name.into()), ..Self::default() }
    }

    /// What the interface is connected to. `index` is its place in the spec.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is not exactly one thing.
    pub(crate) fn source(&self, index: usize) -> Result<InterfaceSource<'_>> {
        match (&self.network, &self.bridge, &self.macvtap) {
            (Some(network), None, None) => Ok(InterfaceSource::Network(network)),
            (None, Some(bridge), None) => Ok(InterfaceSource::Bridge(bridge)),
            (None, None, Some(macvtap)) => Ok(InterfaceSource::Macvtap(macvtap)),
            _ => {
                let words = format!("spec.interfaces[{index}]: give one of network, bridge and macvtap");
                Err(Error::new(ErrorKind::InvalidInput, words))
            }
        }
    }
}
