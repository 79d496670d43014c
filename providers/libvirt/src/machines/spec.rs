//! What users say: the specs of `LibvirtMachine` and `LibvirtCluster`.
//!
//! The doc comments are the descriptions in the CRDs, so they are written for users. What a machine is made
//! of cannot change later, as everywhere in Cluster API: a new template rolls out new machines.

mod cluster;
mod image;
mod interface;
mod machine;

pub(crate) use self::{
    cluster::{EndpointPoolSpec, LibvirtClusterSpec},
    image::{ImageFormat, ImageSource, ImageSpec},
    interface::{InterfaceModel, InterfaceSource, InterfaceSpec, MacvtapMode},
    machine::{
        CpuMode, CpuSpec, DiskBus, DiskFormat, DiskSpec, DomainType, Firmware, LibvirtMachineSpec,
        PowerOffMode, RootDiskMode,
    },
};

#[cfg(test)]
mod tests;
