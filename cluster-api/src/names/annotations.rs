//! Annotations, and the values that they may have.

/// On any object, whatever the value: its controller leaves it alone.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// On an infrastructure cluster: something else than its provider takes care of it.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// On objects that were made from a template: its name. Controllers compare it with the template of today.
pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
/// On objects that were made from a template: `Kind.group` of the template.
pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";

/// On a Node: the name of its Cluster. The autoscaler reads this and the four below.
pub const NODE_CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// On a Node: the namespace of its Cluster and Machine.
pub const NODE_CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
/// On a Node: the name of its Machine.
pub const NODE_MACHINE: &str = "cluster.x-k8s.io/machine";
/// On a Node: the kind of the controlling owner of its Machine.
pub const NODE_OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";
/// On a Node: the name of the controlling owner of its Machine.
pub const NODE_OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";
/// On a Node: the labels that came from its Machine, with commas. The machine controller removes what left the Machine.
pub const LABELS_FROM_MACHINE: &str = "cluster.x-k8s.io/labels-from-machine";
/// On a Node: the annotations that came from its Machine, with commas.
pub const ANNOTATIONS_FROM_MACHINE: &str = "cluster.x-k8s.io/annotations-from-machine";
/// On a Node: the taints that came from its Machine, as `key:effect` with commas.
pub const TAINTS_FROM_MACHINE: &str = "cluster.x-k8s.io/taints-from-machine";

/// On a Machine: it goes first when its `MachineSet` shrinks. The autoscaler sets it.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// On a Machine: health checks leave it alone.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// On a Machine: the user asks for its remediation, whatever its health.
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
/// On a Machine: its Node is not drained before it goes.
pub const EXCLUDE_NODE_DRAINING: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// On a Machine: it goes without waiting for its volumes.
pub const EXCLUDE_WAIT_FOR_NODE_VOLUME_DETACH: &str =
    "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
/// The prefix of annotations that hold the deletion of a Machine before its drain. Their owners remove them.
pub const PRE_DRAIN_HOOK_PREFIX: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// The prefix of annotations that hold the deletion of a Machine before its infrastructure goes.
pub const PRE_TERMINATE_HOOK_PREFIX: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// On a Machine or its bootstrap object: when its certificates expire, RFC 3339.
pub const CERTIFICATES_EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";

/// On a `MachineSet`: no Machines are made. Deployments with strategy `OnDelete` set it on old ones.
pub const DISABLE_MACHINE_CREATE: &str = "cluster.x-k8s.io/disable-machine-create";
/// On a `MachineSet` or its deployment: names of preflight checks that are skipped, with commas.
pub const SKIP_PREFLIGHT_CHECKS: &str = "machineset.cluster.x-k8s.io/skip-preflight-checks";
/// The values between the commas of [`SKIP_PREFLIGHT_CHECKS`].
pub const PREFLIGHT_CHECKS: [&str; 5] =
    ["All", "KubeadmVersionSkew", "KubernetesVersionSkew", "ControlPlaneIsStable", "ControlPlaneVersionSkew"];
/// On a deployment or a `MachineSet`: the smallest number of replicas that the autoscaler wants. `replicas` that are not
/// given begin with it.
pub const AUTOSCALER_MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
/// On a deployment or a `MachineSet`: the largest number of replicas that the autoscaler wants.
pub const AUTOSCALER_MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";

/// On a `MachineDeployment` and its `MachineSet`s: the number of the revision. `clusterctl alpha rollout` reads it.
pub const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";
/// On a `MachineSet`: revisions that it had before, with commas.
pub const REVISION_HISTORY: &str = "machinedeployment.clusters.x-k8s.io/revision-history";
/// On a `MachineSet`: the replicas of its deployment when it was scaled last.
pub const DESIRED_REPLICAS: &str = "machinedeployment.clusters.x-k8s.io/desired-replicas";
/// On a `MachineSet`: [`DESIRED_REPLICAS`] and the surge.
pub const MAX_REPLICAS: &str = "machinedeployment.clusters.x-k8s.io/max-replicas";

/// On a Machine that another `MachineSet` took over: its deployment has not counted it there yet.
pub const PENDING_ACKNOWLEDGE_MOVE: &str =
    "in-place-updates.internal.cluster.x-k8s.io/pending-acknowledge-move";
/// On a Machine that is being updated in place.
pub const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";

/// Holds `clusterctl move` while it is there.
pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";
