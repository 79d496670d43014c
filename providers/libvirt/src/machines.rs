//! Machines of Cluster API on libvirt.
//!
//! ```text
//!   steps ──> LibvirtMachines ─┬─ placement: on which hypervisor
//!                              ├─ storage: images, disks, seeds
//!                              ├─ domain_xml ──> domains: define, start, remove
//!                              └─ reservation: addresses that a network keeps
//! ```

mod capabilities;
mod console;
mod domain_xml;
mod domains;
mod endpoint;
mod identity;
mod kept_macs;
mod libvirt_machines;
mod names;
mod placement;
mod power;
mod reservation;
mod seed;
mod spec;
mod steps;
mod storage;
mod xml;

#[cfg(test)]
mod tests;

use cloudprovider::MachineTypes;

pub(crate) use self::{
    libvirt_machines::{CallsOf, HostCalls, LibvirtMachines},
    storage::{TestDriverStorage, size_in_header as image_size_in_header},
};

/// The kinds of this provider's machines, for
/// [`Registry::register_machines`](cloudprovider::Registry::register_machines).
pub fn machine_types() -> MachineTypes {
    MachineTypes::of::<LibvirtMachines>()
}
