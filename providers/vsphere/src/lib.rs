//! vSphere as a cloud for a Kubernetes cloud-controller-manager.
//!
//! Each *vCenter* of the configuration is followed by a task: it logs in, lists everything once, and from
//! then on receives each change from the property collector. So look-ups are answered from memory:
//!
//! ```text
//!   look-ups ──> instances ──> inventory (memory) <── follow (task) ──> session ──> vim ──> soap ──> vCenter
//!                    └──> zones, addresses, instance_type (rules)        tags ──> Automation REST ──^
//! ```
//!
//! - [`Absent`](cloudprovider::InstanceLookup::Absent) is returned only while every vCenter is followed
//!   without a gap, shows all datacenters of the configuration, and, when asked for the Node's UUID, denies
//!   having a machine with it. One unreachable vCenter makes the answer `Unknown`.
//! - A Node is matched by its provider ID. Without one it is matched by its system UUID in either byte order,
//!   then by its name.
//! - Credentials that a vCenter refuses are tried again when they change, and otherwise rarely, so that
//!   accounts are not locked.
//!
//! The provider ID is `vsphere://<BIOS UUID>`, see [`format_provider_id`].
//!
//! # Example
//!
//! ```
//! use cloudprovider::{FactoryInput, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(cloudprovider_vsphere::NAME, cloudprovider_vsphere::factory)?;
//! let config = "vcenter:\n  vc1:\n    server: vc1.example.org\n    user: ccm\n    password: secret\n";
//! let provider = registry.create("vsphere", &FactoryInput::new(config))?;
//! assert!(provider.instances().is_some());
//! # Ok::<(), cloudprovider::Error>(())
//! ```

// Without machines, some calls and parts of the configuration that they alone use stay.
#![cfg_attr(not(feature = "machines"), allow(dead_code))]

mod accounts;
mod addresses;
#[cfg(feature = "machines")]
mod cluster_modules;
mod config;
mod credentials;
mod endpoint;
mod follow;
mod glob;
mod guestinfo;
mod http;
mod instance_type;
mod instances;
mod inventory;
mod login;
#[cfg(feature = "machines")]
mod machines;
mod mark;
#[doc(hidden)]
pub mod measured;
mod moref;
mod provider;
mod provider_id;
mod rest;
mod secrets;
mod session;
mod session_manager;
mod soap;
mod tags;
mod tasks;
#[cfg(test)]
mod testing;
mod thumbprint;
mod tls;
mod vcenter;
mod vim;
mod vm;
mod words;
mod zones;

pub use config::{Config, Environment};
#[cfg(feature = "machines")]
pub use machines::{convert, machine_types, v1beta1};
pub use provider::{VSphereProvider, factory};
pub use provider_id::{format_provider_id, parse_provider_id};

/// The provider's name, as in `--cloud-provider` and before the `://` of its provider IDs.
pub const NAME: &str = "vsphere";
