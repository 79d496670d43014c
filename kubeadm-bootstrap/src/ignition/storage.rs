//! Files, disks, file systems and mounts.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster_api::kubeadm::{Encoding, KubeadmConfigSpec};

use super::config::{Disk, File, Filesystem, Mount, Name, Partition, Unit};
use super::texts::{content, one_line};
use crate::error::Error;
use crate::machine_file::{Content, MachineFile};

/// The mode of a file whose permissions are not given.
const MODE: u32 = 0o644;
/// The file systems that Ignition can make.
const FORMATS: [&str; 5] = ["btrfs", "ext4", "swap", "vfat", "xfs"];

/// A file with its owner, mode and decoded content.
pub(super) fn file(file: &MachineFile) -> Result<File, Error> {
    let field = |name: &str| format!("{}.{name}", file.field);
    absolute(&file.path_field, &file.path)?;
    let bytes = match (&file.content, file.encoding) {
        (Content::Text(text), Some(Encoding::Base64)) => {
            let packed: String = text.split_ascii_whitespace().collect();
            STANDARD
                .decode(packed)
                .map_err(|_| Error::invalid(field("content"), "is not base64, as the encoding says"))?
        }
        (Content::Bytes(_), Some(Encoding::Base64)) => {
            return Err(Error::invalid(field("contentFrom"), "is not base64, as the encoding says"));
        }
        (plain, _) => content(plain),
    };
    let mode =
        if file.permissions.is_empty() { MODE } else { mode(&field("permissions"), &file.permissions)? };
    let mut out = File::new(&file.path, mode, &bytes);
    let mut parts = file.owner.split(':');
    let mut next = || parts.next().map(str::trim).filter(|part| !part.is_empty());
    out.user = next().map(|name| Name { name: name.to_owned() });
    out.group = next().map(|name| Name { name: name.to_owned() });
    Ok(out)
}

fn mode(field: &str, permissions: &str) -> Result<u32, Error> {
    let is_octal = permissions.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(permissions, 8).ok().filter(|mode| is_octal && *mode <= 0o7777);
    mode.ok_or_else(|| Error::invalid(field, "is not an octal mode"))
}

fn absolute(field: &str, path: &str) -> Result<(), Error> {
    one_line(field, path)?;
    if path.starts_with('/') { Ok(()) } else { Err(Error::invalid(field, "is not an absolute path")) }
}

pub(super) fn disks(spec: &KubeadmConfigSpec) -> Result<Vec<Disk>, Error> {
    let disks = spec.disk_setup.partitions.iter().enumerate();
    disks
        .map(|(index, partition)| {
            absolute(&format!("spec.diskSetup.partitions[{index}].device"), &partition.device)?;
            Ok(Disk {
                device: partition.device.clone(),
                partitions: partition.layout.map(|_| Partition {}).into_iter().collect(),
                wipe_table: partition.overwrite == Some(true),
            })
        })
        .collect()
}

pub(super) fn filesystems(spec: &KubeadmConfigSpec) -> Result<Vec<Filesystem>, Error> {
    let filesystems = spec.disk_setup.filesystems.iter().enumerate();
    filesystems
        .map(|(index, filesystem)| {
            let field = |name: &str| format!("spec.diskSetup.filesystems[{index}].{name}");
            absolute(&field("device"), &filesystem.device)?;
            if !FORMATS.contains(&filesystem.filesystem.as_str()) {
                return Err(Error::invalid(
                    field("filesystem"),
                    format!("is none of {}", FORMATS.join(", ")),
                ));
            }
            let label = filesystem.label.clone().filter(|label| !label.is_empty());
            Ok(Filesystem {
                name: label.clone().unwrap_or_default(),
                mount: Mount {
                    device: filesystem.device.clone(),
                    format: filesystem.filesystem.clone(),
                    label,
                    options: filesystem.extra_opts.clone(),
                    wipe_filesystem: filesystem.overwrite == Some(true),
                },
            })
        })
        .collect()
}

/// A unit for each mount. Its first part is the label of a file system of the spec, its second one the folder.
pub(super) fn mounts(spec: &KubeadmConfigSpec) -> Result<Vec<Unit>, Error> {
    let devices: BTreeMap<&str, &str> = spec
        .disk_setup
        .filesystems
        .iter()
        .filter_map(|filesystem| Some((filesystem.label.as_deref()?, filesystem.device.as_str())))
        .collect();
    let mounts = spec.mounts.iter().enumerate();
    mounts
        .map(|(index, mount)| {
            let field = |part: usize| format!("spec.mounts[{index}][{part}]");
            let [label, folder, options @ ..] = mount.as_slice() else {
                return Err(Error::invalid(format!("spec.mounts[{index}]"), "needs a label and a folder"));
            };
            for (part, text) in mount.iter().enumerate() {
                one_line(&field(part), text)?;
            }
            absolute(&field(1), folder)?;
            let problem = || Error::invalid(field(0), "is not the label of a file system of spec.diskSetup.filesystems");
            let device = devices.get(label.as_str()).ok_or_else(problem)?;
            let dashes = folder.replace('/', "-");
            let name = dashes.strip_prefix('-').unwrap_or(&dashes);
            let contents = format!(
                "[Unit]\nDescription = Mount {label}\n\n[Mount]\nWhat={device}\nWhere={folder}\nOptions={}\n\n\
                 [Install]\nWantedBy=multi-user.target\n",
                options.join(","),
            );
            Ok(Unit::with_contents(&format!("{name}.mount"), &contents))
        })
        .collect()
}
