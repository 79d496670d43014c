//! Bootstrap data, in the form in which a guest reads them at its first boot.
//!
//! | Format | What the guest gets | Who reads it there |
//! |---|---|---|
//! | cloud-config | [`Seed::nocloud`]: a small read-only disk with a vfat file system | cloud-init, data source `NoCloud` |
//! | ignition | [`BootstrapData::expose`], after [`check_ignition`]: the file of the `fw_cfg` entry [`IGNITION_ENTRY`] | Ignition, platform `qemu` |
//!
//! # How a step uses it
//!
//! ```text
//! match bootstrap.format() {
//!     CloudConfig => upload Seed::nocloud(&mark, &bootstrap, network)?.expose() to a raw volume of .len() bytes;
//!                    add it to the domain as a read-only virtio disk
//!     Ignition    => check_ignition(&bootstrap)?; upload bootstrap.expose() to a raw volume of exactly this length;
//!                    <sysinfo type='fwcfg'><entry name='opt/com.coreos/config' file='PATH OF THE VOLUME'/></sysinfo>
//! }
//! ```
//!
//! - The bytes depend on the mark, the bootstrap data and the network configuration only. So a step that was
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
mod network_config;
mod vfat;

use std::fmt;

use cloudprovider::{
    Result,
    machines::{BootstrapData, Mark},
    uuids::parse_uuid,
};
use secrecy::zeroize::Zeroizing;

pub(crate) use self::{
    ignition::{IGNITION_ENTRY, check_ignition},
    network_config::{InterfaceConfig, NetworkConfig},
};

/// The label by which cloud-init finds the disk.
const LABEL: [u8; 11] = *b"CIDATA     ";

/// A disk with bootstrap data. Wiped from memory when it is dropped.
pub(crate) struct Seed(Zeroizing<Vec<u8>>);

impl Seed {
    /// A disk for cloud-init's data source `NoCloud`, with the files `user-data`, `meta-data` and, if there is a
    /// network configuration, `network-config`.
    ///
    /// `instance-id` is the mark's UID. cloud-init runs once for each instance ID, so it runs once for a machine.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) if the data are too large.
    pub(crate) fn nocloud(
        mark: &Mark,
        data: &BootstrapData,
        network: Option<&NetworkConfig>,
    ) -> Result<Self> {
        let meta_data = meta_data::render(mark);
        let network = network.map(NetworkConfig::render);
        let mut files = vec![("user-data", data.expose()), ("meta-data", meta_data.as_bytes())];
        files.extend(network.as_ref().map(|text| ("network-config", text.as_bytes())));
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
