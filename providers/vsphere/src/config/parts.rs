//! What a configuration says, in the form that is worked with.

use std::{fmt, path::PathBuf};

use cloudprovider::{ConfigProblem, SecretName};
use secrecy::SecretString;

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
    /// The vCenters, at least one, by their references.
    pub(crate) vcenters: Vec<VCenterConfig>,
    /// Where zones and regions come from.
    pub(crate) labels: ZoneLabels,
    /// Which addresses of a machine become addresses of its Node.
    pub(crate) addresses: AddressRules,
    /// What of NSX-T is configured.
    pub(crate) nsx: NsxParts,
    /// `SKIP_NODE_DELETION`: no Node is ever called absent.
    pub(crate) skip_node_deletion: bool,
    pub(super) warnings: Vec<ConfigProblem>,
}

/// One vCenter, or a part of one: several may name the same server with other datacenters or users.
#[derive(Clone, Debug)]
pub(crate) struct VCenterConfig {
    /// The operator's name for it (CPI's tenant reference): in messages and metrics.
    pub(crate) reference: String,
    /// The server as the operator wrote it: credentials in a Secret are found by it.
    pub(crate) server: String,
    /// Where it is and how it proves that it is the one.
    pub(crate) endpoint: Endpoint,
    /// The datacenters that count; empty for all.
    pub(crate) datacenters: Vec<String>,
    /// Families of the addresses of its Nodes, in this order; never empty.
    pub(crate) families: Vec<Family>,
    /// Who we are.
    pub(crate) credentials: CredentialPlaces,
}

/// Where the credentials of a vCenter are. At least one place is given; where there are two, the second one is for what
/// vCenter refuses, or the first one has not.
#[derive(Clone, Debug)]
pub(crate) struct CredentialPlaces {
    pub(crate) secret: Option<SecretPlace>,
    /// User and password that stand in the configuration itself.
    pub(crate) inline: Option<(String, SecretString)>,
    /// Whether they come before the Secret: those of the vCenter's own do, those of global do not, as in CPI.
    pub(crate) is_inline_first: bool,
}

/// Where a Secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretPlace {
    /// An object of the cluster.
    Object(SecretName),
    /// A folder with a file for each key.
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
    /// Whether Nodes that have zone and region get others when their machine's change.
    pub(crate) follow_moves: bool,
}

/// The parts of CPI that need NSX-T, as far as they are configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NsxParts {
    pub(crate) load_balancer: bool,
    pub(crate) routes: bool,
    /// Access to an NSX manager, with or without the parts above.
    pub(crate) manager: bool,
}

impl NsxParts {
    /// What the operator is told: which configured parts are not done here. `None` where nothing is configured.
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
