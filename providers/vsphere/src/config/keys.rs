//! All keys of the configuration: their names in both formats and in the environment, and what they mean. And the quirks of CPI,
//! which reads the same files.

use provider_kit::{
    Dialect, Format, Key,
    Kind::{Commas, Flag, List, Number, Secret, Tags, Text, Tree},
    Schema, Section, Words,
};

use super::allow::ALLOW_KEY;

// The sections, by their names in YAML.
pub(crate) const GLOBAL: &str = "global";
pub(crate) const VCENTER: &str = "vcenter";
pub(crate) const LABELS: &str = "labels";
pub(crate) const NODES: &str = "nodes";
pub(crate) const MACHINES: &str = "machines";
pub(crate) const NSXT: &str = "nsxt";
pub(crate) const LOAD_BALANCER: &str = "loadBalancer";
pub(crate) const LOAD_BALANCER_CLASS: &str = "loadBalancerClass";
pub(crate) const ROUTE: &str = "route";

/// The table for the readers.
pub(crate) static SCHEMA: Schema = Schema { sections: SECTIONS, dialect: CPI };

/// The sections in the order of the reference. NSX-T is not supported.
const SECTIONS: &[Section] = &[
    Section::new(GLOBAL, "Global", GLOBAL_KEYS),
    Section::new(VCENTER, "VirtualCenter", VCENTER_KEYS).named(),
    Section::new(LABELS, "Labels", LABELS_KEYS),
    Section::new(NODES, "Nodes", NODES_KEYS),
    Section::new(MACHINES, "Machines", MACHINES_KEYS),
    Section::new(NSXT, "NSXT", NSXT_KEYS).unused(),
    Section::new(LOAD_BALANCER, "LoadBalancer", LOAD_BALANCER_KEYS).unused(),
    Section::new(LOAD_BALANCER_CLASS, "LoadBalancerClass", LOAD_BALANCER_CLASS_KEYS).named().unused(),
    Section::new(ROUTE, "Route", ROUTE_KEYS).unused(),
    Section::tree(
        address_pools::Config::KEY,
        "address pools can be given in the YAML format only; write the file in that format",
    ),
];

/// How CPI reads: Go's libraries for YAML and gcfg decide by the wanted type, a key that it does not know is nothing to it, and the
/// environment overrides the file.
const CPI: Dialect = Dialect {
    yaml: Words::YAML_1_1,
    ini: Words::GCFG,
    environment: Words::GO_ENVIRONMENT,
    environment_wins: true,
    refuses_unknown: false,
    takes_control_characters: true,
    // of Kubernetes' objects
    ignored: &["apiVersion", "kind", "metadata"],
    unknown_section,
};

/// Sections of the in-tree provider's `vsphere.conf`, which many files still contain.
const IN_TREE: [&str; 3] = ["Workspace", "Disk", "Network"];

/// The message about a section of the in-tree provider, and about a key at the top level.
fn unknown_section(name: &str, format: Format) -> Option<String> {
    match format {
        Format::Ini => IN_TREE.iter().any(|known| known.eq_ignore_ascii_case(name)).then(|| {
            format!("{name:?} is of the in-tree provider and ignored; nothing takes its place")
        }),
        Format::Yaml => GLOBAL_KEYS.iter().find(|key| key.name == name).map(|key| {
            format!(
                "{:?} is ignored at the beginning of a line; it belongs below global: or below the name of a vCenter, indented",
                key.name
            )
        }),
    }
}

const OF_GLOBAL: &str = "as in global";
const UNUSED: &str = "Accepted for CPI's sake; has no effect.";

const GLOBAL_KEYS: &[Key] = &[
    Key::new("server", "server", Text)
        .env("VSPHERE_VCENTER")
        .means("Host name or IP address of the vCenter, where there is one only; else give `vcenter` entries."),
    Key::new("user", "user", Text)
        .env("VSPHERE_USER")
        .means("User name for every vCenter that has none of its own. Better in a Secret."),
    Key::new("password", "password", Secret)
        .env("VSPHERE_PASSWORD")
        .means("Password of that user. Better in a Secret."),
    Key::new("port", "port", Number)
        .env("VSPHERE_VCENTER_PORT")
        .default("443")
        .means("Port of the vCenters."),
    Key::new("insecureFlag", "insecure-flag", Flag)
        .env("VSPHERE_INSECURE")
        .default("false")
        .means("Accept any certificate. True here is true for every vCenter."),
    Key::new("datacenters", "datacenters", List)
        .env("VSPHERE_DATACENTER")
        .default("all")
        .means("Datacenters whose virtual machines are looked at: names, inventory paths, patterns of them, or `Datacenter:<ID>`."),
    Key::new("caFile", "ca-file", Text)
        .env("VSPHERE_CAFILE")
        .default("the system's")
        .means("PEM files with the certificate authorities that vCenter certificates may come from, joined by colons. A relative path is beside the configuration."),
    Key::new("thumbprint", "thumbprint", Text)
        .copied()
        .env("VSPHERE_THUMBPRINT")
        .means("SHA-256 or SHA-1 of the vCenter's certificate: it is accepted although no authority vouches for it."),
    Key::new("secretName", "secret-name", Text)
        .env("VSPHERE_SECRET_NAME")
        .means("Secret of the cluster with the credentials of the vCenters."),
    Key::new("secretNamespace", "secret-namespace", Text)
        .env("VSPHERE_SECRET_NAMESPACE")
        .means("Namespace of that Secret."),
    Key::new("secretsDirectory", "secrets-directory", Text)
        .env("VSPHERE_SECRETS_DIRECTORY")
        .default("`/etc/cloud/secrets`, where it exists and nothing else is given")
        .means("Folder with the credentials as files, such as a mounted Secret."),
    Key::new("ipFamily", "ip-family", List)
        .default("ipv4")
        .means("Families of the addresses that Nodes get, in this order: `ipv4`, `ipv6`."),
    Key::new("soapRoundtripCount", "soap-roundtrip-count", Number)
        .env("VSPHERE_ROUNDTRIP_COUNT")
        .default("3")
        .means(UNUSED),
    Key::new("apiDisable", "api-disable", Flag).means(UNUSED),
    Key::new("apiBinding", "api-binding", Text).means(UNUSED),
];

const VCENTER_KEYS: &[Key] = &[
    Key::new("server", "server", Text)
        .env("SERVER")
        .default("INI: the name of the section")
        .means("Host name or IP address of the vCenter; the credentials in a Secret are found by it."),
    Key::new("user", "user", Text).env("USERNAME").default(OF_GLOBAL).means("User name."),
    Key::new("password", "password", Secret).env("PASSWORD").default(OF_GLOBAL).means("Password."),
    Key::new("port", "port", Number).env("PORT").default(OF_GLOBAL).means("Port."),
    Key::new("insecureFlag", "insecure-flag", Flag)
        .env("INSECURE")
        .default(OF_GLOBAL)
        .means("Accept any certificate."),
    Key::new("datacenters", "datacenters", List)
        .env("DATACENTERS")
        .default(OF_GLOBAL)
        .means("Datacenters whose virtual machines are looked at."),
    Key::new("caFile", "ca-file", Text)
        .env("CAFILE")
        .default(OF_GLOBAL)
        .means("PEM files with certificate authorities."),
    Key::new("thumbprint", "thumbprint", Text)
        .copied()
        .env("THUMBPRINT")
        .default(OF_GLOBAL)
        .means("SHA-256 or SHA-1 of its certificate."),
    Key::new("secretName", "secret-name", Text)
        .env("SECRET_NAME")
        .default(OF_GLOBAL)
        .means("Secret of the cluster with its credentials."),
    Key::new("secretNamespace", "secret-namespace", Text)
        .env("SECRET_NAMESPACE")
        .default(OF_GLOBAL)
        .means("Namespace of that Secret."),
    Key::new("ipFamily", "ip-family", List)
        .env("IP_FAMILY")
        .default(OF_GLOBAL)
        .means("Families of the addresses of its Nodes."),
    Key::new("soapRoundtripCount", "soap-roundtrip-count", Number).env("ROUNDTRIP").means(UNUSED),
];

const LABELS_KEYS: &[Key] = &[
    Key::new("zone", "zone", Text).env("VSPHERE_LABEL_ZONE").means("Category of the tags that name zones."),
    Key::new("region", "region", Text)
        .env("VSPHERE_LABEL_REGION")
        .means("Category of the tags that name regions."),
    Key::new("followMoves", "follow-moves", Flag).default("true").means(
        "Whether a Node that has zone and region gets others when its machine is moved or tags change. \
             CPI has no such key and never changes them.",
    ),
];

const NODES_KEYS: &[Key] = &[
    Key::new("internalNetworkSubnetCidr", "internal-network-subnet-cidr", Commas)
        .env("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR")
        .means("Networks whose addresses become InternalIP, the first one that matches first."),
    Key::new("externalNetworkSubnetCidr", "external-network-subnet-cidr", Commas)
        .env("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR")
        .means("Networks whose addresses become ExternalIP."),
    Key::new("internalVmNetworkName", "internal-vm-network-name", Text)
        .env("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME")
        .means("Port group whose addresses become InternalIP where no network above matches."),
    Key::new("externalVmNetworkName", "external-vm-network-name", Text)
        .env("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME")
        .means("Port group whose addresses become ExternalIP where no network above matches."),
    Key::new("excludeInternalNetworkSubnetCidr", "exclude-internal-network-subnet-cidr", Commas)
        .means("Networks whose addresses never become InternalIP."),
    Key::new("excludeExternalNetworkSubnetCidr", "exclude-external-network-subnet-cidr", Commas)
        .means("Networks whose addresses never become ExternalIP."),
    Key::new("allAddresses", "all-addresses", Flag)
        .default("false")
        .means(
            "Report every address that a rule above matches, not the first one of each family and type. CPI has no \
             such key.",
        ),
];

const MACHINES_KEYS: &[Key] = &[
    Key::new("removeBootstrapData", "remove-bootstrap-data", Flag)
        .default("false")
        .means("Empty the bootstrap data in vCenter once a machine is a Node."),
    Key::new("nodeAntiAffinity", "node-anti-affinity", Flag)
        .default("false")
        .means(
            "Keep the machines of a control plane or MachineDeployment on different hosts, by cluster modules, as Cluster \
             API Provider vSphere does with its feature gate `NodeAntiAffinity`.",
        ),
    Key::new(ALLOW_KEY, ALLOW_KEY, Tree),
];

const NSXT_KEYS: &[Key] = &[
    Key::new("host", "host", Text).env("NSXT_MANAGER_HOST").means("NSX manager."),
    Key::new("user", "user", Text).env("NSXT_USERNAME").means("User name."),
    Key::new("password", "password", Secret).env("NSXT_PASSWORD").means("Password."),
    Key::new("insecureFlag", "insecure-flag", Flag)
        .env("NSXT_ALLOW_UNVERIFIED_SSL")
        .means("Accept any certificate."),
    Key::new("remoteAuth", "remote-auth", Flag).means("Authenticate through vIDM."),
    Key::new("vmcAccessToken", "vmc-access-token", Secret).means("Access token of VMware Cloud."),
    Key::new("vmcAuthHost", "vmc-auth-host", Text).means("Who gives tokens of VMware Cloud."),
    Key::new("clientAuthCertFile", "client-auth-cert-file", Text)
        .env("NSXT_CLIENT_AUTH_CERT_FILE")
        .means("Client certificate."),
    Key::new("clientAuthKeyFile", "client-auth-key-file", Text)
        .env("NSXT_CLIENT_AUTH_KEY_FILE")
        .means("Its key."),
    Key::new("caFile", "ca-file", Text).env("NSXT_CA_FILE").means("Certificate authorities."),
    Key::new("secretName", "secret-name", Text)
        .env("NSXT_SECRET_NAME")
        .means("Secret with `username` and `password`."),
    Key::new("secretNamespace", "secret-namespace", Text)
        .env("NSXT_SECRET_NAMESPACE")
        .means("Namespace of that Secret."),
];

const LOAD_BALANCER_KEYS: &[Key] = &[
    Key::new("size", "size", Text).means("SMALL, MEDIUM, LARGE, XLARGE or DLB."),
    Key::new("lbServiceId", "lb-service-id", Text).means("Existing load balancer service."),
    Key::new("tier1GatewayPath", "tier1-gateway-path", Text)
        .means("Gateway on which a load balancer service is made."),
    Key::new("snatDisabled", "snat-disabled", Flag).means("No source NAT."),
    Key::new("tags", "tags", Tags).means("Further tags of what is made."),
    Key::new("ipPoolName", "ip-pool-name", Text).means("Pool of virtual IPs, by name."),
    Key::new("ipPoolId", "ip-pool-id", Text).means("Pool of virtual IPs, by ID."),
    Key::new("tcpAppProfileName", "tcp-app-profile-name", Text).means("TCP profile, by name."),
    Key::new("tcpAppProfilePath", "tcp-app-profile-path", Text).means("TCP profile, by path."),
    Key::new("udpAppProfileName", "udp-app-profile-name", Text).means("UDP profile, by name."),
    Key::new("udpAppProfilePath", "udp-app-profile-path", Text).means("UDP profile, by path."),
];

const LOAD_BALANCER_CLASS_KEYS: &[Key] = &[
    Key::new("ipPoolName", "ip-pool-name", Text).means("Pool of virtual IPs, by name."),
    Key::new("ipPoolId", "ip-pool-id", Text).means("Pool of virtual IPs, by ID."),
    Key::new("tcpAppProfileName", "tcp-app-profile-name", Text).means("TCP profile, by name."),
    Key::new("tcpAppProfilePath", "tcp-app-profile-path", Text).means("TCP profile, by path."),
    Key::new("udpAppProfileName", "udp-app-profile-name", Text).means("UDP profile, by name."),
    Key::new("udpAppProfilePath", "udp-app-profile-path", Text).means("UDP profile, by path."),
];

const ROUTE_KEYS: &[Key] =
    &[Key::new("routerPath", "router-path", Text).means("Tier-1 gateway that gets the routes.")];
