//! The parts of the configuration.

use std::time::Duration;

use ipnet::IpNet;
use rustls::RootCertStore;
use secrecy::SecretString;

#[cfg(feature = "cattle")]
use super::cattle::CattleConfig;
use super::{harvester::HarvesterConfig, load_balancer::LoadBalancerConfig, words::ApiVersion};

/// The configuration of the provider.
///
/// ```
/// use cloudprovider::FactoryInput;
/// use cloudprovider_rancher::{ApiVersion, Config, Environment};
///
/// let input = FactoryInput::new("url: https://rancher.example.org/v1\naccessKey: ccm\nsecretKey: secret\n");
/// let config = Config::read(&input, &Environment::default())?;
/// assert_eq!(config.api_version, ApiVersion::V2Beta);
/// assert_eq!(config.cattle_url(), "https://rancher.example.org/v2-beta");
/// # Ok::<(), cloudprovider::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The API to use. [`ApiVersion::Auto`] if neither this key nor anything else in the configuration says it:
    /// then the server is asked.
    pub api_version: ApiVersion,
    /// The server, and how it is called.
    pub server: ServerConfig,
    /// What is served of Rancher 1.6.
    #[cfg(feature = "cattle")]
    pub cattle: CattleConfig,
    /// What is served of Rancher 2.x. Always there if `api_version` is [`ApiVersion::V3`], and only then.
    pub management: Option<ManagementConfig>,
    /// How often the machines are listed while changes arrive. Default 5 min.
    pub refresh_interval: Duration,
    /// How often the machines are listed while no changes arrive. Default 30 s.
    pub poll_interval: Duration,
    /// Where zones come from.
    pub zones: ZoneRules,
    /// Load balancers.
    pub load_balancer: LoadBalancerConfig,
    /// The pools of the mode `pool`. Always there in that mode, and only then.
    pub address_pools: Option<address_pools::Config>,
    /// The settings of the mode `harvester`. Always there in that mode, and only then.
    pub harvester: Option<HarvesterConfig>,
}

impl Config {
    /// The URL below which the collections of Rancher 1.6 are, such as
    /// `https://rancher.example.org/v2-beta/projects/1a5`, without a slash at its end.
    #[cfg(feature = "cattle")]
    pub fn cattle_url(&self) -> String {
        let project = self.cattle.project.as_deref().map_or(String::new(), |id| format!("/projects/{id}"));
        format!("{}/v2-beta{project}", self.server.url)
    }

    /// The URL below which the collections of Rancher 2.x are, such as `https://rancher.example.org/v3`.
    pub fn management_url(&self) -> String {
        format!("{}/v3", self.server.url)
    }
}

/// A Rancher server, and how it is called.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Its URL without the path of an API and without a slash at its end, such as `https://rancher.example.org`.
    pub url: String,
    /// Who the daemon is to the server.
    pub credentials: Credentials,
    /// The certificate authorities to trust instead of the system's.
    pub authorities: Option<RootCertStore>,
    /// Whether certificates are not verified.
    pub insecure: bool,
    /// The time for one call. Default 10 s.
    pub timeout: Duration,
    /// How many objects a page of a listing has at most. Default 1000.
    pub page_size: u32,
}

/// Who the daemon is to a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Credentials {
    /// An API key: user and password of HTTP Basic authentication.
    Key {
        /// The access key. In Rancher 2.x it is the token's name, such as `token-abcde`.
        access: SecretString,
        /// Its secret.
        secret: SecretString,
    },
    /// A bearer token of Rancher 2.x, such as `token-abcde:<secret>`.
    Token(SecretString),
}

/// What is served of a Rancher 2.x server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManagementConfig {
    /// The cluster that the Nodes belong to.
    pub cluster: ClusterSelector,
    /// The namespace of the management cluster with the objects of Rancher's provisioning. `None`: the one that the
    /// server names for the cluster, which is usually `fleet-default`.
    pub namespace: Option<String>,
    /// Which of a machine's addresses its Node gets, and as what.
    pub addresses: AddressRules,
}

/// Rules for the addresses that Rancher 2.x knows of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressRules {
    /// If there are any: addresses in these networks are internal, and all others external.
    pub internal: Vec<IpNet>,
    /// Addresses in these networks are left out.
    pub excluded: Vec<IpNet>,
}

/// Names a cluster of a Rancher 2.x server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSelector {
    /// By its ID: `local`, `c-abcde` or `c-m-abcdefgh`.
    Id(String),
    /// By its name, which must be unique on the server.
    Name(String),
}

/// Where the zone of a host comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneRules {
    /// The label of a host that holds its zone. Default `topology.kubernetes.io/zone`.
    pub zone_label: String,
    /// The label of a host that holds its region. Default `topology.kubernetes.io/region`.
    pub region_label: String,
    /// Whether hosts without these labels get the constants of rancher-cloud-controller-manager,
    /// `FailureDomain1` and `Region1`.
    pub legacy_zones: bool,
}

impl Default for ZoneRules {
    fn default() -> Self {
        Self {
            zone_label: "topology.kubernetes.io/zone".to_owned(),
            region_label: "topology.kubernetes.io/region".to_owned(),
            legacy_zones: false,
        }
    }
}
