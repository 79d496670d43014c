//! What the guest is told at its first boot, by keys of the extra configuration (`guestinfo.*`). Pure.
//!
//! | Key | What |
//! |---|---|
//! | `guestinfo.metadata` | the name of the machine and its network configuration, for cloud-init |
//! | `guestinfo.userdata` | bootstrap data of the format `cloud-config` |
//! | `guestinfo.ignition.config.data` | bootstrap data of the format `ignition` |
//!
//! Each has a second key, with `.encoding` added, which is `base64` or `gzip+base64`.

mod bootstrap;
mod encoding;
mod mac;
mod metadata;
mod shape;

pub(crate) use self::{
    bootstrap::{bootstrap, no_bootstrap},
    mac::{mac_of, written},
    metadata::{metadata, static_ips},
    shape::shape,
};
