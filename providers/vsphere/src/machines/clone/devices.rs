//! The devices of a machine, as changes of those of its template.

use cloudprovider::Result;

use crate::{
    machines::{
        guest::written,
        places::Catalog,
        spec::{NetworkSpec, PciDeviceSpec, ProvisioningMode, VirtualMachineCloneSpec, invalid},
        template::{Card, Controller, TemplateDisk, TemplateFacts},
    },
    vim::{
        encode::{object, object_as},
        machines::{
            AllowedPciDevice, ConnectInfo, DefinedProfile, DeviceConfigSpec, Disk, DynamicPciBacking,
            EthernetCard, FlatDiskBacking, PciDevice, VgpuBacking,
        },
    },
};

/// Keys of new devices until vCenter gives them others. They are negative and differ.
const CARD_KEYS: i32 = -100;
const DISK_KEYS: i32 = -200;
const PCI_KEYS: i32 = -300;

/// The most network devices of a machine.
const MAX_CARDS: usize = 10;

const KIB_PER_GIB: u64 = 1 << 20;

/// Takes the cards of the template away, and puts those of the spec in their place.
pub(super) fn cards(
    network: &NetworkSpec,
    template: &[Card],
    catalog: &Catalog,
    macs: &[[u8; 6]],
) -> Result<Vec<DeviceConfigSpec>> {
    if network.devices.len() > MAX_CARDS {
        let count = network.devices.len();
        return Err(invalid(format!(
            "spec.network.devices: {count} devices, and vSphere allows {MAX_CARDS}"
        )));
    }
    let mut changes: Vec<_> = template
        .iter()
        .map(|card| {
            let gone = EthernetCard {
                key: card.key,
                backing: None,
                connectable: None,
                address_type: None,
                mac_address: None,
            };
            DeviceConfigSpec {
                operation: "remove",
                file_operation: None,
                device: object_as(card.kind, gone),
                profile: Vec::new(),
            }
        })
        .collect();
    for ((number, device), mac) in (0i32..).zip(&network.devices).zip(macs) {
        let field = format!("spec.network.devices[{number}].networkName");
        let card = EthernetCard {
            key: CARD_KEYS - number,
            backing: Some(catalog.network(&field, &device.network_name)?.backing(&field)?),
            connectable: Some(ConnectInfo {
                start_connected: true,
                allow_guest_control: true,
                connected: true,
            }),
            address_type: Some("manual"),
            mac_address: Some(written(*mac)),
        };
        changes.push(DeviceConfigSpec {
            operation: "add",
            file_operation: None,
            device: object_as("VirtualVmxnet3", card),
            profile: Vec::new(),
        });
    }
    Ok(changes)
}

/// Grows the disks of the template: the first one to `diskGiB`, the others to `additionalDisksGiB`.
pub(super) fn grown(
    spec: &VirtualMachineCloneSpec,
    template: &[TemplateDisk],
    profile: &[DefinedProfile],
) -> Result<Vec<DeviceConfigSpec>> {
    let sizes = std::iter::once(("spec.diskGiB".to_owned(), spec.disk_gib.unwrap_or_default())).chain(
        spec.additional_disks_gib
            .iter()
            .enumerate()
            .map(|(number, size)| (format!("spec.additionalDisksGiB[{number}]"), *size)),
    );
    let mut changes = Vec::new();
    for (number, (field, size)) in sizes.enumerate() {
        if size == 0 {
            continue;
        }
        let wanted = u64::try_from(size)
            .map_err(|_| invalid(format!("{field}: {size} is no size in GiB")))?
            .saturating_mul(KIB_PER_GIB);
        let Some(disk) = template.get(number) else {
            let words = format!(
                "{field}: the template has {} disks; new disks are in spec.dataDisks",
                template.len()
            );
            return Err(invalid(words));
        };
        if wanted < disk.capacity_kib {
            let has = disk.capacity_kib.div_ceil(KIB_PER_GIB);
            return Err(invalid(format!(
                "{field}: {size} GiB are less than the {has} GiB of the template's disk, which can only grow"
            )));
        }
        if wanted == disk.capacity_kib {
            continue;
        }
        let backing = disk.file.clone().map(|file_name| FlatDiskBacking {
            file_name,
            datastore: None,
            disk_mode: disk.disk_mode.clone(),
            thin: disk.thin,
            eager: None,
        });
        let disk = Disk {
            key: disk.key,
            backing,
            controller_key: disk.controller_key,
            unit_number: disk.unit_number,
            capacity_kib: wanted,
            capacity_bytes: Some(wanted.saturating_mul(1024)),
        };
        changes.push(DeviceConfigSpec {
            operation: "edit",
            file_operation: None,
            device: object(disk),
            profile: profile.to_vec(),
        });
    }
    Ok(changes)
}

/// Adds `dataDisks`, on the controller of the first disk.
pub(super) fn added(
    spec: &VirtualMachineCloneSpec,
    template: &TemplateFacts,
    profile: &[DefinedProfile],
) -> Result<Vec<DeviceConfigSpec>> {
    if spec.data_disks.is_empty() {
        return Ok(Vec::new());
    }
    let controller = template.disks.first().and_then(|disk| disk.controller_key);
    let controller = template.controllers.iter().find(|one| Some(one.key) == controller);
    let Some(controller) = controller else {
        return Err(invalid(
            "spec.dataDisks: the template has no disk, so there is no controller for more".to_owned(),
        ));
    };
    let Controller { key, units, taken } = controller;
    let mut free = (0..*units).filter(|unit| !taken.contains(unit));
    let mut changes = Vec::new();
    for (number, disk) in (0i32..).zip(&spec.data_disks) {
        let field = format!("spec.dataDisks[{number}]");
        let Some(unit) = free.next() else {
            return Err(invalid(format!("{field}: the disk controller of the template has no unit left")));
        };
        let size = u64::try_from(disk.size_gib).ok().filter(|size| *size != 0);
        let Some(size) = size else {
            return Err(invalid(format!("{field}.sizeGiB: {} is no size in GiB", disk.size_gib)));
        };
        let (thin, eager) = match disk.provisioning_mode {
            None => (None, None),
            Some(ProvisioningMode::Thin) => (Some(true), None),
            Some(ProvisioningMode::Thick) => (Some(false), None),
            Some(ProvisioningMode::EagerlyZeroed) => (Some(false), Some(true)),
        };
        let backing = FlatDiskBacking {
            file_name: String::new(),
            datastore: None,
            disk_mode: "persistent".to_owned(),
            thin,
            eager,
        };
        let disk = Disk {
            key: DISK_KEYS - number,
            backing: Some(backing),
            controller_key: Some(*key),
            unit_number: Some(unit),
            capacity_kib: size.saturating_mul(KIB_PER_GIB),
            capacity_bytes: None,
        };
        changes.push(DeviceConfigSpec {
            operation: "add",
            file_operation: Some("create"),
            device: object(disk),
            profile: profile.to_vec(),
        });
    }
    Ok(changes)
}

/// Adds `pciDevices`: devices of the host, and virtual GPUs.
pub(super) fn of_the_host(devices: &[PciDeviceSpec]) -> Result<Vec<DeviceConfigSpec>> {
    let one = |(number, device): (i32, &PciDeviceSpec)| {
        let label = device.custom_label.clone().filter(|label| !label.is_empty());
        let backing =
            match (device.vgpu_profile.as_deref().unwrap_or_default(), device.vendor_id, device.device_id) {
                ("", Some(vendor_id), Some(device_id)) => object(DynamicPciBacking {
                    device_name: String::new(),
                    allowed: vec![AllowedPciDevice { vendor_id, device_id }],
                    custom_label: label,
                }),
                ("", _, _) => {
                    let field = format!("spec.pciDevices[{number}]");
                    return Err(invalid(format!("{field}: give vendorId and deviceId, or vGPUProfile")));
                }
                (profile, None, None) => object(VgpuBacking { vgpu: profile.to_owned() }),
                (_, _, _) => {
                    let field = format!("spec.pciDevices[{number}].vGPUProfile");
                    return Err(invalid(format!("{field}: not beside vendorId and deviceId")));
                }
            };
        Ok(DeviceConfigSpec {
            operation: "add",
            file_operation: None,
            device: object(PciDevice { key: PCI_KEYS - number, backing }),
            profile: Vec::new(),
        })
    };
    (0i32..).zip(devices).map(one).collect()
}

#[cfg(test)]
mod tests;
