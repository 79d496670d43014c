//! The columns that `kubectl get` prints.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

const CLUSTER_NAME: &str = r".metadata.labels.cluster\.x-k8s\.io/cluster-name";

/// Where a column is shown: always, or with `-o wide` only.
const ALWAYS: i32 = 0;
const WIDE: i32 = 1;

/// Columns of machines.
pub(super) fn of_machines() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", "The Cluster that it belongs to", CLUSTER_NAME, ALWAYS),
        column(
            "Machine",
            "The Machine that owns it",
            r#".metadata.ownerReferences[?(@.kind=="Machine")].name"#,
            ALWAYS,
        ),
        column(
            "Ready",
            "Whether the machine exists and nothing is left to do",
            &condition("Ready", "status"),
            ALWAYS,
        ),
        column("Reason", "Why it is ready or not", &condition("Ready", "reason"), ALWAYS),
        column("ProviderID", "The provider ID of its Node", ".spec.providerID", ALWAYS),
        column(
            "InternalIP",
            "Its first internal address",
            r#".status.addresses[?(@.type=="InternalIP")].address"#,
            WIDE,
        ),
        column("FailureDomain", "Where it is", ".status.failureDomain", WIDE),
        column("Paused", "Whether nothing is done about it", &condition("Paused", "status"), WIDE),
        age(),
    ]
}

/// Columns of clusters.
pub(super) fn of_clusters() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("Cluster", "The Cluster that it belongs to", CLUSTER_NAME, ALWAYS),
        column("Ready", "Whether its infrastructure is there", &condition("Ready", "status"), ALWAYS),
        column("Reason", "Why it is ready or not", &condition("Ready", "reason"), ALWAYS),
        column("Endpoint", "Where its API server is reached", ".spec.controlPlaneEndpoint.host", ALWAYS),
        column("Paused", "Whether nothing is done about it", &condition("Paused", "status"), WIDE),
        age(),
    ]
}

/// Columns of templates of machines.
pub(super) fn of_machine_templates() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("CPU", "The processors of a machine", ".status.capacity.cpu", ALWAYS),
        column("Memory", "The memory of a machine", ".status.capacity.memory", ALWAYS),
        age(),
    ]
}

/// Columns of templates of clusters.
pub(super) fn of_cluster_templates() -> Vec<CustomResourceColumnDefinition> {
    vec![age()]
}

fn condition(condition_type: &str, field: &str) -> String {
    format!(r#".status.conditions[?(@.type=="{condition_type}")].{field}"#)
}

fn age() -> CustomResourceColumnDefinition {
    let age = column("Age", "When it was made", ".metadata.creationTimestamp", ALWAYS);
    CustomResourceColumnDefinition { type_: "date".to_owned(), ..age }
}

fn column(name: &str, description: &str, path: &str, priority: i32) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        description: Some(format!("{description}.")),
        json_path: path.to_owned(),
        type_: "string".to_owned(),
        priority: Some(priority).filter(|priority| *priority != ALWAYS),
        format: None,
    }
}
