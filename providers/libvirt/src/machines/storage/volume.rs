//! Volumes, as libvirt's XML has them.

use std::{borrow::Cow, fmt::Write as _};

use quick_xml::escape::escape;
use serde::Deserialize;

/// Sizes of disks are multiples of this. Smaller units are rounded by libvirt.
pub(crate) const SIZE_UNIT: u64 = 1 << 20;

/// The format of a volume that is made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// QEMU's own.
    Qcow2,
    /// The bytes of the disk as they are.
    Raw,
}

impl Format {
    /// The format as libvirt names it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// A file and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    /// The path on the hypervisor.
    pub(crate) path: String,
    /// The format.
    pub(crate) format: Format,
}

/// A volume to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewVolume {
    /// Its name.
    pub(crate) name: String,
    /// Its format.
    pub(crate) format: Format,
    /// The size of the disk in bytes.
    pub(crate) capacity: u64,
    /// What it has the differences to.
    pub(crate) backing: Option<Backing>,
}

impl NewVolume {
    /// A volume without a backing file.
    pub(crate) fn new(name: impl Into<String>, format: Format, capacity: u64) -> Self {
        Self { name: name.into(), format, capacity, backing: None }
    }

    /// An empty volume that grows with what is uploaded to it.
    pub(crate) fn empty(name: impl Into<String>) -> Self {
        Self::new(name, Format::Raw, 0)
    }

    /// libvirt's description of it. No room is taken before it is needed.
    pub(crate) fn xml(&self) -> String {
        let mut xml = format!(
            "<volume><name>{}</name><capacity unit='bytes'>{}</capacity>",
            escape(&self.name),
            self.capacity
        );
        match self.format {
            // With an allocation of none, libvirt would not take the metadata of a qcow2 file into account.
            Format::Qcow2 => xml.push_str("<target><format type='qcow2'/><compat>1.1</compat></target>"),
            Format::Raw => {
                xml.push_str("<allocation unit='bytes'>0</allocation><target><format type='raw'/></target>");
            }
        }
        if let Some(backing) = &self.backing {
            // a String takes everything
            let _ = write!(
                xml,
                "<backingStore><path>{}</path><format type='{}'/></backingStore>",
                escape(&backing.path),
                backing.format.as_str()
            );
        }
        xml.push_str("</volume>");
        xml
    }
}

/// A volume that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume {
    /// Its path on the hypervisor.
    pub(crate) path: String,
    /// Its format, as libvirt names it. libvirt looks at the first bytes, also of volumes that were made as
    /// raw.
    pub(crate) format: String,
    /// The size of the disk in bytes.
    pub(crate) capacity: u64,
    /// The length of the file in bytes.
    pub(crate) length: u64,
    /// The path of what it has the differences to.
    pub(crate) backing: Option<String>,
    /// When its content last changed, in the words of the hypervisor. Changes with every write.
    pub(crate) modified: String,
}

impl Volume {
    /// Reads libvirt's description.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(xml: &str) -> Result<Self, String> {
        let read: VolumeXml = quick_xml::de::from_str(xml).map_err(|error| error.to_string())?;
        let capacity = read.capacity.bytes()?;
        let target = read.target.unwrap_or_default();
        let length = read.physical.map_or(Ok(0), |physical| physical.bytes())?;
        Ok(Self {
            path: target.path.unwrap_or_default(),
            format: target.format.and_then(|format| format.kind).unwrap_or_else(|| "raw".to_owned()),
            capacity,
            length,
            backing: read.backing_store.and_then(|backing| backing.path),
            modified: target.timestamps.and_then(|times| times.mtime).unwrap_or_default(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeXml {
    capacity: SizeXml,
    physical: Option<SizeXml>,
    target: Option<TargetXml>,
    backing_store: Option<TargetXml>,
}

#[derive(Deserialize)]
struct SizeXml {
    #[serde(rename = "@unit")]
    unit: Option<String>,
    #[serde(rename = "$text")]
    number: u64,
}

impl SizeXml {
    fn bytes(&self) -> Result<u64, String> {
        match self.unit.as_deref() {
            None | Some("bytes") => Ok(self.number),
            Some(unit) => Err(format!("a size in {unit}")),
        }
    }
}

#[derive(Default, Deserialize)]
struct TargetXml {
    path: Option<String>,
    format: Option<KindXml>,
    timestamps: Option<TimesXml>,
}

#[derive(Deserialize)]
struct KindXml {
    #[serde(rename = "@type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct TimesXml {
    mtime: Option<String>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// libvirt's name of its type, such as `dir`.
    pub(crate) kind: String,
    /// Free bytes.
    pub(crate) available: u64,
}

impl Pool {
    /// The type in libvirt's description of a pool.
    pub(crate) fn kind_in(xml: &str) -> Result<String, String> {
        let read: KindXml = quick_xml::de::from_str(xml).map_err(|error| error.to_string())?;
        read.kind.ok_or_else(|| "a pool without a type".to_owned())
    }

    /// Whether its volumes are files, which can grow while they are uploaded.
    pub(crate) fn has_files(&self) -> bool {
        matches!(self.kind.as_str(), "dir" | "fs" | "netfs")
    }
}

/// A number of bytes for people: `20 GiB`, `512.5 MiB`.
pub(crate) fn size_text(bytes: u64) -> Cow<'static, str> {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} bytes").into();
    };
    let (whole, tenths) = (bytes / unit, (bytes % unit) * 10 / unit);
    if tenths == 0 { format!("{whole} {name}").into() } else { format!("{whole}.{tenths} {name}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_says_the_format_of_its_base() {
        let base = Backing { path: "/images/a<b".to_owned(), format: Format::Raw };
        let volume = NewVolume { backing: Some(base), ..NewVolume::new("x&y", Format::Qcow2, 1 << 30) };
        assert_eq!(
            volume.xml(),
            "<volume><name>x&amp;y</name><capacity unit='bytes'>1073741824</capacity>\
             <target><format type='qcow2'/><compat>1.1</compat></target>\
             <backingStore><path>/images/a&lt;b</path><format type='raw'/></backingStore></volume>"
        );
        assert!(NewVolume::empty("a").xml().contains("<allocation unit='bytes'>0</allocation>"));
    }

    #[test]
    fn volumes_of_qemu_are_read() {
        let xml = "<volume type='file'><name>over</name><key>/i/over</key><capacity unit='bytes'>600000512</capacity>
            <allocation unit='bytes'>200704</allocation><physical unit='bytes'>196624</physical>
            <target><path>/i/over</path><format type='qcow2'/><permissions><mode>0600</mode></permissions>
            <timestamps><atime>1795417691.688736451</atime><mtime>1795417691.682522958</mtime></timestamps>
            <compat>1.1</compat><features/></target>
            <backingStore><path>/i/img&amp;</path><format type='qcow2'/></backingStore></volume>";
        let volume = Volume::parse(xml).expect("readable");
        let wanted = Volume {
            path: "/i/over".to_owned(),
            format: "qcow2".to_owned(),
            capacity: 600_000_512,
            length: 196_624,
            backing: Some("/i/img&".to_owned()),
            modified: "1795417691.682522958".to_owned(),
        };
        assert_eq!(volume, wanted);
        let empty =
            "<volume type='file'><name>x</name><capacity unit='bytes'>0</capacity><target><path>/x</path>
            <format type='raw'/></target></volume>";
        assert_eq!(Volume::parse(empty).expect("readable").length, 0);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for xml in [
            "",
            "<volume/>",
            "<volume><capacity unit='GiB'>1</capacity></volume>",
            "<volume><capacity>x</capacity></volume>",
        ] {
            Volume::parse(xml).expect_err(xml);
        }
    }

    #[test]
    fn pools_have_a_type() {
        assert_eq!(Pool::kind_in("<pool type='dir'><name>a</name></pool>").as_deref(), Ok("dir"));
        Pool::kind_in("<pool/>").expect_err("none");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (20 << 30, "20 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
