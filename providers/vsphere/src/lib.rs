//! vSphere as a cloud: one or more vCenters.

#![allow(dead_code, reason = "the parts stand before the provider that puts them together")]

mod addresses;
mod config;
mod credentials;
mod follow;
mod guestinfo;
mod http;
mod instance_type;
mod inventory;
mod moref;
mod provider_id;
#[cfg(test)]
mod scripted;
mod session;
mod soap;
mod tags;
mod tls;
mod vcenter;
mod vim;
mod vm;
mod yaml;
mod zones;

pub use config::{Config, Environment};
pub use provider_id::{format_provider_id, parse_provider_id};

/// The provider's name, as in `--cloud-provider` and before the `://` of its provider IDs.
pub const NAME: &str = "vsphere";
