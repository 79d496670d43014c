//! The XML of a machine's domain. Pure: nothing here calls libvirt.
//!
//! The same input gives the same bytes, so a step that defines a domain again changes nothing.

mod devices;

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};
use uuid::Uuid;

use super::{
    capabilities::Capabilities,
    names,
    spec::{CpuMode, CpuSpec, DiskBus, DomainType, Firmware, ImageFormat, LibvirtMachineSpec},
    xml::Element,
};
use crate::domain::METADATA_NAMESPACE;

/// The `fw_cfg` entry in which Ignition looks for its configuration.
pub(crate) const IGNITION_ENTRY: &str = "opt/com.coreos/config";

/// All that a domain is made from.
#[derive(Clone, Debug)]
pub(crate) struct DomainPlan<'a> {
    /// Whose it is.
    pub(crate) mark: &'a Mark,
    /// The domain's UUID, which the guest sees as its system UUID.
    pub(crate) uuid: Uuid,
    /// What the user says.
    pub(crate) spec: &'a LibvirtMachineSpec,
    /// Whether it is a machine of the control plane.
    pub(crate) is_control_plane: bool,
    /// What the hypervisor can run.
    pub(crate) capabilities: &'a Capabilities,
    /// The disks, the root disk first.
    pub(crate) disks: Vec<PlannedDisk>,
    /// The bootstrap data.
    pub(crate) bootstrap: PlannedBootstrap,
    /// The file that the output of the serial console goes to.
    pub(crate) console: Option<String>,
}

/// A disk whose volume exists.
#[derive(Clone, Debug)]
pub(crate) struct PlannedDisk {
    /// Its name in the machine, which the guest sees as the serial number.
    pub(crate) name: String,
    /// The path on the hypervisor.
    pub(crate) path: String,
    /// The format.
    pub(crate) format: ImageFormat,
    /// What it has the differences to: path and format. libvirt must not guess the format, since the guest
    /// could change what is guessed.
    pub(crate) backing: Option<(String, ImageFormat)>,
    /// How it is attached.
    pub(crate) bus: DiskBus,
}

/// How the guest gets its bootstrap data: the path of a volume.
#[derive(Clone, Debug)]
pub(crate) enum PlannedBootstrap {
    /// A disk for cloud-init.
    Seed(String),
    /// A file for Ignition.
    Ignition(String),
}

impl DomainPlan<'_> {
    /// The domain's XML.
    ///
    /// # Errors
    /// What the spec asks for and the hypervisor cannot do, with the field's name.
    pub(crate) fn xml(&self) -> Result<String> {
        let spec = self.spec;
        let kind = if self.has_kvm()? { "kvm" } else { "qemu" };
        let memory = |name| Element::text(name, spec.memory_mib).with("unit", "MiB");
        let mut domain = Element::new("domain").with("type", kind).children([
            Element::text("name", names::domain(self.mark)),
            Element::text("uuid", self.uuid),
            metadata(self.mark, self.is_control_plane),
            memory("memory"),
            memory("currentMemory"),
            Element::text("vcpu", spec.vcpus).with("placement", "static"),
        ]);
        if let PlannedBootstrap::Ignition(path) = &self.bootstrap {
            let entry = Element::new("entry").with("name", IGNITION_ENTRY).with("file", path);
            domain = domain.child(Element::new("sysinfo").with("type", "fwcfg").child(entry));
        }
        domain = domain.children([self.os(), self.features(), self.cpu()?]);
        domain = domain.children([
            Element::new("clock").with("offset", "utc"),
            Element::text("on_poweroff", "destroy"),
            Element::text("on_reboot", "restart"),
            Element::text("on_crash", "restart"),
            self.devices()?,
        ]);
        Ok(domain.to_string())
    }

    /// Whether the guest runs with KVM.
    fn has_kvm(&self) -> Result<bool> {
        match self.spec.domain_type {
            Some(DomainType::Kvm) if !self.capabilities.has_kvm => {
                let words = "spec.domainType: the hypervisor does not have KVM";
                Err(Error::new(ErrorKind::Unsupported, words))
            }
            Some(DomainType::Qemu) => Ok(false),
            Some(DomainType::Kvm) | None => Ok(self.capabilities.has_kvm),
        }
    }

    fn os(&self) -> Element {
        let default = if self.capabilities.is_x86() { "q35" } else { "virt" };
        let machine = self.spec.machine_type.as_deref().unwrap_or(default);
        let kind =
            Element::text("type", "hvm").with("arch", &self.capabilities.arch).with("machine", machine);
        let feature =
            |name: &str, enabled: &str| Element::new("feature").with("enabled", enabled).with("name", name);
        let os = Element::new("os");
        match self.spec.firmware {
            Firmware::Bios => os.child(kind),
            // A firmware with enrolled keys would refuse systems that are not signed.
            Firmware::Uefi => os
                .with("firmware", "efi")
                .child(kind)
                .child(Element::new("firmware").child(feature("enrolled-keys", "no"))),
            Firmware::UefiSecureBoot => os.with("firmware", "efi").child(kind).child(
                Element::new("firmware")
                    .children([feature("enrolled-keys", "yes"), feature("secure-boot", "yes")]),
            ),
        }
    }

    fn features(&self) -> Element {
        let mut features = Element::new("features").child(Element::new("acpi"));
        if self.capabilities.is_x86() {
            features = features.child(Element::new("apic"));
        }
        if self.spec.firmware == Firmware::UefiSecureBoot && self.capabilities.is_x86() {
            features = features.child(Element::new("smm").with("state", "on"));
        }
        features
    }

    fn cpu(&self) -> Result<Element> {
        let has_kvm = self.has_kvm()?;
        let mode = |mode: &str| Ok(Element::new("cpu").with("mode", mode));
        match &self.spec.cpu {
            None => mode(if has_kvm { "host-passthrough" } else { "maximum" }),
            Some(CpuSpec { mode: Some(CpuMode::HostPassthrough), model: None }) if !has_kvm => {
                let words = "spec.cpu.mode: host-passthrough needs KVM, with which the guest does not run";
                Err(Error::new(ErrorKind::Unsupported, words))
            }
            Some(CpuSpec { mode: Some(CpuMode::HostPassthrough), model: None }) => mode("host-passthrough"),
            Some(CpuSpec { mode: Some(CpuMode::HostModel), model: None }) => mode("host-model"),
            Some(CpuSpec { mode: Some(CpuMode::Maximum), model: None }) => mode("maximum"),
            Some(CpuSpec { mode: None, model: Some(model) }) => Ok(Element::new("cpu")
                .with("mode", "custom")
                .with("match", "exact")
                .child(Element::text("model", model).with("fallback", "forbid"))),
            Some(_) => Err(Error::new(ErrorKind::InvalidInput, "spec.cpu: give either mode or model")),
        }
    }
}

/// The role of machines of the control plane.
const CONTROL_PLANE: &str = "control-plane";

/// The element `metadata` of a machine's domain, which says whose it is:
///
/// ```xml
/// <ccm:instance xmlns:ccm='urn:cloud-controller-manager:libvirt:1' cluster='prod' role='control-plane'>
///   <ccm:mark uid='5d0b...' namespace='default' cluster='prod' machine='node-1'/>
/// </ccm:instance>
/// ```
///
/// It is part of the call that defines the domain, so there is no domain of ours without it.
/// [`Domain`](crate::domain::Domain) reads it back.
fn metadata(mark: &Mark, is_control_plane: bool) -> Element {
    let mark_element = Element::new("ccm:mark")
        .with("uid", &mark.uid)
        .with("namespace", &mark.namespace)
        .with("cluster", &mark.cluster)
        .with_some("machine", mark.machine.as_ref());
    let instance = Element::new("ccm:instance")
        .with("xmlns:ccm", METADATA_NAMESPACE)
        .with("cluster", &mark.cluster)
        .with_some("role", is_control_plane.then_some(CONTROL_PLANE))
        .child(mark_element);
    Element::new("metadata").child(instance)
}

#[cfg(test)]
mod tests;
