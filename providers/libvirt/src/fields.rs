//! The keys of the configuration, and where each belongs.

use provider_kit::{Fields, Findings, Homes};
use serde_json::Value;

/// The mapping at `path`, or `None` with a problem if the value is not a mapping.
pub(crate) fn mapping(path: &str, value: Value, findings: &mut Findings) -> Option<Fields> {
    Fields::new(path, value, HOMES, findings)
}

/// The keys at the top level.
pub(crate) const SECTIONS: [&str; 8] = [
    "hypervisors",
    "addresses",
    "callTimeout",
    "keepalive",
    "refreshInterval",
    "routes",
    "machines",
    address_pools::Config::KEY,
];

/// Where each key of the configuration belongs.
const HOMES: Homes = &[
    ("at the top level", &SECTIONS),
    ("under routes", &["enabled"]),
    ("under machines", &["cpuOvercommit", "memoryOvercommit", "reservedMemoryMiB", "allow"]),
    (
        "under an element of machines.allow",
        &[
            "namespaces",
            "imageFolders",
            "imageVolumes",
            "imageHosts",
            "networks",
            "bridges",
            "macvtapDevices",
            "macvtapPassthrough",
            "pools",
            "macAddresses",
            "maxVcpus",
            "maxMemoryMiB",
            "maxDiskGiB",
        ],
    ),
    (
        "under an element of hypervisors",
        &["name", "uri", "region", "zone", "failureDomain", "auth", "pkipath"],
    ),
    ("under auth of a hypervisor", &["username", "usernameFile", "password", "passwordFile"]),
    ("under addresses", &["internal", "external", "exclude", "families"]),
    ("under keepalive", &["interval", "count"]),
];
