//! The columns that `kubectl get` prints, as a release has them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

/// From this priority on, a column is printed with `-o wide` only.
const WIDE: i32 = 10;

/// A column.
struct Column(CustomResourceColumnDefinition);

/// The columns of a kind.
pub(super) fn of(kind: &str) -> Vec<CustomResourceColumnDefinition> {
    let columns = match kind {
        "Cluster" => cluster(),
        "Machine" => machine(),
        "MachineSet" => machine_set(),
        "MachineDeployment" => machine_deployment(),
        "MachineHealthCheck" => machine_health_check(),
        "MachineDrainRule" => machine_drain_rule(),
        "ClusterResourceSet" => cluster_resource_set(),
        "ClusterResourceSetBinding" => cluster_resource_set_binding(),
        "KubeadmConfig" => kubeadm_config(),
        "KubeadmConfigTemplate" => kubeadm_config_template(),
        _ => vec![age()],
    };
    columns.into_iter().map(|column| column.0).collect()
}

fn cluster() -> Vec<Column> {
    vec![
        text("ClusterClass", ".spec.topology.classRef.name", "The class of a managed topology."),
        condition("Available", "Available", "Whether it does what it is for."),
        number(
            "CP Desired",
            ".status.controlPlane.desiredReplicas",
            "Machines of the control plane that are wanted.",
        ),
        number("CP Current", ".status.controlPlane.replicas", "Machines of the control plane that exist.")
            .wide(),
        number(
            "CP Ready",
            ".status.controlPlane.readyReplicas",
            "Machines of the control plane that are ready.",
        )
        .wide(),
        number(
            "CP Available",
            ".status.controlPlane.availableReplicas",
            "Machines of the control plane that are available.",
        ),
        number(
            "CP Up-to-date",
            ".status.controlPlane.upToDateReplicas",
            "Machines of the control plane that are as their owner wants them.",
        ),
        number("W Desired", ".status.workers.desiredReplicas", "Machines of workers that are wanted."),
        number("W Current", ".status.workers.replicas", "Machines of workers that exist.").wide(),
        number("W Ready", ".status.workers.readyReplicas", "Machines of workers that are ready.").wide(),
        number("W Available", ".status.workers.availableReplicas", "Machines of workers that are available."),
        number(
            "W Up-to-date",
            ".status.workers.upToDateReplicas",
            "Machines of workers that are as their owner wants them.",
        ),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        text("Phase", ".status.phase", "How far it is."),
        age(),
        text("Version", ".spec.topology.version", "The version of Kubernetes."),
    ]
}

fn machine() -> Vec<Column> {
    vec![
        text("Cluster", ".spec.clusterName", "The Cluster that it belongs to."),
        text("Node Name", ".status.nodeRef.name", "Its Node."),
        text("Provider ID", ".spec.providerID", "The provider ID of its Node.").wide(),
        text("Failure domain", ".status.failureDomain", "Where it is."),
        condition("Ready", "Ready", "Whether it is ready."),
        condition("Available", "Available", "Whether it does what it is for."),
        condition("Up-to-date", "UpToDate", "Whether it is as its owner wants it."),
        text(
            "Internal-IP",
            r#".status.addresses[?(@.type=="InternalIP")].address"#,
            "Its first internal address.",
        )
        .wide(),
        text(
            "External-IP",
            r#".status.addresses[?(@.type=="ExternalIP")].address"#,
            "Its first external address.",
        )
        .wide(),
        text("OS-Image", ".status.nodeInfo.osImage", "What its Node runs.").wide(),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        text("Phase", ".status.phase", "How far it is."),
        age(),
        text("Version", ".spec.version", "The version of Kubernetes."),
    ]
}

fn machine_set() -> Vec<Column> {
    vec![
        text("Cluster", ".spec.clusterName", "The Cluster that it belongs to."),
        number("Desired", ".spec.replicas", "Machines that are wanted."),
        number("Current", ".status.replicas", "Machines that exist."),
        number("Ready", ".status.readyReplicas", "Machines that are ready."),
        number("Available", ".status.availableReplicas", "Machines that are available."),
        number("Up-to-date", ".status.upToDateReplicas", "Machines that are as they should be."),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        age(),
        text("Version", ".spec.template.spec.version", "The version of Kubernetes."),
    ]
}

fn machine_deployment() -> Vec<Column> {
    vec![
        text("Cluster", ".spec.clusterName", "The Cluster that it belongs to."),
        condition("Available", "Available", "Whether it does what it is for."),
        number("Desired", ".spec.replicas", "Machines that are wanted."),
        number("Current", ".status.replicas", "Machines that exist."),
        number("Ready", ".status.readyReplicas", "Machines that are ready."),
        number("Available", ".status.availableReplicas", "Machines that are available."),
        number("Up-to-date", ".status.upToDateReplicas", "Machines that are as they should be."),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        text("Phase", ".status.phase", "How far it is."),
        age(),
        text("Version", ".spec.template.spec.version", "The version of Kubernetes."),
    ]
}

fn machine_health_check() -> Vec<Column> {
    vec![
        text("Cluster", ".spec.clusterName", "The Cluster that it belongs to."),
        number("Replicas", ".status.expectedMachines", "Machines that it looks at."),
        number("Healthy", ".status.currentHealthy", "Machines that are healthy."),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        age(),
    ]
}

fn machine_drain_rule() -> Vec<Column> {
    vec![
        text("Behavior", ".spec.drain.behavior", "What happens to the Pods."),
        text("Order", ".spec.drain.order", "When they are evicted, lower numbers first."),
        age(),
    ]
}

fn cluster_resource_set() -> Vec<Column> {
    vec![
        condition("Applied", "ResourcesApplied", "Whether every cluster has every resource."),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        age(),
    ]
}

fn cluster_resource_set_binding() -> Vec<Column> {
    vec![text("Cluster", ".spec.clusterName", "The Cluster that it belongs to."), age()]
}

fn kubeadm_config() -> Vec<Column> {
    vec![
        text(
            "Cluster",
            r".metadata.labels['cluster\.x-k8s\.io/cluster-name']",
            "The Cluster that it belongs to.",
        ),
        condition("Paused", "Paused", "Whether nothing is done about it.").wide(),
        text(
            "Data secret created",
            ".status.initialization.dataSecretCreated",
            "Whether the bootstrap data exist.",
        ),
        age(),
    ]
}

fn kubeadm_config_template() -> Vec<Column> {
    vec![
        text(
            "ClusterClass",
            r#".metadata.ownerReferences[?(@.kind=="ClusterClass")].name"#,
            "The class that owns it.",
        ),
        text(
            "Cluster",
            r#".metadata.ownerReferences[?(@.kind=="Cluster")].name"#,
            "The Cluster that owns it.",
        ),
        age(),
    ]
}

/// When an object was made.
fn age() -> Column {
    Column::new("Age", "date", ".metadata.creationTimestamp", "When it was made.")
}

fn text(name: &str, path: &str, description: &str) -> Column {
    Column::new(name, "string", path, description)
}

fn number(name: &str, path: &str, description: &str) -> Column {
    Column::new(name, "integer", path, description)
}

/// The status of a condition.
fn condition(name: &str, condition: &str, description: &str) -> Column {
    text(name, &format!(r#".status.conditions[?(@.type=="{condition}")].status"#), description)
}

impl Column {
    fn new(name: &str, type_: &str, path: &str, description: &str) -> Self {
        Self(CustomResourceColumnDefinition {
            name: name.to_owned(),
            type_: type_.to_owned(),
            json_path: path.to_owned(),
            description: Some(description.to_owned()),
            ..CustomResourceColumnDefinition::default()
        })
    }

    fn wide(mut self) -> Self {
        self.0.priority = Some(WIDE);
        self
    }
}
