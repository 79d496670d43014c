//! What has to be known of a template before it is cloned. Read in one call, and kept for a moment.

use uuid::Uuid;

use crate::{
    moref::MoRef,
    vim::{
        element::Element,
        objects::{ObjectSpec, PropertyFilterSpec, PropertySpec},
        property_collector::ObjectUpdate,
    },
};

const DEVICES: &str = "config.hardware.device";
const SNAPSHOT: &str = "snapshot";
const FILE: &str = "config.files.vmPathName";
const VERSION: &str = "config.version";
const IS_TEMPLATE: &str = "config.template";
const INSTANCE_UUID: &str = "config.instanceUuid";
const MANAGED_BY: &str = "config.managedBy";
const EXTRA_CONFIG: &str = "config.extraConfig";

/// What the keys of the extra configuration begin with that only a machine of Cluster API has, and a copy of one.
const KEYS_OF_MACHINES: [&str; 4] = [
    "cloud-controller-manager.",
    "guestinfo.userdata",
    "guestinfo.metadata",
    "guestinfo.ignition.config.data",
];

/// The types of network cards.
const CARDS: [&str; 9] = [
    "VirtualE1000",
    "VirtualE1000e",
    "VirtualPCNet32",
    "VirtualSriovEthernetCard",
    "VirtualVmxnet",
    "VirtualVmxnet2",
    "VirtualVmxnet3",
    "VirtualVmxnet3Vrdma",
    "VirtualEthernetCard",
];

/// The devices and snapshots of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TemplateFacts {
    /// Its network cards.
    pub(crate) cards: Vec<Card>,
    /// Its disks, in the order in which vCenter lists them: the first one is the primary one.
    pub(crate) disks: Vec<TemplateDisk>,
    /// Its disk controllers.
    pub(crate) controllers: Vec<Controller>,
    /// The version of its hardware: 19 for `vmx-19`.
    pub(crate) hardware_version: Option<u32>,
    /// The folder of its files, without its datastore.
    pub(crate) folder: Option<String>,
    /// The name of the datastore of its files.
    pub(crate) datastore: Option<String>,
    /// The snapshot that it stands on.
    pub(crate) current_snapshot: Option<MoRef>,
    /// All snapshots by name.
    pub(crate) snapshots: Vec<(String, MoRef)>,
    /// Whether it is a template, and no virtual machine that could run.
    pub(crate) is_template: bool,
    pub(crate) instance_uuid: Option<Uuid>,
    pub(crate) hands: Hands,
}

/// In whose hands a template or virtual machine is, as its configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hands {
    /// vCenter does not tell.
    #[default]
    Unknown,
    /// In nobody's.
    Free,
    /// In those of a machine, or of a program that manages it, as these words say.
    Taken(&'static str),
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) key: i32,
    pub(crate) kind: &'static str,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TemplateDisk {
    pub(crate) key: i32,
    pub(crate) controller_key: Option<i32>,
    pub(crate) unit_number: Option<i32>,
    pub(crate) capacity_kib: u64,
    /// The file, such as `[datastore1] node/node.vmdk`, if it is a plain one.
    pub(crate) file: Option<String>,
    pub(crate) disk_mode: String,
    pub(crate) thin: Option<bool>,
    /// Whether it is a first-class disk, such as a volume of Kubernetes.
    pub(crate) is_first_class: bool,
}

/// A controller with room for disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    pub(crate) key: i32,
    /// How many units it has.
    pub(crate) units: i32,
    /// Units that are taken, its own included.
    pub(crate) taken: Vec<i32>,
}

/// Selects what is read of a template, or of a machine whose disks matter.
pub(crate) fn selection(machine: &MoRef) -> PropertyFilterSpec {
    PropertyFilterSpec {
        prop_set: vec![PropertySpec {
            kind: "VirtualMachine",
            all: None,
            path_set: vec![
                DEVICES,
                SNAPSHOT,
                FILE,
                VERSION,
                IS_TEMPLATE,
                INSTANCE_UUID,
                MANAGED_BY,
                EXTRA_CONFIG,
            ],
        }],
        object_set: vec![ObjectSpec { obj: machine.clone(), skip: Some(false), select_set: Vec::new() }],
        report_missing_objects_in_results: None,
    }
}

/// Reads what was selected. `None` without the devices, or without the folder of the files.
pub(crate) fn read(update: &ObjectUpdate<'_>) -> Option<TemplateFacts> {
    let is_told =
        |wanted: &str| update.properties.iter().any(|(path, value)| *path == wanted && value.is_some());
    if ![DEVICES, FILE].into_iter().all(is_told) {
        return None;
    }
    let mut facts = TemplateFacts::default();
    for (path, value) in &update.properties {
        let Some(value) = value else { continue };
        match *path {
            DEVICES => read_devices(value, &mut facts),
            VERSION => facts.hardware_version = hardware_version(&value.text),
            IS_TEMPLATE => facts.is_template = value.is_true(),
            INSTANCE_UUID => facts.instance_uuid = Uuid::parse_str(value.text.trim()).ok(),
            FILE => {
                facts.folder = folder_of(&value.text).map(str::to_owned);
                facts.datastore = datastore_of(&value.text).map(str::to_owned);
            }
            SNAPSHOT => {
                facts.current_snapshot = value.moref_of("currentSnapshot");
                value.all("rootSnapshotList").for_each(|tree| read_snapshots(tree, &mut facts.snapshots));
            }
            _ => {}
        }
    }
    if is_told(EXTRA_CONFIG) && is_told(IS_TEMPLATE) {
        let value = |wanted: &str| {
            update.properties.iter().find(|(path, _)| *path == wanted).and_then(|(_, value)| *value)
        };
        facts.hands = hands(value(EXTRA_CONFIG), value(MANAGED_BY));
    }
    Some(facts)
}

/// In whose hands it is. A key without a value is none: vCenter takes such a key away.
fn hands(extra_config: Option<&Element>, managed_by: Option<&Element>) -> Hands {
    let options = extra_config.iter().flat_map(|list| &list.children);
    let keys = options.filter(|option| option.text_of("value").is_some_and(|value| !value.is_empty()));
    let mut keys = keys.filter_map(|option| option.text_of("key")).map(str::to_lowercase);
    if keys.any(|key| KEYS_OF_MACHINES.iter().any(|start| key.starts_with(start))) {
        return Hands::Taken("it is a machine of Cluster API, or was copied from one");
    }
    match managed_by.and_then(|by| by.text_of("extensionKey")) {
        Some(extension) if !extension.is_empty() => Hands::Taken("an extension of vCenter manages it"),
        _ => Hands::Free,
    }
}

/// Whether a device of this type is a network card.
pub(crate) fn is_card(kind: &str) -> bool {
    CARDS.contains(&kind)
}

/// The number of a hardware version such as `vmx-19`.
pub(crate) fn hardware_version(word: &str) -> Option<u32> {
    word.strip_prefix("vmx-")?.parse().ok()
}

/// The folder of a file such as `[datastore1] node-1/node-1.vmx`: `node-1`.
pub(crate) fn folder_of(file: &str) -> Option<&str> {
    let (_, path) = file.split_once(']')?;
    path.trim_start().rsplit_once('/').map(|(folder, _)| folder)
}

/// The datastore of such a file: `datastore1`.
fn datastore_of(file: &str) -> Option<&str> {
    file.trim_start().strip_prefix('[')?.split_once(']').map(|(datastore, _)| datastore)
}

fn read_snapshots(tree: &Element, into: &mut Vec<(String, MoRef)>) {
    if let (Some(name), Some(snapshot)) = (tree.text_of("name"), tree.moref_of("snapshot")) {
        into.push((name.to_owned(), snapshot));
    }
    tree.all("childSnapshotList").for_each(|child| read_snapshots(child, into));
}

fn read_devices(list: &Element, facts: &mut TemplateFacts) {
    let mut places: Vec<(i32, i32)> = Vec::new();
    for device in &list.children {
        let number = |name: &str| device.child(name).and_then(Element::parse::<i32>);
        let Some(key) = number("key") else { continue };
        let kind = device.kind.as_deref().unwrap_or_default();
        places.extend(number("controllerKey").zip(number("unitNumber")));
        if let Some(kind) = CARDS.into_iter().find(|card| *card == kind) {
            facts.cards.push(Card { key, kind });
        } else if kind == "VirtualDisk" {
            facts.disks.push(read_disk(device, key));
        } else if let Some(units) = units_of(kind) {
            // A SCSI controller takes a unit of its own.
            let own = number("scsiCtlrUnitNumber").or_else(|| is_scsi(kind).then_some(7));
            facts.controllers.push(Controller { key, units, taken: own.into_iter().collect() });
        }
    }
    for controller in &mut facts.controllers {
        controller
            .taken
            .extend(places.iter().filter(|(key, _)| *key == controller.key).map(|(_, unit)| unit));
    }
}

fn read_disk(device: &Element, key: i32) -> TemplateDisk {
    let number = |name: &str| device.child(name).and_then(Element::parse::<i32>);
    let backing = device.child("backing");
    let text = |name: &str| backing.and_then(|backing| backing.text_of(name)).map(str::to_owned);
    let in_kib = device.child("capacityInKB").and_then(Element::parse::<u64>);
    let in_bytes = device.child("capacityInBytes").and_then(Element::parse::<u64>);
    TemplateDisk {
        key,
        controller_key: number("controllerKey"),
        unit_number: number("unitNumber"),
        capacity_kib: in_kib.or_else(|| Some(in_bytes? >> 10)).unwrap_or_default(),
        file: text("fileName").filter(|file| !file.is_empty()),
        disk_mode: text("diskMode").unwrap_or_else(|| "persistent".to_owned()),
        thin: backing.and_then(|backing| backing.child("thinProvisioned")).map(Element::is_true),
        is_first_class: device.child("vDiskId").is_some_and(|id| !id.is_empty()),
    }
}

fn is_scsi(kind: &str) -> bool {
    kind.contains("SCSI") || kind.contains("BusLogic") || kind.contains("LsiLogic")
}

/// How many units a controller of this type has; `None` for what is no controller of disks.
fn units_of(kind: &str) -> Option<i32> {
    match kind {
        "VirtualAHCIController" | "VirtualSATAController" | "ParaVirtualSCSIController" => Some(30),
        "VirtualNVMEController" => Some(15),
        "VirtualIDEController" => Some(2),
        _ if is_scsi(kind) => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
