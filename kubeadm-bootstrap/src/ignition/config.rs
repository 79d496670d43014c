//! The document's types, with the fields that are used, in the order in which Go writes them.

use std::fmt::Write as _;
use std::ops::Not;

use serde::Serialize;

#[derive(Default, Serialize)]
pub(super) struct Config {
    ignition: Ignition,
    networkd: Empty,
    pub(super) passwd: Passwd,
    pub(super) storage: Storage,
    pub(super) systemd: Systemd,
}

#[derive(Default, Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Ignition {
    config: Empty,
    security: Security,
    timeouts: Empty,
    version: &'static str,
}

impl Default for Ignition {
    fn default() -> Self {
        Self { config: Empty {}, security: Security::default(), timeouts: Empty {}, version: "2.3.0" }
    }
}

#[derive(Default, Serialize)]
struct Security {
    tls: Empty,
}

#[derive(Default, Serialize)]
pub(super) struct Passwd {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) users: Vec<IgnitionUser>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IgnitionUser {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) gecos: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) home_dir: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) password_hash: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) primary_group: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ssh_authorized_keys: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) shell: String,
}

#[derive(Default, Serialize)]
pub(super) struct Storage {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) disks: Vec<Disk>,
    pub(super) files: Vec<File>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) filesystems: Vec<Filesystem>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Disk {
    pub(super) device: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) partitions: Vec<Partition>,
    #[serde(skip_serializing_if = "Not::not")]
    pub(super) wipe_table: bool,
}

/// A partition over the whole disk.
#[derive(Serialize)]
pub(super) struct Partition {}

#[derive(Serialize)]
pub(super) struct Filesystem {
    pub(super) mount: Mount,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) device: String,
    pub(super) format: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) options: Vec<String>,
    #[serde(skip_serializing_if = "Not::not")]
    pub(super) wipe_filesystem: bool,
}

#[derive(Serialize)]
pub(super) struct File {
    filesystem: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<Name>,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<Name>,
    contents: Contents,
    mode: u32,
}

#[derive(Serialize)]
pub(super) struct Name {
    pub(super) name: String,
}

#[derive(Serialize)]
struct Contents {
    source: String,
    verification: Empty,
}

impl File {
    pub(super) fn new(path: &str, mode: u32, content: &[u8]) -> Self {
        let contents = Contents { source: data_url(content), verification: Empty {} };
        Self { filesystem: "root", group: None, path: path.to_owned(), user: None, contents, mode }
    }
}

fn data_url(content: &[u8]) -> String {
    let mut url = String::with_capacity(content.len() + content.len() / 4 + 6);
    url.push_str("data:,");
    for byte in content {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(byte) {
            url.push(char::from(*byte));
        } else {
            // writing into a text cannot fail
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[derive(Default, Serialize)]
pub(super) struct Systemd {
    pub(super) units: Vec<Unit>,
}

#[derive(Serialize)]
pub(super) struct Unit {
    #[serde(skip_serializing_if = "String::is_empty")]
    contents: String,
    enabled: bool,
    name: String,
}

impl Unit {
    pub(super) fn enabled(name: &str) -> Self {
        Self::with_contents(name, "")
    }

    pub(super) fn with_contents(name: &str, contents: &str) -> Self {
        Self { contents: contents.to_owned(), enabled: true, name: name.to_owned() }
    }
}
