//! libvirt as a cloud for a Kubernetes cloud-controller-manager.
//!
//! Each *hypervisor* of the configuration is one libvirtd. An actor keeps a connection to it, lists its domains once,
//! and follows libvirt's events from then on, so that a look-up is answered from memory:
//!
//! ```text
//!   look-ups ──> inventory (memory) <── actor (task) ──> lane (thread) ──> libvirtd
//!                                          ^────────── events ──────────────┘
//! ```
//!
//! - A call that blocks, blocks a thread of its own. After a deadline the thread is left behind and the hypervisor
//!   counts as unreachable; the others go on.
//! - [`Absent`](cloudprovider::InstanceLookup::Absent) is said only while every hypervisor is connected, follows
//!   events, has confirmed its list, and denies having the very domain when asked for it. One unreachable hypervisor makes it `Unknown`.
//! - A Node is matched by its provider ID; without one by its system UUID, then its name.
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

mod addresses;
mod calls;
mod clusters;
mod config;
mod connection;
mod domain;
mod fields;
mod hypervisor;
mod instances;
mod inventory;
mod key;
mod lane;
mod mac;
mod provider;
mod provider_id;
mod session;
mod sys;
mod uri;

pub use addresses::{AddressRules, Family};
pub use config::{Auth, Config, Credential, HypervisorConfig, Keepalive};
pub use domain::METADATA_NAMESPACE;
pub use hypervisor::HypervisorHandle;
pub use provider::{LibvirtProvider, factory};
pub use provider_id::{DomainId, format_provider_id, parse_provider_id};
/// The libvirt bindings that [`HypervisorHandle::with_connection`] hands out, in the version used here.
pub use virt;

/// The provider's name, in `--cloud-provider` and in provider IDs.
pub const NAME: &str = "libvirt";
