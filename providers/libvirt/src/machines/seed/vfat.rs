//! A vfat file system in memory.

use std::io::{Cursor, Write};

use cloudprovider::{Error, ErrorKind, Result};
use fatfs::{FileSystem, FormatVolumeOptions, FsOptions, format_volume};
use secrecy::zeroize::Zeroizing;

const MIB: usize = 1 << 20;

/// The unit in which files take room.
const CLUSTER: usize = 4096;

/// The most that all files may have together. A Secret has at most 1 MiB.
const MAX_CONTENT: usize = 64 * MIB;

/// How often the size grows by 1 MiB if a file system of that size is between two kinds of FAT.
const MAX_TRIES: usize = 4;

/// A disk with these files in its root folder, without a partition table. The same arguments give the same
/// bytes: all times are the beginning of 1980.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the files are too large.
pub(super) fn image(label: [u8; 11], id: u32, files: &[(&str, &[u8])]) -> Result<Zeroizing<Vec<u8>>> {
    let content: usize = files.iter().map(|(_, content)| content.len()).sum();
    if content > MAX_CONTENT {
        let words = format!(
            "the bootstrap data have {} MiB; a seed disk takes at most {} MiB",
            content.div_ceil(MIB),
            MAX_CONTENT / MIB
        );
        return Err(Error::new(ErrorKind::InvalidInput, words));
    }
    let smallest = size(files);
    let mut result = write(label, id, files, smallest);
    for more in 1..MAX_TRIES {
        if result.is_err() {
            result = write(label, id, files, smallest + more * MIB);
        }
    }
    result.map_err(|error| Error::new(ErrorKind::Internal, format!("cannot make a seed disk: {error}")))
}

/// The size of the disk: room for the files, for the table of clusters and for the root folder.
fn size(files: &[(&str, &[u8])]) -> usize {
    let clusters: usize = files.iter().map(|(_, content)| content.len().div_ceil(CLUSTER)).sum();
    let table = clusters * 4;
    (clusters * CLUSTER + table + 64 * 1024).next_multiple_of(MIB)
}

fn write(
    label: [u8; 11],
    id: u32,
    files: &[(&str, &[u8])],
    size: usize,
) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; size]);
    let options = FormatVolumeOptions::new()
        .bytes_per_cluster(u32::try_from(CLUSTER).unwrap_or(u32::MAX))
        .volume_label(label)
        .volume_id(id);
    format_volume(Cursor::new(bytes.as_mut_slice()), options)?;
    let volume = FileSystem::new(Cursor::new(bytes.as_mut_slice()), FsOptions::new())?;
    {
        let root = volume.root_dir();
        for (name, content) in files {
            root.create_file(name)?.write_all(content)?;
        }
    }
    volume.unmount()?;
    Ok(bytes)
}
