//! Which properties are read of a machine, and the fields that they set.

use std::net::IpAddr;

use cloudprovider::uuids::parse_uuid;

use super::metadata::Metadata;
use crate::{
    addresses::is_reachable,
    glob::unescaped,
    guestinfo,
    mark::{self, MARK_PATH},
    vim::{element::Element, property_collector::Property},
    vm::{AddressOrigin, AddressState, Connection, GuestAddress, GuestNic, Tools, VirtualMachine, VmPower},
};

/// The properties that are read of objects other than machines.
pub(crate) const ENTITY_PATHS: [&str; 2] = ["name", "parent"];

/// Properties that every vCenter has. The paths are narrow, since the whole of `config` is a hundred times as
/// large. Parts of `config` that are missing while vCenter cannot read the machine are in `summary` too.
const MACHINE_PATHS: [&str; 23] = [
    "name",
    "parent",
    "parentVApp",
    "resourcePool",
    "runtime.host",
    "runtime.powerState",
    "runtime.connectionState",
    "config.uuid",
    "config.instanceUuid",
    "config.template",
    "config.guestId",
    "config.hardware.numCPU",
    "config.hardware.memoryMB",
    "summary.config.uuid",
    "summary.config.instanceUuid",
    "summary.config.numCpu",
    "summary.config.memorySizeMB",
    "summary.config.guestId",
    "guest.hostName",
    "guest.net",
    "guest.toolsRunningStatus",
    "guest.toolsVersionStatus2",
    "guest.guestStateChangeSupported",
];

/// Single keys of `config.extraConfig`. Not requested again where vCenter does not know such paths.
const OPTIONAL_MACHINE_PATHS: [&str; 3] = [METADATA, METADATA_ENCODING, MARK_PATH];

const METADATA: &str = "config.extraConfig[\"guestinfo.metadata\"]";
const METADATA_ENCODING: &str = "config.extraConfig[\"guestinfo.metadata.encoding\"]";

/// How the MAC addresses begin that VMware gives to devices.
const VMWARE: [[u8; 3]; 4] = [[0x00, 0x50, 0x56], [0x00, 0x0c, 0x29], [0x00, 0x05, 0x69], [0x00, 0x1c, 0x14]];

/// Metadata larger than this is not read.
const LARGEST_METADATA: usize = 64 << 10;

/// The properties that are read of a machine.
pub(crate) fn machine_paths(with_optional: bool) -> Vec<&'static str> {
    let optional = if with_optional { &OPTIONAL_MACHINE_PATHS[..] } else { &[] };
    MACHINE_PATHS.iter().chain(optional).copied().collect()
}

/// Applies property updates to a machine. A property that vCenter reports as unset is unset, except those of
/// `config`: vCenter cannot read these of an inaccessible machine, and the machine's identity does not change
/// by that.
pub(super) fn apply(vm: &mut VirtualMachine, metadata: &mut Metadata, properties: &[Property<'_>]) {
    // if a property is given twice, the later one counts
    let find = |wanted: &str| properties.iter().rev().find(|(name, _)| *name == wanted);
    let set = |wanted: &str| find(wanted).and_then(|(_, value)| *value);
    let text = |wanted: &str| set(wanted).map(|value| &*value.text);

    if let Some(name) = text("name") {
        vm.name = unescaped(name);
    }
    for (path, field) in [
        ("parent", &mut vm.folder),
        ("parentVApp", &mut vm.vapp),
        ("resourcePool", &mut vm.resource_pool),
        ("runtime.host", &mut vm.host),
    ] {
        if let Some((_, value)) = find(path) {
            *field = value.and_then(Element::moref);
        }
    }
    if let Some(power) = text("runtime.powerState").and_then(VmPower::from_word) {
        vm.power = power;
    }
    if let Some(connection) = text("runtime.connectionState").and_then(Connection::from_word) {
        vm.connection = connection;
    }
    let uuid = |path: &str| text(path).and_then(|text| parse_uuid(text.trim()));
    vm.bios_uuid = uuid("config.uuid").or(vm.bios_uuid).or_else(|| uuid("summary.config.uuid"));
    vm.instance_uuid =
        uuid("config.instanceUuid").or(vm.instance_uuid).or_else(|| uuid("summary.config.instanceUuid"));
    if let Some(template) = set("config.template") {
        vm.is_template = template.is_true();
    }
    if let Some(id) = text("config.guestId").or_else(|| text("summary.config.guestId")) {
        vm.guest_id = Some(id.into());
    }
    let number = |path: &str| set(path).and_then(Element::parse);
    vm.cpus = number("config.hardware.numCPU").or_else(|| number("summary.config.numCpu")).or(vm.cpus);
    vm.memory_mib = number("config.hardware.memoryMB")
        .or_else(|| number("summary.config.memorySizeMB"))
        .or(vm.memory_mib);

    if let Some((_, value)) = find("guest.hostName") {
        vm.guest_host_name = value.map(|value| value.text.clone());
    }
    if let Some((_, value)) = find("guest.net") {
        let nics: Vec<_> = value.iter().flat_map(|value| value.all("GuestNicInfo")).collect();
        vm.has_guest_nics = !nics.is_empty();
        vm.guest_nics = guest_nics(&nics);
    }
    if let Some((_, value)) = find("guest.guestStateChangeSupported") {
        vm.can_shut_down = value.is_some_and(Element::is_true);
    }
    if let Some(value) = set(MARK_PATH) {
        let text = value.text_of("value").unwrap_or(&value.text);
        vm.mark = mark::read(text).map(Box::new);
    }
    apply_tools(vm, find("guest.toolsRunningStatus"), find("guest.toolsVersionStatus2"));
    apply_metadata(vm, metadata, find(METADATA), find(METADATA_ENCODING));
}

fn apply_tools(vm: &mut VirtualMachine, running: Option<&Property<'_>>, version: Option<&Property<'_>>) {
    if running.is_none() && version.is_none() {
        return;
    }
    let words = |told: Option<&Property<'_>>, known: Option<&'static str>| -> Option<Box<str>> {
        match told {
            Some((_, value)) => value.map(|value| value.text.clone()),
            None => known.map(Into::into),
        }
    };
    // If only one of the two is given, the other one is derived from the current state.
    let known_running = match vm.tools {
        Tools::Running => Some("guestToolsRunning"),
        Tools::NotRunning | Tools::NotInstalled => Some("guestToolsNotRunning"),
        Tools::Unknown => None,
    };
    let known_version = (vm.tools == Tools::NotInstalled).then_some("guestToolsNotInstalled");
    let (running, version) = (words(running, known_running), words(version, known_version));
    vm.tools = Tools::from_words(running.as_deref(), version.as_deref());
}

fn apply_metadata(
    vm: &mut VirtualMachine,
    metadata: &mut Metadata,
    text: Option<&Property<'_>>,
    encoding: Option<&Property<'_>>,
) {
    if text.is_none() && encoding.is_none() {
        return;
    }
    let option_value = |value: &Element| -> Option<Box<str>> {
        // the whole OptionValue, or only its value
        let text = value.text_of("value").unwrap_or(&value.text);
        (!text.is_empty() && text.len() <= LARGEST_METADATA).then(|| text.into())
    };
    if let Some((_, value)) = text {
        metadata.text = value.and_then(option_value);
    }
    if let Some((_, value)) = encoding {
        metadata.encoding = value.and_then(option_value);
    }
    vm.static_addresses = static_addresses(metadata);
}

/// The addresses in the metadata, or none if it is faulty: reporting that is up to the guest.
fn static_addresses(metadata: &Metadata) -> Box<[IpAddr]> {
    let Some(text) = metadata.text.as_deref() else { return Box::default() };
    let encoding = metadata.encoding.as_deref().unwrap_or_default();
    match guestinfo::static_addresses(text, encoding) {
        Ok(addresses) => addresses.into(),
        Err(fault) => {
            tracing::debug!(%fault, "guestinfo.metadata cannot be read");
            Box::default()
        }
    }
}

/// Whether an interface belongs to a virtual device. Interfaces that the guest made itself (bridges, tunnels,
/// those of pods) have -1.
fn is_of_device(nic: &Element) -> bool {
    nic.child("deviceConfigId").and_then(Element::parse::<i32>) != Some(-1)
}

/// The interfaces of virtual devices.
///
/// A virtual switch or a bridge of the guest takes the address of the device below it: Windows with containers has it on
/// `vEthernet (...)`, which the guest made itself and which has the device's MAC address. So where a device has no address that others
/// could reach, those of such an interface are the device's.
fn guest_nics(nics: &[&Element]) -> Box<[GuestNic]> {
    let (of_devices, own): (Vec<&Element>, Vec<&Element>) =
        nics.iter().copied().partition(|nic| is_of_device(nic));
    let mut of_devices: Vec<_> = of_devices.into_iter().map(guest_nic).collect();
    let macs: Vec<_> = of_devices.iter().map(|nic| nic.mac).collect();
    let is_without: Vec<_> = of_devices
        .iter()
        .map(|nic| !nic.addresses.iter().any(|address| is_reachable(address.ip.to_canonical())))
        .collect();
    // Of the many that pods have, no more than the MAC address is read.
    for nic in own {
        let Some(mac) = nic.text_of("macAddress").and_then(parse_mac) else { continue };
        match macs.iter().position(|known| *known == Some(mac)) {
            Some(place) if is_without[place] => {
                let (device, nic) = (&mut of_devices[place], guest_nic(nic));
                device.connected |= nic.connected;
                device.addresses = device.addresses.iter().chain(&nic.addresses).copied().collect();
            }
            // The device itself may not be reported. No interface of a pod has such an address.
            None if VMWARE.iter().any(|prefix| mac.starts_with(prefix)) => {
                of_devices.push(guest_nic(nic));
            }
            _ => {}
        }
    }
    of_devices.into()
}

fn guest_nic(nic: &Element) -> GuestNic {
    let config = nic.child("ipConfig");
    let details = |ip: IpAddr| {
        config?
            .all("ipAddress")
            .find(|entry| entry.child("ipAddress").and_then(Element::parse::<IpAddr>) == Some(ip))
    };
    let address = |value: &Element| {
        let mut address = GuestAddress::new(value.parse()?);
        if let Some(details) = details(address.ip) {
            address.prefix_length = details.child("prefixLength").and_then(Element::parse);
            address.origin = AddressOrigin::from_word(details.text_of("origin").unwrap_or_default());
            address.state = AddressState::from_word(details.text_of("state").unwrap_or_default());
        }
        Some(address)
    };
    GuestNic {
        network: nic.text_of("network").unwrap_or_default().into(),
        mac: nic.text_of("macAddress").and_then(parse_mac),
        connected: nic.child("connected").is_some_and(Element::is_true),
        addresses: nic.all("ipAddress").filter_map(address).collect(),
    }
}

/// A MAC address in six pairs of hexadecimal digits.
pub(crate) fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut pairs = text.trim().split([':', '-']);
    for byte in &mut bytes {
        let pair = pairs.next().filter(|pair| pair.len() == 2)?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(bytes)
}
