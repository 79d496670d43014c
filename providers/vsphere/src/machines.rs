//! Machines of Cluster API on vSphere: the kinds of Cluster API Provider vSphere.
//!
//! ```text
//!   objects in the API: v1beta1 <── conversion ──> v1beta2: spec, status (what the steps work on)
//!   steps ──> vsphere_machines, state (what they share, and what is known of each machine)
//!     ├─────> vcenter_handle (calls, inventory, tasks) ──> vCenter
//!     ├─────> session_pool, identities (sessions with credentials that clusters name)
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
mod groups;
mod guest;
mod identities;
mod kinds;
mod modules;
mod naming;
mod places;
mod pools;
mod power;
mod rules;
mod server;
mod session_pool;
mod spec;
mod state;
mod status;
mod steps;
mod storage;
mod storage_drs;
mod supported;
mod takeover;
mod template;
mod tombstones;
mod v1beta1;
mod v1beta1_conditions;
mod v1beta2;
mod vcenter_handle;
mod vsphere_machines;
mod work;
mod zones;

use cloudprovider::MachineTypes;

pub use self::{conversion::convert, v1beta1::v1beta1};
pub(crate) use self::{
    session_pool::{Deps, SessionPool},
    tombstones::Tombstones,
    vcenter_handle::VCenterHandle,
    vsphere_machines::VSphereMachines,
};

/// The kinds of this provider's machines, for [`Registry::register_machines`](cloudprovider::Registry::register_machines).
/// The API server stores them in v1beta2, as Cluster API Provider vSphere 1.16 and later do, and serves v1beta1 too, the only version that
/// 1.15 and older have.
pub fn machine_types() -> MachineTypes {
    MachineTypes::of::<VSphereMachines>()
        .with_auxiliary(v1beta2::further_kinds)
        .with_columns(v1beta2::COLUMNS)
        .with_rules(&rules::v1beta2::OF_MACHINES, &rules::v1beta2::OF_MACHINE_TEMPLATES)
        .with_older(v1beta1, convert)
}
