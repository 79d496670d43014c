//! Reasons of conditions that controllers decide on themselves. Those of Machines, their sets and Clusters are words of crate
//! `lifecycle`, which decides these conditions.

/// The controller failed; its log says more.
pub const INTERNAL_ERROR: &str = "InternalError";

/// Of both conditions about a Node, and of `HealthCheckSucceeded`: it was there and is gone.
pub const NODE_DELETED: &str = "NodeDeleted";
/// Of `HealthCheckSucceeded`: true.
pub const HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
/// Of `OwnerRemediated` and `ExternallyRemediated`: the other side has not answered.
pub const WAITING_FOR_REMEDIATION: &str = "WaitingForRemediation";
/// Of `ExternallyRemediated`: the template is missing.
pub const REMEDIATION_TEMPLATE_NOT_FOUND: &str = "RemediationTemplateNotFound";
/// Of `ExternallyRemediated`: the API server refuses the object.
pub const REMEDIATION_REQUEST_CREATION_FAILED: &str = "RemediationRequestCreationFailed";
/// Of `OwnerRemediated`: the owner waits, for a preflight check or for its turn.
pub const REMEDIATION_DEFERRED: &str = "RemediationDeferred";

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
