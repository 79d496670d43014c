//! The parts, and the Go managers that do the same work.

use cluster_api::definitions::Provider;

/// How the tools of Cluster API call the provider that a Go manager is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderKind {
    /// `type` in clusterctl's inventory, and the kind of Cluster API's operator.
    pub kind: &'static str,
    /// Plural name of the operator's kind.
    pub plural: &'static str,
    /// `providerName` in clusterctl's inventory, and the name of the operator's object.
    pub name: &'static str,
    /// The value of the label `cluster.x-k8s.io/provider` on all objects of the provider.
    pub label: &'static str,
}

/// A part of the controllers: what one Go manager does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of the part, for `--controllers`, health checks and the debug state.
    pub name: &'static str,
    /// The name of the Go manager's Lease.
    pub lease: &'static str,
    /// The namespace in which the Go manager runs unless its installation says otherwise.
    pub namespace: &'static str,
    /// The Go manager as a provider.
    pub provider: ProviderKind,
    /// Field managers of the Go manager that no other program has.
    pub field_managers: &'static [&'static str],
    /// The providers whose kinds the part reads.
    pub reads: &'static [Provider],
    /// Kinds whose status the Go manager writes, and no other program: by it, the manager is noticed.
    pub judged: &'static [&'static str],
}

impl Part {
    /// The name of its check of `/readyz`, and of its entry in the debug state.
    pub fn check_name(&self) -> String {
        format!("{}-lease", self.name)
    }

    /// The name of the check of `/readyz` that the API server serves the kinds.
    pub fn kinds_check_name(&self) -> String {
        format!("{}-kinds", self.name)
    }
}

/// Clusters, Machines, `MachineSet`s, `MachineDeployment`s, health checks, and sets of resources.
pub const CORE: Part = Part {
    name: "lifecycle-core",
    lease: "controller-leader-election-capi",
    namespace: "capi-system",
    provider: ProviderKind {
        kind: "CoreProvider",
        plural: "coreproviders",
        name: "cluster-api",
        label: "cluster-api",
    },
    field_managers: &[
        "capi-machinedeployment",
        "capi-machineset",
        "capi-machineset-metadata",
        "capi-topology",
    ],
    reads: &[Provider::Core],
    // Not Machines: the manager of control planes writes conditions of them, under the same name as the core.
    judged: &["Cluster", "MachineDeployment", "MachineSet", "MachineHealthCheck"],
};

/// Bootstrap data by kubeadm.
pub const BOOTSTRAP: Part = Part {
    name: "lifecycle-bootstrap",
    lease: "kubeadm-bootstrap-manager-leader-election-capi",
    namespace: "capi-kubeadm-bootstrap-system",
    provider: ProviderKind {
        kind: "BootstrapProvider",
        plural: "bootstrapproviders",
        name: "kubeadm",
        label: "bootstrap-kubeadm",
    },
    field_managers: &[],
    // Bootstrap data are made for Machines of Clusters.
    reads: &[Provider::Core, Provider::KubeadmBootstrap],
    judged: &["KubeadmConfig"],
};

/// All parts.
pub const PARTS: [&Part; 2] = [&CORE, &BOOTSTRAP];
