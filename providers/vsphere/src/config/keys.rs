//! All keys of the configuration: their names in both formats and in the environment, and what they mean.
//!
//! The readers of both formats, the environment and the reference in the documentation all use this table, so
//! that they know the same keys.

/// A part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Section {
    Global,
    /// One for each vCenter, by its reference.
    VCenter,
    Labels,
    Nodes,
    Machines,
    Nsxt,
    LoadBalancer,
    /// One for each class, by its name.
    LoadBalancerClass,
    Route,
}

impl Section {
    pub(crate) const ALL: [Self; 9] = [
        Self::Global,
        Self::VCenter,
        Self::Labels,
        Self::Nodes,
        Self::Machines,
        Self::Nsxt,
        Self::LoadBalancer,
        Self::LoadBalancerClass,
        Self::Route,
    ];

    /// The key at the top level of the YAML format.
    pub(crate) fn yaml(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::VCenter => "vcenter",
            Self::Labels => "labels",
            Self::Nodes => "nodes",
            Self::Machines => "machines",
            Self::Nsxt => "nsxt",
            Self::LoadBalancer => "loadBalancer",
            Self::LoadBalancerClass => "loadBalancerClass",
            Self::Route => "route",
        }
    }

    /// The section of the INI format, whose letter case does not matter.
    pub(crate) fn ini(self) -> &'static str {
        match self {
            Self::Global => "Global",
            Self::VCenter => "VirtualCenter",
            Self::Labels => "Labels",
            Self::Nodes => "Nodes",
            Self::Machines => "Machines",
            Self::Nsxt => "NSXT",
            Self::LoadBalancer => "LoadBalancer",
            Self::LoadBalancerClass => "LoadBalancerClass",
            Self::Route => "Route",
        }
    }

    /// Whether there can be several of this section, each with a name.
    pub(crate) fn is_named(self) -> bool {
        matches!(self, Self::VCenter | Self::LoadBalancerClass)
    }

    /// Whether the section is about NSX-T, which is not supported.
    pub(crate) fn is_nsx(self) -> bool {
        matches!(self, Self::Nsxt | Self::LoadBalancer | Self::LoadBalancerClass | Self::Route)
    }

    /// The keys of this section.
    pub(crate) fn keys(self) -> impl Iterator<Item = &'static Key> {
        KEYS.iter().filter(move |key| key.section == self)
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A text.
    Text,
    /// A text that must never be shown.
    Secret,
    /// A boolean.
    Flag,
    /// A whole number.
    Number,
    /// Texts: a list in YAML, joined by commas in INI and in the environment.
    List,
    /// Texts, joined by commas in both formats.
    Commas,
    /// Texts by name: a mapping in YAML, a JSON object in INI.
    Tags,
}

/// The message about a text that is not a valid number for this key.
pub(crate) fn not_a_number(key: &Key, text: &str) -> &'static str {
    let is_negative = text.trim().strip_prefix('-').is_some_and(|digits| digits.parse::<f64>().is_ok());
    match (is_negative, key.name) {
        (true, "port") => "must be a port number, 1 to 65535",
        (true, _) => "must be a whole number of at least 0",
        (false, _) => "must be a whole number",
    }
}

#[cfg(test)]
impl Kind {
    /// Describes values of this kind, for the reference.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Secret => "text, secret",
            Self::Flag => "true or false",
            Self::Number => "number",
            Self::List => "list (INI: joined by commas)",
            Self::Commas => "texts joined by commas",
            Self::Tags => "mapping (INI: JSON object)",
        }
    }
}

/// One key of the configuration.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) section: Section,
    /// The name in YAML, and in this code.
    pub(crate) name: &'static str,
    /// The name in INI, whose letter case does not matter.
    pub(crate) ini: &'static str,
    /// The environment variable that overrides the key; empty if there is none. In [`Section::VCenter`] the
    /// part after `VCENTER_<id>_`.
    pub(crate) env: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    pub(crate) meaning: &'static str,
}

impl Key {
    const fn new(section: Section, name: &'static str, ini: &'static str, kind: Kind) -> Self {
        Self { section, name, ini, env: "", kind, default: "", meaning: "" }
    }

    const fn env(mut self, env: &'static str) -> Self {
        self.env = env;
        self
    }

    const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    const fn means(mut self, meaning: &'static str) -> Self {
        self.meaning = meaning;
        self
    }
}

use Kind::{Commas, Flag, List, Number, Secret, Tags, Text};
use Section::{Global, Labels, LoadBalancer, LoadBalancerClass, Machines, Nodes, Nsxt, Route, VCenter};

const OF_GLOBAL: &str = "as in global";
const UNUSED: &str = "Accepted for CPI's sake; has no effect.";

/// All keys, by section, in the order of the reference.
pub(crate) const KEYS: &[Key] = &[
    Key::new(Global, "server", "server", Text)
        .env("VSPHERE_VCENTER")
        .means("Host name or IP address of the vCenter, where there is one only; else give `vcenter` entries."),
    Key::new(Global, "user", "user", Text)
        .env("VSPHERE_USER")
        .means("User name for every vCenter that has none of its own. Better in a Secret."),
    Key::new(Global, "password", "password", Secret)
        .env("VSPHERE_PASSWORD")
        .means("Password of that user. Better in a Secret."),
    Key::new(Global, "port", "port", Number)
        .env("VSPHERE_VCENTER_PORT")
        .default("443")
        .means("Port of the vCenters."),
    Key::new(Global, "insecureFlag", "insecure-flag", Flag)
        .env("VSPHERE_INSECURE")
        .default("false")
        .means("Accept any certificate. True here is true for every vCenter."),
    Key::new(Global, "datacenters", "datacenters", List)
        .env("VSPHERE_DATACENTER")
        .default("all")
        .means("Datacenters whose virtual machines are looked at: names, inventory paths, patterns of them, or `Datacenter:<ID>`."),
    Key::new(Global, "caFile", "ca-file", Text)
        .env("VSPHERE_CAFILE")
        .default("the system's")
        .means("PEM files with the certificate authorities that vCenter certificates may come from, joined by colons. A relative path is beside the configuration."),
    Key::new(Global, "thumbprint", "thumbprint", Text)
        .env("VSPHERE_THUMBPRINT")
        .means("SHA-256 or SHA-1 of the vCenter's certificate: it is accepted although no authority vouches for it."),
    Key::new(Global, "secretName", "secret-name", Text)
        .env("VSPHERE_SECRET_NAME")
        .means("Secret of the cluster with the credentials of the vCenters."),
    Key::new(Global, "secretNamespace", "secret-namespace", Text)
        .env("VSPHERE_SECRET_NAMESPACE")
        .means("Namespace of that Secret."),
    Key::new(Global, "secretsDirectory", "secrets-directory", Text)
        .env("VSPHERE_SECRETS_DIRECTORY")
        .default("`/etc/cloud/secrets`, where it exists and nothing else is given")
        .means("Folder with the credentials as files, such as a mounted Secret."),
    Key::new(Global, "ipFamily", "ip-family", List)
        .default("ipv4")
        .means("Families of the addresses that Nodes get, in this order: `ipv4`, `ipv6`."),
    Key::new(Global, "soapRoundtripCount", "soap-roundtrip-count", Number)
        .env("VSPHERE_ROUNDTRIP_COUNT")
        .default("3")
        .means(UNUSED),
    Key::new(Global, "apiDisable", "api-disable", Flag).means(UNUSED),
    Key::new(Global, "apiBinding", "api-binding", Text).means(UNUSED),
    Key::new(VCenter, "server", "server", Text)
        .env("SERVER")
        .default("INI: the name of the section")
        .means("Host name or IP address of the vCenter; the credentials in a Secret are found by it."),
    Key::new(VCenter, "user", "user", Text).env("USERNAME").default(OF_GLOBAL).means("User name."),
    Key::new(VCenter, "password", "password", Secret).env("PASSWORD").default(OF_GLOBAL).means("Password."),
    Key::new(VCenter, "port", "port", Number).env("PORT").default(OF_GLOBAL).means("Port."),
    Key::new(VCenter, "insecureFlag", "insecure-flag", Flag)
        .env("INSECURE")
        .default(OF_GLOBAL)
        .means("Accept any certificate."),
    Key::new(VCenter, "datacenters", "datacenters", List)
        .env("DATACENTERS")
        .default(OF_GLOBAL)
        .means("Datacenters whose virtual machines are looked at."),
    Key::new(VCenter, "caFile", "ca-file", Text)
        .env("CAFILE")
        .default(OF_GLOBAL)
        .means("PEM files with certificate authorities."),
    Key::new(VCenter, "thumbprint", "thumbprint", Text)
        .env("THUMBPRINT")
        .default(OF_GLOBAL)
        .means("SHA-256 or SHA-1 of its certificate."),
    Key::new(VCenter, "secretName", "secret-name", Text)
        .env("SECRET_NAME")
        .default(OF_GLOBAL)
        .means("Secret of the cluster with its credentials."),
    Key::new(VCenter, "secretNamespace", "secret-namespace", Text)
        .env("SECRET_NAMESPACE")
        .default(OF_GLOBAL)
        .means("Namespace of that Secret."),
    Key::new(VCenter, "ipFamily", "ip-family", List)
        .env("IP_FAMILY")
        .default(OF_GLOBAL)
        .means("Families of the addresses of its Nodes."),
    Key::new(VCenter, "soapRoundtripCount", "soap-roundtrip-count", Number).env("ROUNDTRIP").means(UNUSED),
    Key::new(Labels, "zone", "zone", Text)
        .env("VSPHERE_LABEL_ZONE")
        .means("Category of the tags that name zones."),
    Key::new(Labels, "region", "region", Text)
        .env("VSPHERE_LABEL_REGION")
        .means("Category of the tags that name regions."),
    Key::new(Labels, "followMoves", "follow-moves", Flag)
        .default("true")
        .means(
            "Whether a Node that has zone and region gets others when its machine is moved or tags change. \
             CPI has no such key and never changes them.",
        ),
    Key::new(Nodes, "internalNetworkSubnetCidr", "internal-network-subnet-cidr", Commas)
        .env("VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR")
        .means("Networks whose addresses become InternalIP, the first one that matches first."),
    Key::new(Nodes, "externalNetworkSubnetCidr", "external-network-subnet-cidr", Commas)
        .env("VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR")
        .means("Networks whose addresses become ExternalIP."),
    Key::new(Nodes, "internalVmNetworkName", "internal-vm-network-name", Text)
        .env("VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME")
        .means("Port group whose addresses become InternalIP where no network above matches."),
    Key::new(Nodes, "externalVmNetworkName", "external-vm-network-name", Text)
        .env("VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME")
        .means("Port group whose addresses become ExternalIP where no network above matches."),
    Key::new(Nodes, "excludeInternalNetworkSubnetCidr", "exclude-internal-network-subnet-cidr", Commas)
        .means("Networks whose addresses never become InternalIP."),
    Key::new(Nodes, "excludeExternalNetworkSubnetCidr", "exclude-external-network-subnet-cidr", Commas)
        .means("Networks whose addresses never become ExternalIP."),
    Key::new(Nodes, "allAddresses", "all-addresses", Flag)
        .default("false")
        .means(
            "Report every address that a rule above matches, not the first one of each family and type. CPI has no \
             such key.",
        ),
    Key::new(Machines, "removeBootstrapData", "remove-bootstrap-data", Flag)
        .default("false")
        .means("Empty the bootstrap data in vCenter once a machine is a Node."),
    Key::new(Machines, "nodeAntiAffinity", "node-anti-affinity", Flag)
        .default("false")
        .means(
            "Keep the machines of a control plane or MachineDeployment on different hosts, by cluster modules, as Cluster \
             API Provider vSphere does with its feature gate `NodeAntiAffinity`.",
        ),
    Key::new(Nsxt, "host", "host", Text).env("NSXT_MANAGER_HOST").means("NSX manager."),
    Key::new(Nsxt, "user", "user", Text).env("NSXT_USERNAME").means("User name."),
    Key::new(Nsxt, "password", "password", Secret).env("NSXT_PASSWORD").means("Password."),
    Key::new(Nsxt, "insecureFlag", "insecure-flag", Flag)
        .env("NSXT_ALLOW_UNVERIFIED_SSL")
        .means("Accept any certificate."),
    Key::new(Nsxt, "remoteAuth", "remote-auth", Flag).means("Authenticate through vIDM."),
    Key::new(Nsxt, "vmcAccessToken", "vmc-access-token", Secret).means("Access token of VMware Cloud."),
    Key::new(Nsxt, "vmcAuthHost", "vmc-auth-host", Text).means("Who gives tokens of VMware Cloud."),
    Key::new(Nsxt, "clientAuthCertFile", "client-auth-cert-file", Text)
        .env("NSXT_CLIENT_AUTH_CERT_FILE")
        .means("Client certificate."),
    Key::new(Nsxt, "clientAuthKeyFile", "client-auth-key-file", Text)
        .env("NSXT_CLIENT_AUTH_KEY_FILE")
        .means("Its key."),
    Key::new(Nsxt, "caFile", "ca-file", Text).env("NSXT_CA_FILE").means("Certificate authorities."),
    Key::new(Nsxt, "secretName", "secret-name", Text)
        .env("NSXT_SECRET_NAME")
        .means("Secret with `username` and `password`."),
    Key::new(Nsxt, "secretNamespace", "secret-namespace", Text)
        .env("NSXT_SECRET_NAMESPACE")
        .means("Namespace of that Secret."),
    Key::new(LoadBalancer, "size", "size", Text).means("SMALL, MEDIUM, LARGE, XLARGE or DLB."),
    Key::new(LoadBalancer, "lbServiceId", "lb-service-id", Text).means("Existing load balancer service."),
    Key::new(LoadBalancer, "tier1GatewayPath", "tier1-gateway-path", Text)
        .means("Gateway on which a load balancer service is made."),
    Key::new(LoadBalancer, "snatDisabled", "snat-disabled", Flag).means("No source NAT."),
    Key::new(LoadBalancer, "tags", "tags", Tags).means("Further tags of what is made."),
    Key::new(LoadBalancer, "ipPoolName", "ip-pool-name", Text).means("Pool of virtual IPs, by name."),
    Key::new(LoadBalancer, "ipPoolId", "ip-pool-id", Text).means("Pool of virtual IPs, by ID."),
    Key::new(LoadBalancer, "tcpAppProfileName", "tcp-app-profile-name", Text).means("TCP profile, by name."),
    Key::new(LoadBalancer, "tcpAppProfilePath", "tcp-app-profile-path", Text).means("TCP profile, by path."),
    Key::new(LoadBalancer, "udpAppProfileName", "udp-app-profile-name", Text).means("UDP profile, by name."),
    Key::new(LoadBalancer, "udpAppProfilePath", "udp-app-profile-path", Text).means("UDP profile, by path."),
    Key::new(LoadBalancerClass, "ipPoolName", "ip-pool-name", Text).means("Pool of virtual IPs, by name."),
    Key::new(LoadBalancerClass, "ipPoolId", "ip-pool-id", Text).means("Pool of virtual IPs, by ID."),
    Key::new(LoadBalancerClass, "tcpAppProfileName", "tcp-app-profile-name", Text).means("TCP profile, by name."),
    Key::new(LoadBalancerClass, "tcpAppProfilePath", "tcp-app-profile-path", Text).means("TCP profile, by path."),
    Key::new(LoadBalancerClass, "udpAppProfileName", "udp-app-profile-name", Text).means("UDP profile, by name."),
    Key::new(LoadBalancerClass, "udpAppProfilePath", "udp-app-profile-path", Text).means("UDP profile, by path."),
    Key::new(Route, "routerPath", "router-path", Text).means("Tier-1 gateway that gets the routes."),
];
