//! The kinds beside machines and clusters, in v1beta2.

use cloudprovider::machines::{Column, KindDefinition, schema_of};

use super::{
    kinds,
    spec::{VSphereClusterIdentitySpec, VSphereDeploymentZoneSpec, VSphereFailureDomainSpec, VSphereVMSpec},
    status::{ReadyStatus, VSphereVMStatus},
};

const READY: Column =
    Column::new("Ready", r#".status.conditions[?(@.type=="Ready")].status"#, "Whether it can be used.");

const REASON: Column =
    Column::new("Reason", r#".status.conditions[?(@.type=="Ready")].reason"#, "Why it is ready or not.");

/// The definitions of these kinds.
pub(crate) fn further_kinds() -> Vec<KindDefinition> {
    vec![
        KindDefinition::new(
            kinds::VM,
            "A virtual machine. The controller makes one for each VSphereMachine.",
            schema_of::<VSphereVMSpec>(),
        )
        .with_status(schema_of::<VSphereVMStatus>())
        .with_columns([
            Column::new(
                "Cluster",
                r".metadata.labels.cluster\.x-k8s\.io/cluster-name",
                "The Cluster that it belongs to.",
            ),
            READY,
            REASON,
            Column::new("Host", ".status.host", "The host that it is on.").wide(),
            Column::age(),
        ]),
        KindDefinition::new(
            kinds::CLUSTER_IDENTITY,
            "Credentials for a vCenter, for all namespaces that it allows.",
            schema_of::<VSphereClusterIdentitySpec>(),
        )
        .cluster_scoped()
        .with_status(schema_of::<ReadyStatus>())
        .with_columns([READY, REASON, Column::age()]),
        KindDefinition::new(
            kinds::DEPLOYMENT_ZONE,
            "A place for machines: a failure domain for Cluster API.",
            schema_of::<VSphereDeploymentZoneSpec>(),
        )
        .cluster_scoped()
        .with_status(schema_of::<ReadyStatus>())
        .with_columns([
            Column::new("FailureDomain", ".spec.failureDomain", "The VSphereFailureDomain that it is in."),
            READY,
            REASON,
            Column::age(),
        ]),
        KindDefinition::new(
            kinds::FAILURE_DOMAIN,
            "A part of vSphere that can fail as a whole.",
            schema_of::<VSphereFailureDomainSpec>(),
        )
        .cluster_scoped()
        .with_columns([
            Column::new("Region", ".spec.region.name", "The tag of the region."),
            Column::new("Zone", ".spec.zone.name", "The tag of the zone."),
            Column::age(),
        ]),
    ]
}
