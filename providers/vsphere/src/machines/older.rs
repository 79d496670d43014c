//! The conditions that Cluster API Provider vSphere writes in v1beta1, with its names and reasons, and those here that they follow.

use cloudprovider::machines::{
    OlderCondition, OlderReason,
    Severity::{self, Error, Info, Warning},
};

/// What a machine does, or waits for, on its way; and reasons with other names.
const OF_MACHINES: &[OlderReason] = &[
    OlderReason::new("WaitingForClusterInfrastructureReady", Info).called("WaitingForClusterInfrastructure"),
    OlderReason::new("WaitingForClone", Info).called("Cloning"),
    OlderReason::new("TakingOver", Info),
    OlderReason::new("PoweringOn", Info),
    OlderReason::new("PoweringOff", Info),
    OlderReason::new("ShuttingDown", Info),
    OlderReason::new("Deleting", Info),
    OlderReason::new("TaskFailed", Warning).called("TaskFailure"),
];

/// Of a `VSphereMachine`.
pub(crate) const OF_MACHINE: &[OlderCondition] = &[ready(Warning).with_reasons(OF_MACHINES), VM_PROVISIONED];

/// Of a `VSphereVM`. Nothing is followed by `PCIDevicesDetached`, so the last one of Cluster API Provider vSphere goes: nobody looks at the
/// devices of a machine that is complete.
pub(crate) const OF_VM: &[OlderCondition] = &[
    ready(Warning).with_reasons(OF_MACHINES),
    VCENTER_AVAILABLE,
    VM_PROVISIONED,
    OlderCondition::new("IPAddressClaimed", "IPAddressClaimsFulfilled", Error)
        .with_reasons(&[OlderReason::new("NotFulfilled", Error).called("IPAddressClaimNotFound")]),
    OlderCondition::new("GuestSoftPowerOffSucceeded", "GuestSoftPowerOffSucceeded", Warning).with_reasons(&[
        OlderReason::new("InProgress", Info).called("GuestSoftPowerOffInProgress"),
        OlderReason::new("Failed", Warning).called("GuestSoftPowerOffFailed"),
    ]),
    OlderCondition::new("PCIDevicesDetached", "PCIDevicesDetached", Warning),
];

/// Of a `VSphereCluster`.
pub(crate) const OF_CLUSTER: &[OlderCondition] = &[
    ready(Warning).with_reasons(&[OlderReason::new("Deleting", Info)]),
    VCENTER_AVAILABLE,
    OlderCondition::new("FailureDomainsAvailable", "FailureDomainsReady", Warning)
        .with_reasons(&[OlderReason::new("NotReady", Info).called("FailureDomainsSkipped")]),
    OlderCondition::new("ClusterModulesAvailable", "ClusterModulesReady", Warning).with_reasons(&[
        OlderReason::new("InvalidVCenterVersion", Info).called("VCenterVersionIncompatible"),
        OlderReason::new("NotReady", Warning).called("ClusterModuleSetupFailed"),
    ]),
];

/// Of a `VSphereDeploymentZone`.
pub(crate) const OF_ZONE: &[OlderCondition] = &[
    ready(Error).with_reasons(&[OlderReason::new("InUse", Info)]),
    VCENTER_AVAILABLE,
    OlderCondition::new("PlacementConstraintMet", "PlacementConstraintReady", Error),
    OlderCondition::new("VSphereFailureDomainValidated", "FailureDomainValidated", Error).with_reasons(&[
        OlderReason::new("RegionMisconfigured", Error).called("FailureDomainRegionMisconfigured"),
        OlderReason::new("ZoneMisconfigured", Error).called("FailureDomainZoneMisconfigured"),
    ]),
];

/// Of a `VSphereClusterIdentity`.
pub(crate) const OF_IDENTITY: &[OlderCondition] =
    &[ready(Warning), OlderCondition::new("CredentialsAvailable", "Available", Warning)];

const VM_PROVISIONED: OlderCondition =
    OlderCondition::new("VMProvisioned", "VirtualMachineProvisioned", Warning).with_reasons(OF_MACHINES);

const VCENTER_AVAILABLE: OlderCondition = OlderCondition::new("VCenterAvailable", "VCenterAvailable", Error);

const fn ready(severity: Severity) -> OlderCondition {
    OlderCondition::new("Ready", "Ready", severity)
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
            (KINDS.machine.kind, KINDS.machine.older_conditions),
            (KINDS.cluster.kind, KINDS.cluster.older_conditions),
            (VM_KIND.kind, VM_KIND.older_conditions),
            (DEPLOYMENT_ZONE_KIND.kind, DEPLOYMENT_ZONE_KIND.older_conditions),
            (CLUSTER_IDENTITY_KIND.kind, CLUSTER_IDENTITY_KIND.older_conditions),
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
