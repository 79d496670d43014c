//! The configuration in the form that the provider uses.

use std::{fmt, path::PathBuf};

use cloudprovider::{ConfigProblem, SecretName};
use secrecy::SecretString;

use super::AllowEntry;
use crate::{
    addresses::{AddressRules, Family},
    endpoint::Endpoint,
};

/// The configuration of the provider.
///
/// ```
/// use cloudprovider_vsphere::{Config, Environment};
///
/// let text = "vcenter:\n  a:\n    server: vc1.example.org\n    user: ccm\n    password: hunter2\n";
/// let config = Config::parse(text, &Environment::default())?;
/// assert_eq!(config.warnings(), []);
/// # Ok::<(), cloudprovider::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The vCenters, by their references. None where clusters name their credentials.
    pub(crate) vcenters: Vec<VCenterConfig>,
    /// Where zones and regions come from.
    pub(crate) labels: ZoneLabels,
    /// Which addresses of a machine become addresses of its Node.
    pub(crate) addresses: AddressRules,
    /// What is done with machines beside what their objects say.
    pub(crate) machines: MachineOptions,
    /// The NSX-T parts that are configured.
    pub(crate) nsx: NsxParts,
    /// Where load balancers get their addresses. `None`: there are no load balancers.
    pub(crate) address_pools: Option<address_pools::Config>,
    /// `SKIP_NODE_DELETION`: no Node is ever reported as absent.
    pub(crate) skip_node_deletion: bool,
    pub(super) warnings: Vec<ConfigProblem>,
}

/// One entry of the configuration: a vCenter or a part of one. Several entries may name the same server with
/// other datacenters or users.
#[derive(Clone, Debug)]
pub(crate) struct VCenterConfig {
    /// The operator's name for the entry (CPI's tenant reference), used in messages and metrics.
    pub(crate) reference: String,
    /// The server as the operator wrote it. Credentials in a Secret are found by this text.
    pub(crate) server: String,
    /// Where the vCenter is, and how it is authenticated.
    pub(crate) endpoint: Endpoint,
    /// The datacenters whose machines are used; empty for all.
    pub(crate) datacenters: Vec<String>,
    /// Address families of its Nodes, in this order; never empty.
    pub(crate) families: Vec<Family>,
    /// Where the credentials are.
    pub(crate) credentials: CredentialPlaces,
}

/// Where the credentials of a vCenter are: in at least one place. If there are two, the second one is used if
/// vCenter refuses the credentials of the first, or the first has none.
#[derive(Clone, Debug)]
pub(crate) struct CredentialPlaces {
    pub(crate) secret: Option<SecretPlace>,
    /// User and password from the configuration itself.
    pub(crate) inline: Option<(String, SecretString)>,
    /// Whether user and password are tried before the Secret. As in CPI, those in the vCenter's own section
    /// are, and those in global are not.
    pub(crate) is_inline_first: bool,
}

/// Where a Secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretPlace {
    /// A Secret in the cluster.
    Object(SecretName),
    /// A folder with one file for each key.
    Directory(PathBuf),
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(name) => write!(f, "Secret {name}"),
            Self::Directory(folder) => write!(f, "the folder {}", folder.display()),
        }
    }
}

/// The tag categories whose tags name zones and regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneLabels {
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
    /// Whether a Node's existing zone and region are changed when those of its machine change.
    pub(crate) follow_moves: bool,
}

/// What is done with machines of Cluster API beside what their objects say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineOptions {
    /// Whether bootstrap data are emptied once a machine is a Node.
    pub(crate) remove_bootstrap_data: bool,
    /// Whether machines that are alike are kept on different hosts, by cluster modules.
    pub(crate) node_anti_affinity: bool,
    /// What objects may name, by namespace.
    pub(crate) allow: Vec<AllowEntry>,
}

/// The parts of CPI that need NSX-T: which of them are configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NsxParts {
    pub(crate) load_balancer: bool,
    pub(crate) routes: bool,
    /// Access to an NSX manager, with or without the other parts.
    pub(crate) manager: bool,
}

impl NsxParts {
    /// A notice for the operator that lists the configured parts that are not supported; `None` if none is
    /// configured.
    pub(crate) fn notice(self) -> Option<&'static str> {
        Some(match (self.load_balancer, self.routes, self.manager) {
            (true, true, _) => {
                "NSX-T load balancers and NSX-T routes are configured and not supported: Services of type LoadBalancer \
                 are left alone, and no routes are made"
            }
            (true, false, _) => {
                "NSX-T load balancers are configured and not supported: Services of type LoadBalancer are left alone"
            }
            (false, true, _) => "NSX-T routes are configured and not supported: no routes are made",
            (false, false, true) => {
                "an NSX manager is configured and not used: nothing of NSX-T is supported"
            }
            (false, false, false) => return None,
        })
    }
}
