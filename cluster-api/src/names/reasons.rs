//! Reasons of conditions. The first part is shared by all kinds, the rest belongs to one condition each.

/// The condition is true: it is available.
pub const AVAILABLE: &str = "Available";
/// Something keeps it from being available.
pub const NOT_AVAILABLE: &str = "NotAvailable";
/// Something that counts is unknown, and nothing is wrong.
pub const AVAILABLE_UNKNOWN: &str = "AvailableUnknown";
/// The condition is true: it is ready.
pub const READY: &str = "Ready";
/// Something keeps it from being ready.
pub const NOT_READY: &str = "NotReady";
/// Something that counts is unknown, and nothing is wrong.
pub const READY_UNKNOWN: &str = "ReadyUnknown";
/// The condition is true: it is as its owner wants it.
pub const UP_TO_DATE: &str = "UpToDate";
/// It is not as its owner wants it.
pub const NOT_UP_TO_DATE: &str = "NotUpToDate";
/// Nobody said whether it is as its owner wants it.
pub const UP_TO_DATE_UNKNOWN: &str = "UpToDateUnknown";
/// Machines are being replaced.
pub const ROLLING_OUT: &str = "RollingOut";
/// No Machine is to be replaced.
pub const NOT_ROLLING_OUT: &str = "NotRollingOut";
/// On a Cluster: an object below it does not say.
pub const ROLLING_OUT_UNKNOWN: &str = "RollingOutUnknown";
/// Machines are missing.
pub const SCALING_UP: &str = "ScalingUp";
/// No Machine is missing.
pub const NOT_SCALING_UP: &str = "NotScalingUp";
/// On a Cluster: an object below it does not say.
pub const SCALING_UP_UNKNOWN: &str = "ScalingUpUnknown";
/// There are too many Machines.
pub const SCALING_DOWN: &str = "ScalingDown";
/// There are not too many Machines.
pub const NOT_SCALING_DOWN: &str = "NotScalingDown";
/// On a Cluster: an object below it does not say.
pub const SCALING_DOWN_UNKNOWN: &str = "ScalingDownUnknown";
/// Unhealthy Machines wait for their owner, or it works on them.
pub const REMEDIATING: &str = "Remediating";
/// No Machine waits for remediation.
pub const NOT_REMEDIATING: &str = "NotRemediating";
/// There are no Machines to speak of.
pub const NO_REPLICAS: &str = "NoReplicas";
/// `spec.replicas` has no value yet.
pub const WAITING_FOR_REPLICAS_SET: &str = "WaitingForReplicasSet";
/// A foreign condition cannot be read.
pub const INVALID_CONDITION_REPORTED: &str = "InvalidConditionReported";
/// The controller failed; its log says more.
pub const INTERNAL_ERROR: &str = "InternalError";
/// An object that a reference names is not there.
pub const OBJECT_DOES_NOT_EXIST: &str = "ObjectDoesNotExist";
/// An object that a reference names was there and is gone.
pub const OBJECT_DELETED: &str = "ObjectDeleted";
/// The condition `Paused` is false.
pub const NOT_PAUSED: &str = "NotPaused";
/// The condition `Paused` is true.
pub const PAUSED: &str = "Paused";
/// The API server of the workload cluster does not answer.
pub const CONNECTION_DOWN: &str = "ConnectionDown";
/// Nobody deleted the object.
pub const NOT_DELETING: &str = "NotDeleting";
/// The object is being deleted.
pub const DELETING: &str = "Deleting";
/// The finalizer is gone.
pub const DELETION_COMPLETED: &str = "DeletionCompleted";
/// A look at the object failed.
pub const INSPECTION_FAILED: &str = "InspectionFailed";
/// A bootstrap object or an infrastructure machine waits for the infrastructure of the cluster.
pub const WAITING_FOR_CLUSTER_INFRASTRUCTURE_READY: &str = "WaitingForClusterInfrastructureReady";
/// A bootstrap object or an infrastructure machine waits for the first Machine of the control plane.
pub const WAITING_FOR_CONTROL_PLANE_INITIALIZED: &str = "WaitingForControlPlaneInitialized";
/// An infrastructure machine waits for its bootstrap data.
pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";

/// Of `ControlPlaneInitialized`: true.
pub const INITIALIZED: &str = "Initialized";
/// Of `ControlPlaneInitialized`: not yet.
pub const NOT_INITIALIZED: &str = "NotInitialized";
/// Of `WorkersAvailable`: the Cluster has no deployments.
pub const NO_WORKERS: &str = "NoWorkers";
/// Of `RemoteConnectionProbe`: false.
pub const PROBE_FAILED: &str = "ProbeFailed";
/// Of `RemoteConnectionProbe`: true.
pub const PROBE_SUCCEEDED: &str = "ProbeSucceeded";
/// Of `Deleting` of a Cluster: a hook of an extension holds it.
pub const WAITING_FOR_BEFORE_DELETE_HOOK: &str = "WaitingForBeforeDeleteHook";
/// Of `Deleting` of a Cluster: the workers go first.
pub const WAITING_FOR_WORKERS_DELETION: &str = "WaitingForWorkersDeletion";
/// Of `Deleting` of a Cluster: the control plane goes before the infrastructure.
pub const WAITING_FOR_CONTROL_PLANE_DELETION: &str = "WaitingForControlPlaneDeletion";
/// Of `Deleting` of a Cluster or a Machine: the infrastructure object is still there.
pub const WAITING_FOR_INFRASTRUCTURE_DELETION: &str = "WaitingForInfrastructureDeletion";

/// Of `Available` of a Machine: it is ready for less than `minReadySeconds`.
pub const WAITING_FOR_MIN_READY_SECONDS: &str = "WaitingForMinReadySeconds";
/// Of `Updating` and `UpToDate` of a Machine: it is being changed in place.
pub const UPDATING: &str = "Updating";
/// Of `Updating` of a Machine: false.
pub const NOT_UPDATING: &str = "NotUpdating";
/// Of `Updating` of a Machine: true.
pub const IN_PLACE_UPDATING: &str = "InPlaceUpdating";
/// Of `Updating` of a Machine: the change failed.
pub const IN_PLACE_UPDATE_FAILED: &str = "InPlaceUpdateFailed";
/// Of `BootstrapConfigReady`: the user gave the Secret.
pub const DATA_SECRET_PROVIDED: &str = "DataSecretProvided";
/// Of `NodeReady`: true.
pub const NODE_READY: &str = "NodeReady";
/// Of `NodeReady`: false.
pub const NODE_NOT_READY: &str = "NodeNotReady";
/// Of `NodeReady`: unknown.
pub const NODE_READY_UNKNOWN: &str = "NodeReadyUnknown";
/// Of `NodeHealthy`: true.
pub const NODE_HEALTHY: &str = "NodeHealthy";
/// Of `NodeHealthy`: false.
pub const NODE_NOT_HEALTHY: &str = "NodeNotHealthy";
/// Of `NodeHealthy`: unknown.
pub const NODE_HEALTHY_UNKNOWN: &str = "NodeHealthyUnknown";
/// Of both conditions about a Node: there is none with the provider ID.
pub const NODE_DOES_NOT_EXIST: &str = "NodeDoesNotExist";
/// Of both conditions about a Node, and of `HealthCheckSucceeded`: it was there and is gone.
pub const NODE_DELETED: &str = "NodeDeleted";
/// Of `HealthCheckSucceeded`: true.
pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
/// Of `HealthCheckSucceeded`: a condition of the Node has the value that the health check names, for too long.
pub const UNHEALTHY_NODE: &str = "UnhealthyNode";
/// Of `HealthCheckSucceeded`: a condition of the Machine has the value that the health check names, for too long.
pub const UNHEALTHY_MACHINE: &str = "UnhealthyMachine";
/// Of `HealthCheckSucceeded`: no Node in time.
pub const NODE_STARTUP_TIMEOUT: &str = "NodeStartupTimeout";
/// Of `HealthCheckSucceeded`: the user asked for remediation.
pub const HAS_REMEDIATE_ANNOTATION: &str = "HasRemediateAnnotation";
/// Of `OwnerRemediated` and `ExternallyRemediated`: the other side has not answered.
pub const WAITING_FOR_REMEDIATION: &str = "WaitingForRemediation";
/// Of `ExternallyRemediated`: the template is missing.
pub const REMEDIATION_TEMPLATE_NOT_FOUND: &str = "RemediationTemplateNotFound";
/// Of `ExternallyRemediated`: the API server refuses the object.
pub const REMEDIATION_REQUEST_CREATION_FAILED: &str = "RemediationRequestCreationFailed";
/// Of `OwnerRemediated`: the owner cannot.
pub const CANNOT_BE_REMEDIATED: &str = "CannotBeRemediated";
/// Of `OwnerRemediated`: the owner waits, for a preflight check or for its turn.
pub const REMEDIATION_DEFERRED: &str = "RemediationDeferred";
/// Of `OwnerRemediated`: the owner deletes the Machine.
pub const MACHINE_DELETING: &str = "MachineDeleting";
/// Of `Deleting` of a Machine: a hook holds its drain.
pub const WAITING_FOR_PRE_DRAIN_HOOK: &str = "WaitingForPreDrainHook";
/// Of `Deleting` of a Machine: Pods leave its Node.
pub const DRAINING_NODE: &str = "DrainingNode";
/// Of `Deleting` of a Machine: volumes leave its Node.
pub const WAITING_FOR_VOLUME_DETACH: &str = "WaitingForVolumeDetach";
/// Of `Deleting` of a Machine: a hook holds the deletion of its infrastructure.
pub const WAITING_FOR_PRE_TERMINATE_HOOK: &str = "WaitingForPreTerminateHook";
/// Of `Deleting` of a Machine: the bootstrap object is still there.
pub const WAITING_FOR_BOOTSTRAP_DELETION: &str = "WaitingForBootstrapDeletion";
/// Of `Deleting` of a Machine: the Node object goes.
pub const DELETING_NODE: &str = "DeletingNode";

/// Of `Available` of a deployment: `status.availableReplicas` has no value yet.
pub const WAITING_FOR_AVAILABLE_REPLICAS_SET: &str = "WaitingForAvailableReplicasSet";
/// Of `RemediationAllowed`: false.
pub const TOO_MANY_UNHEALTHY: &str = "TooManyUnhealthy";
/// Of `RemediationAllowed`: true.
pub const REMEDIATION_ALLOWED: &str = "RemediationAllowed";
/// Of `ResourcesApplied`: true.
pub const APPLIED: &str = "Applied";
/// Of `ResourcesApplied`: a resource could not be applied to a cluster.
pub const NOT_APPLIED: &str = "NotApplied";
/// Of `ResourcesApplied`: a Secret has another type than [`super::secrets::RESOURCE_SET_TYPE`].
pub const WRONG_SECRET_TYPE: &str = "WrongSecretType";
