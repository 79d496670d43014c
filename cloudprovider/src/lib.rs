//! The contract between a Kubernetes cloud-controller-manager and a cloud.
//!
//! A *provider* is an implementation of [`CloudProvider`]. It returns the parts that its cloud supports. Each
//! part is a small trait: [`Instances`], [`Zones`], [`LoadBalancer`], [`Routes`], [`Clusters`], [`Machines`].
//! The controllers know nothing of the cloud. A provider knows nothing of Kubernetes' client types: it sees a
//! Node as a [`NodeIdentity`], so it can be tested without an API server.
//!
//! ```text
//!   cloud  <──  provider: impl CloudProvider  <──  controllers  ──>  Kubernetes API
//!               (Instances, Zones, ...)            (ccm)
//! ```
//!
//! Three rules apply everywhere:
//!
//! - **Three answers, never two.** A look-up answers [`InstanceLookup::Present`], [`InstanceLookup::Absent`]
//!   or [`InstanceLookup::Unknown`]. Nothing is ever deleted because of `Unknown`, so a failed look-up cannot
//!   be mistaken for a machine that is gone.
//! - **Batches.** Methods about nodes take a slice of nodes and return an answer for each. If the cloud can
//!   answer for 5,000 nodes with one call, the provider makes one call. Otherwise it loops.
//! - **One [`Error`] type.** Its [`ErrorKind`] is named for the decision that the caller takes, and
//!   [`retry_after`](Error::retry_after) says when another try can help. The table at [`ErrorKind`] shows
//!   what people then see on a Node.
//!
//! # A whole provider
//!
//! `examples/static_provider` in this crate is a complete provider in under 150 lines. Its machines are listed
//! in a configuration text. `examples/machine_provider` also makes [machines] for Cluster API. The outline of a
//! provider:
//!
//! ```
//! use std::sync::Arc;
//! use cloudprovider::{
//!     async_trait, CloudProvider, Instance, InstanceLookup, InstanceStream, Instances, NodeIdentity, PowerState,
//!     ProviderId, Registry, Result, StartContext,
//! };
//!
//! #[derive(Debug)]
//! struct OneMachine;
//!
//! #[async_trait]
//! impl Instances for OneMachine {
//!     fn owns(&self, provider_id: &str) -> bool {
//!         provider_id.starts_with("one://")
//!     }
//!     async fn lookup(&self, nodes: &[&NodeIdentity]) -> Vec<InstanceLookup> {
//!         nodes
//!             .iter()
//!             .map(|node| match node.provider_id.as_deref().unwrap_or(&node.name) {
//!                 "one:///1" | "one" => Instance::new(ProviderId::new("one", "/1"), PowerState::Running).into(),
//!                 _ => InstanceLookup::Absent,
//!             })
//!             .collect()
//!     }
//!     fn changes(&self) -> Option<InstanceStream> {
//!         None
//!     }
//! }
//!
//! #[async_trait]
//! impl CloudProvider for OneMachine {
//!     fn name(&self) -> &str { "one" }
//!     async fn start(&self, _context: StartContext) -> Result<()> { Ok(()) }
//!     fn instances(&self) -> Option<&dyn Instances> { Some(self) }
//! }
//!
//! let mut registry = Registry::new();
//! registry.register("one", |_config| Ok(Arc::new(OneMachine)))?;
//! # Ok::<(), cloudprovider::Error>(())
//! ```

mod addresses;
mod clusters;
mod config_text;
mod error;
mod error_kind;
mod fair_permits;
mod fair_queue;
mod instances;
mod inventory;
mod labels;
mod load_balancer;
pub mod machines;
mod node;
mod provided_node_ip;
mod provider;
mod provider_id;
mod registry;
mod routes;
mod secrets;
mod service_access;
mod term;
#[cfg(feature = "testing")]
pub mod testing;
pub mod ties;
mod unknown_word;
#[cfg(feature = "uuid")]
pub mod uuids;
mod zones;

pub use addresses::{NodeAddress, NodeAddressType, append_missing_addresses};
pub use async_trait::async_trait;
#[cfg(feature = "tls")]
pub use basics::tls;
pub use basics::{
    LogOnce,
    addresses::leads_to,
    backoff::Backoff,
    dns, error_chain, gcfg,
    go::{NumError, parse_bool, parse_duration},
};
pub use clusters::{Clusters, ControlPlaneEndpoint};
pub use config_text::{
    ConfigTextError, TextOddity, decode_config, is_invisible, kind_of_value, manifest_in_place_of_config,
    yaml_fault_cause, yaml_syntax_fault,
};
pub use error::{ConfigProblem, Error, Result};
pub use error_kind::ErrorKind;
pub use fair_permits::{FairPermit, FairPermits, PermitsClosed};
pub use fair_queue::FairQueue;
pub use instances::{
    CHECK_NODE_NAME, Instance, InstanceChange, InstanceLookup, InstanceMetadata, InstanceRef, InstanceStream,
    Instances, PowerState,
};
pub use inventory::{instance_stream, look_once_listed};
pub use labels::{label_key_fault, label_value_fault};
pub use load_balancer::{
    ExternalTrafficPolicy, IpFamilyPolicy, IpMode, LoadBalancer, LoadBalancerIngress, LoadBalancerService,
    LoadBalancerStatus, PortStatus, Protocol, ServicePort, SessionAffinity, TargetPort,
    default_load_balancer_name,
};
pub use machines::{DynMachines, MachineTypes, Machines};
pub use node::NodeIdentity;
pub use provided_node_ip::{ProvidedNodeIpError, apply_provided_node_ip};
pub use provider::{CloudProvider, StartContext};
pub use provider_id::{ProviderId, ProviderIdError};
pub use registry::{FactoryInput, Registry};
pub use routes::{Route, Routes};
pub use secrets::{NoSecrets, SecretData, SecretName, SecretSource, SecretStream, SecretVersion};
pub use service_access::{
    AddressClaim, AddressHolder, AddressUse, AddressUser, ConfigMapName, ConfigMapStream, EndOfTerm,
    NoServiceAccess, ServiceAccess, ServiceAccessNeeds, ServiceChange, ServiceRef, UsedAddresses,
};
pub use term::Term;
pub use unknown_word::UnknownWord;
pub use zones::{Zone, Zones};
