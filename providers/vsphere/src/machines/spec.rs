//! What users say: the specs of the kinds, in version v1beta2.
//!
//! The fields are those of Cluster API Provider vSphere, so that its manifests apply unchanged. The doc comments are
//! the descriptions in the CRDs, so they are written for users. A text, number or list that is empty or zero means
//! the same as one that is missing. In v1beta2 the API server refuses most of those. Objects that were written in v1beta1 may still have
//! them, and may lack what is required, so a missing field is no error of these types.

mod clone;
mod cluster;
mod deployment_zone;
mod failure_domain;
mod hardware;
mod identity;
mod machine;
mod network;
mod selector;
mod vm;

pub(crate) use self::{
    clone::{CloneMode, MAX_VMX_KEYS, MAX_VMX_VALUE, OperatingSystem, VirtualMachineCloneSpec, text},
    cluster::{ClusterModule, IdentityKind, VSphereClusterSpec, VSphereIdentityReference},
    deployment_zone::{PlacementConstraint, VSphereDeploymentZoneSpec},
    failure_domain::{
        FailureDomain, FailureDomainHosts, FailureDomainType, NetworkConfiguration, VSphereFailureDomainSpec,
    },
    hardware::{DataDisk, PciDeviceSpec, ProvisioningMode, Quantity, ResourceAmounts, Resources},
    identity::VSphereClusterIdentitySpec,
    machine::{PowerOffMode, VSphereMachineSpec},
    network::{AddressPoolReference, DhcpOverrides, NetworkDeviceSpec, NetworkRouteSpec, NetworkSpec},
    selector::LabelSelector,
    vm::VSphereVMSpec,
};

#[cfg(test)]
mod tests;
