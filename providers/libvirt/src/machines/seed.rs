//! Bootstrap data, in the form in which a guest reads them at its first boot.
//!
//! | Format | What the guest gets | Who reads it there |
//! |---|---|---|
//! | cloud-config | [`Seed::nocloud`]: a small read-only disk with a vfat file system | cloud-init, data source `NoCloud` |
//! | ignition | [`BootstrapData::expose`], after [`check_ignition`]: the file of a `fw_cfg` entry | Ignition, platform `qemu` |
//!
//! - The bytes depend on the mark, the bootstrap data and the endpoint of the control plane only. So a step that was
//!   interrupted while it uploaded them writes the same bytes again.
//! - User data are never looked into: cloud-config, scripts, MIME parts and gzip all arrive unchanged.
//! - The volume of an Ignition file must have the exact length, since Ignition does not read past the end of
//!   the JSON. Pools of files do that. Pools of logical volumes round up and do not fit.
//!
//! # Host names
//!
//! `NoCloud` has the machine's name as `local-hostname`. An Ignition configuration arrives unchanged, and `fw_cfg` has
//! no place for a name. So the name comes from the configuration itself (`/etc/hostname`), or from DHCP: the
//! DHCP reservation of a machine tells the network its name.

mod ignition;
mod meta_data;
mod vfat;

use std::fmt;

use cloudprovider::{
    ControlPlaneEndpoint, Result,
    machines::{BootstrapData, Mark},
    uuids::parse_uuid,
};
use secrecy::zeroize::Zeroizing;

pub(crate) use self::ignition::check_ignition;

/// The label by which cloud-init finds the disk.
const LABEL: [u8; 11] = *b"CIDATA     ";

/// A disk with bootstrap data. Wiped from memory when it is dropped.
pub(crate) struct Seed(Zeroizing<Vec<u8>>);

impl Seed {
    /// A disk for cloud-init's data source `NoCloud`, with the files `user-data` and `meta-data`.
    ///
    /// `instance-id` is the mark's UID. cloud-init runs once for each instance ID, so it runs once for a machine.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) if the data are too large.
    pub(crate) fn nocloud(
        mark: &Mark,
        data: &BootstrapData,
        endpoint: Option<&ControlPlaneEndpoint>,
    ) -> Result<Self> {
        let meta_data = meta_data::render(mark, endpoint);
        let files = [("user-data", data.expose()), ("meta-data", meta_data.as_bytes())];
        vfat::image(LABEL, volume_id(&mark.uid), &files).map(Self)
    }

    /// The disk's bytes, for the hypervisor alone.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The disk's size in bytes, whole MiB.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Seed {
    /// Prints the size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seed").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The serial number of the file system: a part of the machine's UID.
fn volume_id(uid: &str) -> u32 {
    parse_uuid(uid).map_or(0, |uuid| uuid.as_fields().0)
}

#[cfg(test)]
mod tests;
