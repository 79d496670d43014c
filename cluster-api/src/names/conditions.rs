//! Types of conditions. clusterctl, dashboards and other controllers read them by these names.

/// The object does what it is for. On Clusters, Machines and `MachineDeployment`s.
pub const AVAILABLE: &str = "Available";
/// The object is ready. On Machines and `KubeadmConfig`s, and on what infrastructure and bootstrap providers bring.
pub const READY: &str = "Ready";
/// Nothing is done about the object. On every kind.
pub const PAUSED: &str = "Paused";
/// How far a deletion is.
pub const DELETING: &str = "Deleting";
/// Machines are being replaced.
pub const ROLLING_OUT: &str = "RollingOut";
/// There are fewer Machines than wanted.
pub const SCALING_UP: &str = "ScalingUp";
/// There are more Machines than wanted.
pub const SCALING_DOWN: &str = "ScalingDown";
/// Unhealthy Machines are being replaced by their owner.
pub const REMEDIATING: &str = "Remediating";
/// What the Machines of an owner say about [`READY`].
pub const MACHINES_READY: &str = "MachinesReady";
/// What the Machines of an owner say about [`UP_TO_DATE`].
pub const MACHINES_UP_TO_DATE: &str = "MachinesUpToDate";

/// On a Cluster and on a Machine: [`READY`] of the infrastructure object.
pub const INFRASTRUCTURE_READY: &str = "InfrastructureReady";
/// On a Cluster: its API server answers. It never turns back.
pub const CONTROL_PLANE_INITIALIZED: &str = "ControlPlaneInitialized";
/// On a Cluster: [`AVAILABLE`] of the control plane object.
pub const CONTROL_PLANE_AVAILABLE: &str = "ControlPlaneAvailable";
/// On a Cluster: [`READY`] of the Machines of the control plane.
pub const CONTROL_PLANE_MACHINES_READY: &str = "ControlPlaneMachinesReady";
/// On a Cluster: [`UP_TO_DATE`] of the Machines of the control plane.
pub const CONTROL_PLANE_MACHINES_UP_TO_DATE: &str = "ControlPlaneMachinesUpToDate";
/// On a Cluster: [`AVAILABLE`] of its deployments.
pub const WORKERS_AVAILABLE: &str = "WorkersAvailable";
/// On a Cluster: [`READY`] of the Machines of workers.
pub const WORKER_MACHINES_READY: &str = "WorkerMachinesReady";
/// On a Cluster: [`UP_TO_DATE`] of the Machines of workers.
pub const WORKER_MACHINES_UP_TO_DATE: &str = "WorkerMachinesUpToDate";
/// On a Cluster: the daemon reaches its API server.
pub const REMOTE_CONNECTION_PROBE: &str = "RemoteConnectionProbe";
/// On a Cluster with a managed topology, by the topology controller.
pub const TOPOLOGY_RECONCILED: &str = "TopologyReconciled";

/// On a Machine: [`READY`] of the bootstrap object.
pub const BOOTSTRAP_CONFIG_READY: &str = "BootstrapConfigReady";
/// On a Machine: its template is the one that its owner wants. The owner writes it.
pub const UP_TO_DATE: &str = "UpToDate";
/// On a Machine: it is being changed in place.
pub const UPDATING: &str = "Updating";
/// On a Machine: what the conditions of its Node say together.
pub const NODE_HEALTHY: &str = "NodeHealthy";
/// On a Machine: `Ready` of its Node.
pub const NODE_READY: &str = "NodeReady";
/// On a Machine: the answer of its health check. Owners remediate Machines by it.
pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
/// On a Machine: the health check asks the owner for its remediation, and the owner answers.
pub const OWNER_REMEDIATED: &str = "OwnerRemediated";
/// On a Machine: the health check made an object for a remediation by another controller.
pub const EXTERNALLY_REMEDIATED: &str = "ExternallyRemediated";

/// On a `MachineHealthCheck`: few enough Machines are unhealthy.
pub const REMEDIATION_ALLOWED: &str = "RemediationAllowed";
/// On a `ClusterResourceSet`: every cluster has every resource.
pub const RESOURCES_APPLIED: &str = "ResourcesApplied";
/// On a `KubeadmConfig`: the certificates that bootstrap data needs exist.
pub const CERTIFICATES_AVAILABLE: &str = "CertificatesAvailable";
/// On a `KubeadmConfig`: the Secret with bootstrap data exists.
pub const DATA_SECRET_AVAILABLE: &str = "DataSecretAvailable";
