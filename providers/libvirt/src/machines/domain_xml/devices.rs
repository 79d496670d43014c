//! The devices of a machine.

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};

use super::{DomainPlan, PlannedBootstrap, PlannedDisk};
use crate::{
    domain::AGENT_CHANNEL,
    mac::Mac,
    machines::{
        names,
        spec::{DiskBus, ImageFormat, InterfaceModel, InterfaceSource, InterfaceSpec, MacvtapMode},
        xml::Element,
    },
};

/// The serial number of the seed, under `/dev/disk/by-id/virtio-seed`.
const SEED_SERIAL: &str = "seed";

impl DomainPlan<'_> {
    pub(super) fn devices(&self) -> Result<Element> {
        let mut devices = Element::new("devices");
        let mut names = DeviceNames::default();
        for (number, disk) in self.disks.iter().enumerate() {
            devices = devices.child(disk_element(disk, number == 0, &mut names));
        }
        if let PlannedBootstrap::Seed(path) = &self.bootstrap {
            devices = devices.child(seed(path, &mut names));
        }
        if self.disks.iter().any(|disk| disk.bus == DiskBus::Scsi) {
            let controller = Element::new("controller").with("type", "scsi").with("index", 0);
            devices = devices.child(controller.with("model", "virtio-scsi"));
        }
        for (number, interface) in self.spec.interfaces.iter().enumerate() {
            devices = devices.child(self.interface(number, interface)?);
        }
        devices = devices.children(self.serial());
        if self.spec.guest_agent {
            let target = Element::new("target").with("type", "virtio").with("name", AGENT_CHANNEL);
            devices = devices.child(Element::new("channel").with("type", "unix").child(target));
        }
        let random = Element::text("backend", "/dev/urandom").with("model", "random");
        devices = devices.children([
            Element::new("rng").with("model", "virtio").child(random),
            Element::new("memballoon").with("model", "virtio"),
        ]);
        if self.capabilities.is_x86() {
            devices = devices.child(Element::new("panic").with("model", "isa"));
        }
        Ok(devices)
    }

    /// A terminal for `virsh console`, and with a log also a file.
    fn serial(&self) -> [Element; 2] {
        let kind = if self.console.is_some() { "file" } else { "pty" };
        let mut serial = Element::new("serial").with("type", kind);
        let mut console = Element::new("console").with("type", kind);
        if let Some(path) = &self.console {
            let source = Element::new("source").with("path", path).with("append", "on");
            serial = serial.child(source.clone());
            console = console.child(source);
        }
        [
            serial.child(Element::new("target").with("port", 0)),
            console.child(Element::new("target").with("type", "serial").with("port", 0)),
        ]
    }

    fn interface(&self, number: usize, interface: &InterfaceSpec) -> Result<Element> {
        let (kind, source) = match interface.source(number)? {
            InterfaceSource::Network(name) => ("network", Element::new("source").with("network", name)),
            InterfaceSource::Bridge(name) => ("bridge", Element::new("source").with("bridge", name)),
            InterfaceSource::Macvtap(macvtap) => {
                let mode = match macvtap.mode {
                    MacvtapMode::Bridge => "bridge",
                    MacvtapMode::Vepa => "vepa",
                    MacvtapMode::Private => "private",
                    MacvtapMode::Passthrough => "passthrough",
                };
                ("direct", Element::new("source").with("dev", &macvtap.device).with("mode", mode))
            }
        };
        let model = match interface.model {
            InterfaceModel::Virtio => "virtio",
            InterfaceModel::E1000e => "e1000e",
        };
        let mac = mac_of(self.mark, number, interface)?;
        Ok(Element::new("interface").with("type", kind).children([
            Element::new("mac").with("address", mac),
            source,
            Element::new("model").with("type", model),
        ]))
    }
}

/// The MAC address of an interface: the user's, or one made from the mark.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the user's is none.
fn mac_of(mark: &Mark, number: usize, interface: &InterfaceSpec) -> Result<Mac> {
    match &interface.mac {
        None => Ok(names::mac(mark, number)),
        Some(text) => Mac::parse(text).ok_or_else(|| {
            let words = format!(
                "spec.interfaces[{number}].mac: {text:?} is not a MAC address such as 52:54:00:12:34:56"
            );
            Error::new(ErrorKind::InvalidInput, words)
        }),
    }
}

/// Names of disks that are not given yet. The guest may call them otherwise.
#[derive(Debug, Default)]
struct DeviceNames {
    virtio: u8,
    others: u8,
}

impl DeviceNames {
    fn next(&mut self, bus: DiskBus) -> String {
        let (prefix, count) = match bus {
            DiskBus::Virtio => ("vd", &mut self.virtio),
            DiskBus::Scsi | DiskBus::Sata => ("sd", &mut self.others),
        };
        // The CRD allows 24 disks, and there is one seed.
        let letter = char::from(b'a' + (*count).min(25));
        *count += 1;
        format!("{prefix}{letter}")
    }
}

fn format_name(format: ImageFormat) -> &'static str {
    format.as_str()
}

/// A file, or a device such as a logical volume.
fn source(path: &str) -> (&'static str, Element) {
    if path.starts_with("/dev/") {
        ("block", Element::new("source").with("dev", path))
    } else {
        ("file", Element::new("source").with("file", path))
    }
}

fn disk_element(disk: &PlannedDisk, is_root: bool, names: &mut DeviceNames) -> Element {
    let (kind, from) = source(&disk.path);
    let driver = Element::new("driver")
        .with("name", "qemu")
        .with("type", format_name(disk.format))
        .with("discard", "unmap");
    let mut element = Element::new("disk").with("type", kind).with("device", "disk").children([driver, from]);
    if let Some((path, format)) = &disk.backing {
        let (kind, from) = source(path);
        let format = Element::new("format").with("type", format_name(*format));
        // The empty one says that nothing is below the image.
        let end = Element::new("backingStore");
        element =
            element.child(Element::new("backingStore").with("type", kind).children([format, from, end]));
    }
    let bus = match disk.bus {
        DiskBus::Virtio => "virtio",
        DiskBus::Scsi => "scsi",
        DiskBus::Sata => "sata",
    };
    element = element.child(Element::new("target").with("dev", names.next(disk.bus)).with("bus", bus));
    element = element.child(Element::text("serial", &disk.name));
    if is_root { element.child(Element::new("boot").with("order", 1)) } else { element }
}

/// A virtio disk, since images for clouds often lack drivers for optical drives.
fn seed(path: &str, names: &mut DeviceNames) -> Element {
    let (kind, from) = source(path);
    Element::new("disk").with("type", kind).with("device", "disk").children([
        Element::new("driver").with("name", "qemu").with("type", "raw"),
        from,
        Element::new("target").with("dev", names.next(DiskBus::Virtio)).with("bus", "virtio"),
        Element::new("readonly"),
        Element::text("serial", SEED_SERIAL),
    ])
}
