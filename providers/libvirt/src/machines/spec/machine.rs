//! What a user says about a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ImageSpec, InterfaceSpec};
use crate::allow::{DEFAULT_NETWORK, DEFAULT_POOL};

/// The spec of a `LibvirtMachine`: a virtual machine on one of the provider's hypervisors.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.quoteSerialLog) || !self.quoteSerialLog || !has(self.serialLog) || self.serialLog",
     "message": "quoteSerialLog needs serialLog"},
    // the rule of the field itself holds only where both objects have the field
    {"rule": "has(self.interfaces) == has(oldSelf.interfaces)",
     "message": "interfaces cannot change; make a new template"},
]))]
pub(crate) struct LibvirtMachineSpec {
    /// Number of virtual CPUs.
    #[schemars(range(min = 1, max = 1024))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot change; make a new template"}]))]
    pub(crate) vcpus: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 64, max = 67_108_864))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot change; make a new template"}]))]
    pub(crate) memory_mib: u64,
    /// Whether the guest runs with KVM or is emulated. Default: with KVM where the hypervisor has it.
    #[serde(default)]
    pub(crate) domain_type: Option<DomainType>,
    /// The CPU that the guest sees. Default: the host's own with KVM, and everything that QEMU can emulate
    /// without.
    #[serde(default)]
    pub(crate) cpu: Option<CpuSpec>,
    /// QEMU's machine type, such as `q35` or `pc-q35-7.2`. Default: `q35` on x86, `virt` elsewhere.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub(crate) machine_type: Option<String>,
    /// What starts the guest. Default: `bios`.
    #[serde(default)]
    pub(crate) firmware: Firmware,
    /// What the root disk is made from.
    pub(crate) image: ImageSpec,
    /// How the root disk is made from the image. Default: `overlay`.
    #[serde(default)]
    pub(crate) root_disk_mode: RootDiskMode,
    /// The disks. The first one is the root disk; others are empty.
    #[schemars(length(min = 1, max = 24))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot change; make a new template"}]))]
    pub(crate) disks: Vec<DiskSpec>,
    /// The network interfaces, in the order in which the guest sees them. Default: one on the libvirt network
    /// `default`.
    #[serde(default = "default_interfaces")]
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "cannot change; make a new template"}]))]
    pub(crate) interfaces: Vec<InterfaceSpec>,
    /// The only hypervisor that the machine may be on, by its name in the provider's configuration. Default:
    /// the provider chooses one in the machine's failure domain.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253))]
    pub(crate) hypervisor: Option<String>,
    /// Whether the machine starts when its hypervisor does. Default: true.
    #[serde(default = "yes")]
    pub(crate) autostart: bool,
    /// Whether the output of the guest's serial console is kept on the hypervisor.
    /// It is deleted with the machine. Default: true.
    #[serde(default = "yes")]
    pub(crate) serial_log: bool,
    /// Whether the condition `Ready` quotes the end of that output while a guest that has been up for five minutes has no
    /// address. Whoever may read the object reads it. Lines with parts of the bootstrap data, and lines that look like
    /// secrets, are left out, but a guest can print its data in a form that nobody recognises. Default: false.
    #[serde(default)]
    pub(crate) quote_serial_log: bool,
    /// Whether the guest gets a channel for the QEMU guest agent. Default: true.
    #[serde(default = "yes")]
    pub(crate) guest_agent: bool,
    /// How the machine is powered off before it is deleted. Default: `hard`.
    #[serde(default)]
    pub(crate) power_off_mode: PowerOffMode,
    /// With `trySoft`: after how many seconds a guest that has not shut down is powered off. Default: 300.
    #[serde(default = "default_soft_power_off_timeout")]
    #[schemars(range(min = 1, max = 86_400))]
    pub(crate) soft_power_off_timeout_seconds: u32,
    /// Whether the bootstrap data are wiped from the hypervisor once the machine has become a Node. Default:
    /// false.
    #[serde(default)]
    pub(crate) remove_bootstrap_data: bool,
}

/// What runs a guest: libvirt's type of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DomainType {
    /// The hypervisor's CPUs.
    Kvm,
    /// QEMU alone, which is many times slower. For hypervisors whose KVM does not work.
    Qemu,
}

/// The CPU that a guest sees. Give `mode` or `model`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "has(self.mode) != has(self.model)", "message": "give either mode or model"}]))]
pub(crate) struct CpuSpec {
    /// One of libvirt's modes.
    #[serde(default)]
    pub(crate) mode: Option<CpuMode>,
    /// The name of a CPU model that libvirt knows, such as `Skylake-Server`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9._+-]+$"))]
    pub(crate) model: Option<String>,
}

/// A mode of libvirt's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CpuMode {
    /// The host's CPU itself. Needs KVM.
    HostPassthrough,
    /// libvirt's model that is nearest to the host's CPU.
    HostModel,
    /// Everything that the hypervisor can do.
    Maximum,
}

/// What starts a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Firmware {
    /// A BIOS.
    #[default]
    Bios,
    /// UEFI. The hypervisor chooses a firmware (package `ovmf`) and keeps the machine's variables.
    Uefi,
    /// UEFI that starts signed systems only.
    UefiSecureBoot,
}

/// How a root disk is made from its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RootDiskMode {
    /// A qcow2 file with the differences to the image, which stays in use. Made at once.
    #[default]
    Overlay,
    /// A full copy.
    Copy,
}

/// A disk of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DiskSpec {
    /// The disk's name, unique in the machine. The guest sees it as the serial number, and so under
    /// `/dev/disk/by-id/`. Default: `root` for the first disk, `disk1`, `disk2` and so on for the others.
    #[serde(default)]
    #[schemars(length(min = 1, max = 20), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub(crate) name: Option<String>,
    /// The size in GiB. A root disk that is smaller than its image is an error.
    #[serde(rename = "sizeGiB")]
    #[schemars(range(min = 1, max = 65_536))]
    pub(crate) size_gib: u64,
    /// The storage pool: `default`, or one that the provider's configuration allows. Default: `default`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^/]+$"))]
    pub(crate) pool: Option<String>,
    /// How the disk is attached. Default: `virtio`.
    #[serde(default)]
    pub(crate) bus: DiskBus,
    /// The disk's format. Default: `qcow2`. An overlay is always `qcow2`.
    #[serde(default)]
    pub(crate) format: DiskFormat,
}

/// How a disk is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DiskBus {
    /// A virtio block device, `/dev/vda`.
    #[default]
    Virtio,
    /// A disk of a virtio SCSI controller, `/dev/sda`.
    Scsi,
    /// A SATA disk, `/dev/sda`.
    Sata,
}

/// The format of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DiskFormat {
    /// Grows as it is written.
    #[default]
    Qcow2,
    /// The bytes of the disk as they are.
    Raw,
}

/// How a machine is powered off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PowerOffMode {
    /// At once, as if the power failed.
    #[default]
    Hard,
    /// The guest is asked to shut down, and the deletion waits until it has, however long that takes.
    Soft,
    /// The guest is asked to shut down. After `softPowerOffTimeoutSeconds` it is powered off.
    TrySoft,
}

impl DiskSpec {
    /// The pool of the disk.
    pub(crate) fn pool(&self) -> &str {
        self.pool.as_deref().unwrap_or(DEFAULT_POOL)
    }
}

impl LibvirtMachineSpec {
    /// The disks with their names. The first one is the root disk.
    pub(crate) fn named_disks(&self) -> impl Iterator<Item = (String, &DiskSpec)> {
        self.disks.iter().enumerate().map(|(number, disk)| {
            let name = match (&disk.name, number) {
                (Some(name), _) => name.clone(),
                (None, 0) => "root".to_owned(),
                (None, number) => format!("disk{number}"),
            };
            (name, disk)
        })
    }

    /// The pool of the root disk, of the seed and of what else is small.
    pub(crate) fn pool(&self) -> &str {
        self.disks.first().map_or(DEFAULT_POOL, DiskSpec::pool)
    }

    /// Every pool in which the machine has volumes, sorted.
    pub(crate) fn pools(&self) -> Vec<&str> {
        let mut pools: Vec<_> = self.disks.iter().map(DiskSpec::pool).collect();
        pools.push(self.pool());
        pools.sort_unstable();
        pools.dedup();
        pools
    }
}

fn default_interfaces() -> Vec<InterfaceSpec> {
    vec![InterfaceSpec::on_network(DEFAULT_NETWORK)]
}

fn default_soft_power_off_timeout() -> u32 {
    300
}

fn yes() -> bool {
    true
}
