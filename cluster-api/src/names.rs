//! Names that users, tools and other controllers know too.
//!
//! Each has the value of Cluster API 1.14, byte for byte: a name that differs is a name that nobody reads.

pub mod annotations;
pub mod conditions;
pub mod labels;
pub mod reasons;

/// Finalizers, which hold an object until its controller is done with it.
pub mod finalizers {
    /// On a Cluster, until its workers, its control plane and its infrastructure are gone.
    pub const CLUSTER: &str = "cluster.cluster.x-k8s.io";
    /// On a Machine, until its Node is drained and its infrastructure and bootstrap objects are gone.
    pub const MACHINE: &str = "machine.cluster.x-k8s.io";
    /// On a `MachineSet`, until its Machines are gone.
    pub const MACHINE_SET: &str = "cluster.x-k8s.io/machineset";
    /// On a `MachineDeployment`, until its `MachineSet`s are gone.
    pub const MACHINE_DEPLOYMENT: &str = "cluster.x-k8s.io/machinedeployment";
    /// On a `ClusterResourceSet`, until the bindings do not name it any more.
    pub const CLUSTER_RESOURCE_SET: &str = "addons.cluster.x-k8s.io";
}

/// Taints of Nodes.
pub mod taints {
    /// The bootstrap data of a worker sets it, with effect `NoSchedule`. The machine controller removes it once the Node has
    /// the labels of its Machine.
    pub const NODE_UNINITIALIZED: &str = "node.cluster.x-k8s.io/uninitialized";
    /// On Nodes of a `MachineSet` that is replaced, with effect `PreferNoSchedule`: evicted pods prefer other Nodes.
    pub const NODE_OUTDATED_REVISION: &str = "node.cluster.x-k8s.io/outdated-revision";
    /// On Nodes of the control plane. A Machine of workers must not ask for it.
    pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
}

/// Types, names and keys of Secrets.
pub mod secrets {
    /// The type of Secrets that a controller made. A certificate authority of another type is the user's and stays.
    pub const CLUSTER_TYPE: &str = "cluster.x-k8s.io/secret";
    /// The type that a Secret of a `ClusterResourceSet` must have, so that no other Secret is copied into a cluster.
    pub const RESOURCE_SET_TYPE: &str = "addons.cluster.x-k8s.io/resource-set";
    /// The key of a kubeconfig, and of bootstrap data.
    pub const VALUE_KEY: &str = "value";
    /// The key of the format of bootstrap data: `cloud-config` or `ignition`.
    pub const FORMAT_KEY: &str = "format";
    /// The key of a certificate.
    pub const CERTIFICATE_KEY: &str = "tls.crt";
    /// The key of a private key.
    pub const PRIVATE_KEY_KEY: &str = "tls.key";
    /// The Secret `CLUSTER-kubeconfig`: the way into a workload cluster. clusterctl reads it.
    pub const KUBECONFIG: &str = "kubeconfig";
    /// The Secret `CLUSTER-ca`: the certificate authority of the API server.
    pub const CLUSTER_CA: &str = "ca";

    /// The name of the Secret of a Cluster for a purpose, such as [`KUBECONFIG`].
    pub fn name(cluster: &str, purpose: &str) -> String {
        format!("{cluster}-{purpose}")
    }
}
