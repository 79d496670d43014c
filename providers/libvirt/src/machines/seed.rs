//! Bootstrap data, in the form in which a guest reads them at its first boot.
//!
//! | Format | What the guest gets | Who reads it there |
//! |---|---|---|
//! | cloud-config | [`Seed::nocloud`]: a small read-only disk with a vfat file system | cloud-init, data source `NoCloud` |
//! | ignition | [`BootstrapData::expose`], after [`check_ignition`]: the file of a `fw_cfg` entry | Ignition, platform `qemu` |
//!
//! - The bytes depend on the mark, the bootstrap data and the endpoint of the control plane only. So a step
//!   that was interrupted while it uploaded them writes the same bytes again.
//! - User data are never looked into: cloud-config, scripts, MIME parts and gzip all arrive unchanged.
//! - The volume of an Ignition file must have the exact length, since Ignition does not read past the end of
//!   the JSON. Pools of files do that. Pools of logical volumes round up and do not fit.
//!
//! # Host names
//!
//! `NoCloud` has the machine's name as `local-hostname`. An Ignition configuration arrives unchanged, and
//! `fw_cfg` has no place for a name. So the name comes from the configuration itself (`/etc/hostname`), or
//! from DHCP: the DHCP reservation of a machine tells the network its name.

mod vfat;

use std::fmt::{self, Write as _};

use cloudprovider::{
    ControlPlaneEndpoint, Error, ErrorKind, Result,
    machines::{BootstrapData, Mark},
    uuids::parse_uuid,
};
use secrecy::zeroize::Zeroizing;
use serde::{Deserialize, de::IgnoredAny};

/// The label by which cloud-init finds the disk.
const LABEL: [u8; 11] = *b"CIDATA     ";

/// A disk with bootstrap data. Wiped from memory when it is dropped.
pub(crate) struct Seed(Zeroizing<Vec<u8>>);

impl Seed {
    /// A disk for cloud-init's data source `NoCloud`, with the files `user-data` and `meta-data`.
    ///
    /// `instance-id` is the mark's UID. cloud-init runs once for each instance ID, so it runs once for a
    /// machine.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the data are too large.
    pub(crate) fn nocloud(
        mark: &Mark,
        data: &BootstrapData,
        endpoint: Option<&ControlPlaneEndpoint>,
    ) -> Result<Self> {
        let meta_data = meta_data(mark, endpoint);
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

/// The file `meta-data`: `instance-id`, the host name, and where the API server of the cluster is reached, if
/// that is known. `hostname` repeats `local-hostname`, since templates of bootstrap data use either name
/// (`{{ ds.meta_data.hostname }}`). Names of keys have no hyphens where templates need them.
fn meta_data(mark: &Mark, endpoint: Option<&ControlPlaneEndpoint>) -> String {
    let name = scalar(mark.name());
    let mut text = format!("instance-id: {}\nlocal-hostname: {name}\nhostname: {name}\n", scalar(&mark.uid));
    if let Some(ControlPlaneEndpoint { host, port }) = endpoint {
        let host = scalar(host);
        // a String takes everything
        let _ = write!(text, "control_plane_endpoint_host: {host}\ncontrol_plane_endpoint_port: {port}\n");
    }
    text
}

/// A text in YAML. Without quotes where it can only be a text, since small guests without a parser of YAML
/// read this file too.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.contains('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    let is_uuid = text.len() == 36 && parse_uuid(text).is_some();
    if is_plain || is_uuid { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// What every version of an Ignition configuration has. The rest is passed over and not kept, since it holds
/// secrets.
#[derive(Deserialize)]
struct IgnitionConfig {
    ignition: Option<Section>,
}

#[derive(Deserialize)]
struct Section {
    version: Option<Text>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Other(IgnoredAny),
}

/// Checks that bootstrap data are a configuration of Ignition: JSON with `ignition.version`. Ignition checks
/// the rest in the guest, where a fault is hard to find.
///
/// # Errors
/// [`ErrorKind::InvalidInput`], without any part of the data.
pub(crate) fn check_ignition(data: &BootstrapData) -> Result<()> {
    let fault = |words: String| {
        let words = format!("the bootstrap data have the format ignition, but {words}");
        Err(Error::new(ErrorKind::InvalidInput, words))
    };
    let config: IgnitionConfig = match serde_json::from_slice(data.expose()) {
        Ok(config) => config,
        // the library's own words may quote a value
        Err(error) if error.is_data() => {
            return fault("are not an object with an object \"ignition\"".into());
        }
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            return fault(format!("are not valid JSON (line {line}, column {column})"));
        }
    };
    match config.ignition.and_then(|section| section.version) {
        Some(Text::Text(version)) if version.starts_with(|first: char| first.is_ascii_digit()) => Ok(()),
        Some(Text::Text(_) | Text::Other(_)) => {
            fault("ignition.version is not a text such as \"3.4.0\"".into())
        }
        None => fault("have no ignition.version".into()),
    }
}

#[cfg(test)]
mod tests;
