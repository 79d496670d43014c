//! The keys of the configuration, in all three spellings.

use provider_kit::{
    Dialect, Key,
    Kind::{Duration, Flag, Number, Secret, Text},
    Schema, Section,
};

/// The path of the keys of Harvester.
pub(super) const HARVESTER: &str = "loadBalancer.harvester";

/// The table for the readers. In gcfg an unknown name is a warning, since files of the old manager were never read.
pub(super) static SCHEMA: Schema = Schema { sections: SECTIONS, dialect: Dialect::STRICT };

const SECTIONS: &[Section] = &[
    Section::new("", "Global", GLOBAL_KEYS),
    Section::new("addresses", "Addresses", ADDRESSES_KEYS),
    Section::new("zones", "Zones", ZONES_KEYS),
    Section::new("loadBalancer", "LoadBalancer", LOAD_BALANCER_KEYS),
    Section::new(HARVESTER, "Harvester", HARVESTER_KEYS),
    Section::tree(
        address_pools::Config::KEY,
        "address pools can be given in YAML only; write the file in YAML",
    ),
];

/// `cattle-url`, `cattle-access-key` and `cattle-secret-key` are those of rancher-cloud-controller-manager.
const GLOBAL_KEYS: &[Key] = &[
    Key::new("url", "cattle-url", Text).env("CATTLE_URL"),
    Key::new("apiVersion", "api-version", Text),
    Key::new("accessKey", "cattle-access-key", Secret).env("CATTLE_ACCESS_KEY"),
    Key::new("accessKeyFile", "cattle-access-key-file", Text),
    Key::new("secretKey", "cattle-secret-key", Secret).env("CATTLE_SECRET_KEY"),
    Key::new("secretKeyFile", "cattle-secret-key-file", Text),
    Key::new("token", "token", Secret),
    Key::new("tokenFile", "token-file", Text),
    Key::new("clusterID", "cluster-id", Text),
    Key::new("clusterName", "cluster-name", Text),
    Key::new("namespace", "namespace", Text),
    #[cfg(feature = "cattle")]
    Key::new("projectID", "project-id", Text),
    Key::new("caFile", "ca-file", Text),
    Key::new("caCert", "ca-cert", Text).copied(),
    Key::new("insecureSkipVerify", "insecure-skip-verify", Flag),
    Key::new("timeout", "timeout", Duration),
    Key::new("pageSize", "page-size", Number),
    Key::new("refreshInterval", "refresh-interval", Duration),
    Key::new("pollInterval", "poll-interval", Duration),
];

const ADDRESSES_KEYS: &[Key] = &[
    #[cfg(feature = "cattle")]
    Key::new("types", "types", Text),
    Key::new("nodeIPCIDR", "node-ip-cidr", Text),
    Key::new("excludeCIDRs", "exclude-cidrs", Text),
];

const ZONES_KEYS: &[Key] = &[
    Key::new("zoneLabel", "zone-label", Text),
    Key::new("regionLabel", "region-label", Text),
    Key::new("legacyZones", "legacy-zones", Flag),
];

const LOAD_BALANCER_KEYS: &[Key] = &[
    Key::new("mode", "mode", Text),
    #[cfg(feature = "cattle")]
    Key::new("stackName", "stack-name", Text),
    #[cfg(feature = "cattle")]
    Key::new("stackExternalID", "stack-external-id", Text),
    #[cfg(feature = "cattle")]
    Key::new("imageSetting", "image-setting", Text),
    #[cfg(feature = "cattle")]
    Key::new("reservedPorts", "reserved-ports", Text),
    Key::new("retryInterval", "retry-interval", Duration),
];

const HARVESTER_KEYS: &[Key] = &[
    Key::new("kubeconfig", "kubeconfig", Text),
    Key::new("namespace", "namespace", Text),
    Key::new("ipam", "ipam", Text),
    Key::new("ipPool", "ip-pool", Text),
    Key::new("network", "network", Text),
    Key::new("interface", "interface", Text),
    Key::new("announcedBy", "announced-by", Text),
    Key::new("serviceAnnotations", "service-annotations", Text),
];
