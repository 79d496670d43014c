//! The section `machines.allow`: what the objects of a namespace may name of what is not theirs.
//!
//! A field of an object that names a file of the daemon, a host of its network, or something of a hypervisor,
//! is checked here and nowhere else, with the namespace of the object's mark. What no entry names is refused,
//! without a look at whether it exists.

mod bridges;
mod hosts;
mod on_hypervisors;
mod places;
mod read;
mod shown;
mod sizes;

use std::path::{Component, Path, PathBuf};

use cloudprovider::{Error, ErrorKind, Result};

pub(crate) use self::{bridges::BridgedNetwork, hosts::ImageHosts};
#[cfg(feature = "machines")]
pub(crate) use self::{
    hosts::is_public,
    places::{DEFAULT_NETWORK, DEFAULT_POOL},
};
use self::{places::Places, sizes::Sizes};

/// The beginning of the names of all volumes that this provider makes: disks, seeds and imported images.
const OWN_VOLUMES: &str = "ccm-";

/// What the objects of each namespace may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    entries: Vec<Entry>,
}

/// What one entry of the list allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Whose objects. `None`: those of every namespace.
    namespaces: Option<Vec<String>>,
    /// Folders with files for `image.file`.
    image_folders: Vec<PathBuf>,
    /// Volumes for `image.volume`.
    image_volumes: Vec<VolumeRule>,
    /// Hosts beyond public addresses for `image.url`.
    image_hosts: ImageHosts,
    /// Networks, pools and the like of hypervisors.
    places: Places,
    /// How large a machine may be.
    sizes: Sizes,
}

/// Volumes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VolumeRule {
    pool: String,
    /// What their names begin with.
    prefix: String,
}

impl Allow {
    /// What objects of this namespace may name: the union of what the entries for it list.
    pub(crate) fn of(&self, namespace: &str) -> Allowed<'_> {
        let is_meant = |entry: &&Entry| {
            entry.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
        };
        Allowed {
            entries: self.entries.iter().filter(is_meant).collect(),
            are_hypervisors_listed: self.entries.iter().any(|entry| entry.places.hypervisors.is_some()),
        }
    }

    /// The hypervisors that the entries name, each with its key.
    pub(crate) fn hypervisors(&self) -> impl Iterator<Item = (String, &str)> {
        self.entries.iter().enumerate().flat_map(|(i, entry)| {
            let names = entry.places.hypervisors.iter().flatten().enumerate();
            names.map(move |(k, name)| (format!("machines.allow[{i}].hypervisors[{k}]"), name.as_str()))
        })
    }
}

/// What objects of one namespace may name.
#[derive(Clone, Debug)]
pub(crate) struct Allowed<'a> {
    entries: Vec<&'a Entry>,
    /// Whether some entry, of whatever namespace, lists hypervisors. Then all that is not listed is closed.
    are_hypervisors_listed: bool,
}

/// A file in a folder that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileBelow {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The path of the file from there: names alone.
    pub(crate) path: PathBuf,
}

impl Allowed<'_> {
    /// Checks how large a machine is: its CPUs, its memory, and all its disks together. Of the entries for
    /// its namespace the largest limit counts. Without any there is none.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] with the names of the field and the key.
    pub(crate) fn size(&self, vcpus: u32, memory_mib: u64, disk_gib: u64) -> Result<()> {
        Sizes::largest(self.entries.iter().map(|entry| entry.sizes)).check(vcpus, memory_mib, disk_gib)
    }

    /// The file that `image.file` names. `field` names the field in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is no plain absolute path, and [`ErrorKind::PermissionDenied`] if it
    /// is in no folder of the configuration, whether it exists or not.
    pub(crate) fn image_file(&self, field: &str, path: &str) -> Result<FileBelow> {
        let invalid = |words: &str| Error::new(ErrorKind::InvalidInput, format!("{field}: {words}"));
        let path = Path::new(path);
        if !path.is_absolute() {
            return Err(invalid("must be an absolute path"));
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(invalid("must not hold \"..\""));
        }
        let folders = self.entries.iter().flat_map(|entry| &entry.image_folders);
        // Of folders in each other the outer one: links from one to the other lead nowhere else.
        let folder = folders
            .filter(|folder| path != folder.as_path() && path.starts_with(folder))
            .min_by_key(|folder| folder.components().count());
        let Some((folder, rest)) = folder.and_then(|folder| Some((folder, path.strip_prefix(folder).ok()?)))
        else {
            return Err(file_refused(field));
        };
        Ok(FileBelow { folder: folder.clone(), path: rest.to_owned() })
    }

    /// Checks a volume that `image.volume` names. `field` names the field in messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it has the name of a volume of a machine, and
    /// [`ErrorKind::PermissionDenied`] if the configuration does not name it, whether it exists or not.
    pub(crate) fn image_volume(&self, field: &str, pool: &str, name: &str) -> Result<()> {
        let is_own =
            name.get(..OWN_VOLUMES.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN_VOLUMES));
        if is_own {
            let words = format!(
                "{field}: volumes whose names begin with {OWN_VOLUMES:?} are disks, seeds and imports of machines, \
                 and cannot be images of others"
            );
            return Err(Error::new(ErrorKind::InvalidInput, words));
        }
        let mut rules = self.entries.iter().flat_map(|entry| &entry.image_volumes);
        if rules.any(|rule| rule.pool == pool && name.starts_with(&rule.prefix)) {
            return Ok(());
        }
        Err(refused(field, "volume", "imageVolumes"))
    }

    /// The hosts that `image.url` may reach beyond public addresses.
    pub(crate) fn image_hosts(&self) -> ImageHosts {
        self.entries.iter().map(|entry| &entry.image_hosts).cloned().sum()
    }
}

/// The error about a file in no folder of the configuration, whether it exists or not.
pub(crate) fn file_refused(field: &str) -> Error {
    refused(field, "file", "imageFolders")
}

/// The error about something that the configuration does not name. `key` is where it would.
fn refused(field: &str, what: &str, key: &str) -> Error {
    let words = format!(
        "{field}: objects of this namespace may not name this {what}; which they may is in the configuration of the \
         provider, machines.allow, under {key}"
    );
    Error::new(ErrorKind::PermissionDenied, words)
}

#[cfg(test)]
mod tests;
