//! The conditions that Cluster API Provider vSphere writes in v1beta1, with its names and reasons, and those here that they follow.

use cloudprovider::machines::{
    Severity::{self, Error, Info, Warning},
    V1Beta1Condition, V1Beta1Reason,
};

/// What a machine does, or waits for, on its way; and reasons with other names.
const OF_MACHINES: &[V1Beta1Reason] = &[
    V1Beta1Reason::new("WaitingForClusterInfrastructureReady", Info)
        .called("WaitingForClusterInfrastructure"),
    V1Beta1Reason::new("WaitingForClone", Info).called("Cloning"),
    V1Beta1Reason::new("TakingOver", Info),
    V1Beta1Reason::new("PoweringOn", Info),
    V1Beta1Reason::new("PoweringOff", Info),
    V1Beta1Reason::new("ShuttingDown", Info),
    V1Beta1Reason::new("Deleting", Info),
    V1Beta1Reason::new("TaskFailed", Warning).called("TaskFailure"),
];

/// Of a `VSphereMachine`.
pub(crate) const OF_MACHINE: &[V1Beta1Condition] =
    &[ready(Warning).with_reasons(OF_MACHINES), VM_PROVISIONED];

/// Of a `VSphereVM`. Nothing is followed by `PCIDevicesDetached`, so the last one of Cluster API Provider vSphere goes: nobody looks at the
/// devices of a machine that is complete.
pub(crate) const OF_VM: &[V1Beta1Condition] = &[
    ready(Warning).with_reasons(OF_MACHINES),
    VCENTER_AVAILABLE,
    VM_PROVISIONED,
    V1Beta1Condition::new("IPAddressClaimed", "IPAddressClaimsFulfilled", Error)
        .with_reasons(&[V1Beta1Reason::new("NotFulfilled", Error).called("IPAddressClaimNotFound")]),
    V1Beta1Condition::new("GuestSoftPowerOffSucceeded", "GuestSoftPowerOffSucceeded", Warning).with_reasons(
        &[
            V1Beta1Reason::new("InProgress", Info).called("GuestSoftPowerOffInProgress"),
            V1Beta1Reason::new("Failed", Warning).called("GuestSoftPowerOffFailed"),
        ],
    ),
    V1Beta1Condition::new("PCIDevicesDetached", "PCIDevicesDetached", Warning),
];

/// Of a `VSphereCluster`.
pub(crate) const OF_CLUSTER: &[V1Beta1Condition] = &[
    ready(Warning).with_reasons(&[V1Beta1Reason::new("Deleting", Info)]),
    VCENTER_AVAILABLE,
    V1Beta1Condition::new("FailureDomainsAvailable", "FailureDomainsReady", Warning)
        .with_reasons(&[V1Beta1Reason::new("NotReady", Info).called("FailureDomainsSkipped")]),
    V1Beta1Condition::new("ClusterModulesAvailable", "ClusterModulesReady", Warning).with_reasons(&[
        V1Beta1Reason::new("InvalidVCenterVersion", Info).called("VCenterVersionIncompatible"),
        V1Beta1Reason::new("NotReady", Warning).called("ClusterModuleSetupFailed"),
    ]),
];

/// Of a `VSphereDeploymentZone`.
pub(crate) const OF_ZONE: &[V1Beta1Condition] = &[
    ready(Error).with_reasons(&[V1Beta1Reason::new("InUse", Info)]),
    VCENTER_AVAILABLE,
    V1Beta1Condition::new("PlacementConstraintMet", "PlacementConstraintReady", Error),
    V1Beta1Condition::new("VSphereFailureDomainValidated", "FailureDomainValidated", Error).with_reasons(&[
        V1Beta1Reason::new("RegionMisconfigured", Error).called("FailureDomainRegionMisconfigured"),
        V1Beta1Reason::new("ZoneMisconfigured", Error).called("FailureDomainZoneMisconfigured"),
    ]),
];

/// Of a `VSphereClusterIdentity`.
pub(crate) const OF_IDENTITY: &[V1Beta1Condition] =
    &[ready(Warning), V1Beta1Condition::new("CredentialsAvailable", "Available", Warning)];

const VM_PROVISIONED: V1Beta1Condition =
    V1Beta1Condition::new("VMProvisioned", "VirtualMachineProvisioned", Warning).with_reasons(OF_MACHINES);

const VCENTER_AVAILABLE: V1Beta1Condition =
    V1Beta1Condition::new("VCenterAvailable", "VCenterAvailable", Error);

const fn ready(severity: Severity) -> V1Beta1Condition {
    V1Beta1Condition::new("Ready", "Ready", severity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::kinds::{CLUSTER_IDENTITY_KIND, DEPLOYMENT_ZONE_KIND, KINDS, VM_KIND};

    /// The rows of each kind, with the names and reasons of both forms.
    #[test]
    fn the_documents_have_every_one_of_them() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/providers/vsphere/machines.md");
        let page = std::fs::read_to_string(page).expect("a document");
        let section = page.split("\n### ").find(|section| section.starts_with("Conditions\n"));
        let section = section.expect("the section about conditions");
        for (kind, table) in [
            (KINDS.machine.kind, KINDS.machine.v1beta1_conditions),
            (KINDS.cluster.kind, KINDS.cluster.v1beta1_conditions),
            (VM_KIND.kind, VM_KIND.v1beta1_conditions),
            (DEPLOYMENT_ZONE_KIND.kind, DEPLOYMENT_ZONE_KIND.v1beta1_conditions),
            (CLUSTER_IDENTITY_KIND.kind, CLUSTER_IDENTITY_KIND.v1beta1_conditions),
        ] {
            assert!(section.contains(&format!("\n| {kind} | `Ready` | `Ready` |")), "{kind}");
            assert!(!table.is_empty(), "{kind}");
            for row in table {
                let renamed = row.reasons.iter().filter(|one| one.reason != one.name);
                let renamed = renamed.flat_map(|one| [one.reason, one.name]);
                for word in [row.name, row.follows].into_iter().chain(renamed) {
                    assert!(section.contains(&format!("`{word}`")), "{kind} {} {word}", row.name);
                }
            }
        }
    }

    #[test]
    fn a_wait_is_no_failure() {
        for reason in ["WaitingForClone", "WaitingForIPAllocation", "PoweringOn", "ShuttingDown", "Deleting"]
        {
            assert_eq!(VM_PROVISIONED.reason(reason).1, Info, "{reason}");
        }
        for reason in ["TaskFailed", "NotFoundByBIOSUUID", "NotProvisioned", "MachineLost", "ForeignObject"] {
            assert_eq!(VM_PROVISIONED.reason(reason).1, Warning, "{reason}");
        }
        assert_eq!(VM_PROVISIONED.reason("WaitingForClone").0, "Cloning");
        assert_eq!(VCENTER_AVAILABLE.reason("VCenterUnreachable"), ("VCenterUnreachable", Error));
    }
}
