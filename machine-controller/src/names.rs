//! Names that others know too: annotations, labels, conditions and their reasons.

use cloudprovider::{
    ErrorKind,
    machines::{AuxiliaryKind, GROUP, Kind, Kinds},
};

/// On an object: nothing is done about it, whatever the value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";

/// On an infrastructure cluster: something else takes care of it. The documents of Cluster API call it a
/// label, its code reads an annotation. Both count here.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";

/// The label that `--watch-filter` compares.
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";

/// The label with the name of the Cluster.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// The label of Machines of the control plane.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// The label with the name of the `MachineDeployment` of a Machine.
pub const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";

/// Holds `clusterctl move`.
pub const BLOCK_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/block-move";

/// The value of [`BLOCK_MOVE_ANNOTATION`] that the controller writes. It removes no other.
pub const BLOCK_MOVE_VALUE: &str = COMPONENT;

/// The name of the controller: `source.component` of its events, and its client.
pub const COMPONENT: &str = "machine-controller";

/// The group of Cluster API's own kinds.
pub const CORE_GROUP: &str = "cluster.x-k8s.io";

/// The condition that sums up.
pub const READY: &str = "Ready";

/// The condition that nothing is done.
pub const PAUSED: &str = "Paused";

/// The condition that objects beside a machine or a cluster are not as its provider wants them. It is there
/// only while it is false.
pub const COMPANIONS_UP_TO_DATE: &str = "CompanionsUpToDate";

/// The API server does not take a write of an owned object.
pub const COMPANION_NOT_WRITTEN: &str = "NotWritten";

/// The reason of [`READY`] that is true.
pub const READY_REASON: &str = "Ready";

/// The reason of [`PAUSED`] that is true.
pub const PAUSED_REASON: &str = "Paused";

/// The reason of [`PAUSED`] that is false.
pub const NOT_PAUSED_REASON: &str = "NotPaused";

/// The infrastructure of the cluster comes first.
pub const WAITING_FOR_CLUSTER_INFRASTRUCTURE: &str = "WaitingForClusterInfrastructureReady";

/// A machine is not begun without its bootstrap data.
pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";

/// The infrastructure of a cluster goes after its machines.
pub const WAITING_FOR_MACHINES: &str = "WaitingForMachinesDeletion";

/// The object is being deleted.
pub const DELETING: &str = "Deleting";

/// The machine existed and is gone.
pub const MACHINE_LOST: &str = "MachineLost";

/// Another object has the same identity, and the better claim to it.
pub const IDENTITY_IN_USE: &str = "IdentityInUse";

/// The annotation with the identity of an object is missing although something was made for it.
pub const IDENTITY_MISSING: &str = "IdentityMissing";

/// The label names another Cluster than the one that an object was made for, and it may be a copy.
pub const CLUSTER_NAME_MISMATCH: &str = "ClusterNameMismatch";

/// A fault of the provider.
pub const PROVIDER_ERROR: &str = "ProviderError";

/// The step reported another provider ID than the object has.
pub const PROVIDER_ID_MISMATCH: &str = "ProviderIDMismatch";

/// The step reported another endpoint than the object has.
pub const ENDPOINT_MISMATCH: &str = "ControlPlaneEndpointMismatch";

/// Reboots the machine of an unhealthy Machine. It is the controller's own kind, beside those of every provider.
pub const REBOOT_REMEDIATION: AuxiliaryKind =
    AuxiliaryKind::new(GROUP, "v1alpha1", Kind::new("RebootRemediation", "rebootremediations")).status_only();

/// The auxiliary kinds of a provider, and the controller's own.
pub fn auxiliary_kinds(kinds: &Kinds) -> impl Iterator<Item = AuxiliaryKind> + use<> {
    kinds.auxiliary.iter().copied().chain([REBOOT_REMEDIATION])
}

/// The condition of a Machine in which a health check says whether it is healthy.
pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";

/// The reason of [`HEALTH_CHECK_SUCCEEDED`] if the Node object was deleted.
pub const NODE_DELETED: &str = "NodeDeleted";

/// The condition of a Cluster in which the core says whether it reaches the API server of the workload cluster.
pub const REMOTE_CONNECTION_PROBE: &str = "RemoteConnectionProbe";

/// The condition of a Machine whose owner is asked for its remediation, and answers there.
pub const OWNER_REMEDIATED: &str = "OwnerRemediated";

/// The reason of [`OWNER_REMEDIATED`] with which the owner is asked.
pub const WAITING_FOR_REMEDIATION: &str = "WaitingForRemediation";

/// The condition of a [`REBOOT_REMEDIATION`] about the last reboot.
pub const REBOOTED: &str = "Rebooted";

/// The reason of [`REBOOTED`] that is not known yet: the reboot is counted, and the cloud is being asked.
pub const REBOOTING: &str = "Rebooting";

/// The reason of [`REBOOTED`] that is not known any more: the daemon ended before it wrote the outcome.
pub const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

/// The reason of [`REBOOTED`] of an object without its Machine as an owner.
pub const OWNER_MISSING: &str = "OwnerMissing";

/// The condition of a [`REBOOT_REMEDIATION`] that the owner of the Machine is asked to replace it.
pub const HANDED_OVER: &str = "HandedOver";

/// The finalizer of a kind, such as `libvirtmachine.infrastructure.cluster.x-k8s.io`.
pub fn finalizer(kinds: &Kinds, kind: &Kind) -> String {
    format!("{}.{}", kind.kind.to_ascii_lowercase(), kinds.group)
}

/// The annotation with the UID that an object had when it was first seen. `clusterctl move` gives objects new
/// UIDs and keeps annotations.
pub fn identity_annotation(kinds: &Kinds) -> String {
    format!("{}/uid", kinds.group)
}

/// The annotation with the name of the Cluster that an object was made for: what is in the cloud carries it.
/// The label [`CLUSTER_NAME_LABEL`] can change, and this does not.
pub fn cluster_annotation(kinds: &Kinds) -> String {
    format!("{}/cluster-name", kinds.group)
}

/// The reason of [`READY`] after an error, by its kind. The table is in the documentation of
/// [`cloudprovider::machines`].
pub fn reason_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "DependencyNotFound",
        ErrorKind::Ambiguous => "MachineAmbiguous",
        ErrorKind::Unauthenticated => "ProviderUnauthenticated",
        ErrorKind::PermissionDenied => "ProviderPermissionDenied",
        ErrorKind::Conflict => "ForeignObject",
        ErrorKind::InvalidConfiguration => "ProviderMisconfigured",
        ErrorKind::InvalidInput => "InvalidSpec",
        ErrorKind::Unsupported | ErrorKind::ImplementedElsewhere => "Unsupported",
        ErrorKind::RateLimited | ErrorKind::Unavailable => "ProviderUnavailable",
        ErrorKind::Timeout => "ProviderTimeout",
        _ => PROVIDER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::machines::WaitsFor;

    use super::*;

    #[test]
    fn the_documents_explain_every_reason() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/troubleshooting.md");
        let page = std::fs::read_to_string(page).expect("a document");
        let section = page.split("\n## ").find(|section| section.starts_with("A machine does not get ready"));
        let section = section.expect("the section about machines");
        let own = [
            READY_REASON,
            PAUSED_REASON,
            NOT_PAUSED_REASON,
            WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            WAITING_FOR_BOOTSTRAP_DATA,
            WAITING_FOR_MACHINES,
            DELETING,
            MACHINE_LOST,
            IDENTITY_IN_USE,
            IDENTITY_MISSING,
            CLUSTER_NAME_MISMATCH,
            PROVIDER_ERROR,
            PROVIDER_ID_MISMATCH,
            ENDPOINT_MISMATCH,
            COMPANIONS_UP_TO_DATE,
            COMPANION_NOT_WRITTEN,
        ];
        let waits = [
            WaitsFor::Task,
            WaitsFor::Address,
            WaitsFor::BootstrapData,
            WaitsFor::Objects,
            WaitsFor::Capacity,
            WaitsFor::Time,
        ];
        let of_errors = ErrorKind::ALL.iter().map(|kind| reason_of(*kind));
        for reason in own.into_iter().chain(waits.map(WaitsFor::reason)).chain(of_errors) {
            assert!(section.contains(&format!("`{reason}`")), "{reason} is missing");
        }
    }
}
