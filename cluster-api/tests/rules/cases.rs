//! Objects, and what is said about them.

/// An object with changed fields.
pub(crate) struct Case {
    /// A good object, without metadata.
    pub(crate) base: &'static str,
    /// Paths and their values, JSON. An empty value removes a field.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// What the API server says. Empty where it says nothing.
    pub(crate) message: &'static str,
}

const CLUSTER: &str = r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {
    "clusterNetwork": {"pods": {"cidrBlocks": ["10.0.0.0/16", "fd00::/64"]}},
    "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "Any", "name": "one"},
    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "one"}}}"#;

const MACHINE: &str = r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "spec": {
    "clusterName": "one", "version": "v1.35.0", "bootstrap": {"dataSecretName": "one"},
    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "one"}}}"#;

const MACHINE_SET: &str = r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "spec": {
    "clusterName": "one", "replicas": 1,
    "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]},
    "template": {"metadata": {"labels": {"a": "b", "c": "d"}}, "spec": {
        "clusterName": "one", "bootstrap": {"dataSecretName": "one"},
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "one"}}}}}"#;

const MACHINE_DEPLOYMENT: &str = r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "spec": {
    "clusterName": "one", "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
    "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    "remediation": {"maxInFlight": "20%"},
    "machineNaming": {"template": "{{ .cluster.name }}-{{ .machineSet.name }}.{{ .random }}"},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
        "clusterName": "one", "version": "v1.35.0-rc.1+build.5",
        "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "Any", "name": "one"}},
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "one"}}}}}"#;

const HEALTH_CHECK: &str = r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "spec": {
    "clusterName": "one", "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "one"}},
    "checks": {"nodeStartupTimeoutSeconds": 600,
        "unhealthyMachineConditions": [{"type": "Mine", "status": "False", "timeoutSeconds": 5}]},
    "remediation": {"triggerIf": {"unhealthyInRange": "[1-10]", "unhealthyLessThanOrEqualTo": "40%"}}}}"#;

const DRAIN_RULE: &str = r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDrainRule", "spec": {
    "drain": {"behavior": "Drain", "order": 5}, "machines": [{"selector": {"matchLabels": {"a": "b"}}}],
    "pods": [{"selector": {"matchExpressions": [{"key": "example.org/a", "operator": "Exists"}]}}]}}"#;

const RESOURCE_SET: &str = r#"{"apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet", "spec": {
    "clusterSelector": {"matchLabels": {"a": "b"}}, "strategy": "ApplyOnce",
    "resources": [{"kind": "ConfigMap", "name": "one"}]}}"#;

const BINDING: &str = r#"{"apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSetBinding",
    "spec": {"clusterName": "one"}}"#;

const CONFIG: &str = r#"{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig", "spec": {
    "files": [{"path": "/a", "content": "a"}, {"path": "/b", "contentFrom": {"secret": {"name": "a", "key": "b"}}}],
    "users": [{"name": "a", "passwd": "x"}],
    "diskSetup": {"partitions": [{"device": "/dev/sdb", "diskLayout": [{"percentage": 60}, {"percentage": 40}]}],
        "filesystems": [{"device": "/dev/sdb1", "filesystem": "ext4", "label": "data"}]},
    "joinConfiguration": {"discovery": {"file": {"kubeConfigPath": "/k", "kubeConfig": {
        "user": {"exec": {"command": "x"}}}}}}}}"#;

const TEMPLATE: &str = r#"{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfigTemplate",
    "spec": {"template": {"spec": {"files": [{"path": "/a", "content": "a"}]}}}}"#;

const fn accepted(base: &'static str, fields: &'static [(&'static str, &'static str)]) -> Case {
    Case { base, fields, message: "" }
}

const fn refused(
    base: &'static str,
    fields: &'static [(&'static str, &'static str)],
    message: &'static str,
) -> Case {
    Case { base, fields, message }
}

/// Good objects.
pub(crate) const ACCEPTED: &[Case] = &[
    accepted(CLUSTER, &[]),
    accepted(CLUSTER, &[("spec/controlPlaneRef", "")]),
    accepted(CLUSTER, &[("spec/topology", r#"{"classRef": {"name": "kept"}}"#)]),
    accepted(MACHINE, &[]),
    accepted(MACHINE, &[("spec/version", "")]),
    accepted(MACHINE, &[("spec/version", r#""1.35.0""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/template/spec/version", r#""1.35.0-rc.1""#)]),
    accepted(
        MACHINE,
        &[("spec/taints", r#"[{"key": "a/b", "effect": "NoExecute", "propagation": "Always"}]"#)],
    ),
    accepted(MACHINE_SET, &[]),
    accepted(MACHINE_SET, &[("spec/selector", "")]),
    accepted(
        MACHINE_SET,
        &[("spec/selector", r#"{"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}"#)],
    ),
    accepted(
        MACHINE_SET,
        &[("spec/selector", r#"{"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}"#)],
    ),
    accepted(MACHINE_DEPLOYMENT, &[]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/selector", "")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/strategy/rollingUpdate", r#"{"maxSurge": "25%"}"#)]),
    accepted(
        MACHINE_DEPLOYMENT,
        &[("spec/rollout/strategy/rollingUpdate", r#"{"maxSurge": 0, "maxUnavailable": "10%"}"#)],
    ),
    accepted(HEALTH_CHECK, &[]),
    accepted(HEALTH_CHECK, &[("spec/checks/nodeStartupTimeoutSeconds", "0")]),
    accepted(HEALTH_CHECK, &[("spec/remediation/triggerIf/unhealthyLessThanOrEqualTo", "3")]),
    accepted(DRAIN_RULE, &[]),
    accepted(DRAIN_RULE, &[("spec/drain", r#"{"behavior": "Skip"}"#)]),
    accepted(RESOURCE_SET, &[]),
    accepted(BINDING, &[]),
    accepted(CONFIG, &[]),
    accepted(CONFIG, &[("spec", "")]),
    accepted(CONFIG, &[("spec/format", r#""ignition""#)]),
    accepted(TEMPLATE, &[]),
];

const MACHINE_POOL: &str =
    r#"{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "spec": {"replicas": 1}}"#;

/// Objects that are refused when they are made.
pub(crate) const REFUSED: &[Case] = &[
    refused(CLUSTER, &[("spec/controlPlaneRef", ""), ("spec/infrastructureRef", "")], "spec needs"),
    refused(CLUSTER, &[("spec/clusterNetwork/pods/cidrBlocks", r#"["10.0.0.0"]"#)], "must be ranges"),
    refused(
        CLUSTER,
        &[(
            "metadata/name",
            r#""bad-002-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx""#,
        )],
        "metadata.name must have at most 63 characters",
    ),
    refused(MACHINE, &[("spec/bootstrap", "{}")], "needs configRef or dataSecretName"),
    refused(MACHINE, &[("spec/version", r#""v1.35""#)], "must be a version such as"),
    refused(MACHINE, &[("spec/version", r#""vv1.35.0""#)], "must be a version such as"),
    refused(
        MACHINE,
        &[(
            "spec/taints",
            r#"[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "propagation": "Always"}]"#,
        )],
        "a taint that Kubernetes",
    ),
    refused(MACHINE_SET, &[("spec/template/metadata", "")], "every label of spec.selector.matchLabels"),
    refused(
        MACHINE_SET,
        &[("spec/template/metadata/labels", r#"{"a": "c", "c": "d"}"#)],
        "every label of spec.selector.matchLabels",
    ),
    refused(
        MACHINE_SET,
        &[("spec/template/metadata/labels", r#"{"a": "b", "c": "x"}"#)],
        "must match spec.selector.matchExpressions",
    ),
    refused(MACHINE_SET, &[("spec/template/spec/clusterName", r#""two""#)], "must be spec.clusterName"),
    refused(
        MACHINE_SET,
        &[("spec/selector/matchExpressions/0/operator", r#""Like""#)],
        "Unsupported value: \"Like\"",
    ),
    refused(MACHINE_SET, &[("spec/selector/matchExpressions/0/values", "")], "In and NotIn need values"),
    refused(MACHINE_SET, &[("spec/selector/matchLabels/a", r#""-b""#)], "spec.selector.matchLabels.a"),
    refused(
        MACHINE_SET,
        &[(
            "spec/template/spec/taints",
            r#"[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule", "propagation": "Always"}]"#,
        )],
        "workers cannot have the taint",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/machineNaming/template", r#""fixed""#)],
        "must contain {{ .random }}",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/machineNaming/template", r#""Upper-{{ .random }}""#)],
        "must be the name of an object",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/rollout/strategy/rollingUpdate/maxSurge", "0")],
        "maxSurge and maxUnavailable cannot both be 0",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/rollout/strategy/rollingUpdate", r#"{"maxSurge": "0%", "maxUnavailable": 0}"#)],
        "maxSurge and maxUnavailable cannot both be 0",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/rollout/strategy/rollingUpdate/maxSurge", r#""many""#)],
        "must be a number or a percentage",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/rollout/strategy/rollingUpdate/maxUnavailable", "-1")],
        "must be a number or a percentage",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/remediation/maxInFlight", r#""5""#)],
        "must be a number or a percentage",
    ),
    refused(HEALTH_CHECK, &[("spec/selector", "{}")], "spec.selector must not be empty"),
    refused(
        HEALTH_CHECK,
        &[("spec/selector/matchLabels", r#"{"cluster.x-k8s.io/cluster-name": "two"}"#)],
        "chooses Machines of another Cluster",
    ),
    refused(HEALTH_CHECK, &[("spec/checks/nodeStartupTimeoutSeconds", "29")], "must be 0 or at least 30"),
    refused(
        HEALTH_CHECK,
        &[("spec/checks/unhealthyMachineConditions/0/type", r#""Ready""#)],
        "must not be Ready",
    ),
    refused(
        HEALTH_CHECK,
        &[("spec/remediation/triggerIf/unhealthyInRange", r#""[10-9]""#)],
        "must not be larger than the second",
    ),
    refused(
        HEALTH_CHECK,
        &[("spec/remediation/triggerIf/unhealthyLessThanOrEqualTo", r#""half""#)],
        "must be a number or a percentage",
    ),
    refused(DRAIN_RULE, &[("spec/drain/behavior", r#""Skip""#)], "order needs the behavior Drain"),
    refused(
        DRAIN_RULE,
        &[("spec/pods/0/selector/matchExpressions/0/values", r#"["a"]"#)],
        "Exists and DoesNotExist have none",
    ),
    refused(RESOURCE_SET, &[("spec/clusterSelector", "{}")], "spec.clusterSelector must not be empty"),
    refused(CONFIG, &[("spec/files/1/path", r#""/a""#)], "two files have the same path"),
    refused(CONFIG, &[("spec/files/1/content", r#""b""#)], "content and contentFrom exclude each other"),
    refused(
        CONFIG,
        &[("spec/users/0/passwdFrom", r#"{"secret": {"name": "a", "key": "b"}}"#)],
        "passwd and passwdFrom exclude each other",
    ),
    refused(
        CONFIG,
        &[("spec/diskSetup/partitions/0/diskLayout/0/percentage", "61")],
        "the percentages are more than 100",
    ),
    refused(CONFIG, &[("spec/diskSetup/partitions/0/layout", "true")], "needs either layout or diskLayout"),
    refused(
        CONFIG,
        &[("spec/joinConfiguration/discovery/file/kubeConfig/user/authProvider", r#"{"name": "a"}"#)],
        "authProvider and exec exclude each other",
    ),
    refused(
        CONFIG,
        &[("spec/ignition", r#"{"containerLinuxConfig": {"strict": true}}"#)],
        "ignition needs the format ignition",
    ),
    refused(
        CONFIG,
        &[("spec/format", r#""ignition""#), ("spec/bootCommands", r#"["a"]"#)],
        "bootCommands cannot be had",
    ),
    refused(
        CONFIG,
        &[("spec/format", r#""ignition""#), ("spec/users/0/inactive", "true")],
        "users[].inactive cannot be had",
    ),
    refused(
        CONFIG,
        &[("spec/format", r#""ignition""#), ("spec/files/0/encoding", r#""gzip""#)],
        "files[].encoding: no compression",
    ),
    refused(
        CONFIG,
        &[("spec/format", r#""ignition""#), ("spec/diskSetup/partitions/0/tableType", r#""mbr""#)],
        "gpt alone with the format ignition",
    ),
    refused(
        CONFIG,
        &[("spec/format", r#""ignition""#), ("spec/diskSetup/filesystems/0/partition", r#""auto""#)],
        "replaceFS and partition cannot be had",
    ),
    refused(
        TEMPLATE,
        &[(
            "spec/template/spec/files",
            r#"[{"path": "/a", "content": "a"}, {"path": "/a", "content": "b"}]"#,
        )],
        "two files have the same path",
    ),
    refused(MACHINE_POOL, &[], "use a MachineDeployment"),
];

/// Changes that are refused.
pub(crate) const CHANGES: &[Case] = &[
    refused(CLUSTER, &[("spec/infrastructureRef", "")], "spec.infrastructureRef cannot be taken away"),
    refused(CLUSTER, &[("spec/controlPlaneRef", "")], "spec.controlPlaneRef cannot be taken away"),
    refused(
        MACHINE,
        &[("spec/clusterName", r#""two""#)],
        "spec.clusterName: Invalid value: \"two\": cannot change",
    ),
    refused(
        MACHINE_SET,
        &[("spec/clusterName", r#""two""#), ("spec/template/spec/clusterName", r#""two""#)],
        "spec.clusterName: Invalid value: \"two\": cannot change",
    ),
    refused(
        MACHINE_DEPLOYMENT,
        &[("spec/clusterName", r#""two""#), ("spec/template/spec/clusterName", r#""two""#)],
        "spec.clusterName: Invalid value: \"two\": cannot change",
    ),
    refused(
        HEALTH_CHECK,
        &[("spec/clusterName", r#""two""#), ("spec/selector/matchLabels", r#"{"a": "b"}"#)],
        "cannot change",
    ),
    refused(RESOURCE_SET, &[("spec/strategy", r#""Reconcile""#)], "spec.strategy cannot change"),
    refused(RESOURCE_SET, &[("spec/strategy", "")], "spec.strategy cannot change"),
    refused(RESOURCE_SET, &[("spec/clusterSelector/matchLabels/a", r#""c""#)], "cannot change"),
    refused(BINDING, &[("spec/clusterName", r#""two""#)], "cannot change"),
];

/// Objects that are odd. Whether they are refused is the API server's; those that are not must be readable.
pub(crate) const HOSTILE: &[Case] = &[
    accepted(MACHINE, &[("spec/minReadySeconds", "3000000000")]),
    accepted(MACHINE, &[("spec/minReadySeconds", "5.0")]),
    accepted(MACHINE, &[("spec/version", "null")]),
    accepted(MACHINE, &[("spec/deletion", "null")]),
    accepted(MACHINE, &[("spec/taints", "null")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/replicas", "-9000000000000000000")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/strategy/rollingUpdate/maxSurge", "3000000000")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/remediation/maxInFlight", "99999999999")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/strategy/rollingUpdate/maxSurge", "1.0")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/strategy/rollingUpdate/maxSurge", "1.5")]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""2026-01-02T03:04:05""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""2026-01-02""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""2026-01-02T03:04:05.123456789+0200""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""2026-01-02 03:04:05Z""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""0000-01-01T00:00:00Z""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""9999-12-31T23:59:60Z""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""9999-12-31T23:59:59-23:59""#)]),
    accepted(MACHINE_DEPLOYMENT, &[("spec/rollout/after", r#""""#)]),
    accepted(
        CONFIG,
        &[(
            "spec/clusterConfiguration",
            r#"{"apiServer": {"extraEnvs": [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "b", "divisor": 1}}}]}}"#,
        )],
    ),
    accepted(
        CONFIG,
        &[(
            "spec/joinConfiguration/discovery/file/kubeConfig/cluster",
            r#"{"server": "https://a", "certificateAuthorityData": "not base64!"}"#,
        )],
    ),
    accepted(
        CONFIG,
        &[(
            "spec/joinConfiguration/discovery/file/kubeConfig/cluster",
            r#"{"server": "https://a", "certificateAuthorityData": "YWJ"}"#,
        )],
    ),
    accepted(
        CONFIG,
        &[(
            "spec/joinConfiguration/nodeRegistration",
            r#"{"taints": [{"key": "a", "effect": "b", "timeAdded": "2026-01-02T03:04:05"}]}"#,
        )],
    ),
    accepted(
        CONFIG,
        &[(
            "spec/initConfiguration",
            r#"{"bootstrapTokens": [{"token": "abc", "expires": "2026-01-02T03:04:05"}]}"#,
        )],
    ),
    accepted(CONFIG, &[("spec", "null")]),
    accepted(
        MACHINE,
        &[(
            "metadata/managedFields",
            r#"[{"manager": "a", "operation": "Update", "apiVersion": "cluster.x-k8s.io/v1beta2", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}, "time": "9999-12-31T23:59:59-23:59"}]"#,
        )],
    ),
];
