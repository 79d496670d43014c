//! Machines of Cluster API on vSphere: the kinds of Cluster API Provider vSphere.
//!
//! ```text
//!   objects in the API: v1beta1 <── conversion ──> v1beta2: spec, status (what the steps work on)
//!   steps ──> site (calls, inventory, tasks) ──> vCenter
//!     ├─────> open_sites, identities (sessions with credentials that clusters name)
//!     ├─────> places, template (what the words of a spec mean)
//!     ├─────> allowed (what the objects of a namespace may name)
//!     └─────> clone, guest, naming, addresses, power, drs, storage_drs (rules)
//! ```

mod addresses;
mod allowed;
mod cached;
mod clone;
mod conversion;
mod drs;
mod fleet;
mod groups;
mod guest;
mod identities;
mod invalid;
mod kinds;
mod modules;
mod naming;
mod older;
mod open_sites;
mod places;
mod pools;
mod power;
mod removed;
mod rules;
mod server;
mod site;
mod spec;
mod status;
mod steps;
mod storage;
mod storage_drs;
mod supported;
mod takeover;
mod template;
mod v1beta1;
mod v1beta2;
mod work;
mod zones;

use cloudprovider::MachineTypes;

pub use self::{conversion::convert, v1beta1::v1beta1};
pub(crate) use self::{
    fleet::Fleet,
    open_sites::{OpenSites, Outside},
    removed::Removed,
    site::Site,
};

/// The kinds of this provider's machines, for [`Registry::register_machines`](cloudprovider::Registry::register_machines).
/// The API server stores them in v1beta2, as Cluster API Provider vSphere 1.16 and later do, and serves v1beta1 too, the only version that
/// 1.15 and older have.
pub fn machine_types() -> MachineTypes {
    MachineTypes::of::<Fleet>()
        .with_auxiliary(v1beta2::further_kinds)
        .with_columns(v1beta2::COLUMNS)
        .with_rules(&rules::v1beta2::OF_MACHINES, &rules::v1beta2::OF_MACHINE_TEMPLATES)
        .with_older(v1beta1, convert)
}
