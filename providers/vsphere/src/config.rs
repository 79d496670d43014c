//! The configuration: the file that CPI reads, in either of its formats, checked as a whole.
//!
//! ```text
//!   YAML ──> read_yaml ─┐
//!   INI  ──> gcfg ──> read_ini ──> Settings <── Environment      (one form, by the table in keys)
//!                                     └──> build ──> Config
//! ```
//!
//! What CPI accepts is accepted, with the same meaning; where that meaning is nothing, there is a warning.

mod build;
mod environment;
mod gcfg;
mod hints;
mod keys;
mod names;
mod read_ini;
mod read_yaml;
#[cfg(test)]
mod reference;
mod settings;

use std::{fmt, path::PathBuf};

use cloudprovider::{ConfigProblem, Error, Result, SecretName};
use secrecy::SecretString;

pub use self::environment::Environment;
use self::settings::Findings;
use crate::{
    addresses::{AddressRules, Family},
    http::Endpoint,
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
    warnings: Vec<ConfigProblem>,
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

impl Config {
    /// Reads and checks a configuration in either format.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfiguration`](cloudprovider::ErrorKind::InvalidConfiguration) with every fault, each
    /// with the place where it stands and without any value that may be a secret.
    pub fn parse(text: &str, environment: &Environment) -> Result<Self> {
        Self::read(text, environment).0
    }

    /// The same, with the warnings, which there are also where the configuration is refused.
    pub(crate) fn read(text: &str, environment: &Environment) -> (Result<Self>, Vec<ConfigProblem>) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut findings = Findings::default();
        let mut settings = if is_ini(text) {
            read_ini::read(text, &mut findings)
        } else {
            read_yaml::read(text, environment.has_vcenter(), &mut findings)
        };
        // a text that cannot be read has none of the keys that would be missed
        let is_readable = findings.problems.is_empty() || !settings.is_empty();
        environment.apply(&mut settings, &mut findings);
        let config = is_readable.then(|| build::build(&settings, environment, &mut findings));
        let warnings = findings.warnings.clone();
        let outcome = match config {
            Some(config) if findings.problems.is_empty() => {
                Ok(Self { warnings: findings.warnings, ..config })
            }
            _ => Err(Error::invalid_configuration(findings.problems)),
        };
        (outcome, warnings)
    }

    /// What is probably not meant, and what has no effect: to be shown to the operator.
    pub fn warnings(&self) -> &[ConfigProblem] {
        &self.warnings
    }
}

/// Whether a text is in the INI format: the first thing in it is a section, which YAML would take for a list. CPI tries
/// YAML first and then INI, which comes to the same.
fn is_ini(text: &str) -> bool {
    text.trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim_start)
        .find(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        .is_some_and(|line| line.starts_with('['))
}

#[cfg(test)]
mod tests;
