//! What the first bytes of an image say: its format, and the size of the disk in it.
//!
//! Layout of qcow2: `docs/interop/qcow2.rst` of QEMU. All numbers are big-endian.

use std::fmt;

use super::volume::Format;

/// Enough bytes for [`read`].
pub(super) const ENOUGH: usize = 512;

/// The part of a qcow2 header that versions 2 and 3 have.
const LENGTH_V2: usize = 72;
/// The part that version 3 has at least.
const LENGTH_V3: usize = 104;
/// Bits of the incompatible features: the image was not closed, it is damaged, its data are in another file,
/// it says how it is compressed, its clusters are divided.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// libvirt and QEMU take sizes as signed numbers.
const MAX_SIZE: u64 = i64::MAX as u64;

/// An image that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Its format.
    pub(super) format: Format,
    /// The size of the disk in bytes. `None` for raw images: the length of the file.
    pub(super) virtual_size: Option<u64>,
}

/// Why an image cannot be used, as the end of a sentence that begins with the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It is compressed as a whole: with what.
    Compressed(&'static str),
    /// It has another format: which.
    Format(&'static str),
    /// The file ends inside of the header.
    Short,
    /// Its version of qcow2.
    Version(u32),
    /// A field has no sensible value.
    Field(&'static str),
    /// It has only the differences to another file.
    BackingFile,
    /// Its data are in another file.
    ExternalData,
    /// It is encrypted.
    Encrypted,
    /// QEMU has marked it as damaged, or did not close it.
    Damaged,
    /// It has features that are not known here: their bits.
    Features(u64),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compressed(with) => write!(f, "is compressed with {with}; give an image that is not"),
            Self::Format(format) => {
                write!(f, "has the format {format}; convert it with qemu-img convert -O qcow2")
            }
            Self::Short => f.write_str("is too short for its format"),
            Self::Version(version) => write!(f, "has version {version} of qcow2; 2 and 3 are known"),
            Self::Field(field) => write!(f, "has a header whose field {field} makes no sense"),
            Self::BackingFile => f.write_str(
                "has only the differences to another file; merge both with qemu-img convert -O qcow2",
            ),
            Self::ExternalData => {
                f.write_str("has its data in another file; merge both with qemu-img convert -O qcow2")
            }
            Self::Encrypted => f.write_str("is encrypted, which is not supported"),
            Self::Damaged => {
                f.write_str("is marked as damaged or not closed; repair it with qemu-img check -r all")
            }
            Self::Features(bits) => {
                write!(f, "has features of qcow2 that are not known here (bits {bits:#x})")
            }
        }
    }
}

/// Beginnings of files that are compressed as a whole.
const COMPRESSED: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
];

/// Other formats of disks: where they say so, and how.
const OTHERS: [(usize, &[u8], &str); 7] = [
    (0, b"KDMV", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"QED\0", "qed"),
    (0, b"OOOO", "a disk in a sparse format"),
    (64, b"\x7f\x10\xda\xbe", "vdi"),
];

const QCOW: &[u8] = b"QFI\xfb";

/// Reads the first bytes of an image, at least [`ENOUGH`] of them unless the image is shorter. Whatever is in
/// no known format is raw.
pub(super) fn read(bytes: &[u8]) -> Result<Header, Unusable> {
    if bytes.starts_with(QCOW) {
        return qcow2(bytes);
    }
    if let Some((_, with)) = COMPRESSED.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Err(Unusable::Compressed(with));
    }
    let other =
        OTHERS.iter().find(|(at, start, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(start)));
    match other {
        Some((_, _, format)) => Err(Unusable::Format(format)),
        None if bytes.is_empty() => Err(Unusable::Short),
        None => Ok(Header { format: Format::Raw, virtual_size: None }),
    }
}

/// The header of a qcow2 image, version 3, with a disk of this size and nothing in it.
pub(super) fn qcow2_header(virtual_size: u64) -> Vec<u8> {
    let mut bytes = vec![0; ENOUGH];
    for (at, field) in [
        (0, QCOW),
        (4, &3u32.to_be_bytes()),
        // cluster_bits and header_length
        (20, &16u32.to_be_bytes()),
        (24, &virtual_size.to_be_bytes()),
        (100, &112u32.to_be_bytes()),
    ] {
        bytes.splice(at..at + field.len(), field.iter().copied());
    }
    bytes
}

fn qcow2(bytes: &[u8]) -> Result<Header, Unusable> {
    let version = number32(bytes, 4)?;
    let length = match version {
        1 => return Err(Unusable::Format("qcow, the predecessor of qcow2")),
        2 => LENGTH_V2,
        3 => LENGTH_V3,
        other => return Err(Unusable::Version(other)),
    };
    if bytes.len() < length {
        return Err(Unusable::Short);
    }
    if number64(bytes, 8)? != 0 || number32(bytes, 16)? != 0 {
        return Err(Unusable::BackingFile);
    }
    if !(9..=21).contains(&number32(bytes, 20)?) {
        return Err(Unusable::Field("cluster_bits"));
    }
    if number32(bytes, 32)? != 0 {
        return Err(Unusable::Encrypted);
    }
    if version == 3 {
        features(number64(bytes, 72)?)?;
        let header_length = number32(bytes, 100)?;
        if header_length < u32::try_from(LENGTH_V3).unwrap_or(u32::MAX) || header_length % 8 != 0 {
            return Err(Unusable::Field("header_length"));
        }
    }
    let virtual_size = number64(bytes, 24)?;
    if virtual_size == 0 || virtual_size > MAX_SIZE {
        return Err(Unusable::Field("size"));
    }
    Ok(Header { format: Format::Qcow2, virtual_size: Some(virtual_size) })
}

fn features(incompatible: u64) -> Result<(), Unusable> {
    if incompatible & EXTERNAL_DATA != 0 {
        return Err(Unusable::ExternalData);
    }
    if incompatible & (DIRTY | CORRUPT) != 0 {
        return Err(Unusable::Damaged);
    }
    match incompatible & !(COMPRESSION_TYPE | EXTENDED_L2) {
        0 => Ok(()),
        unknown => Err(Unusable::Features(unknown)),
    }
}

fn number32(bytes: &[u8], at: usize) -> Result<u32, Unusable> {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Unusable::Short)?;
    Ok(u32::from_be_bytes(*four))
}

fn number64(bytes: &[u8], at: usize) -> Result<u64, Unusable> {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Unusable::Short)?;
    Ok(u64::from_be_bytes(*eight))
}

#[cfg(test)]
mod tests;
