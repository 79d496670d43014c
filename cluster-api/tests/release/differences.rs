//! What differs from the release on purpose.

/// Lines of the comparison, `*` for anything, each with its reason.
pub(crate) const DIFFERENCES: &[(&str, &str)] = &[
    // Versions and labels
    ("*: no version v1beta1", "it is served until April 2027 only, and stored nowhere in new clusters"),
    ("Kubeadm*: no label cluster.x-k8s.io/v1beta1=v1beta1", "there is no version that keeps that contract"),
    (
        "*: added label cluster.x-k8s.io/v1beta2=v1beta2",
        "the release has it on kinds of bootstrap providers alone; here it says for every kind which contract it keeps",
    ),
    ("*: added label clusterctl.cluster.x-k8s.io=", "clusterctl adds it when it installs a release"),
    // What upstream's webhooks fill in before the API server looks
    ("Machine*.spec: selector is not required", "it is empty then, and the first pass gives it its default"),
    // Fields that are left out
    ("*.status: no field deprecated", "only conversions from v1beta1 fill it"),
    ("Cluster.spec.topology: *", "managed topologies are left out; the field is kept as it is"),
    ("MachineDrainRule: metadata is not required", "the API server sees to that itself"),
    // Label selectors: limits let rules go through them, and what controllers cannot read is refused. Upstream's webhooks
    // refuse the same, without the limits of size.
    ("*elector.matchExpressions: added maxItems 64", "bounds the cost of rules"),
    ("*elector.matchExpressions[].values: added maxItems 64", "bounds the cost of rules"),
    ("*elector.matchLabels: added maxProperties 64", "bounds the cost of rules"),
    ("*elector.matchExpressions[]: rule In and NotIn need values*", "webhooks"),
    ("*elector.matchExpressions[].key: added *", "webhooks"),
    ("*elector.matchExpressions[].operator: added enum *", "webhooks"),
    ("*elector.matchExpressions[].values[]: added *", "webhooks"),
    ("*elector.matchLabels{}: added *", "webhooks"),
    // What upstream's webhooks refuse
    ("Cluster: rule metadata.name *", "webhook of Cluster"),
    ("Cluster.spec: rule spec.infrastructureRef cannot be taken away", "webhook of Cluster"),
    ("Cluster.spec: rule spec.controlPlaneRef cannot be taken away", "webhook of Cluster"),
    ("Cluster.spec: rule spec.topology cannot be taken away", "webhook of Cluster"),
    ("Cluster.spec: rule spec needs *", "webhook of Cluster"),
    ("Cluster.spec.clusterNetwork.*.cidrBlocks: rule *", "webhook of Cluster"),
    ("Machine*clusterName: rule cannot change", "webhooks of Machines and their owners"),
    ("Machine*bootstrap: rule needs *", "webhooks of Machines and their owners"),
    ("Machine*version: rule must be a version *", "webhooks of Machines and their owners"),
    ("Machine*taints: rule a taint that *", "webhooks of Machines and their owners"),
    ("MachineDeployment: rule metadata.name *", "webhook of MachineDeployment"),
    (
        "Machine*.spec: rule spec.template.metadata.labels must *",
        "webhooks of MachineSet and MachineDeployment",
    ),
    (
        "Machine*.spec: rule spec.template.spec.clusterName must *",
        "webhooks of MachineSet and MachineDeployment",
    ),
    (
        "Machine*.spec: rule spec.template.spec.taints: workers *",
        "webhooks of MachineSet and MachineDeployment",
    ),
    ("Machine*.machineNaming.template: rule *", "webhooks of MachineSet and MachineDeployment"),
    ("MachineDeployment.spec.rollout.strategy.rollingUpdate*: rule *", "webhook of MachineDeployment"),
    ("MachineDeployment.spec.remediation.maxInFlight: rule *", "webhook of MachineDeployment"),
    ("MachineHealthCheck.spec: rule spec.selector *", "webhook of MachineHealthCheck"),
    ("MachineHealthCheck.spec.checks.nodeStartupTimeoutSeconds: rule *", "webhook of MachineHealthCheck"),
    (
        "MachineHealthCheck.spec.remediation.triggerIf.unhealthyLessThanOrEqualTo: rule *",
        "webhook of MachineHealthCheck",
    ),
    ("MachineDrainRule.spec.drain: rule *", "webhook of MachineDrainRule"),
    ("ClusterResourceSet.spec: rule spec.clusterSelector must not be empty", "webhook of ClusterResourceSet"),
    ("ClusterResourceSet.spec*: rule *cannot change", "webhook of ClusterResourceSet"),
    (
        "ClusterResourceSetBinding.spec.clusterName: rule cannot change",
        "webhook of ClusterResourceSetBinding",
    ),
    ("KubeadmConfig*spec: rule *format ignition", "webhook of KubeadmConfig"),
    ("KubeadmConfig*files: rule two files have the same path", "webhook of KubeadmConfig"),
    ("KubeadmConfig*files[]: rule content and contentFrom *", "webhook of KubeadmConfig"),
    ("KubeadmConfig*users[]: rule passwd and passwdFrom *", "webhook of KubeadmConfig"),
    ("KubeadmConfig*diskLayout: rule *", "webhook of KubeadmConfig"),
    ("KubeadmConfig*kubeConfig.user: rule *", "webhook of KubeadmConfig"),
    // What upstream lets through, or finds out later
    (
        "*: rule must be before the year 9999",
        "later times cannot be read, and hide all objects of the kind from lists",
    ),
    (
        "MachineHealthCheck.spec.remediation.triggerIf.unhealthyInRange: rule *",
        "upstream's controller fails with it at every pass",
    ),
];
