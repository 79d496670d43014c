//! Rancher as a cloud for a Kubernetes cloud-controller-manager.
//!
//! Rancher 1.6 ("Cattle", API `v2-beta`; cargo feature `cattle`, on by default): hosts, their zones, and load
//! balancers. Rancher 2.x: the Machines of a cluster, as the management server knows them, and the clusters
//! that it has. Load balancers have
//! [modes](LoadBalancerMode), which do not depend on Rancher but for `cattle`.
//!
//! The hosts of Rancher 1.6 are listed once, page by page, and then followed by Cattle's events. So look-ups
//! are answered from memory, and a Node costs no call:
//!
//! ```text
//!   look-ups ──> instances ──> inventory (memory) <── follow (task) ──> pages, events ──> norman::client ──> Cattle
//!                    └──> resolve, zones, addresses (rules)                                 ^
//!   Services ──> load_balancers (by mode)                                                   │
//!                  ├──> cattle::load_balancer ──> plan (pure), calls ───────────────────────┘
//!                  ├──> harvester ──> demand, plan (pure), api ──> Harvester
//!                  └──> address-pools
//! ```
//!
//! - [`Absent`](cloudprovider::InstanceLookup::Absent) is returned only after a complete listing that began
//!   after the question. Any error, an incomplete page or an empty list makes the answer `Unknown`.
//! - A Node is matched by its provider ID, and without one by its name.
//!
//! The provider ID is `rancher://<host uuid>`, see [`format_provider_id`].
//!
//! # Example
//!
//! ```
//! use cloudprovider::{FactoryInput, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(cloudprovider_rancher::NAME, cloudprovider_rancher::factory)?;
//! let config = "url: https://rancher.example.org\naccessKey: ccm\nsecretKey: secret\n";
//! let provider = registry.create("rancher", &FactoryInput::new(config))?;
//! assert!(provider.load_balancer().is_some());
//! # Ok::<(), cloudprovider::Error>(())
//! ```

#[cfg(feature = "cattle")]
mod cattle;
mod config;
mod kubeconfig;
mod load_balancers;
mod lookups;
mod management;
#[doc(hidden)]
pub mod measured;
mod norman;
mod provider;
mod provider_id;
mod tls;
mod zones;

pub use config::{
    AddressRules, ApiVersion, ClusterSelector, Config, Credentials, Environment, HarvesterAnnouncer,
    HarvesterConfig, Ipam, LoadBalancerConfig, LoadBalancerMode, ManagementConfig, PoolAnnotation,
    ServerConfig, ZoneRules,
};
#[cfg(feature = "cattle")]
pub use config::{AddressTypes, CattleConfig, ReservedPorts};
pub use kubeconfig::KubernetesAccess;
pub use provider::{RancherProvider, factory};
pub use provider_id::{format_machine_id, format_provider_id, parse_machine_id, parse_provider_id};

/// The provider's name, as in `--cloud-provider` and before the `://` of its provider IDs.
pub const NAME: &str = "rancher";
