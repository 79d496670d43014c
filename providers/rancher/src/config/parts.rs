//! The parts of the configuration.

use std::{fmt, time::Duration};

use rustls::RootCertStore;
use secrecy::SecretString;

/// The configuration of the provider.
///
/// ```
/// use cloudprovider::FactoryInput;
/// use cloudprovider_rancher::{Config, Environment};
///
/// let input = FactoryInput::new("url: https://rancher.example.org\naccessKey: ccm\nsecretKey: secret\n");
/// let config = Config::read(&input, &Environment::default())?;
/// assert_eq!(config.base, "https://rancher.example.org/v2-beta");
/// # Ok::<(), cloudprovider::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The URL below which the collections are, such as `https://rancher.example.org/v2-beta/projects/1a5`,
    /// without a slash at its end.
    pub base: String,
    /// The API key: user and password of HTTP Basic authentication.
    pub access_key: SecretString,
    /// The secret of the API key.
    pub secret_key: SecretString,
    /// The certificate authorities to trust instead of the system's.
    pub authorities: Option<RootCertStore>,
    /// Whether certificates are not verified.
    pub insecure: bool,
    /// The time for one call. Default 10 s.
    pub timeout: Duration,
    /// How many objects a page of a listing has at most. Default 1000.
    pub page_size: u32,
    /// How often the hosts are listed while events arrive. Default 5 min.
    pub refresh_interval: Duration,
    /// How often the hosts are listed while no events arrive. Default 30 s.
    pub poll_interval: Duration,
    /// The types of Node addresses.
    pub address_types: AddressTypes,
    /// Where zones come from.
    pub zones: ZoneRules,
    /// Load balancers.
    pub load_balancer: LoadBalancerConfig,
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

/// Settings of load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadBalancerConfig {
    /// What runs load balancers.
    pub mode: LoadBalancerMode,
    /// The stack that holds all load balancers of the cluster. Default `kubernetes-loadbalancers`.
    pub stack_name: String,
    /// The external ID of this stack. Default `kubernetes-loadbalancers://`.
    pub stack_external_id: String,
    /// The setting of Rancher that names the image of load balancers. Default `lb.instance.image`.
    pub image_setting: String,
    /// When a load balancer that Rancher still works on is looked at again. Default 2 s.
    pub retry_interval: Duration,
}

impl Default for LoadBalancerConfig {
    fn default() -> Self {
        Self {
            mode: LoadBalancerMode::Cattle,
            stack_name: "kubernetes-loadbalancers".to_owned(),
            stack_external_id: "kubernetes-loadbalancers://".to_owned(),
            image_setting: "lb.instance.image".to_owned(),
            retry_interval: Duration::from_secs(2),
        }
    }
}

/// Types of settings whose values are words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($(#[$item:meta])* $variant:ident = $word:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$item])* $variant,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word of the configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The API of the Rancher server.
    ApiVersion:
    /// The API that the server has.
    Auto = "auto",
    /// The management API of Rancher 2.x, which is not supported yet.
    V3 = "v3",
    /// The API of Rancher 1.6.
    V2Beta = "v2-beta"
}

words! {
    /// The types that the IP addresses of a host get on its Node.
    AddressTypes:
    /// `InternalIP`.
    Internal = "internal",
    /// `ExternalIP`.
    External = "external",
    /// Both types for each address, as rancher-cloud-controller-manager had it.
    Both = "both"
}

words! {
    /// What runs the load balancers of Services.
    LoadBalancerMode:
    /// Cattle's own load balancers.
    Cattle = "cattle",
    /// Nothing: Services of type `LoadBalancer` are left to others.
    None = "none"
}
