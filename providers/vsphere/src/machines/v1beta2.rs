//! The kinds beside machines and clusters, in v1beta2, and what `kubectl get` prints of all kinds: the columns that Cluster API Provider
//! vSphere has there, and beside them why something is not ready.

use cloudprovider::machines::{Column, KindDefinition, MachineColumns, schema_of};

use super::{
    kinds,
    rules::{self, v1beta2 as own_rules},
    spec::{VSphereClusterIdentitySpec, VSphereDeploymentZoneSpec, VSphereFailureDomainSpec, VSphereVMSpec},
    status::{ReadyStatus, VSphereVMStatus},
};

const READY: Column =
    Column::new("Ready", r#".status.conditions[?(@.type=="Ready")].status"#, "Whether it can be used.");

const REASON: Column =
    Column::new("Reason", r#".status.conditions[?(@.type=="Ready")].reason"#, "Why it is ready or not.");

const CLUSTER: Column = Column::new(
    "Cluster",
    r".metadata.labels.cluster\.x-k8s\.io/cluster-name",
    "The Cluster that it belongs to.",
);

const PAUSED: Column = Column::new(
    "Paused",
    r#".status.conditions[?(@.type=="Paused")].status"#,
    "Whether nothing is done about it.",
)
.wide();

const CLUSTER_CLASS: Column = Column::new(
    "ClusterClass",
    r#".metadata.ownerReferences[?(@.kind=="ClusterClass")].name"#,
    "The ClusterClass that owns it.",
);

/// Columns of machines, clusters and their templates.
pub(crate) const COLUMNS: MachineColumns = MachineColumns {
    machine: &[
        CLUSTER,
        Column::new(
            "Machine",
            r#".metadata.ownerReferences[?(@.kind=="Machine")].name"#,
            "The Machine that owns it.",
        ),
        READY,
        REASON,
        Column::new("Provider ID", ".spec.providerID", "The provider ID of its Node.").wide(),
        Column::new("Template", ".spec.template", "The template that it is cloned from.").wide(),
        Column::new(
            "ExternalIP",
            r#".status.addresses[?(@.type=="ExternalIP")].address"#,
            "Its first external address.",
        )
        .wide(),
        Column::new(
            "InternalIP",
            r#".status.addresses[?(@.type=="InternalIP")].address"#,
            "Its first internal address.",
        )
        .wide(),
        Column::new("FailureDomain", ".status.failureDomain", "Where it is.").wide(),
        PAUSED,
        Column::new("Provisioned", ".status.initialization.provisioned", "Whether it exists."),
        Column::age(),
    ],
    machine_template: &[
        CLUSTER_CLASS,
        Column::new(
            "Cluster",
            r#".metadata.ownerReferences[?(@.kind=="Cluster")].name"#,
            "The Cluster that owns it.",
        ),
        Column::new("CPU", ".status.capacity.cpu", "The processors of a machine."),
        Column::new("Memory", ".status.capacity.memory", "The memory of a machine."),
        Column::age(),
    ],
    cluster: &[
        CLUSTER,
        READY,
        REASON,
        Column::new("Server", ".spec.server", "The vCenter."),
        Column::new(
            "ControlPlane Endpoint",
            ".spec.controlPlaneEndpoint.host",
            "Where its API server is reached.",
        ),
        PAUSED,
        Column::new(
            "Provisioned",
            ".status.initialization.provisioned",
            "Whether its infrastructure is there.",
        ),
        Column::age(),
    ],
    cluster_template: &[CLUSTER_CLASS, Column::age()],
};

/// The definitions of the auxiliary kinds.
pub(crate) fn further_kinds() -> Vec<KindDefinition> {
    vec![
        KindDefinition::new(
            kinds::VM,
            "A virtual machine. The controller makes one for each VSphereMachine.",
            schema_of::<VSphereVMSpec>(),
        )
        .with_status(schema_of::<VSphereVMStatus>())
        .with_rules(&own_rules::OF_VMS)
        .with_columns([
            CLUSTER,
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
        .with_rules(&rules::OF_FAILURE_DOMAINS)
        .with_columns([
            Column::new("Region", ".spec.region.name", "The tag of the region."),
            Column::new("Zone", ".spec.zone.name", "The tag of the zone."),
            Column::age(),
        ]),
    ]
}
