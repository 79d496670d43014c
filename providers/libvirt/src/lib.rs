//! libvirt as a cloud for a Kubernetes cloud-controller-manager.
//!
//! Each *hypervisor* of the configuration is one libvirtd. An actor keeps a connection to it, lists its
//! domains once, and follows libvirt's events from then on. So look-ups are answered from memory:
//!
//! ```text
//!   look-ups ──> inventory (memory) <── actor (task) ──> worker (thread) ──> libvirtd
//!                                          ^────────── events ──────────────┘
//! ```
//!
//! - A blocking call only blocks a thread of its own. After a deadline the thread is abandoned and the
//!   hypervisor counts as unreachable; the others are not affected.
//! - [`Absent`](cloudprovider::InstanceLookup::Absent) is returned only while every hypervisor is connected,
//!   follows events, has confirmed its list, and, when asked for the Node's domain, denies having it. One
//!   unreachable hypervisor makes the answer `Unknown`.
//! - A Node is matched by its provider ID. Without one it is matched by its system UUID, then by its name.
//!
//! The provider ID is `libvirt:///<domain uuid>`, see [`format_provider_id`].
//!
//! # Example
//!
//! ```
//! use cloudprovider::{FactoryInput, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(cloudprovider_libvirt::NAME, cloudprovider_libvirt::factory)?;
//! let config = "hypervisors:\n- name: kvm1\n  uri: qemu:///system\n";
//! let provider = registry.create("libvirt", &FactoryInput::new(config))?;
//! assert!(provider.instances().is_some());
//! # Ok::<(), cloudprovider::Error>(())
//! ```

// Without machines, some calls and parts of the configuration that they alone use stay.
#![cfg_attr(not(feature = "machines"), allow(dead_code))]

mod addresses;
mod allow;
mod calls;
mod clusters;
mod config;
mod connection;
mod domain;
mod fields;
mod hypervisor;
mod instances;
mod inventory;
mod kernel_routes;
mod mac;
#[cfg(feature = "machines")]
mod machines;
#[cfg(feature = "machines")]
#[doc(hidden)]
pub mod measured;
mod provider;
mod provider_id;
mod resolve;
mod routes;
mod session;
mod size;
mod sys;
mod uri;
mod worker;
#[cfg(feature = "machines")]
mod worker_pool;

pub use addresses::{AddressRules, Family};
pub use allow::Allow;
pub use config::{Auth, Config, Credential, HypervisorConfig, Keepalive, MachineLimits};
pub use domain::METADATA_NAMESPACE;
pub use hypervisor::HypervisorHandle;
pub use kernel_routes::ROUTE_PROTOCOL;
#[cfg(feature = "machines")]
pub use machines::machine_types;
pub use provider::{LibvirtProvider, factory};
pub use provider_id::{DomainId, format_provider_id, parse_provider_id};
/// The libvirt bindings of [`HypervisorHandle::with_connection`], in the version that this crate uses.
pub use virt;

/// The provider's name, in `--cloud-provider` and in provider IDs.
pub const NAME: &str = "libvirt";
