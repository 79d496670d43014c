//! What can be done about a Service.

/// Something to do about one Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Make or change the load balancer.
    Ensure,
    /// Tell the load balancer of the back ends.
    UpdateNodes,
    /// Bring finalizer and status back. The cloud is not asked.
    Repair,
    /// Ask the cloud whether the load balancer is as it was.
    Verify,
    /// Clear the status, delete the load balancer, remove the finalizer.
    CleanUp,
    /// Delete the load balancer of a Service that is gone, or that another one of the same name has replaced.
    DeleteOld,
}
