//! What users say: the specs of the kinds, in version v1beta2.
//!
//! The fields are those of Cluster API Provider vSphere, so that its manifests apply unchanged. The doc comments are
//! the descriptions in the CRDs, so they are written for users. A text, number or list that is empty or zero means
//! the same as one that is missing. In v1beta2 the API server refuses most of those. Objects that were written in v1beta1 may still have
//! them, and may lack what is required, so a missing field is no error of these types.

mod clone;
mod cluster;
mod failure_domain;
mod hardware;
mod machine;
mod network;
mod selector;

use cloudprovider::{Error, ErrorKind};

pub(crate) use self::{
    clone::{CloneMode, MAX_VMX_KEYS, MAX_VMX_VALUE, OperatingSystem, VirtualMachineCloneSpec, text},
    cluster::{
        ClusterModule, IdentityKind, VSphereClusterIdentitySpec, VSphereClusterSpec, VSphereIdentityReference,
    },
    failure_domain::{
        FailureDomain, FailureDomainHosts, FailureDomainType, NetworkConfiguration, PlacementConstraint,
        VSphereDeploymentZoneSpec, VSphereFailureDomainSpec,
    },
    hardware::{DataDisk, PciDeviceSpec, ProvisioningMode, Quantity, ResourceAmounts, Resources},
    machine::{PowerOffMode, VSphereMachineSpec, VSphereVMSpec},
    network::{AddressPoolReference, DhcpOverrides, NetworkDeviceSpec, NetworkRouteSpec, NetworkSpec},
    selector::LabelSelector,
};

/// The error about a value that a spec may not have. `words` begin with the field.
pub(crate) fn invalid(words: String) -> Error {
    Error::new(ErrorKind::InvalidInput, words)
}

#[cfg(test)]
mod tests;
